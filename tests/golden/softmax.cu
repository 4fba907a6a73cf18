/*
reduce0_64x100:
split(a1, 4) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

reduce0_64x100<<<64, 32>>>
*/

/* v1 = exp(p0[row, column] - (max_column p0[row, column]))
   p1[row, column] = v1 / (sum_column v1) */
KERNEL(32) reduce0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 32, 64);
    const i64 row = worker % 64;
    const i64 thread_in_row = THREAD / 1;
    {
        const f32 load_1 = p0[4 * (25 * row + min(thread_in_row, (i64)24)) + 0];
        const f32 load_2 = p0[4 * (25 * row + min(thread_in_row, (i64)24)) + 1];
        const f32 load_3 = p0[4 * (25 * row + min(thread_in_row, (i64)24)) + 2];
        const f32 load_4 = p0[4 * (25 * row + min(thread_in_row, (i64)24)) + 3];
        f32 max_5 = -inf_f32;
        if (thread_in_row < 25) max_5 = max_f32(max_5, load_1);
        f32 max_6 = -inf_f32;
        if (thread_in_row < 25) max_6 = max_f32(max_6, load_2);
        f32 max_7 = -inf_f32;
        if (thread_in_row < 25) max_7 = max_f32(max_7, load_3);
        f32 max_8 = -inf_f32;
        if (thread_in_row < 25) max_8 = max_f32(max_8, load_4);
        const auto max_9 = max_f32(max_5, max_6);
        const auto max_10 = max_f32(max_7, max_8);
        const auto max_11 = max_f32(max_9, max_10);
        f32 max_12 = max_11;
        REDUCE(32, 1) {
        const auto other_13 = exchange(max_12, s);
        max_12 = max_f32(max_12, other_13);
        }
        const auto neg_14 = (- max_12);
        const auto add_15 = (load_1 + neg_14);
        const auto exp_16 = exp_f32(add_15);
        f32 sum_17 = 0.0f;
        if (thread_in_row < 25) sum_17 = (sum_17 + exp_16);
        const auto add_18 = (load_2 + neg_14);
        const auto exp_19 = exp_f32(add_18);
        f32 sum_20 = 0.0f;
        if (thread_in_row < 25) sum_20 = (sum_20 + exp_19);
        const auto add_21 = (load_3 + neg_14);
        const auto exp_22 = exp_f32(add_21);
        f32 sum_23 = 0.0f;
        if (thread_in_row < 25) sum_23 = (sum_23 + exp_22);
        const auto add_24 = (load_4 + neg_14);
        const auto exp_25 = exp_f32(add_24);
        f32 sum_26 = 0.0f;
        if (thread_in_row < 25) sum_26 = (sum_26 + exp_25);
        const auto sum_27 = (sum_17 + sum_20);
        const auto sum_28 = (sum_23 + sum_26);
        const auto sum_29 = (sum_27 + sum_28);
        f32 sum_30 = sum_29;
        REDUCE(32, 1) {
        const auto other_31 = exchange(sum_30, s);
        sum_30 = (sum_30 + other_31);
        }
        const auto div_32 = (exp_16 / sum_30);
        const auto div_33 = (exp_19 / sum_30);
        const auto div_34 = (exp_22 / sum_30);
        const auto div_35 = (exp_25 / sum_30);
        if (thread_in_row < 25) { p1[4 * (25 * row + min(thread_in_row, (i64)24)) + 0] = div_32; }
        if (thread_in_row < 25) { p1[4 * (25 * row + min(thread_in_row, (i64)24)) + 1] = div_33; }
        if (thread_in_row < 25) { p1[4 * (25 * row + min(thread_in_row, (i64)24)) + 2] = div_34; }
        if (thread_in_row < 25) { p1[4 * (25 * row + min(thread_in_row, (i64)24)) + 3] = div_35; }
    }
}