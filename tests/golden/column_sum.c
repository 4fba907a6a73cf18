/*
reduce0_100:
split(a0, 16) -> a2, a3
bind(a3, vector)
*/

/* p1[row] = sum_k p0[k, row] */
KERNEL(reduce0_100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 row_outer = 0; row_outer < 6; row_outer++) {
            f32x16 sum_2 = splat_f32x16(0.0f);
            for (i64 k = 0; k < 64; k++) {
                const f32x16 load_1 = *(f32x16r *)(p0 + 100 * k + 16 * row_outer);
                sum_2 = (sum_2 + load_1);
            }
            f32x16 sum_3 = sum_2;
            *(f32x16u *)(p1 + 16 * row_outer) = sum_3;
        }
    }
    {
        f32x4 sum_5 = splat_f32x4(0.0f);
        for (i64 k = 0; k < 64; k++) {
            const f32x4 load_4 = *(f32x4r *)(p0 + 100 * k + 16 * 6);
            sum_5 = (sum_5 + load_4);
        }
        f32x4 sum_6 = sum_5;
        *(f32x4u *)(p1 + 16 * 6) = sum_6;
    }
}
RUN {
    LAUNCH(0, reduce0_100(b, 0), AT(2, 0), AT(1, 0))
}
