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
        f32 sum_12 = 0.0f;
        if (thread_in_row < 36) sum_12 = (sum_12 + mul_11);
        const auto mul_13 = (load_8 * load_10);
        f32 sum_14 = 0.0f;
        if (thread_in_row < 36) sum_14 = (sum_14 + mul_13);
        const auto sum_15 = (sum_5 + sum_12);
        const auto sum_16 = (sum_7 + sum_14);
        f32 sum_17 = sum_15;
        f32 sum_18 = sum_16;
        REDUCE(512, 8) {
        const auto other_19 = exchange(sum_17, s);
        sum_17 = (sum_17 + other_19);
        const auto other_20 = exchange(sum_18, s);
        sum_18 = (sum_18 + other_20);
        }
        const f32 load_21 = p2[2 * (8 * column_outer + column_middle) + 0];
        const f32 load_22 = p2[2 * (8 * column_outer + column_middle) + 1];
        const auto add_23 = (sum_17 + load_21);
        const auto max_24 = max_f32(add_23, 0.0f);
        const auto add_25 = (sum_18 + load_22);
        const auto max_26 = max_f32(add_25, 0.0f);
        if (THREAD < 8) { p3[2 * (35 * row + 8 * column_outer + column_middle) + 0] = max_24; }
        if (THREAD < 8) { p3[2 * (35 * row + 8 * column_outer + column_middle) + 1] = max_26; }
    }
    if (column_outer == 4) {
        const f32 load_27 = p0[100 * row + thread_in_row];
        const f32 load_28 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 35 * thread_in_row) + 0];
        const f32 load_29 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 35 * thread_in_row) + 1];
        const auto mul_30 = (load_27 * load_28);
        f32 sum_31 = 0.0f;
        sum_31 = (sum_31 + mul_30);
        const auto mul_32 = (load_27 * load_29);
        f32 sum_33 = 0.0f;
        sum_33 = (sum_33 + mul_32);
        const f32 load_34 = p0[100 * row + 64 * 1 + min(thread_in_row, (i64)35)];
        const f32 load_35 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 2240 * 1 + 35 * min(thread_in_row, (i64)35)) + 0];
        const f32 load_36 = p1[2 * (8 * column_outer + min(column_middle, (i64)2) + 2240 * 1 + 35 * min(thread_in_row, (i64)35)) + 1];
        const auto mul_37 = (load_34 * load_35);
        f32 sum_38 = 0.0f;
        if (thread_in_row < 36) sum_38 = (sum_38 + mul_37);
        const auto mul_39 = (load_34 * load_36);
        f32 sum_40 = 0.0f;
        if (thread_in_row < 36) sum_40 = (sum_40 + mul_39);
        const auto sum_41 = (sum_31 + sum_38);
        const auto sum_42 = (sum_33 + sum_40);
        f32 sum_43 = sum_41;
        f32 sum_44 = sum_42;
        REDUCE(512, 8) {
        const auto other_45 = exchange(sum_43, s);
        sum_43 = (sum_43 + other_45);
        const auto other_46 = exchange(sum_44, s);
        sum_44 = (sum_44 + other_46);
        }
        const f32 load_47 = p2[2 * (8 * column_outer + min(column_middle, (i64)2)) + 0];
        const f32 load_48 = p2[2 * (8 * column_outer + min(column_middle, (i64)2)) + 1];
        const auto add_49 = (sum_43 + load_47);
        const auto max_50 = max_f32(add_49, 0.0f);
        const auto add_51 = (sum_44 + load_48);
        const auto max_52 = max_f32(add_51, 0.0f);
        if (THREAD < 8) if (column_middle == min(column_middle, (i64)2)) { p3[2 * (35 * row + 8 * column_outer + min(column_middle, (i64)2)) + 0] = max_50; }
        if (THREAD < 8) if (column_middle == min(column_middle, (i64)2)) { p3[2 * (35 * row + 8 * column_outer + min(column_middle, (i64)2)) + 1] = max_52; }
    }
}