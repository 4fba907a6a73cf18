/*
reduce0_64x100:
split(a1, 4) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

reduce0_64x100<<<64, 32>>>
*/

/* v1 = p0[row, column] - (sum_column p0[row, column]) * 0.01
   p1[row, column] = v1 / sqrt((sum_column v1 * v1) * 0.01 + 0.001) */
KERNEL(32) reduce0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
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
        f32 sum_5 = 0.0f;
        if (thread_in_row < 25) sum_5 = (sum_5 + load_1);
        f32 sum_6 = 0.0f;
        if (thread_in_row < 25) sum_6 = (sum_6 + load_2);
        f32 sum_7 = 0.0f;
        if (thread_in_row < 25) sum_7 = (sum_7 + load_3);
        f32 sum_8 = 0.0f;
        if (thread_in_row < 25) sum_8 = (sum_8 + load_4);
        const f32 sum_9 = (sum_5 + sum_6);
        const f32 sum_10 = (sum_7 + sum_8);
        const f32 sum_11 = (sum_9 + sum_10);
        f32 sum_12 = sum_11;
        REDUCE(32, 1) {
        const f32 other_13 = exchange(sum_12, s);
        sum_12 = (sum_12 + other_13);
        }
        const f32 mul_14 = (sum_12 * 0.009999999776482582f);
        const f32 neg_15 = (- mul_14);
        const f32 add_16 = (load_1 + neg_15);
        const f32 mul_17 = (add_16 * add_16);
        f32 sum_18 = 0.0f;
        if (thread_in_row < 25) sum_18 = (sum_18 + mul_17);
        const f32 add_19 = (load_2 + neg_15);
        const f32 mul_20 = (add_19 * add_19);
        f32 sum_21 = 0.0f;
        if (thread_in_row < 25) sum_21 = (sum_21 + mul_20);
        const f32 add_22 = (load_3 + neg_15);
        const f32 mul_23 = (add_22 * add_22);
        f32 sum_24 = 0.0f;
        if (thread_in_row < 25) sum_24 = (sum_24 + mul_23);
        const f32 add_25 = (load_4 + neg_15);
        const f32 mul_26 = (add_25 * add_25);
        f32 sum_27 = 0.0f;
        if (thread_in_row < 25) sum_27 = (sum_27 + mul_26);
        const f32 sum_28 = (sum_18 + sum_21);
        const f32 sum_29 = (sum_24 + sum_27);
        const f32 sum_30 = (sum_28 + sum_29);
        f32 sum_31 = sum_30;
        REDUCE(32, 1) {
        const f32 other_32 = exchange(sum_31, s);
        sum_31 = (sum_31 + other_32);
        }
        const f32 mul_33 = (sum_31 * 0.009999999776482582f);
        const f32 add_34 = (mul_33 + 0.0010000000474974513f);
        const f32 sqrt_35 = sqrt_f32(add_34);
        const f32 div_36 = (add_16 / sqrt_35);
        const f32 div_37 = (add_19 / sqrt_35);
        const f32 div_38 = (add_22 / sqrt_35);
        const f32 div_39 = (add_25 / sqrt_35);
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24)] = div_36; }
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24) + 1] = div_37; }
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24) + 2] = div_38; }
        if (thread_in_row < 25) { p1[100 * row + 4 * min(thread_in_row, (i32)24) + 3] = div_39; }
    }
}