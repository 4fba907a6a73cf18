/*
scan0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

scan0_64x100<<<64, 64>>>
*/

KERNEL(64) scan0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 64, 64);
    const i32 a0 = worker % 64;
    const i32 own = THREAD / 1;
    {
        const f32 t1 = p0[100 * a0 + 2 * min(own, (i32)49)];
        const f32 t2 = p0[100 * a0 + 2 * min(own, (i32)49) + 1];
        const f32 t3 = (t1 + t2);
        f32 t4 = t3;
        f32 t5 = 0.0f;
        SCAN(64, 1) {
        const f32 t6 = earlier(t4, t5, s);
        if (!precedes(s)) continue;
        if (own < 50) t4 = (t4 + t6);
        }
        if (own < 50) t4 = (t4 + t1);
        const f32 t7 = t4;
        if (own < 50) t4 = (t4 + t2);
        const f32 t8 = t4;
        if (own < 50) { p1[100 * a0 + 2 * min(own, (i32)49)] = t7; }
        if (own < 50) { p1[100 * a0 + 2 * min(own, (i32)49) + 1] = t8; }
    }
}