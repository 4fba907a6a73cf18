/*
map0_20x16:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

scatter1_16x50:
atomic(a1)
reorder(a1, a0)
bind(a0, grid)
bind(a1, grid)

map2_20x16:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

scatter3_16x50:
atomic(a1)
reorder(a1, a0)
bind(a0, grid)
bind(a1, grid)

map4_20x16:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

map0_20x16<<<2, 256>>>

scatter1_16x50<<<4, 256>>>

map2_20x16<<<2, 256>>>

scatter3_16x50<<<4, 256>>>

map4_20x16<<<2, 256>>>
*/

/* p0[row, column] = 0 */
KERNEL(256) map0_20x16(POINTER(i32, 0) PLACE) {
    EACH_THREAD(u32, 256, 320);
    const i64 i = worker % 320;
    {
        p0[i] = (i32)0;
    }
}
/* v1 = max(bitcast((p1[column, row] if -1 < p0[column, row] and p0[column, row] < 20 else 0)) >> 23 & 255, 1)
   p2[row + 16 * p0[column, row]] = max(p2[row + 16 * p0[column, row]], v1) if -1 < p0[column, row] and p0[column, row] < 20 */
KERNEL(256) scatter1_16x50(POINTER(const i64, 0), POINTER(const f32, 1), POINTER(i32, 2) PLACE) {
    EACH_THREAD(u32, 256, 800);
    const i64 row = worker % 16;
    const i64 column = (worker / 16) % 50;
    {
        const i64 load_1 = p0[row + 16 * column];
        const _Bool lt_2 = ((i64)-1 < load_1);
        const _Bool lt_3 = (load_1 < (i64)20);
        const _Bool and_4 = (lt_2 & lt_3);
        const auto load_5 = (and_4 ? p1[row + 16 * column] : 0);
        const i32 bitcast_6 = BITS(f32, i32, load_5);
        const i32 shr_7 = shr_i32(bitcast_6, (i32)23);
        const i32 and_8 = (shr_7 & (i32)255);
        const i32 max_9 = max_i32(and_8, (i32)1);
        if (and_4) { atomic_max(&p2[row + 16 * load_1], max_9); }
    }
}
/* p0[row, column] = 0 */
KERNEL(256) map2_20x16(POINTER(i64, 0) PLACE) {
    EACH_THREAD(u32, 256, 320);
    const i64 i = worker % 320;
    {
        p0[i] = (i64)0;
    }
}
/* v1 = -1 < p0[column, row] and p0[column, row] < 20
   v2 = (p1[row + 16 * (p0[column, row] if v1 else 0)] if v1 and -1 < (p0[column, row] if v1 else 0) and (p0[column, row] if v1 else 0) < 20 else 0) < 255
   v3 = -(p1[row + 16 * (p0[column, row] if v1 else 0)] if v1 and -1 < (p0[column, row] if v1 else 0) and (p0[column, row] if v1 else 0) < 20 else 0)
   v4 = bitcast(f64((p2[column, row] if v1 else 0)) * bitcast(i64(v3 + 177 + 1023) << 52) + 6.7554e+15) - 4843621399236968448
   v5 = i64(not (p2[column, row] if v1 else 0) < inf) + i64(not -inf < (p2[column, row] if v1 else 0)) * 2147483648
   p3[row + 16 * p0[column, row]] += (v4 if v2 else v5) if v1 */
KERNEL(256) scatter3_16x50(POINTER(const i64, 0), POINTER(const i32, 1), POINTER(const f32, 2), POINTER(i64, 3) PLACE) {
    EACH_THREAD(u32, 256, 800);
    const i64 row = worker % 16;
    const i64 column = (worker / 16) % 50;
    {
        const i64 load_1 = p0[row + 16 * column];
        const _Bool lt_2 = ((i64)-1 < load_1);
        const _Bool lt_3 = (load_1 < (i64)20);
        const _Bool and_4 = (lt_2 & lt_3);
        const i64 load_5 = (and_4 ? p0[row + 16 * column] : 0);
        const _Bool lt_6 = ((i64)-1 < load_5);
        const _Bool and_7 = (and_4 & lt_6);
        const _Bool lt_8 = (load_5 < (i64)20);
        const _Bool and_9 = (and_7 & lt_8);
        const i32 load_10 = (and_9 ? p1[row + 16 * load_5] : 0);
        const _Bool lt_11 = (load_10 < (i32)255);
        const auto load_12 = (and_4 ? p2[row + 16 * column] : 0);
        const f64 cast_13 = (f64)load_12;
        const i32 neg_14 = (- load_10);
        const i32 add_15 = (neg_14 + (i32)177);
        const i32 add_16 = (add_15 + (i32)1023);
        const i64 cast_17 = (i64)add_16;
        const i64 shl_18 = shl_i64(cast_17, (i64)52);
        const auto bitcast_19 = BITS(i64, f64, shl_18);
        const auto mul_20 = (cast_13 * bitcast_19);
        const auto add_21 = (mul_20 + 6755399441055744.0);
        const i64 bitcast_22 = BITS(f64, i64, add_21);
        const i64 add_23 = (bitcast_22 + (i64)-4843621399236968448);
        const _Bool lt_24 = (load_12 < inf_f32);
        const _Bool not_25 = (!lt_24);
        const i64 cast_26 = (i64)not_25;
        const _Bool lt_27 = (-inf_f32 < load_12);
        const _Bool not_28 = (!lt_27);
        const i64 cast_29 = (i64)not_28;
        const i64 mul_30 = (cast_29 * (i64)2147483648);
        const i64 add_31 = (cast_26 + mul_30);
        const i64 where_32 = (lt_11 ? add_23 : add_31);
        if (and_4) { atomic_sum(&p3[row + 16 * load_1], where_32); }
    }
}
/* v1 = 0 < p1[row, column] & 2147483647
   v2 = (f64(p1[row, column]) * bitcast(i64(p0[row, column] - 177 + 1023) << 52) if p0[row, column] < 255 else (nan if v1 and 0 < p1[row, column] >> 31 else (inf if v1 else -inf)))
   p2[row, column] = (0 if p0[row, column] == 0 else f32(v2 + 0)) */
KERNEL(256) map4_20x16(POINTER(const i32, 0), POINTER(const i64, 1), POINTER(f32, 2) PLACE) {
    EACH_THREAD(u32, 256, 320);
    const i64 i = worker % 320;
    {
        const i32 load_1 = p0[i];
        const _Bool eq_2 = (load_1 == (i32)0);
        const _Bool lt_3 = (load_1 < (i32)255);
        const i64 load_4 = p1[i];
        const f64 cast_5 = (f64)load_4;
        const i32 add_6 = (load_1 + (i32)-177);
        const i32 add_7 = (add_6 + (i32)1023);
        const i64 cast_8 = (i64)add_7;
        const i64 shl_9 = shl_i64(cast_8, (i64)52);
        const auto bitcast_10 = BITS(i64, f64, shl_9);
        const auto mul_11 = (cast_5 * bitcast_10);
        const i64 and_12 = (load_4 & (i64)2147483647);
        const _Bool lt_13 = ((i64)0 < and_12);
        const i64 shr_14 = shr_i64(load_4, (i64)31);
        const _Bool lt_15 = ((i64)0 < shr_14);
        const _Bool and_16 = (lt_13 & lt_15);
        const auto where_17 = (lt_13 ? inf_f64 : -inf_f64);
        const auto where_18 = (and_16 ? nan_f64 : where_17);
        const auto where_19 = (lt_3 ? mul_11 : where_18);
        const auto add_20 = (where_19 + 0.0);
        const f32 cast_21 = (f32)add_20;
        const auto where_22 = (eq_2 ? 0.0f : cast_21);
        p2[i] = where_22;
    }
}