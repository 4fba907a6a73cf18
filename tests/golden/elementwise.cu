/*
map0_64x100:
fuse(a0, a1) -> a2
reorder(a2)
bind(a2, grid)

map0_64x100<<<25, 256>>>
*/

KERNEL(256) map0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    EACH_THREAD(u32, 256, 6400);
    const i64 a2 = worker % 6400;
    {
        const f32 t1 = p0[a2];
        const _Bool t2 = (t1 < 0.0f);
        const auto t3 = (t1 * t1);
        const auto t4 = (t3 + 1.0f);
        const auto t5 = sqrt_f32(t4);
        const auto t6 = (t5 * 0.5f);
        const auto t7 = (t6 + t1);
        const auto t8 = (t2 ? t6 : t7);
        p1[a2] = t8;
    }
}