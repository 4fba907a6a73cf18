/*
map0_64x100:
fuse(a0, a1) -> a2
split(a2, 16) -> a3, a4
bind(a4, vector)

sort1_64x100:
(no move)
*/

/* p1[row, column] = p0[row, column] + 1 */
KERNEL(map0_64x100) {
    POINTER(const f32, 0);
    POINTER(f32, 1);
    {
        for (i64 i_outer = 0; i_outer < 400; i_outer++) {
            const f32x16 load_1 = *(f32x16r *)(p0 + 16 * i_outer);
            const f32x16 add_2 = (load_1 + 1.0f);
            *(f32x16u *)(p1 + 16 * i_outer) = add_2;
        }
    }
}
/* p1[row] = the order of p0[row], ascending */
SORT(sort1_64x100, f32, 100, 1, 0)
RUN {
    LAUNCH(0, map0_64x100(b, 0), AT(2, 0), AT(0, 51200))
    LAUNCH(1, parallel(64, sort1_64x100, b), AT(0, 51200), AT(1, 0), AT(0, 0))
}
