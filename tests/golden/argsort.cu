/*
map0_64x100:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

sort1_64x100:
(no move)

map0_64x100<<<25, 256>>>

sort1_64x100<<<64, 32>>>
*/

/* p1[row, column] = p0[row, column] + 1 */
KERNEL(256) map0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    EACH_THREAD(u32, 256, 6400);
    const i64 i = worker % 6400;
    {
        const f32 load_1 = p0[i];
        const auto add_2 = (load_1 + 1.0f);
        p1[i] = add_2;
    }
}
/* p1[row] = the order of p0[row], ascending */
SORT(sort1_64x100, f32, 64, 100, 0, 4, 32)