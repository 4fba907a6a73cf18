/*
fold0_100:
bind(a1, thread)
bind(a0, grid)

fold0_100<<<100, 64>>>
*/

KERNEL(64) fold0_100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    EACH_BLOCK(u32, 64, 100);
    const i32 a0 = worker % 100;
    const i32 own = THREAD / 1;
    {
        const f32 t1 = p0[a0 + 100 * own];
        f32 t2 = 0.0f;
        t2 = (t2 + t1);
        f32 t3 = t2;
        REDUCE(64, 1) {
        const f32 t4 = exchange(t3, s);
        t3 = (t3 + t4);
        }
        if (THREAD < 1) { p1[a0] = t3; }
    }
}