/*
scan0_64x100:
split(a1, 4) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

scan0_64x100<<<64, 32>>>
*/

/* p1[row, column] = running_sum_column p0[row, column] */
KERNEL(32) scan0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 32, 64);
    const i32 row = worker % 64;
    const i32 thread_in_row = THREAD / 1;
    {
        const f32 load_1 = p0[100 * row + 4 * min(thread_in_row, (i32)24)];
        const f32 load_2 = p0[100 * row + 4 * min(thread_in_row, (i32)24) + 1];
        const f32 load_3 = p0[100 * row + 4 * min(thread_in_row, (i32)24) + 2];
        const f32 load_4 = p0[100 * row + 4 * min(thread_in_row, (i32)24) + 3];
        const f32 sum_5 = (load_1 + load_2);
        const f32 sum_6 = (load_3 + load_4);
        const f32 sum_7 = (sum_5 + sum_6);
        f32 sum_8 = sum_7;
        f32 sum_9 = 0.0f;
        SCAN(32, 1) {
        const f32 before_10 = earlier(sum_8, sum_9, s);
        if (!precedes(s)) continue;
        if (thread_in_row < 25) sum_8 = (before_10 + sum_8);
        }
        if (thread_in_row < 25) sum_8 = (sum_8 + load_1);
        const f32 scan_11 = sum_8;
        if (thread_in_row < 25) sum_8 = (sum_8 + load_2);
        const f32 scan_12 = sum_8;
        if (thread_in_row < 25) sum_8 = (sum_8 + load_3);
        const f32 scan_13 = sum_8;
        if (thread_in_row < 25) sum_8 = (sum_8 + load_4);
        const f32 scan_14 = sum_8;
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24)] = scan_11; }
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24) + 1] = scan_12; }
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24) + 2] = scan_13; }
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24) + 3] = scan_14; }
    }
}