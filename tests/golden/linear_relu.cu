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
    const i64 column_outer = worker % 5;
    const i64 row = (worker / 5) % 60;
    const i64 column_middle = THREAD % 8;
    const i64 thread_in_row = THREAD / 8;
    if (column_outer < 4) {
        const f32 load_1 = p0[100 * row + thread_in_row];
        const f32 load_2 = p1[2 * (8 * column_outer + column_middle + 35 * thread_in_row) + 0];
        const f32 load_3 = p1[2 * (8 * column_outer + column_middle + 35 * thread_in_row) + 1];
        const auto mul_4 = (load_1 * load_2);
        f32 sum_5 = 0.0f;
        sum_5 = (sum_5 + mul_4);
        const auto mul_6 = (load_1 * load_3);
        f32 sum_7 = 0.0f;
        sum_7 = (sum_7 + mul_6);
        const f32 load_8 = p0[100 * row + 64 * 1 + min(thread_in_row, (i64)35)];
        const f32 load_9 = p1[2 * (8 * column_outer + column_middle + 2240 * 1 + 35 * min(thread_in_row, (i64)35)) + 0];
        const f32 load_10 = p1[2 * (8 * column_outer + column_middle + 2240 * 1 + 35 * min(thread_in_row, (i64)35)) + 1];
        const auto mul_11 = (load_8 * load_9);
        if (thread_in_row < 36) sum_5 = (sum_5 + mul_11);
        const auto mul_12 = (load_8 * load_10);
        if (thread_in_row < 36) sum_7 = (sum_7 + mul_12);
        f32 sum_13 = sum_5;
        f32 sum_14 = sum_7;
        REDUCE(512, 8) {
        const auto other_15 = exchange(sum_13, s);
        sum_13 = (sum_13 + other_15);
        const auto other_16 = exchange(sum_14, s);
        sum_14 = (sum_14 + other_16);
        }
        const f32 load_17 = p2[2 * (8 * column_outer + column_middle) + 0];
        const f32 load_18 = p2[2 * (8 * column_outer + column_middle) + 1];
        const auto add_19 = (sum_13 + load_17);
        const auto max_20 = max_f32(add_19, 0.0f);
        const auto add_21 = (sum_14 + load_18);
        const auto max_22 = max_f32(add_21, 0.0f);
        if (THREAD < 8) { p3[2 * (35 * row + 8 * column_outer + column_middle) + 0] = max_20; }
        if (THREAD < 8) { p3[2 * (35 * row + 8 * column_outer + column_middle) + 1] = max_22; }
    }
    if (column_outer == 4) {
        const f32 load_23 = p0[100 * row + thread_in_row];
        const f32 load_24 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 35 * thread_in_row) + 0];
        const f32 load_25 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 35 * thread_in_row) + 1];
        const auto mul_26 = (load_23 * load_24);
        f32 sum_27 = 0.0f;
        sum_27 = (sum_27 + mul_26);
        const auto mul_28 = (load_23 * load_25);
        f32 sum_29 = 0.0f;
        sum_29 = (sum_29 + mul_28);
        const f32 load_30 = p0[100 * row + 64 * 1 + min(thread_in_row, (i64)35)];
        const f32 load_31 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 2240 * 1 + 35 * min(thread_in_row, (i64)35)) + 0];
        const f32 load_32 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 2240 * 1 + 35 * min(thread_in_row, (i64)35)) + 1];
        const auto mul_33 = (load_30 * load_31);
        if (thread_in_row < 36) sum_27 = (sum_27 + mul_33);
        const auto mul_34 = (load_30 * load_32);
        if (thread_in_row < 36) sum_29 = (sum_29 + mul_34);
        f32 sum_35 = sum_27;
        f32 sum_36 = sum_29;
        REDUCE(512, 8) {
        const auto other_37 = exchange(sum_35, s);
        sum_35 = (sum_35 + other_37);
        const auto other_38 = exchange(sum_36, s);
        sum_36 = (sum_36 + other_38);
        }
        const f32 load_39 = p2[2 * (8 * column_outer + min(column_middle, (i64)2)) + 0];
        const f32 load_40 = p2[2 * (8 * column_outer + min(column_middle, (i64)2)) + 1];
        const auto add_41 = (sum_35 + load_39);
        const auto max_42 = max_f32(add_41, 0.0f);
        const auto add_43 = (sum_36 + load_40);
        const auto max_44 = max_f32(add_43, 0.0f);
        if (THREAD < 8) if (column_middle == min(column_middle, (i64)2)) { p3[2 * (35 * row + 8 * column_outer + min(column_middle, (i64)2)) + 0] = max_42; }
        if (THREAD < 8) if (column_middle == min(column_middle, (i64)2)) { p3[2 * (35 * row + 8 * column_outer + min(column_middle, (i64)2)) + 1] = max_44; }
    }
}