/*
scan0_64x100:
reorder(a0)
bind(a0, grid)

scan0_64x100<<<1, 256>>>
*/

KERNEL(256) scan0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    EACH_THREAD(u32, 256, 64);
    const i64 a0 = worker % 64;
    {
        f32 t2 = 0.0f;
        for (i64 a1 = 0; a1 < 100; a1++) {
            const f32 t1 = p0[100 * a0 + a1];
            t2 = (t2 + t1);
            const f32 t3 = t2;
            p1[100 * a0 + a1] = t3;
        }
    }
}