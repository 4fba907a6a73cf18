/*
reduce0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

reduce0_64x100<<<64, 64>>>
*/

/* v1 = exp(p0[row, column] - (max_column p0[row, column]))
   p1[row, column] = v1 / (sum_column v1) */
KERNEL(64) reduce0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 64, 64);
    const i32 row = worker % 64;
    const i32 thread_in_row = THREAD / 1;
    {
        const f32 load_1 = p0[100 * row + 2 * min(thread_in_row, (i32)49)];
        const f32 load_2 = p0[100 * row + 2 * min(thread_in_row, (i32)49) + 1];
        f32 max_3 = -inf_f32;
        if (thread_in_row < 50) max_3 = max_f32(max_3, load_1);
        f32 max_4 = -inf_f32;
        if (thread_in_row < 50) max_4 = max_f32(max_4, load_2);
        const f32 max_5 = max_f32(max_3, max_4);
        f32 max_6 = max_5;
        REDUCE(64, 1) {
        const f32 other_7 = exchange(max_6, s);
        max_6 = max_f32(max_6, other_7);
        }
        const f32 neg_8 = (- max_6);
        const f32 add_9 = (load_1 + neg_8);
        const f32 exp_10 = exp_f32(add_9);
        f32 sum_11 = 0.0f;
        if (thread_in_row < 50) sum_11 = (sum_11 + exp_10);
        const f32 add_12 = (load_2 + neg_8);
        const f32 exp_13 = exp_f32(add_12);
        f32 sum_14 = 0.0f;
        if (thread_in_row < 50) sum_14 = (sum_14 + exp_13);
        const f32 sum_15 = (sum_11 + sum_14);
        f32 sum_16 = sum_15;
        REDUCE(64, 1) {
        const f32 other_17 = exchange(sum_16, s);
        sum_16 = (sum_16 + other_17);
        }
        const f32 div_18 = (exp_10 / sum_16);
        const f32 div_19 = (exp_13 / sum_16);
        if (thread_in_row < 50) { p1[100 * row + 2 * min(thread_in_row, (i32)49)] = div_18; }
        if (thread_in_row < 50) { p1[100 * row + 2 * min(thread_in_row, (i32)49) + 1] = div_19; }
    }
}