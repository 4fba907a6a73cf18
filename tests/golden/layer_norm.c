/*
fold0_64x100:
split(a2, 16) -> a3, a4
bind(a4, vector)
split(a1, 64) -> a5, a6
split(a6, 16) -> a7, a8
bind(a7, unroll)
bind(a8, vector)
bind(a0, parallel)
*/
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef void (*lamina_body_fn)(void *, long);
typedef void (*lamina_parallel_fn)(long, lamina_body_fn, void *);
#define INLINE static inline __attribute__((always_inline))

typedef f32 f32x16 __attribute__((vector_size(64))); typedef f32 f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef f32 f32x2 __attribute__((vector_size(8))); typedef f32 f32x2u __attribute__((vector_size(8), aligned(4), may_alias));
typedef f32 f32x4 __attribute__((vector_size(16))); typedef f32 f32x4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef f32 f32x8 __attribute__((vector_size(32))); typedef f32 f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
static void fold0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    const i64 a0 = chunk % 64;
    {
        f32x16 t2 = (f32x16){0};
        f32x16 t4 = (f32x16){0};
        f32x16 t6 = (f32x16){0};
        f32x16 t8 = (f32x16){0};
        for (i64 a5 = 0; a5 < 1; a5++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5);
            t2 = (t2 + t1);
            const f32x16 t3 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 16);
            t4 = (t4 + t3);
            const f32x16 t5 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 32);
            t6 = (t6 + t5);
            const f32x16 t7 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 48);
            t8 = (t8 + t7);
        }
        const f32x16 t9 = *(const f32x16u *)(p0 + 100 * a0 + 64 * 1);
        t2 = (t2 + t9);
        const f32x16 t10 = *(const f32x16u *)(p0 + 100 * a0 + 64 * 1 + 16);
        t4 = (t4 + t10);
        const f32x16 t11 = (t2 + t4);
        const f32x16 t12 = (t6 + t8);
        const f32x16 t13 = (t11 + t12);
        const f32x8 t14 = (((f32x8u *)&t13)[0] + ((f32x8u *)&t13)[1]);
        const f32x4 t15 = (((f32x4u *)&t14)[0] + ((f32x4u *)&t14)[1]);
        const f32x2 t16 = (((f32x2u *)&t15)[0] + ((f32x2u *)&t15)[1]);
        const f32 t17 = (t16[0] + t16[1]);
        f32 t18 = t17;
        const f32x4 t19 = *(const f32x4u *)(p0 + 100 * a0 + 64 * 1 + 16 * 2);
        f32x4 t20 = (f32x4){0};
        t20 = (t20 + t19);
        const f32x2 t21 = (((f32x2u *)&t20)[0] + ((f32x2u *)&t20)[1]);
        const f32 t22 = (t21[0] + t21[1]);
        const f32 t23 = (t18 + t22);
        f32 t24 = t23;
        const f32 t25 = (t24 * 0.009999999776482582f);
        const f32 t26 = (- t25);
        f32x16 t30 = (f32x16){0};
        f32x16 t34 = (f32x16){0};
        f32x16 t38 = (f32x16){0};
        f32x16 t42 = (f32x16){0};
        for (i64 a5 = 0; a5 < 1; a5++) {
            const f32x16 t27 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5);
            const f32x16 t28 = (t27 + t26);
            const f32x16 t29 = (t28 * t28);
            t30 = (t30 + t29);
            const f32x16 t31 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 16);
            const f32x16 t32 = (t31 + t26);
            const f32x16 t33 = (t32 * t32);
            t34 = (t34 + t33);
            const f32x16 t35 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 32);
            const f32x16 t36 = (t35 + t26);
            const f32x16 t37 = (t36 * t36);
            t38 = (t38 + t37);
            const f32x16 t39 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 48);
            const f32x16 t40 = (t39 + t26);
            const f32x16 t41 = (t40 * t40);
            t42 = (t42 + t41);
        }
        const f32x16 t43 = (t9 + t26);
        const f32x16 t44 = (t43 * t43);
        t30 = (t30 + t44);
        const f32x16 t45 = (t10 + t26);
        const f32x16 t46 = (t45 * t45);
        t34 = (t34 + t46);
        const f32x16 t47 = (t30 + t34);
        const f32x16 t48 = (t38 + t42);
        const f32x16 t49 = (t47 + t48);
        const f32x8 t50 = (((f32x8u *)&t49)[0] + ((f32x8u *)&t49)[1]);
        const f32x4 t51 = (((f32x4u *)&t50)[0] + ((f32x4u *)&t50)[1]);
        const f32x2 t52 = (((f32x2u *)&t51)[0] + ((f32x2u *)&t51)[1]);
        const f32 t53 = (t52[0] + t52[1]);
        f32 t54 = t53;
        const f32x4 t55 = (t19 + t26);
        const f32x4 t56 = (t55 * t55);
        f32x4 t57 = (f32x4){0};
        t57 = (t57 + t56);
        const f32x2 t58 = (((f32x2u *)&t57)[0] + ((f32x2u *)&t57)[1]);
        const f32 t59 = (t58[0] + t58[1]);
        const f32 t60 = (t54 + t59);
        f32 t61 = t60;
        const f32 t62 = (t61 * 0.009999999776482582f);
        const f32 t63 = (t62 + 0.0010000000474974513f);
        const f32 t64 = __builtin_sqrtf(t63);
        for (i64 a3 = 0; a3 < 6; a3++) {
            const f32x16 t65 = *(const f32x16u *)(p0 + 100 * a0 + 16 * a3);
            const f32x16 t66 = (t65 + t26);
            const f32x16 t67 = (t66 / t64);
            *(f32x16u *)(p1 + 100 * a0 + 16 * a3) = t67;
        }
        const f32x4 t68 = *(const f32x4u *)(p0 + 100 * a0 + 16 * 6);
        const f32x4 t69 = (t68 + t26);
        const f32x4 t70 = (t69 / t64);
        *(f32x4u *)(p1 + 100 * a0 + 16 * 6) = t70;
    }
}
struct lamina_time { long seconds, nanoseconds; };
int clock_gettime(int, struct lamina_time *);
static double lamina_clock(void) { struct lamina_time t; clock_gettime(1, &t); return t.seconds + 1e-9 * t.nanoseconds; }
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[1], buffers[0]}; if (seconds) started = lamina_clock(); parallel(64, fold0_64x100, b); if (seconds) seconds[0] = lamina_clock() - started; }
}
