/*
map0_20x16:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

scatter1_16x50:
partition(16384) -> a2
reorder(a0, a2)
bind(a2, grid)
bind(a0, grid)

map0_20x16<<<2, 256>>>

scatter1_16x50<<<1024, 256>>>
*/

/* p0[row, column] = 0 */
KERNEL(256) map0_20x16(POINTER(f32, 0) PLACE) {
    EACH_THREAD(u32, 256, 320);
    const i32 i = worker % 320;
    {
        p0[i] = 0.0f;
    }
}
/* p2[row + 16 * p0[column, row]] += (p1[column, row] if -1 < p0[column, row] and p0[column, row] < 20 else 0) if -1 < p0[column, row] and p0[column, row] < 20 */
KERNEL(256) scatter1_16x50(POINTER(const i64, 0), POINTER(const f32, 1), POINTER(f32, 2) PLACE) {
    EACH_THREAD(u32, 256, 262144);
    const i32 batch = worker % 16384;
    const i32 row = (worker / 16384) % 16;
    {
        for (i32 column = 0; column < 50; column++) {
            const i64 load_1 = p0[row + 16 * column];
            const _Bool lt_2 = ((i64)-1 < load_1);
            const _Bool lt_3 = (load_1 < (i64)20);
            const _Bool and_4 = (lt_2 & lt_3);
            const i64 and_5 = (load_1 & (i64)16383);
            const _Bool eq_6 = (and_5 == (i64)(batch));
            const _Bool and_7 = (and_4 & eq_6);
            const f32 load_8 = (and_7 ? p1[row + 16 * column] : 0);
            if (and_7) { p2[row + 16 * load_1] = (p2[row + 16 * load_1] + load_8); }
        }
    }
}