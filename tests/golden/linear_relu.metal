/*
reduce0_60x70:
split(a1, 16) -> a3, a4
split(a4, 2) -> a5, a6
bind(a6, unroll)
bind(a5, thread)
split(a2, 64) -> a7, a8
bind(a7, unroll)
bind(a8, thread)
bind(a0, grid)
bind(a3, grid)

reduce0_60x70<<<300, 512>>>
*/

/* p3[row, column] = max((sum_k p0[row, k] * p1[k, column]) + p2[column], 0) */
KERNEL(512) reduce0_60x70(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(const f32, 2), POINTER(f32, 3) PLACE) {
    ALIGNED(const f32, 0, 24000, 16800);
    ALIGNED(const f32, 1, 28000, 16800);
    ALIGNED(const f32, 2, 280, 16800);
    ALIGNED(f32, 3, 16800, 16800);
    EACH_BLOCK(u32, 512, 300);
    const i32 column_outer = worker % 5;
    const i32 row = (worker / 5) % 60;
    const i32 column_middle = THREAD % 8;
    const i32 thread_in_row = THREAD / 8;
    if (column_outer < 4) {
        const f32 load_1 = p0[100 * row + thread_in_row];
        const f32 load_2 = p1[16 * column_outer + 2 * column_middle + 70 * thread_in_row];
        const f32 load_3 = p1[16 * column_outer + 2 * column_middle + 70 * thread_in_row + 1];
        const f32 mul_4 = (load_1 * load_2);
        f32 sum_5 = 0.0f;
        sum_5 = (sum_5 + mul_4);
        const f32 mul_6 = (load_1 * load_3);
        f32 sum_7 = 0.0f;
        sum_7 = (sum_7 + mul_6);
        f32 sum_8 = 0.0f;
        if (thread_in_row < 36) sum_8 = (sum_8 + mul_4);
        f32 sum_9 = 0.0f;
        if (thread_in_row < 36) sum_9 = (sum_9 + mul_6);
        const f32 sum_10 = (sum_5 + sum_8);
        const f32 sum_11 = (sum_7 + sum_9);
        f32 sum_12 = sum_10;
        f32 sum_13 = sum_11;
        REDUCE(512, 8) {
        const f32 other_14 = exchange(sum_12, s);
        sum_12 = (sum_12 + other_14);
        const f32 other_15 = exchange(sum_13, s);
        sum_13 = (sum_13 + other_15);
        }
        const f32 load_16 = p2[16 * column_outer + 2 * column_middle];
        const f32 load_17 = p2[16 * column_outer + 2 * column_middle + 1];
        const f32 add_18 = (sum_12 + load_16);
        const f32 max_19 = max_f32(add_18, 0.0f);
        const f32 add_20 = (sum_13 + load_17);
        const f32 max_21 = max_f32(add_20, 0.0f);
        if (THREAD < 8) { p3[70 * row + 16 * column_outer + 2 * column_middle] = max_19; }
        if (THREAD < 8) { p3[70 * row + 16 * column_outer + 2 * column_middle + 1] = max_21; }
    }
    if (column_outer == 4) {
        const f32 load_22 = p0[100 * row + thread_in_row];
        const f32 load_23 = p1[16 * column_outer + 2 * min(column_middle, (i32)2) + 70 * thread_in_row];
        const f32 load_24 = p1[16 * column_outer + 2 * min(column_middle, (i32)2) + 70 * thread_in_row + 1];
        const f32 mul_25 = (load_22 * load_23);
        f32 sum_26 = 0.0f;
        sum_26 = (sum_26 + mul_25);
        const f32 mul_27 = (load_22 * load_24);
        f32 sum_28 = 0.0f;
        sum_28 = (sum_28 + mul_27);
        f32 sum_29 = 0.0f;
        if (thread_in_row < 36) sum_29 = (sum_29 + mul_25);
        f32 sum_30 = 0.0f;
        if (thread_in_row < 36) sum_30 = (sum_30 + mul_27);
        const f32 sum_31 = (sum_26 + sum_29);
        const f32 sum_32 = (sum_28 + sum_30);
        f32 sum_33 = sum_31;
        f32 sum_34 = sum_32;
        REDUCE(512, 8) {
        const f32 other_35 = exchange(sum_33, s);
        sum_33 = (sum_33 + other_35);
        const f32 other_36 = exchange(sum_34, s);
        sum_34 = (sum_34 + other_36);
        }
        const f32 load_37 = p2[16 * column_outer + 2 * min(column_middle, (i32)2)];
        const f32 load_38 = p2[16 * column_outer + 2 * min(column_middle, (i32)2) + 1];
        const f32 add_39 = (sum_33 + load_37);
        const f32 max_40 = max_f32(add_39, 0.0f);
        const f32 add_41 = (sum_34 + load_38);
        const f32 max_42 = max_f32(add_41, 0.0f);
        if (THREAD < 8) if (column_middle == min(column_middle, (i32)2)) { p3[70 * row + 16 * column_outer + 2 * min(column_middle, (i32)2)] = max_40; }
        if (THREAD < 8) if (column_middle == min(column_middle, (i32)2)) { p3[70 * row + 16 * column_outer + 2 * min(column_middle, (i32)2) + 1] = max_42; }
    }
}