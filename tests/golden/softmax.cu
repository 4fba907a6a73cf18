/*
reduce0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

reduce0_64x100<<<64, 64>>>
*/

KERNEL(64) reduce0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 25600);
    ALIGNED(f32, 1, 25600, 25600);
    EACH_BLOCK(u32, 64, 64);
    const i64 a0 = worker % 64;
    const i64 own = THREAD / 1;
    {
        const f32 t1 = p0[2 * (50 * a0 + min(own, (i64)49)) + 0];
        const f32 t2 = p0[2 * (50 * a0 + min(own, (i64)49)) + 1];
        f32 t3 = -inf_f32;
        if (own < 50) t3 = max_f32(t3, t1);
        f32 t4 = -inf_f32;
        if (own < 50) t4 = max_f32(t4, t2);
        const auto t5 = max_f32(t3, t4);
        f32 t6 = t5;
        REDUCE(64, 1) {
        const auto t7 = exchange(t6, s);
        t6 = max_f32(t6, t7);
        }
        const auto t8 = (- t6);
        const auto t9 = (t1 + t8);
        const auto t10 = exp_f32(t9);
        f32 t11 = 0.0f;
        if (own < 50) t11 = (t11 + t10);
        const auto t12 = (t2 + t8);
        const auto t13 = exp_f32(t12);
        f32 t14 = 0.0f;
        if (own < 50) t14 = (t14 + t13);
        const auto t15 = (t11 + t14);
        f32 t16 = t15;
        REDUCE(64, 1) {
        const auto t17 = exchange(t16, s);
        t16 = (t16 + t17);
        }
        const auto t18 = (t10 / t16);
        const auto t19 = (t13 / t16);
        if (own < 50) { p1[2 * (50 * a0 + min(own, (i64)49)) + 0] = t18; }
        if (own < 50) { p1[2 * (50 * a0 + min(own, (i64)49)) + 1] = t19; }
    }
}