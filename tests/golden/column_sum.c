/*
reduce0_100:
split(a0, 96) -> a2, a3
split(a3, 16) -> a4, a5
bind(a5, vector)
bind(a4, unroll)
*/

/* p1[row] = sum_k p0[k, row] */
KERNEL(reduce0_100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 row_outer = 0; row_outer < 1; row_outer++) {
            f32x16 sum_2 = splat_f32x16(0.0f);
            f32x16 sum_4 = splat_f32x16(0.0f);
            f32x16 sum_6 = splat_f32x16(0.0f);
            f32x16 sum_8 = splat_f32x16(0.0f);
            f32x16 sum_10 = splat_f32x16(0.0f);
            f32x16 sum_12 = splat_f32x16(0.0f);
            for (i64 k = 0; k < 64; k++) {
                const f32x16 load_1 = *(f32x16r *)(p0 + 100 * k + 96 * row_outer);
                sum_2 = (sum_2 + load_1);
                const f32x16 load_3 = *(f32x16r *)(p0 + 100 * k + 96 * row_outer + 16);
                sum_4 = (sum_4 + load_3);
                const f32x16 load_5 = *(f32x16r *)(p0 + 100 * k + 96 * row_outer + 32);
                sum_6 = (sum_6 + load_5);
                const f32x16 load_7 = *(f32x16r *)(p0 + 100 * k + 96 * row_outer + 48);
                sum_8 = (sum_8 + load_7);
                const f32x16 load_9 = *(f32x16r *)(p0 + 100 * k + 96 * row_outer + 64);
                sum_10 = (sum_10 + load_9);
                const f32x16 load_11 = *(f32x16r *)(p0 + 100 * k + 96 * row_outer + 80);
                sum_12 = (sum_12 + load_11);
            }
            f32x16 sum_13 = sum_2;
            f32x16 sum_14 = sum_4;
            f32x16 sum_15 = sum_6;
            f32x16 sum_16 = sum_8;
            f32x16 sum_17 = sum_10;
            f32x16 sum_18 = sum_12;
            *(f32x16u *)(p1 + 96 * row_outer) = sum_13;
            *(f32x16u *)(p1 + 96 * row_outer + 16) = sum_14;
            *(f32x16u *)(p1 + 96 * row_outer + 32) = sum_15;
            *(f32x16u *)(p1 + 96 * row_outer + 48) = sum_16;
            *(f32x16u *)(p1 + 96 * row_outer + 64) = sum_17;
            *(f32x16u *)(p1 + 96 * row_outer + 80) = sum_18;
        }
    }
    {
        f32x4 sum_20 = splat_f32x4(0.0f);
        for (i64 k = 0; k < 64; k++) {
            const f32x4 load_19 = *(f32x4r *)(p0 + 100 * k + 96 * 1 + 16 * 0);
            sum_20 = (sum_20 + load_19);
        }
        f32x4 sum_21 = sum_20;
        *(f32x4u *)(p1 + 96 * 1 + 16 * 0) = sum_21;
    }
}
RUN {
    LAUNCH(0, reduce0_100(b, 0), AT(2, 0), AT(1, 0))
}
