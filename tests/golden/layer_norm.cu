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
        f32 t3 = 0.0f;
        if (own < 50) t3 = (t3 + t1);
        f32 t4 = 0.0f;
        if (own < 50) t4 = (t4 + t2);
        const auto t5 = (t3 + t4);
        f32 t6 = t5;
        REDUCE(64, 1) {
        const auto t7 = exchange(t6, s);
        t6 = (t6 + t7);
        }
        const auto t8 = (t6 * 0.009999999776482582f);
        const auto t9 = (- t8);
        const auto t10 = (t1 + t9);
        const auto t11 = (t10 * t10);
        f32 t12 = 0.0f;
        if (own < 50) t12 = (t12 + t11);
        const auto t13 = (t2 + t9);
        const auto t14 = (t13 * t13);
        f32 t15 = 0.0f;
        if (own < 50) t15 = (t15 + t14);
        const auto t16 = (t12 + t15);
        f32 t17 = t16;
        REDUCE(64, 1) {
        const auto t18 = exchange(t17, s);
        t17 = (t17 + t18);
        }
        const auto t19 = (t17 * 0.009999999776482582f);
        const auto t20 = (t19 + 0.0010000000474974513f);
        const auto t21 = sqrt_f32(t20);
        const auto t22 = (t10 / t21);
        const auto t23 = (t13 / t21);
        if (own < 50) { p1[2 * (50 * a0 + min(own, (i64)49)) + 0] = t22; }
        if (own < 50) { p1[2 * (50 * a0 + min(own, (i64)49)) + 1] = t23; }
    }
}