/*
fold0_64x100:
split(a1, 2) -> a2, a3
bind(a3, unroll)
bind(a2, thread)
bind(a0, grid)

fold0_64x100<<<64, 64>>>
*/

KERNEL(64) fold0_64x100(POINTER(const f32, 0), POINTER(f32, 1) PLACE) {
    SHARED(64)
    ALIGNED(p0);
    ALIGNED(p1);
    const u32 worker = BLOCK;
    const i32 a0 = worker % 64;
    {
        f32 t3 = 0.0f;
        f32 t4 = 0.0f;
        UNROLL for (i32 a2 = 0 + THREAD / 1; a2 < 50; a2 += 64) {
            const f32 t1 = p0[100 * a0 + 2 * a2];
            const f32 t2 = p0[100 * a0 + 2 * a2 + 1];
            t3 = (t3 + t1);
            t4 = (t4 + t2);
        }
        const f32 t5 = (t3 + t4);
        f32 t6 = t5;
        for (int s = 32; s >= 1; s /= 2) {
        const f32 t7 = exchange(t6, s);
        t6 = (t6 + t7);
        }
        const f32 t8 = (t6 * 0.009999999776482582f);
        const f32 t9 = (- t8);
        f32 t14 = 0.0f;
        f32 t17 = 0.0f;
        UNROLL for (i32 a2 = 0 + THREAD / 1; a2 < 50; a2 += 64) {
            const f32 t10 = p0[100 * a0 + 2 * a2];
            const f32 t11 = p0[100 * a0 + 2 * a2 + 1];
            const f32 t12 = (t10 + t9);
            const f32 t13 = (t12 * t12);
            t14 = (t14 + t13);
            const f32 t15 = (t11 + t9);
            const f32 t16 = (t15 * t15);
            t17 = (t17 + t16);
        }
        const f32 t18 = (t14 + t17);
        f32 t19 = t18;
        for (int s = 32; s >= 1; s /= 2) {
        const f32 t20 = exchange(t19, s);
        t19 = (t19 + t20);
        }
        const f32 t21 = (t19 * 0.009999999776482582f);
        const f32 t22 = (t21 + 0.0010000000474974513f);
        const f32 t23 = sqrt_f32(t22);
        UNROLL for (i32 a2 = 0 + THREAD / 1; a2 < 50; a2 += 64) {
            const f32 t24 = p0[100 * a0 + 2 * a2];
            const f32 t25 = p0[100 * a0 + 2 * a2 + 1];
            const f32 t26 = (t24 + t9);
            const f32 t27 = (t26 / t23);
            const f32 t28 = (t25 + t9);
            const f32 t29 = (t28 / t23);
            p1[100 * a0 + 2 * a2] = t27;
            p1[100 * a0 + 2 * a2 + 1] = t29;
        }
    }
}