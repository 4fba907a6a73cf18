/*
reduce0_20x16:
split(a1, 4) -> a3, a4
split(a4, 2) -> a5, a6
bind(a6, unroll)
bind(a5, thread)
bind(a2, thread)
bind(a0, grid)
bind(a3, grid)

reduce0_20x16<<<80, 128>>>
*/

/* v1 = sum_k (p1[k, column] if p0[k, column] == row else 0)
   p2[row, column] = (0 if v1 == 0 else v1 + 0) */
KERNEL(128) reduce0_20x16(POINTER(const i64, 0), POINTER(const f32, 1), POINTER(f32, 2) PLACE) {
    ALIGNED(const i64, 0, 6400, 1280);
    ALIGNED(const f32, 1, 3200, 1280);
    ALIGNED(f32, 2, 1280, 1280);
    EACH_BLOCK(u32, 128, 80);
    const i64 column_outer = worker % 4;
    const i64 row = (worker / 4) % 20;
    const i64 column_middle = THREAD % 2;
    const i64 thread_in_row = THREAD / 2;
    {
        const i64 load_1 = p0[2 * (8 * min(thread_in_row, (i64)49) + 2 * column_outer + column_middle) + 0];
        const i64 load_2 = p0[2 * (8 * min(thread_in_row, (i64)49) + 2 * column_outer + column_middle) + 1];
        const _Bool eq_3 = (load_1 == (i64)(row));
        const f32 load_4 = p1[2 * (8 * min(thread_in_row, (i64)49) + 2 * column_outer + column_middle) + 0];
        const f32 load_5 = p1[2 * (8 * min(thread_in_row, (i64)49) + 2 * column_outer + column_middle) + 1];
        const auto where_6 = (eq_3 ? load_4 : 0.0f);
        f32 sum_7 = 0.0f;
        if (thread_in_row < 50) sum_7 = (sum_7 + where_6);
        const _Bool eq_8 = (load_2 == (i64)(row));
        const auto where_9 = (eq_8 ? load_5 : 0.0f);
        f32 sum_10 = 0.0f;
        if (thread_in_row < 50) sum_10 = (sum_10 + where_9);
        f32 sum_11 = sum_7;
        f32 sum_12 = sum_10;
        REDUCE(128, 2) {
        const auto other_13 = exchange(sum_11, s);
        sum_11 = (sum_11 + other_13);
        const auto other_14 = exchange(sum_12, s);
        sum_12 = (sum_12 + other_14);
        }
        const _Bool eq_15 = (sum_11 == 0.0f);
        const auto add_16 = (sum_11 + 0.0f);
        const auto where_17 = (eq_15 ? 0.0f : add_16);
        const _Bool eq_18 = (sum_12 == 0.0f);
        const auto add_19 = (sum_12 + 0.0f);
        const auto where_20 = (eq_18 ? 0.0f : add_19);
        if (THREAD < 2) { p2[2 * (8 * row + 2 * column_outer + column_middle) + 0] = where_17; }
        if (THREAD < 2) { p2[2 * (8 * row + 2 * column_outer + column_middle) + 1] = where_20; }
    }
}