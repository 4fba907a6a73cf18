/*
reduce0_60x70:
split(a1, 16) -> a3, a4
split(a4, 2) -> a5, a6
bind(a6, unroll)
bind(a5, thread)
split(a2, 64) -> a7, a8
bind(a7, unroll)
bind(a8, thread)
bind(a0, grid)
bind(a3, grid)

reduce0_60x70<<<300, 512>>>
*/

KERNEL(512) reduce0_60x70(POINTER(const f32, 0), POINTER(const f32, 1), POINTER(const f32, 2), POINTER(f32, 3) PLACE) {
    ALIGNED(const f32, 0, 24000, 16800);
    ALIGNED(const f32, 1, 28000, 16800);
    ALIGNED(const f32, 2, 280, 16800);
    ALIGNED(f32, 3, 16800, 16800);
    EACH_BLOCK(u32, 512, 300);
    const i32 a3 = worker % 5;
    const i32 a0 = (worker / 5) % 60;
    const i32 a5 = THREAD % 8;
    const i32 own = THREAD / 8;
    if (a3 < 4) {
        const f32 t1 = p0[100 * a0 + own];
        const f32 t2 = p1[16 * a3 + 2 * a5 + 70 * own];
        const f32 t3 = p1[16 * a3 + 2 * a5 + 70 * own + 1];
        const f32 t4 = (t1 * t2);
        f32 t5 = 0.0f;
        t5 = (t5 + t4);
        const f32 t6 = (t1 * t3);
        f32 t7 = 0.0f;
        t7 = (t7 + t6);
        const f32 t8 = p0[100 * a0 + 64 * 1 + min(own, (i32)35)];
        const f32 t9 = p1[16 * a3 + 2 * a5 + 4480 * 1 + 70 * min(own, (i32)35)];
        const f32 t10 = p1[16 * a3 + 2 * a5 + 4480 * 1 + 70 * min(own, (i32)35) + 1];
        const f32 t11 = (t8 * t9);
        f32 t12 = 0.0f;
        if (own < 36) t12 = (t12 + t11);
        const f32 t13 = (t8 * t10);
        f32 t14 = 0.0f;
        if (own < 36) t14 = (t14 + t13);
        const f32 t15 = (t5 + t12);
        const f32 t16 = (t7 + t14);
        f32 t17 = t15;
        f32 t18 = t16;
        REDUCE(512, 8) {
        const f32 t19 = exchange(t17, s);
        t17 = (t17 + t19);
        const f32 t20 = exchange(t18, s);
        t18 = (t18 + t20);
        }
        const f32 t21 = p2[16 * a3 + 2 * a5];
        const f32 t22 = p2[16 * a3 + 2 * a5 + 1];
        const f32 t23 = (t17 + t21);
        const f32 t24 = max_f32(t23, 0.0f);
        const f32 t25 = (t18 + t22);
        const f32 t26 = max_f32(t25, 0.0f);
        if (THREAD < 8) { p3[70 * a0 + 16 * a3 + 2 * a5] = t24; }
        if (THREAD < 8) { p3[70 * a0 + 16 * a3 + 2 * a5 + 1] = t26; }
    }
    if (a3 == 4) {
        const f32 t27 = p0[100 * a0 + own];
        const f32 t28 = p1[16 * a3 + 2 * min(a5, (i32)2) + 70 * own];
        const f32 t29 = p1[16 * a3 + 2 * min(a5, (i32)2) + 70 * own + 1];
        const f32 t30 = (t27 * t28);
        f32 t31 = 0.0f;
        t31 = (t31 + t30);
        const f32 t32 = (t27 * t29);
        f32 t33 = 0.0f;
        t33 = (t33 + t32);
        const f32 t34 = p0[100 * a0 + 64 * 1 + min(own, (i32)35)];
        const f32 t35 = p1[16 * a3 + 2 * min(a5, (i32)2) + 4480 * 1 + 70 * min(own, (i32)35)];
        const f32 t36 = p1[16 * a3 + 2 * min(a5, (i32)2) + 4480 * 1 + 70 * min(own, (i32)35) + 1];
        const f32 t37 = (t34 * t35);
        f32 t38 = 0.0f;
        if (own < 36) t38 = (t38 + t37);
        const f32 t39 = (t34 * t36);
        f32 t40 = 0.0f;
        if (own < 36) t40 = (t40 + t39);
        const f32 t41 = (t31 + t38);
        const f32 t42 = (t33 + t40);
        f32 t43 = t41;
        f32 t44 = t42;
        REDUCE(512, 8) {
        const f32 t45 = exchange(t43, s);
        t43 = (t43 + t45);
        const f32 t46 = exchange(t44, s);
        t44 = (t44 + t46);
        }
        const f32 t47 = p2[16 * a3 + 2 * min(a5, (i32)2)];
        const f32 t48 = p2[16 * a3 + 2 * min(a5, (i32)2) + 1];
        const f32 t49 = (t43 + t47);
        const f32 t50 = max_f32(t49, 0.0f);
        const f32 t51 = (t44 + t48);
        const f32 t52 = max_f32(t51, 0.0f);
        if (THREAD < 8) if (a5 == min(a5, (i32)2)) { p3[70 * a0 + 16 * a3 + 2 * min(a5, (i32)2)] = t50; }
        if (THREAD < 8) if (a5 == min(a5, (i32)2)) { p3[70 * a0 + 16 * a3 + 2 * min(a5, (i32)2) + 1] = t52; }
    }
}