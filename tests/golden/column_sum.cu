/*
reduce0_100:
split(a0, 8) -> a2, a3
split(a3, 4) -> a4, a5
bind(a5, unroll)
bind(a4, thread)
bind(a1, thread)
bind(a2, grid)

reduce0_100<<<13, 128>>>
*/

KERNEL(128) reduce0_100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(const f32, 0, 25600, 400);
    ALIGNED(f32, 1, 400, 400);
    EACH_BLOCK(u32, 128, 13);
    const i64 a2 = worker % 13;
    const i64 a4 = THREAD % 2;
    const i64 own = THREAD / 2;
    if (a2 < 12) {
        const f32 t1 = p0[4 * (25 * own + 2 * a2 + a4) + 0];
        const f32 t2 = p0[4 * (25 * own + 2 * a2 + a4) + 1];
        const f32 t3 = p0[4 * (25 * own + 2 * a2 + a4) + 2];
        const f32 t4 = p0[4 * (25 * own + 2 * a2 + a4) + 3];
        f32 t5 = 0.0f;
        t5 = (t5 + t1);
        f32 t6 = 0.0f;
        t6 = (t6 + t2);
        f32 t7 = 0.0f;
        t7 = (t7 + t3);
        f32 t8 = 0.0f;
        t8 = (t8 + t4);
        f32 t9 = t5;
        f32 t10 = t6;
        f32 t11 = t7;
        f32 t12 = t8;
        REDUCE(128, 2) {
        const auto t13 = exchange(t9, s);
        t9 = (t9 + t13);
        const auto t14 = exchange(t10, s);
        t10 = (t10 + t14);
        const auto t15 = exchange(t11, s);
        t11 = (t11 + t15);
        const auto t16 = exchange(t12, s);
        t12 = (t12 + t16);
        }
        if (THREAD < 2) { p1[4 * (2 * a2 + a4) + 0] = t9; }
        if (THREAD < 2) { p1[4 * (2 * a2 + a4) + 1] = t10; }
        if (THREAD < 2) { p1[4 * (2 * a2 + a4) + 2] = t11; }
        if (THREAD < 2) { p1[4 * (2 * a2 + a4) + 3] = t12; }
    }
    if (a2 == 12) {
        const f32 t17 = p0[4 * (25 * own + 2 * a2 + min(a4, (i64)0)) + 0];
        const f32 t18 = p0[4 * (25 * own + 2 * a2 + min(a4, (i64)0)) + 1];
        const f32 t19 = p0[4 * (25 * own + 2 * a2 + min(a4, (i64)0)) + 2];
        const f32 t20 = p0[4 * (25 * own + 2 * a2 + min(a4, (i64)0)) + 3];
        f32 t21 = 0.0f;
        t21 = (t21 + t17);
        f32 t22 = 0.0f;
        t22 = (t22 + t18);
        f32 t23 = 0.0f;
        t23 = (t23 + t19);
        f32 t24 = 0.0f;
        t24 = (t24 + t20);
        f32 t25 = t21;
        f32 t26 = t22;
        f32 t27 = t23;
        f32 t28 = t24;
        REDUCE(128, 2) {
        const auto t29 = exchange(t25, s);
        t25 = (t25 + t29);
        const auto t30 = exchange(t26, s);
        t26 = (t26 + t30);
        const auto t31 = exchange(t27, s);
        t27 = (t27 + t31);
        const auto t32 = exchange(t28, s);
        t28 = (t28 + t32);
        }
        if (THREAD < 2) if (a4 == min(a4, (i64)0)) { p1[4 * (2 * a2 + min(a4, (i64)0)) + 0] = t25; }
        if (THREAD < 2) if (a4 == min(a4, (i64)0)) { p1[4 * (2 * a2 + min(a4, (i64)0)) + 1] = t26; }
        if (THREAD < 2) if (a4 == min(a4, (i64)0)) { p1[4 * (2 * a2 + min(a4, (i64)0)) + 2] = t27; }
        if (THREAD < 2) if (a4 == min(a4, (i64)0)) { p1[4 * (2 * a2 + min(a4, (i64)0)) + 3] = t28; }
    }
}