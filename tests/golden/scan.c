/*
scan0_64x100:
split(a0, 4) -> a2, a3
bind(a3, unroll)
*/

/* p1[row, column] = running_sum_column p0[row, column] */
KERNEL(scan0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 row_outer = 0; row_outer < 16; row_outer++) {
            f32 sum_2 = 0.0f;
            f32 sum_5 = 0.0f;
            f32 sum_8 = 0.0f;
            f32 sum_11 = 0.0f;
            for (i64 column = 0; column < 100; column++) {
                const f32 load_1 = p0[column + 400 * row_outer];
                sum_2 = (sum_2 + load_1);
                const f32 scan_3 = sum_2;
                const f32 load_4 = p0[column + 400 * row_outer + 100];
                sum_5 = (sum_5 + load_4);
                const f32 scan_6 = sum_5;
                const f32 load_7 = p0[column + 400 * row_outer + 200];
                sum_8 = (sum_8 + load_7);
                const f32 scan_9 = sum_8;
                const f32 load_10 = p0[column + 400 * row_outer + 300];
                sum_11 = (sum_11 + load_10);
                const f32 scan_12 = sum_11;
                p1[column + 400 * row_outer] = scan_3;
                p1[column + 400 * row_outer + 100] = scan_6;
                p1[column + 400 * row_outer + 200] = scan_9;
                p1[column + 400 * row_outer + 300] = scan_12;
            }
        }
    }
}
RUN {
    LAUNCH(0, scan0_64x100(b, 0), AT(2, 0), AT(1, 0))
}
