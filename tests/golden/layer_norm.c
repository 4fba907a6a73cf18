/*
fold0_64x100:
split(a0, 4) -> a2, a3
bind(a3, unroll)
reorder(a2)
split(a1, 16) -> a4, a5
bind(a5, vector)
bind(a2, parallel)
*/
/* What every program begins with. No header is included: that costs more time than compiling a
   small kernel. */

typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef void (*lamina_body_fn)(void *, long);
typedef void (*lamina_parallel_fn)(long, lamina_body_fn, void *);
#define INLINE static inline __attribute__((always_inline))
#define SIGNED(F) F(i8) F(i16) F(i32) F(i64)
#define UNSIGNED(F) F(u8) F(u16) F(u32) F(u64)

struct lamina_time { long seconds, nanoseconds; };
int clock_gettime(int, struct lamina_time *);
static double lamina_clock(void) {
    struct lamina_time t;
    clock_gettime(1, &t);
    return t.seconds + 1e-9 * t.nanoseconds;
}

/* Integer division rounds down and survives zero; the remainder has the divisor's sign. */

#define DIVISION(T) \
    INLINE T idiv_##T(T a, T b) { \
        if (b == 0) return 0; \
        if (b == -1) return -a; \
        return a / b - (a % b != 0 && (a < 0) != (b < 0)); \
    } \
    INLINE T mod_##T(T a, T b) { \
        if (b == 0 || b == -1) return 0; \
        T r = a % b; \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r; \
    }
SIGNED(DIVISION)

#define UNSIGNED_DIVISION(T) \
    INLINE T idiv_##T(T a, T b) { return b == 0 ? 0 : a / b; } \
    INLINE T mod_##T(T a, T b) { return b == 0 ? 0 : a % b; }
UNSIGNED(UNSIGNED_DIVISION)

#define POWER(T) \
    INLINE T pow_##T(T a, T b) { \
        T r = 1; \
        if ((i64)b < 0) return a == 1 ? 1 : a == (T)-1 ? (b & 1 ? a : 1) : 0; \
        for (; b; b >>= 1, a *= a) if (b & 1) r *= a; \
        return r; \
    }
SIGNED(POWER)
UNSIGNED(POWER)

#define REMAINDER(T, F) \
    INLINE T mod_##T(T a, T b) { \
        T r = __builtin_fmod##F(a, b); \
        if (r == 0) return __builtin_copysign##F(r, b); \
        return (r < 0) != (b < 0) ? r + b : r; \
    } \
    INLINE T pow_##T(T a, T b) { return __builtin_pow##F(a, b); }
REMAINDER(f32, f)
REMAINDER(f64, )

/* A bottom-up merge sort of each row of n keys; NaN comes last. */

#define SORT(name, kind, n) \
    static void name(void *arg, long row) { \
        void **b = arg; \
        const kind *restrict keys = (kind *)b[0] + row * n; \
        i64 *from = (i64 *)b[1] + row * n, *to = (i64 *)b[2] + row * n; \
        for (i64 i = 0; i < n; i++) from[i] = i; \
        for (i64 width = 1; width < n; width *= 2) { \
            for (i64 start = 0; start < n; start += 2 * width) { \
                const i64 middle = start + width < n ? start + width : n; \
                const i64 end = start + 2 * width < n ? start + 2 * width : n; \
                i64 i = start, j = middle; \
                for (i64 k = start; k < end; k++) { \
                    _Bool right = i >= middle; \
                    if (!right && j < end) { \
                        const kind a = keys[from[i]], c = keys[from[j]]; \
                        right = c < a || (a != a && c == c); \
                    } \
                    to[k] = from[right ? j++ : i++]; \
                } \
            } \
            i64 *swap = from; from = to; to = swap; \
        } \
        if (from != (i64 *)b[1] + row * n) \
            for (i64 i = 0; i < n; i++) to[i] = from[i]; \
    }

typedef f32 f32x16 __attribute__((vector_size(64))); typedef f32 f32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef f32 f32x4 __attribute__((vector_size(16))); typedef f32 f32x4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef f32 f32x8 __attribute__((vector_size(32))); typedef f32 f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
static void fold0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    const i64 a2 = chunk % 16;
    {
        f32x16 t2 = (f32x16){0};
        f32x16 t4 = (f32x16){0};
        f32x16 t6 = (f32x16){0};
        f32x16 t8 = (f32x16){0};
        for (i64 a4 = 0; a4 < 6; a4++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4);
            t2 = (t2 + t1);
            const f32x16 t3 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 100);
            t4 = (t4 + t3);
            const f32x16 t5 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 200);
            t6 = (t6 + t5);
            const f32x16 t7 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 300);
            t8 = (t8 + t7);
        }
        const f32x16 t9 = (f32x16){t2[0], t4[0], t2[1], t4[1], t2[2], t4[2], t2[3], t4[3], t2[4], t4[4], t2[5], t4[5], t2[6], t4[6], t2[7], t4[7]};
        const f32x16 t10 = (f32x16){t2[8], t4[8], t2[9], t4[9], t2[10], t4[10], t2[11], t4[11], t2[12], t4[12], t2[13], t4[13], t2[14], t4[14], t2[15], t4[15]};
        const f32x16 t11 = (t9 + t10);
        const f32x16 t12 = (f32x16){t6[0], t8[0], t6[1], t8[1], t6[2], t8[2], t6[3], t8[3], t6[4], t8[4], t6[5], t8[5], t6[6], t8[6], t6[7], t8[7]};
        const f32x16 t13 = (f32x16){t6[8], t8[8], t6[9], t8[9], t6[10], t8[10], t6[11], t8[11], t6[12], t8[12], t6[13], t8[13], t6[14], t8[14], t6[15], t8[15]};
        const f32x16 t14 = (t12 + t13);
        const f32x16 t15 = (f32x16){t11[0], t11[1], t14[0], t14[1], t11[2], t11[3], t14[2], t14[3], t11[4], t11[5], t14[4], t14[5], t11[6], t11[7], t14[6], t14[7]};
        const f32x16 t16 = (f32x16){t11[8], t11[9], t14[8], t14[9], t11[10], t11[11], t14[10], t14[11], t11[12], t11[13], t14[12], t14[13], t11[14], t11[15], t14[14], t14[15]};
        const f32x16 t17 = (t15 + t16);
        const f32x8 t18 = (f32x8){t17[0], t17[1], t17[2], t17[3], t17[4], t17[5], t17[6], t17[7]};
        const f32x8 t19 = (f32x8){t17[8], t17[9], t17[10], t17[11], t17[12], t17[13], t17[14], t17[15]};
        const f32x8 t20 = (t18 + t19);
        const f32x4 t21 = (f32x4){t20[0], t20[1], t20[2], t20[3]};
        const f32x4 t22 = (f32x4){t20[4], t20[5], t20[6], t20[7]};
        const f32x4 t23 = (t21 + t22);
        f32 t24 = t23[0];
        f32 t25 = t23[1];
        f32 t26 = t23[2];
        f32 t27 = t23[3];
        const f32x4 t28 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6);
        f32x4 t29 = (f32x4){0};
        t29 = (t29 + t28);
        const f32x4 t30 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6 + 100);
        f32x4 t31 = (f32x4){0};
        t31 = (t31 + t30);
        const f32x4 t32 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6 + 200);
        f32x4 t33 = (f32x4){0};
        t33 = (t33 + t32);
        const f32x4 t34 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6 + 300);
        f32x4 t35 = (f32x4){0};
        t35 = (t35 + t34);
        const f32x4 t36 = (f32x4){t29[0], t31[0], t29[1], t31[1]};
        const f32x4 t37 = (f32x4){t29[2], t31[2], t29[3], t31[3]};
        const f32x4 t38 = (t36 + t37);
        const f32x4 t39 = (f32x4){t33[0], t35[0], t33[1], t35[1]};
        const f32x4 t40 = (f32x4){t33[2], t35[2], t33[3], t35[3]};
        const f32x4 t41 = (t39 + t40);
        const f32x4 t42 = (f32x4){t38[0], t38[1], t41[0], t41[1]};
        const f32x4 t43 = (f32x4){t38[2], t38[3], t41[2], t41[3]};
        const f32x4 t44 = (t42 + t43);
        const f32 t45 = (t24 + t44[0]);
        f32 t46 = t45;
        const f32 t47 = (t25 + t44[1]);
        f32 t48 = t47;
        const f32 t49 = (t26 + t44[2]);
        f32 t50 = t49;
        const f32 t51 = (t27 + t44[3]);
        f32 t52 = t51;
        const f32 t53 = (t46 * 0.009999999776482582f);
        const f32 t54 = (- t53);
        f32x16 t58 = (f32x16){0};
        const f32 t59 = (t48 * 0.009999999776482582f);
        const f32 t60 = (- t59);
        f32x16 t64 = (f32x16){0};
        const f32 t65 = (t50 * 0.009999999776482582f);
        const f32 t66 = (- t65);
        f32x16 t70 = (f32x16){0};
        const f32 t71 = (t52 * 0.009999999776482582f);
        const f32 t72 = (- t71);
        f32x16 t76 = (f32x16){0};
        for (i64 a4 = 0; a4 < 6; a4++) {
            const f32x16 t55 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4);
            const f32x16 t56 = (t55 + t54);
            const f32x16 t57 = (t56 * t56);
            t58 = (t58 + t57);
            const f32x16 t61 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 100);
            const f32x16 t62 = (t61 + t60);
            const f32x16 t63 = (t62 * t62);
            t64 = (t64 + t63);
            const f32x16 t67 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 200);
            const f32x16 t68 = (t67 + t66);
            const f32x16 t69 = (t68 * t68);
            t70 = (t70 + t69);
            const f32x16 t73 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 300);
            const f32x16 t74 = (t73 + t72);
            const f32x16 t75 = (t74 * t74);
            t76 = (t76 + t75);
        }
        const f32x16 t77 = (f32x16){t58[0], t64[0], t58[1], t64[1], t58[2], t64[2], t58[3], t64[3], t58[4], t64[4], t58[5], t64[5], t58[6], t64[6], t58[7], t64[7]};
        const f32x16 t78 = (f32x16){t58[8], t64[8], t58[9], t64[9], t58[10], t64[10], t58[11], t64[11], t58[12], t64[12], t58[13], t64[13], t58[14], t64[14], t58[15], t64[15]};
        const f32x16 t79 = (t77 + t78);
        const f32x16 t80 = (f32x16){t70[0], t76[0], t70[1], t76[1], t70[2], t76[2], t70[3], t76[3], t70[4], t76[4], t70[5], t76[5], t70[6], t76[6], t70[7], t76[7]};
        const f32x16 t81 = (f32x16){t70[8], t76[8], t70[9], t76[9], t70[10], t76[10], t70[11], t76[11], t70[12], t76[12], t70[13], t76[13], t70[14], t76[14], t70[15], t76[15]};
        const f32x16 t82 = (t80 + t81);
        const f32x16 t83 = (f32x16){t79[0], t79[1], t82[0], t82[1], t79[2], t79[3], t82[2], t82[3], t79[4], t79[5], t82[4], t82[5], t79[6], t79[7], t82[6], t82[7]};
        const f32x16 t84 = (f32x16){t79[8], t79[9], t82[8], t82[9], t79[10], t79[11], t82[10], t82[11], t79[12], t79[13], t82[12], t82[13], t79[14], t79[15], t82[14], t82[15]};
        const f32x16 t85 = (t83 + t84);
        const f32x8 t86 = (f32x8){t85[0], t85[1], t85[2], t85[3], t85[4], t85[5], t85[6], t85[7]};
        const f32x8 t87 = (f32x8){t85[8], t85[9], t85[10], t85[11], t85[12], t85[13], t85[14], t85[15]};
        const f32x8 t88 = (t86 + t87);
        const f32x4 t89 = (f32x4){t88[0], t88[1], t88[2], t88[3]};
        const f32x4 t90 = (f32x4){t88[4], t88[5], t88[6], t88[7]};
        const f32x4 t91 = (t89 + t90);
        f32 t92 = t91[0];
        f32 t93 = t91[1];
        f32 t94 = t91[2];
        f32 t95 = t91[3];
        const f32x4 t96 = (t28 + t54);
        const f32x4 t97 = (t96 * t96);
        f32x4 t98 = (f32x4){0};
        t98 = (t98 + t97);
        const f32x4 t99 = (t30 + t60);
        const f32x4 t100 = (t99 * t99);
        f32x4 t101 = (f32x4){0};
        t101 = (t101 + t100);
        const f32x4 t102 = (t32 + t66);
        const f32x4 t103 = (t102 * t102);
        f32x4 t104 = (f32x4){0};
        t104 = (t104 + t103);
        const f32x4 t105 = (t34 + t72);
        const f32x4 t106 = (t105 * t105);
        f32x4 t107 = (f32x4){0};
        t107 = (t107 + t106);
        const f32x4 t108 = (f32x4){t98[0], t101[0], t98[1], t101[1]};
        const f32x4 t109 = (f32x4){t98[2], t101[2], t98[3], t101[3]};
        const f32x4 t110 = (t108 + t109);
        const f32x4 t111 = (f32x4){t104[0], t107[0], t104[1], t107[1]};
        const f32x4 t112 = (f32x4){t104[2], t107[2], t104[3], t107[3]};
        const f32x4 t113 = (t111 + t112);
        const f32x4 t114 = (f32x4){t110[0], t110[1], t113[0], t113[1]};
        const f32x4 t115 = (f32x4){t110[2], t110[3], t113[2], t113[3]};
        const f32x4 t116 = (t114 + t115);
        const f32 t117 = (t92 + t116[0]);
        f32 t118 = t117;
        const f32 t119 = (t93 + t116[1]);
        f32 t120 = t119;
        const f32 t121 = (t94 + t116[2]);
        f32 t122 = t121;
        const f32 t123 = (t95 + t116[3]);
        f32 t124 = t123;
        const f32 t125 = (t118 * 0.009999999776482582f);
        const f32 t126 = (t125 + 0.0010000000474974513f);
        const f32 t127 = __builtin_sqrtf(t126);
        const f32 t131 = (t120 * 0.009999999776482582f);
        const f32 t132 = (t131 + 0.0010000000474974513f);
        const f32 t133 = __builtin_sqrtf(t132);
        const f32 t137 = (t122 * 0.009999999776482582f);
        const f32 t138 = (t137 + 0.0010000000474974513f);
        const f32 t139 = __builtin_sqrtf(t138);
        const f32 t143 = (t124 * 0.009999999776482582f);
        const f32 t144 = (t143 + 0.0010000000474974513f);
        const f32 t145 = __builtin_sqrtf(t144);
        for (i64 a4 = 0; a4 < 6; a4++) {
            const f32x16 t128 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4);
            const f32x16 t129 = (t128 + t54);
            const f32x16 t130 = (t129 / t127);
            const f32x16 t134 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 100);
            const f32x16 t135 = (t134 + t60);
            const f32x16 t136 = (t135 / t133);
            const f32x16 t140 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 200);
            const f32x16 t141 = (t140 + t66);
            const f32x16 t142 = (t141 / t139);
            const f32x16 t146 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 300);
            const f32x16 t147 = (t146 + t72);
            const f32x16 t148 = (t147 / t145);
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4) = t130;
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4 + 100) = t136;
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4 + 200) = t142;
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4 + 300) = t148;
        }
        const f32x4 t149 = (t96 / t127);
        const f32x4 t150 = (t99 / t133);
        const f32x4 t151 = (t102 / t139);
        const f32x4 t152 = (t105 / t145);
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6) = t149;
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6 + 100) = t150;
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6 + 200) = t151;
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6 + 300) = t152;
    }
}
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[1]}; if (seconds) started = lamina_clock(); parallel(16, fold0_64x100, b); if (seconds) seconds[0] = lamina_clock() - started; }
}
