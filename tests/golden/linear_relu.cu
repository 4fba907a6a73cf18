/*
reduce0_60x70:
split(a0, 4) -> a3, a4
bind(a4, thread)
split(a2, 64) -> a5, a6
bind(a5, unroll)
bind(a6, thread)
bind(a3, grid)
bind(a1, grid)

reduce0_60x70<<<1050, 256>>>
*/

/* p3[row, column] = max((sum_k p0[row, k] * p1[k, column]) + p2[column], 0) */
KERNEL(256) reduce0_60x70(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(const f32, 2), POINTER(f32, 3) PLACE) {
    ALIGNED(const f32, 0, 24000, 16800);
    ALIGNED(const f32, 1, 28000, 16800);
    ALIGNED(const f32, 2, 280, 16800);
    ALIGNED(f32, 3, 16800, 16800);
    EACH_BLOCK(u32, 256, 1050);
    const i64 column = worker % 70;
    const i64 row_outer = (worker / 70) % 15;
    const i64 row_inner = THREAD % 4;
    const i64 thread_in_row = THREAD / 4;
    {
        const f32 load_1 = p0[400 * row_outer + 100 * row_inner + thread_in_row];
        const f32 load_2 = p1[column + 70 * thread_in_row];
        const auto mul_3 = (load_1 * load_2);
        f32 sum_4 = 0.0f;
        sum_4 = (sum_4 + mul_3);
        const f32 load_5 = p0[400 * row_outer + 100 * row_inner + 64 * 1 + min(thread_in_row, (i64)35)];
        const f32 load_6 = p1[column + 4480 * 1 + 70 * min(thread_in_row, (i64)35)];
        const auto mul_7 = (load_5 * load_6);
        if (thread_in_row < 36) sum_4 = (sum_4 + mul_7);
        f32 sum_8 = sum_4;
        REDUCE(256, 4) {
        const auto other_9 = exchange(sum_8, s);
        sum_8 = (sum_8 + other_9);
        }
        const f32 load_10 = p2[column];
        const auto add_11 = (sum_8 + load_10);
        const auto max_12 = max_f32(add_11, 0.0f);
        if (THREAD < 4) { p3[column + 280 * row_outer + 70 * row_inner] = max_12; }
    }
}