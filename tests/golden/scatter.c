/*
map0_20x16:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)

scatter1_16x50:
(no move)
*/

/* p0[row, column] = 0 */
KERNEL(map0_20x16) {
    POINTER(f32, 0);
    {
        for (i64 i_outer = 0; i_outer < 20; i_outer++) {
            *(f32x16u *)(p0 + 16 * i_outer) = splat_f32x16(0.0f);
        }
    }
}
/* p2[row + 16 * p0[column, row]] += (p1[column, row] if -1 < p0[column, row] and p0[column, row] < 20 else 0) if -1 < p0[column, row] and p0[column, row] < 20 */
KERNEL(scatter1_16x50) {
    POINTER(const i64, 0);
    POINTER(const f32, 1);
    POINTER(f32, 2);
    {
        for (i64 row = 0; row < 16; row++) {
            for (i64 column = 0; column < 50; column++) {
                const i64 load_1 = p0[row + 16 * column];
                const _Bool lt_2 = ((i64)-1 < load_1);
                const _Bool lt_3 = (load_1 < (i64)20);
                const _Bool and_4 = (lt_2 & lt_3);
                const f32 load_5 = (and_4 ? p1[row + 16 * column] : 0);
                if (and_4) { p2[row + 16 * load_1] = (p2[row + 16 * load_1] + load_5); }
            }
        }
    }
}
RUN {
    LAUNCH(0, map0_20x16(b, 0), AT(1, 0))
    LAUNCH(1, scatter1_16x50(b, 0), AT(3, 0), AT(2, 0), AT(1, 0))
}
