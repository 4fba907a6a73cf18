/*
reduce0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

reduce0_64x100<<<64, 64>>>
*/

/* v1 = p0[row, column] - (sum_column p0[row, column]) * 0.01
   p1[row, column] = v1 / sqrt((sum_column v1 * v1) * 0.01 + 0.001) */
KERNEL(64) reduce0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 64, 64);
    const i32 row = worker % 64;
    const i32 thread_in_row = THREAD / 1;
    {
        const f32 load_1 = p0[100 * row + 2 * min(thread_in_row, (i32)49)];
        const f32 load_2 = p0[100 * row + 2 * min(thread_in_row, (i32)49) + 1];
        f32 sum_3 = 0.0f;
        if (thread_in_row < 50) sum_3 = (sum_3 + load_1);
        f32 sum_4 = 0.0f;
        if (thread_in_row < 50) sum_4 = (sum_4 + load_2);
        const f32 sum_5 = (sum_3 + sum_4);
        f32 sum_6 = sum_5;
        REDUCE(64, 1) {
        const f32 other_7 = exchange(sum_6, s);
        sum_6 = (sum_6 + other_7);
        }
        const f32 mul_8 = (sum_6 * 0.009999999776482582f);
        const f32 neg_9 = (- mul_8);
        const f32 add_10 = (load_1 + neg_9);
        const f32 mul_11 = (add_10 * add_10);
        f32 sum_12 = 0.0f;
        if (thread_in_row < 50) sum_12 = (sum_12 + mul_11);
        const f32 add_13 = (load_2 + neg_9);
        const f32 mul_14 = (add_13 * add_13);
        f32 sum_15 = 0.0f;
        if (thread_in_row < 50) sum_15 = (sum_15 + mul_14);
        const f32 sum_16 = (sum_12 + sum_15);
        f32 sum_17 = sum_16;
        REDUCE(64, 1) {
        const f32 other_18 = exchange(sum_17, s);
        sum_17 = (sum_17 + other_18);
        }
        const f32 mul_19 = (sum_17 * 0.009999999776482582f);
        const f32 add_20 = (mul_19 + 0.0010000000474974513f);
        const f32 sqrt_21 = sqrt_f32(add_20);
        const f32 div_22 = (add_10 / sqrt_21);
        const f32 div_23 = (add_13 / sqrt_21);
        if (thread_in_row < 50) { p1[100 * row + 2 * min(thread_in_row, (i32)49)] = div_22; }
        if (thread_in_row < 50) { p1[100 * row + 2 * min(thread_in_row, (i32)49) + 1] = div_23; }
    }
}