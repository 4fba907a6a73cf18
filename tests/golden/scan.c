/*
scan0_64x100:
split(a1, 16) -> a2, a3
bind(a3, vector)
*/

/* p1[row, column] = running_sum_column p0[row, column] */
KERNEL(scan0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 row = 0; row < 64; row++) {
            f32 sum_10 = 0.0f;
            for (i64 column_outer = 0; column_outer < 6; column_outer++) {
                const f32x16 load_1 = *(f32x16r *)(p0 + 100 * row + 16 * column_outer);
                const f32x16 before_2 = (f32x16){0.0f, load_1[0], load_1[1], load_1[2], load_1[3], load_1[4], load_1[5], load_1[6], load_1[7], load_1[8], load_1[9], load_1[10], load_1[11], load_1[12], load_1[13], load_1[14]};
                const f32x16 sum_3 = (before_2 + load_1);
                const f32x16 before_4 = (f32x16){0.0f, 0.0f, sum_3[0], sum_3[1], sum_3[2], sum_3[3], sum_3[4], sum_3[5], sum_3[6], sum_3[7], sum_3[8], sum_3[9], sum_3[10], sum_3[11], sum_3[12], sum_3[13]};
                const f32x16 sum_5 = (before_4 + sum_3);
                const f32x16 before_6 = (f32x16){0.0f, 0.0f, 0.0f, 0.0f, sum_5[0], sum_5[1], sum_5[2], sum_5[3], sum_5[4], sum_5[5], sum_5[6], sum_5[7], sum_5[8], sum_5[9], sum_5[10], sum_5[11]};
                const f32x16 sum_7 = (before_6 + sum_5);
                const f32x16 before_8 = (f32x16){0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, sum_7[0], sum_7[1], sum_7[2], sum_7[3], sum_7[4], sum_7[5], sum_7[6], sum_7[7]};
                const f32x16 sum_9 = (before_8 + sum_7);
                const f32x16 scan_11 = (sum_10 + sum_9);
                sum_10 = (sum_10 + sum_9[15]);
                *(f32x16u *)(p1 + 100 * row + 16 * column_outer) = scan_11;
            }
            const f32x4 load_12 = *(f32x4r *)(p0 + 100 * row + 16 * 6);
            const f32x4 before_13 = (f32x4){0.0f, load_12[0], load_12[1], load_12[2]};
            const f32x4 sum_14 = (before_13 + load_12);
            const f32x4 before_15 = (f32x4){0.0f, 0.0f, sum_14[0], sum_14[1]};
            const f32x4 sum_16 = (before_15 + sum_14);
            const f32x4 scan_17 = (sum_10 + sum_16);
            sum_10 = (sum_10 + sum_16[3]);
            *(f32x4u *)(p1 + 100 * row + 16 * 6) = scan_17;
        }
    }
}
RUN {
    LAUNCH(0, scan0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
