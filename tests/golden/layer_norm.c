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
        const f32 t14 = (t13[0] + t13[1]);
        const f32 t15 = (t13[2] + t13[3]);
        const f32 t16 = (t13[4] + t13[5]);
        const f32 t17 = (t13[6] + t13[7]);
        const f32 t18 = (t13[8] + t13[9]);
        const f32 t19 = (t13[10] + t13[11]);
        const f32 t20 = (t13[12] + t13[13]);
        const f32 t21 = (t13[14] + t13[15]);
        const f32 t22 = (t14 + t15);
        const f32 t23 = (t16 + t17);
        const f32 t24 = (t18 + t19);
        const f32 t25 = (t20 + t21);
        const f32 t26 = (t22 + t23);
        const f32 t27 = (t24 + t25);
        const f32 t28 = (t26 + t27);
        f32 t29 = t28;
        for (i64 a8 = 0; a8 < 4; a8++) {
            const f32 t30 = p0[100 * a0 + 64 * 1 + 16 * 2 + a8];
            t29 = (t29 + t30);
        }
        const f32 t31 = (t29 * 0.009999999776482582f);
        const f32 t32 = (- t31);
        f32x16 t36 = (f32x16){0};
        f32x16 t40 = (f32x16){0};
        f32x16 t44 = (f32x16){0};
        f32x16 t48 = (f32x16){0};
        for (i64 a5 = 0; a5 < 1; a5++) {
            const f32x16 t33 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5);
            const f32x16 t34 = (t33 + t32);
            const f32x16 t35 = (t34 * t34);
            t36 = (t36 + t35);
            const f32x16 t37 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 16);
            const f32x16 t38 = (t37 + t32);
            const f32x16 t39 = (t38 * t38);
            t40 = (t40 + t39);
            const f32x16 t41 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 32);
            const f32x16 t42 = (t41 + t32);
            const f32x16 t43 = (t42 * t42);
            t44 = (t44 + t43);
            const f32x16 t45 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a5 + 48);
            const f32x16 t46 = (t45 + t32);
            const f32x16 t47 = (t46 * t46);
            t48 = (t48 + t47);
        }
        const f32x16 t49 = (t9 + t32);
        const f32x16 t50 = (t49 * t49);
        t36 = (t36 + t50);
        const f32x16 t51 = (t10 + t32);
        const f32x16 t52 = (t51 * t51);
        t40 = (t40 + t52);
        const f32x16 t53 = (t36 + t40);
        const f32x16 t54 = (t44 + t48);
        const f32x16 t55 = (t53 + t54);
        const f32 t56 = (t55[0] + t55[1]);
        const f32 t57 = (t55[2] + t55[3]);
        const f32 t58 = (t55[4] + t55[5]);
        const f32 t59 = (t55[6] + t55[7]);
        const f32 t60 = (t55[8] + t55[9]);
        const f32 t61 = (t55[10] + t55[11]);
        const f32 t62 = (t55[12] + t55[13]);
        const f32 t63 = (t55[14] + t55[15]);
        const f32 t64 = (t56 + t57);
        const f32 t65 = (t58 + t59);
        const f32 t66 = (t60 + t61);
        const f32 t67 = (t62 + t63);
        const f32 t68 = (t64 + t65);
        const f32 t69 = (t66 + t67);
        const f32 t70 = (t68 + t69);
        f32 t71 = t70;
        for (i64 a8 = 0; a8 < 4; a8++) {
            const f32 t72 = p0[100 * a0 + 64 * 1 + 16 * 2 + a8];
            const f32 t73 = (t72 + t32);
            const f32 t74 = (t73 * t73);
            t71 = (t71 + t74);
        }
        const f32 t75 = (t71 * 0.009999999776482582f);
        const f32 t76 = (t75 + 0.0010000000474974513f);
        const f32 t77 = __builtin_sqrtf(t76);
        for (i64 a3 = 0; a3 < 6; a3++) {
            const f32x16 t78 = *(const f32x16u *)(p0 + 100 * a0 + 16 * a3);
            const f32x16 t79 = (t78 + t32);
            const f32x16 t80 = (t79 / t77);
            *(f32x16u *)(p1 + 100 * a0 + 16 * a3) = t80;
        }
        for (i64 a4 = 0; a4 < 4; a4++) {
            const f32 t81 = p0[100 * a0 + 16 * 6 + a4];
            const f32 t82 = (t81 + t32);
            const f32 t83 = (t82 / t77);
            p1[100 * a0 + 16 * 6 + a4] = t83;
        }
    }
}
struct lamina_time { long seconds, nanoseconds; };
int clock_gettime(int, struct lamina_time *);
static double lamina_clock(void) { struct lamina_time t; clock_gettime(1, &t); return t.seconds + 1e-9 * t.nanoseconds; }
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[1], buffers[0]}; if (seconds) started = lamina_clock(); parallel(64, fold0_64x100, b); if (seconds) seconds[0] = lamina_clock() - started; }
}
