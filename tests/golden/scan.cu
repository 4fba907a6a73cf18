/*
scan0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

scan0_64x100<<<64, 64>>>
*/

/* p1[row, column] = running_sum_column p0[row, column] */
KERNEL(64) scan0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 64, 64);
    const i64 row = worker % 64;
    const i64 thread_in_row = THREAD / 1;
    {
        const f32 load_1 = p0[2 * (50 * row + min(thread_in_row, (i64)49)) + 0];
        const f32 load_2 = p0[2 * (50 * row + min(thread_in_row, (i64)49)) + 1];
        const auto sum_3 = (load_1 + load_2);
        f32 sum_4 = sum_3;
        f32 sum_5 = 0.0f;
        SCAN(64, 1) {
        const auto before_6 = earlier(sum_4, sum_5, s);
        if (!precedes(s)) continue;
        if (thread_in_row < 50) sum_4 = (before_6 + sum_4);
        }
        if (thread_in_row < 50) sum_4 = (sum_4 + load_1);
        const f32 scan_7 = sum_4;
        if (thread_in_row < 50) sum_4 = (sum_4 + load_2);
        const f32 scan_8 = sum_4;
        if (thread_in_row < 50) { p1[2 * (50 * row + min(thread_in_row, (i64)49)) + 0] = scan_7; }
        if (thread_in_row < 50) { p1[2 * (50 * row + min(thread_in_row, (i64)49)) + 1] = scan_8; }
    }
}