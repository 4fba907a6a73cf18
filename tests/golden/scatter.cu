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

KERNEL(256) map0_20x16(POINTER(f32, 0) PLACE) {
    EACH_THREAD(u32, 256, 320);
    const i64 a2 = worker % 320;
    {
        p0[a2] = 0.0f;
    }
}
KERNEL(256) scatter1_16x50(POINTER(const i64, 0), POINTER(const f32, 1), POINTER(f32, 2) PLACE) {
    EACH_THREAD(u32, 256, 262144);
    const i64 a2 = worker % 16384;
    const i64 a0 = (worker / 16384) % 16;
    {
        for (i64 a1 = 0; a1 < 50; a1++) {
            const i64 t1 = p0[a0 + 16 * a1];
            const _Bool t2 = ((i64)-1 < t1);
            const _Bool t3 = (t1 < (i64)20);
            const _Bool t4 = (t2 & t3);
            const i64 t5 = (t1 & (i64)16383);
            const _Bool t6 = (t5 == (i64)(a2));
            const _Bool t7 = (t4 & t6);
            const auto t8 = (t7 ? p1[a0 + 16 * a1] : 0);
            WHERE(t7) { p2[a0 + 16 * t1] = (p2[a0 + 16 * t1] + t8); }
        }
    }
}