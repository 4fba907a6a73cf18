/*
fold0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

fold0_64x100<<<64, 64>>>
*/

KERNEL(64) fold0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    ALIGNED(p0);
    ALIGNED(p1);
    const u32 worker = BLOCK;
    const i64 a0 = worker % 64;
    {
        f32 t3 = -inf_f32;
        f32 t4 = -inf_f32;
        UNROLL for (i64 a2 = 0 + THREAD / 1; a2 < 50; a2 += 64) {
            const f32 t1 = p0[100 * a0 + 2 * a2];
            const f32 t2 = p0[100 * a0 + 2 * a2 + 1];
            t3 = max_f32(t3, t1);
            t4 = max_f32(t4, t2);
        }
        const f32 t5 = max_f32(t3, t4);
        f32 t6 = t5;
        for (int s = 32; s >= 1; s /= 2) {
        const f32 t7 = exchange(t6, s);
        t6 = max_f32(t6, t7);
        }
        const f32 t8 = (- t6);
        f32 t13 = 0.0f;
        f32 t16 = 0.0f;
        UNROLL for (i64 a2 = 0 + THREAD / 1; a2 < 50; a2 += 64) {
            const f32 t9 = p0[100 * a0 + 2 * a2];
            const f32 t10 = p0[100 * a0 + 2 * a2 + 1];
            const f32 t11 = (t9 + t8);
            const f32 t12 = exp_f32(t11);
            t13 = (t13 + t12);
            const f32 t14 = (t10 + t8);
            const f32 t15 = exp_f32(t14);
            t16 = (t16 + t15);
        }
        const f32 t17 = (t13 + t16);
        f32 t18 = t17;
        for (int s = 32; s >= 1; s /= 2) {
        const f32 t19 = exchange(t18, s);
        t18 = (t18 + t19);
        }
        UNROLL for (i64 a2 = 0 + THREAD / 1; a2 < 50; a2 += 64) {
            const f32 t20 = p0[100 * a0 + 2 * a2];
            const f32 t21 = p0[100 * a0 + 2 * a2 + 1];
            const f32 t22 = (t20 + t8);
            const f32 t23 = exp_f32(t22);
            const f32 t24 = (t23 / t18);
            const f32 t25 = (t21 + t8);
            const f32 t26 = exp_f32(t25);
            const f32 t27 = (t26 / t18);
            p1[100 * a0 + 2 * a2] = t24;
            p1[100 * a0 + 2 * a2 + 1] = t27;
        }
    }
}