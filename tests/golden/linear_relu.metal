/*
fold0_60x70:
split(a2, 64) -> a3, a4
bind(a3, unroll)
bind(a4, thread)
bind(a0, grid)
bind(a1, grid)

fold0_60x70<<<4200, 64>>>
*/

KERNEL(64) fold0_60x70(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(const f32, 2), POINTER(f32, 3) PLACE) {
    ALIGNED(const f32, 0, 24000, 16800);
    ALIGNED(const f32, 1, 28000, 16800);
    ALIGNED(const f32, 2, 280, 16800);
    ALIGNED(f32, 3, 16800, 16800);
    EACH_BLOCK(u32, 64, 4200);
    const i32 a1 = worker % 70;
    const i32 a0 = (worker / 70) % 60;
    const i32 own = THREAD / 1;
    {
        const f32 t1 = p0[100 * a0 + own];
        const f32 t2 = p1[a1 + 70 * own];
        const f32 t3 = (t1 * t2);
        f32 t4 = 0.0f;
        t4 = (t4 + t3);
        const f32 t5 = p0[100 * a0 + 64 * 1 + min(own, (i32)35)];
        const f32 t6 = p1[a1 + 4480 * 1 + 70 * min(own, (i32)35)];
        const f32 t7 = (t5 * t6);
        f32 t8 = 0.0f;
        if (own < 36) t8 = (t8 + t7);
        const f32 t9 = (t4 + t8);
        f32 t10 = t9;
        REDUCE(64, 1) {
        const f32 t11 = exchange(t10, s);
        t10 = (t10 + t11);
        }
        const f32 t12 = p2[a1];
        const f32 t13 = (t10 + t12);
        const f32 t14 = max_f32(t13, 0.0f);
        if (THREAD < 1) { p3[70 * a0 + a1] = t14; }
    }
}