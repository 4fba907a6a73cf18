/*
reduce0_100:
split(a0, 8) -> a2, a3
split(a3, 4) -> a4, a5
bind(a5, unroll)
bind(a4, thread)
bind(a1, thread)
bind(a2, grid)

reduce0_100<<<13, 128>>>
*/

/* p1[row] = sum_k p0[k, row] */
KERNEL(128) reduce0_100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 400);
    ALIGNED(f32, 1, 400, 400);
    EACH_BLOCK(u32, 128, 13);
    const i64 row_outer = worker % 13;
    const i64 row_middle = THREAD % 2;
    const i64 thread_in_row = THREAD / 2;
    if (row_outer < 12) {
        const f32 load_1 = p0[4 * (25 * thread_in_row + 2 * row_outer + row_middle) + 0];
        const f32 load_2 = p0[4 * (25 * thread_in_row + 2 * row_outer + row_middle) + 1];
        const f32 load_3 = p0[4 * (25 * thread_in_row + 2 * row_outer + row_middle) + 2];
        const f32 load_4 = p0[4 * (25 * thread_in_row + 2 * row_outer + row_middle) + 3];
        f32 sum_5 = 0.0f;
        sum_5 = (sum_5 + load_1);
        f32 sum_6 = 0.0f;
        sum_6 = (sum_6 + load_2);
        f32 sum_7 = 0.0f;
        sum_7 = (sum_7 + load_3);
        f32 sum_8 = 0.0f;
        sum_8 = (sum_8 + load_4);
        f32 sum_9 = sum_5;
        f32 sum_10 = sum_6;
        f32 sum_11 = sum_7;
        f32 sum_12 = sum_8;
        REDUCE(128, 2) {
        const auto other_13 = exchange(sum_9, s);
        sum_9 = (sum_9 + other_13);
        const auto other_14 = exchange(sum_10, s);
        sum_10 = (sum_10 + other_14);
        const auto other_15 = exchange(sum_11, s);
        sum_11 = (sum_11 + other_15);
        const auto other_16 = exchange(sum_12, s);
        sum_12 = (sum_12 + other_16);
        }
        if (THREAD < 2) { p1[4 * (2 * row_outer + row_middle) + 0] = sum_9; }
        if (THREAD < 2) { p1[4 * (2 * row_outer + row_middle) + 1] = sum_10; }
        if (THREAD < 2) { p1[4 * (2 * row_outer + row_middle) + 2] = sum_11; }
        if (THREAD < 2) { p1[4 * (2 * row_outer + row_middle) + 3] = sum_12; }
    }
    if (row_outer == 12) {
        const f32 load_17 = p0[4 * (25 * thread_in_row + 2 * row_outer + min(row_middle, (i64)0)) + 0];
        const f32 load_18 = p0[4 * (25 * thread_in_row + 2 * row_outer + min(row_middle, (i64)0)) + 1];
        const f32 load_19 = p0[4 * (25 * thread_in_row + 2 * row_outer + min(row_middle, (i64)0)) + 2];
        const f32 load_20 = p0[4 * (25 * thread_in_row + 2 * row_outer + min(row_middle, (i64)0)) + 3];
        f32 sum_21 = 0.0f;
        sum_21 = (sum_21 + load_17);
        f32 sum_22 = 0.0f;
        sum_22 = (sum_22 + load_18);
        f32 sum_23 = 0.0f;
        sum_23 = (sum_23 + load_19);
        f32 sum_24 = 0.0f;
        sum_24 = (sum_24 + load_20);
        f32 sum_25 = sum_21;
        f32 sum_26 = sum_22;
        f32 sum_27 = sum_23;
        f32 sum_28 = sum_24;
        REDUCE(128, 2) {
        const auto other_29 = exchange(sum_25, s);
        sum_25 = (sum_25 + other_29);
        const auto other_30 = exchange(sum_26, s);
        sum_26 = (sum_26 + other_30);
        const auto other_31 = exchange(sum_27, s);
        sum_27 = (sum_27 + other_31);
        const auto other_32 = exchange(sum_28, s);
        sum_28 = (sum_28 + other_32);
        }
        if (THREAD < 2) if (row_middle == min(row_middle, (i64)0)) { p1[4 * (2 * row_outer + min(row_middle, (i64)0)) + 0] = sum_25; }
        if (THREAD < 2) if (row_middle == min(row_middle, (i64)0)) { p1[4 * (2 * row_outer + min(row_middle, (i64)0)) + 1] = sum_26; }
        if (THREAD < 2) if (row_middle == min(row_middle, (i64)0)) { p1[4 * (2 * row_outer + min(row_middle, (i64)0)) + 2] = sum_27; }
        if (THREAD < 2) if (row_middle == min(row_middle, (i64)0)) { p1[4 * (2 * row_outer + min(row_middle, (i64)0)) + 3] = sum_28; }
    }
}