/*
fold0_60x70:
bind(a2, thread)
bind(a0, grid)
bind(a1, grid)

fold0_60x70<<<4200, 128>>>
*/

KERNEL(128) fold0_60x70(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(const f32, 2), POINTER(f32, 3) PLACE) {
    EACH_BLOCK(u32, 128, 4200);
    const i64 a1 = worker % 70;
    const i64 a0 = (worker / 70) % 60;
    const i64 own = THREAD / 1;
    {
        const f32 t1 = p0[100 * a0 + min(own, (i64)99)];
        const f32 t2 = p1[a1 + 70 * min(own, (i64)99)];
        const f32 t3 = (t1 * t2);
        f32 t4 = 0.0f;
        if (own < 100) t4 = (t4 + t3);
        f32 t5 = t4;
        REDUCE(128, 1) {
        const f32 t6 = exchange(t5, s);
        t5 = (t5 + t6);
        }
        const f32 t7 = p2[a1];
        const f32 t8 = (t5 + t7);
        const f32 t9 = max_f32(t8, 0.0f);
        if (THREAD < 1) { p3[70 * a0 + a1] = t9; }
    }
}