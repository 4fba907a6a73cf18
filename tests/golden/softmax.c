/*
fold0_64x100:
split(a1, 64) -> a2, a3
split(a3, 16) -> a4, a5
bind(a5, vector)
bind(a4, unroll)
bind(a0, parallel)
stage(%4, a0)
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
typedef f32 f32x2 __attribute__((vector_size(8))); typedef f32 f32x2u __attribute__((vector_size(8), aligned(4), may_alias));
typedef f32 f32x4 __attribute__((vector_size(16))); typedef f32 f32x4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef f32 f32x8 __attribute__((vector_size(32))); typedef f32 f32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef i32 i32x16 __attribute__((vector_size(64))); typedef i32 i32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef i32 i32x2 __attribute__((vector_size(8))); typedef i32 i32x2u __attribute__((vector_size(8), aligned(4), may_alias));
typedef i32 i32x4 __attribute__((vector_size(16))); typedef i32 i32x4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef i32 i32x8 __attribute__((vector_size(32))); typedef i32 i32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef u32 u32x16 __attribute__((vector_size(64))); typedef u32 u32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef u32 u32x4 __attribute__((vector_size(16))); typedef u32 u32x4u __attribute__((vector_size(16), aligned(4), may_alias));
static void fold0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    f32 p2[128] __attribute__((aligned(64)));
    const i64 a0 = chunk % 64;
    {
        f32x16 t2 = ((f32)(-__builtin_inff()) - (f32x16){0});
        f32x16 t5 = ((f32)(-__builtin_inff()) - (f32x16){0});
        f32x16 t8 = ((f32)(-__builtin_inff()) - (f32x16){0});
        f32x16 t11 = ((f32)(-__builtin_inff()) - (f32x16){0});
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2);
            const i32x16 t3 = ((t2 > t1) | (t2 != t2));
            t2 = (f32x16)((t3 & (i32x16)t2) | (~t3 & (i32x16)t1));
            const f32x16 t4 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2 + 16);
            const i32x16 t6 = ((t5 > t4) | (t5 != t5));
            t5 = (f32x16)((t6 & (i32x16)t5) | (~t6 & (i32x16)t4));
            const f32x16 t7 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2 + 32);
            const i32x16 t9 = ((t8 > t7) | (t8 != t8));
            t8 = (f32x16)((t9 & (i32x16)t8) | (~t9 & (i32x16)t7));
            const f32x16 t10 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2 + 48);
            const i32x16 t12 = ((t11 > t10) | (t11 != t11));
            t11 = (f32x16)((t12 & (i32x16)t11) | (~t12 & (i32x16)t10));
        }
        const f32x16 t13 = *(const f32x16u *)(p0 + 100 * a0 + 64 * 1);
        const i32x16 t14 = ((t2 > t13) | (t2 != t2));
        t2 = (f32x16)((t14 & (i32x16)t2) | (~t14 & (i32x16)t13));
        const f32x16 t15 = *(const f32x16u *)(p0 + 100 * a0 + 64 * 1 + 16);
        const i32x16 t16 = ((t5 > t15) | (t5 != t5));
        t5 = (f32x16)((t16 & (i32x16)t5) | (~t16 & (i32x16)t15));
        const i32x16 t17 = ((t2 > t5) | (t2 != t2));
        const f32x16 t18 = (f32x16)((t17 & (i32x16)t2) | (~t17 & (i32x16)t5));
        const i32x16 t19 = ((t8 > t11) | (t8 != t8));
        const f32x16 t20 = (f32x16)((t19 & (i32x16)t8) | (~t19 & (i32x16)t11));
        const i32x16 t21 = ((t18 > t20) | (t18 != t18));
        const f32x16 t22 = (f32x16)((t21 & (i32x16)t18) | (~t21 & (i32x16)t20));
        const f32x8 t23 = (f32x8){t22[0], t22[1], t22[2], t22[3], t22[4], t22[5], t22[6], t22[7]};
        const f32x8 t24 = (f32x8){t22[8], t22[9], t22[10], t22[11], t22[12], t22[13], t22[14], t22[15]};
        const i32x8 t25 = ((t23 > t24) | (t23 != t23));
        const f32x8 t26 = (f32x8)((t25 & (i32x8)t23) | (~t25 & (i32x8)t24));
        const f32x4 t27 = (f32x4){t26[0], t26[1], t26[2], t26[3]};
        const f32x4 t28 = (f32x4){t26[4], t26[5], t26[6], t26[7]};
        const i32x4 t29 = ((t27 > t28) | (t27 != t27));
        const f32x4 t30 = (f32x4)((t29 & (i32x4)t27) | (~t29 & (i32x4)t28));
        const f32x2 t31 = (f32x2){t30[0], t30[1]};
        const f32x2 t32 = (f32x2){t30[2], t30[3]};
        const i32x2 t33 = ((t31 > t32) | (t31 != t31));
        const f32x2 t34 = (f32x2)((t33 & (i32x2)t31) | (~t33 & (i32x2)t32));
        const f32 t35 = t34[0];
        const f32 t36 = t34[1];
        const f32 t37 = (t35 > t36 || t35 != t35 ? t35 : t36);
        f32 t38 = t37;
        const f32x4 t39 = *(const f32x4u *)(p0 + 100 * a0 + 64 * 1 + 16 * 2);
        f32x4 t40 = ((f32)(-__builtin_inff()) - (f32x4){0});
        const i32x4 t41 = ((t40 > t39) | (t40 != t40));
        t40 = (f32x4)((t41 & (i32x4)t40) | (~t41 & (i32x4)t39));
        const f32x2 t42 = (f32x2){t40[0], t40[1]};
        const f32x2 t43 = (f32x2){t40[2], t40[3]};
        const i32x2 t44 = ((t42 > t43) | (t42 != t42));
        const f32x2 t45 = (f32x2)((t44 & (i32x2)t42) | (~t44 & (i32x2)t43));
        const f32 t46 = t45[0];
        const f32 t47 = t45[1];
        const f32 t48 = (t46 > t47 || t46 != t46 ? t46 : t47);
        const f32 t49 = (t38 > t48 || t38 != t38 ? t38 : t48);
        f32 t50 = t49;
        const f32 t52 = (- t50);
        f32x16 t87 = (f32x16){0};
        f32x16 t123 = (f32x16){0};
        f32x16 t159 = (f32x16){0};
        f32x16 t195 = (f32x16){0};
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t51 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2);
            const f32x16 t53 = (t51 + t52);
            const i32x16 t54 = (t53 < -104.0f);
            const f32x16 t55 = (f32x16)((t54 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t54 & (i32x16)t53));
            const i32x16 t56 = (89.0f < t55);
            const f32x16 t57 = (f32x16)((t56 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t56 & (i32x16)t55));
            const f32x16 t58 = (t57 * 1.4426950216293335f);
            const f32x16 t59 = (t58 + 12583166.0f);
            const u32x16 t60 = (u32x16)t59;
            const u32x16 t61 = (t60 >> 1);
            const u32x16 t62 = (- t61);
            const u32x16 t63 = (t60 + t62);
            const u32x16 t64 = (t63 << 23);
            const f32x16 t65 = (f32x16)t64;
            const u32x16 t66 = (t61 << 23);
            const f32x16 t67 = (f32x16)t66;
            const f32x16 t68 = (t59 + -12583166.0f);
            const f32x16 t69 = (t68 * -1.428606765330187e-06f);
            const f32x16 t70 = (t68 * -0.693145751953125f);
            const f32x16 t71 = (t57 + t70);
            const f32x16 t72 = (t71 + t69);
            const f32x16 t73 = (0.0013820745516568422f * t72);
            const f32x16 t74 = (t73 + 0.008369248360395432f);
            const f32x16 t75 = (t74 * t72);
            const f32x16 t76 = (t75 + 0.041668280959129333f);
            const f32x16 t77 = (t76 * t72);
            const f32x16 t78 = (t77 + 0.16666516661643982f);
            const f32x16 t79 = (t78 * t72);
            const f32x16 t80 = (t79 + 0.4999999403953552f);
            const f32x16 t81 = (t72 * t72);
            const f32x16 t82 = (t81 * t80);
            const f32x16 t83 = (t82 + t72);
            const f32x16 t84 = (t83 + 1.0f);
            const f32x16 t85 = (t84 * t67);
            const f32x16 t86 = (t85 * t65);
            t87 = (t87 + t86);
            const f32x16 t88 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2 + 16);
            const f32x16 t89 = (t88 + t52);
            const i32x16 t90 = (t89 < -104.0f);
            const f32x16 t91 = (f32x16)((t90 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t90 & (i32x16)t89));
            const i32x16 t92 = (89.0f < t91);
            const f32x16 t93 = (f32x16)((t92 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t92 & (i32x16)t91));
            const f32x16 t94 = (t93 * 1.4426950216293335f);
            const f32x16 t95 = (t94 + 12583166.0f);
            const u32x16 t96 = (u32x16)t95;
            const u32x16 t97 = (t96 >> 1);
            const u32x16 t98 = (- t97);
            const u32x16 t99 = (t96 + t98);
            const u32x16 t100 = (t99 << 23);
            const f32x16 t101 = (f32x16)t100;
            const u32x16 t102 = (t97 << 23);
            const f32x16 t103 = (f32x16)t102;
            const f32x16 t104 = (t95 + -12583166.0f);
            const f32x16 t105 = (t104 * -1.428606765330187e-06f);
            const f32x16 t106 = (t104 * -0.693145751953125f);
            const f32x16 t107 = (t93 + t106);
            const f32x16 t108 = (t107 + t105);
            const f32x16 t109 = (0.0013820745516568422f * t108);
            const f32x16 t110 = (t109 + 0.008369248360395432f);
            const f32x16 t111 = (t110 * t108);
            const f32x16 t112 = (t111 + 0.041668280959129333f);
            const f32x16 t113 = (t112 * t108);
            const f32x16 t114 = (t113 + 0.16666516661643982f);
            const f32x16 t115 = (t114 * t108);
            const f32x16 t116 = (t115 + 0.4999999403953552f);
            const f32x16 t117 = (t108 * t108);
            const f32x16 t118 = (t117 * t116);
            const f32x16 t119 = (t118 + t108);
            const f32x16 t120 = (t119 + 1.0f);
            const f32x16 t121 = (t120 * t103);
            const f32x16 t122 = (t121 * t101);
            t123 = (t123 + t122);
            const f32x16 t124 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2 + 32);
            const f32x16 t125 = (t124 + t52);
            const i32x16 t126 = (t125 < -104.0f);
            const f32x16 t127 = (f32x16)((t126 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t126 & (i32x16)t125));
            const i32x16 t128 = (89.0f < t127);
            const f32x16 t129 = (f32x16)((t128 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t128 & (i32x16)t127));
            const f32x16 t130 = (t129 * 1.4426950216293335f);
            const f32x16 t131 = (t130 + 12583166.0f);
            const u32x16 t132 = (u32x16)t131;
            const u32x16 t133 = (t132 >> 1);
            const u32x16 t134 = (- t133);
            const u32x16 t135 = (t132 + t134);
            const u32x16 t136 = (t135 << 23);
            const f32x16 t137 = (f32x16)t136;
            const u32x16 t138 = (t133 << 23);
            const f32x16 t139 = (f32x16)t138;
            const f32x16 t140 = (t131 + -12583166.0f);
            const f32x16 t141 = (t140 * -1.428606765330187e-06f);
            const f32x16 t142 = (t140 * -0.693145751953125f);
            const f32x16 t143 = (t129 + t142);
            const f32x16 t144 = (t143 + t141);
            const f32x16 t145 = (0.0013820745516568422f * t144);
            const f32x16 t146 = (t145 + 0.008369248360395432f);
            const f32x16 t147 = (t146 * t144);
            const f32x16 t148 = (t147 + 0.041668280959129333f);
            const f32x16 t149 = (t148 * t144);
            const f32x16 t150 = (t149 + 0.16666516661643982f);
            const f32x16 t151 = (t150 * t144);
            const f32x16 t152 = (t151 + 0.4999999403953552f);
            const f32x16 t153 = (t144 * t144);
            const f32x16 t154 = (t153 * t152);
            const f32x16 t155 = (t154 + t144);
            const f32x16 t156 = (t155 + 1.0f);
            const f32x16 t157 = (t156 * t139);
            const f32x16 t158 = (t157 * t137);
            t159 = (t159 + t158);
            const f32x16 t160 = *(const f32x16u *)(p0 + 100 * a0 + 64 * a2 + 48);
            const f32x16 t161 = (t160 + t52);
            const i32x16 t162 = (t161 < -104.0f);
            const f32x16 t163 = (f32x16)((t162 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t162 & (i32x16)t161));
            const i32x16 t164 = (89.0f < t163);
            const f32x16 t165 = (f32x16)((t164 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t164 & (i32x16)t163));
            const f32x16 t166 = (t165 * 1.4426950216293335f);
            const f32x16 t167 = (t166 + 12583166.0f);
            const u32x16 t168 = (u32x16)t167;
            const u32x16 t169 = (t168 >> 1);
            const u32x16 t170 = (- t169);
            const u32x16 t171 = (t168 + t170);
            const u32x16 t172 = (t171 << 23);
            const f32x16 t173 = (f32x16)t172;
            const u32x16 t174 = (t169 << 23);
            const f32x16 t175 = (f32x16)t174;
            const f32x16 t176 = (t167 + -12583166.0f);
            const f32x16 t177 = (t176 * -1.428606765330187e-06f);
            const f32x16 t178 = (t176 * -0.693145751953125f);
            const f32x16 t179 = (t165 + t178);
            const f32x16 t180 = (t179 + t177);
            const f32x16 t181 = (0.0013820745516568422f * t180);
            const f32x16 t182 = (t181 + 0.008369248360395432f);
            const f32x16 t183 = (t182 * t180);
            const f32x16 t184 = (t183 + 0.041668280959129333f);
            const f32x16 t185 = (t184 * t180);
            const f32x16 t186 = (t185 + 0.16666516661643982f);
            const f32x16 t187 = (t186 * t180);
            const f32x16 t188 = (t187 + 0.4999999403953552f);
            const f32x16 t189 = (t180 * t180);
            const f32x16 t190 = (t189 * t188);
            const f32x16 t191 = (t190 + t180);
            const f32x16 t192 = (t191 + 1.0f);
            const f32x16 t193 = (t192 * t175);
            const f32x16 t194 = (t193 * t173);
            t195 = (t195 + t194);
            *(f32x16u *)(p2 + 64 * a2) = t86;
            *(f32x16u *)(p2 + 64 * a2 + 16) = t122;
            *(f32x16u *)(p2 + 64 * a2 + 32) = t158;
            *(f32x16u *)(p2 + 64 * a2 + 48) = t194;
        }
        const f32x16 t196 = (t13 + t52);
        const i32x16 t197 = (t196 < -104.0f);
        const f32x16 t198 = (f32x16)((t197 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t197 & (i32x16)t196));
        const i32x16 t199 = (89.0f < t198);
        const f32x16 t200 = (f32x16)((t199 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t199 & (i32x16)t198));
        const f32x16 t201 = (t200 * 1.4426950216293335f);
        const f32x16 t202 = (t201 + 12583166.0f);
        const u32x16 t203 = (u32x16)t202;
        const u32x16 t204 = (t203 >> 1);
        const u32x16 t205 = (- t204);
        const u32x16 t206 = (t203 + t205);
        const u32x16 t207 = (t206 << 23);
        const f32x16 t208 = (f32x16)t207;
        const u32x16 t209 = (t204 << 23);
        const f32x16 t210 = (f32x16)t209;
        const f32x16 t211 = (t202 + -12583166.0f);
        const f32x16 t212 = (t211 * -1.428606765330187e-06f);
        const f32x16 t213 = (t211 * -0.693145751953125f);
        const f32x16 t214 = (t200 + t213);
        const f32x16 t215 = (t214 + t212);
        const f32x16 t216 = (0.0013820745516568422f * t215);
        const f32x16 t217 = (t216 + 0.008369248360395432f);
        const f32x16 t218 = (t217 * t215);
        const f32x16 t219 = (t218 + 0.041668280959129333f);
        const f32x16 t220 = (t219 * t215);
        const f32x16 t221 = (t220 + 0.16666516661643982f);
        const f32x16 t222 = (t221 * t215);
        const f32x16 t223 = (t222 + 0.4999999403953552f);
        const f32x16 t224 = (t215 * t215);
        const f32x16 t225 = (t224 * t223);
        const f32x16 t226 = (t225 + t215);
        const f32x16 t227 = (t226 + 1.0f);
        const f32x16 t228 = (t227 * t210);
        const f32x16 t229 = (t228 * t208);
        t87 = (t87 + t229);
        const f32x16 t230 = (t15 + t52);
        const i32x16 t231 = (t230 < -104.0f);
        const f32x16 t232 = (f32x16)((t231 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t231 & (i32x16)t230));
        const i32x16 t233 = (89.0f < t232);
        const f32x16 t234 = (f32x16)((t233 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t233 & (i32x16)t232));
        const f32x16 t235 = (t234 * 1.4426950216293335f);
        const f32x16 t236 = (t235 + 12583166.0f);
        const u32x16 t237 = (u32x16)t236;
        const u32x16 t238 = (t237 >> 1);
        const u32x16 t239 = (- t238);
        const u32x16 t240 = (t237 + t239);
        const u32x16 t241 = (t240 << 23);
        const f32x16 t242 = (f32x16)t241;
        const u32x16 t243 = (t238 << 23);
        const f32x16 t244 = (f32x16)t243;
        const f32x16 t245 = (t236 + -12583166.0f);
        const f32x16 t246 = (t245 * -1.428606765330187e-06f);
        const f32x16 t247 = (t245 * -0.693145751953125f);
        const f32x16 t248 = (t234 + t247);
        const f32x16 t249 = (t248 + t246);
        const f32x16 t250 = (0.0013820745516568422f * t249);
        const f32x16 t251 = (t250 + 0.008369248360395432f);
        const f32x16 t252 = (t251 * t249);
        const f32x16 t253 = (t252 + 0.041668280959129333f);
        const f32x16 t254 = (t253 * t249);
        const f32x16 t255 = (t254 + 0.16666516661643982f);
        const f32x16 t256 = (t255 * t249);
        const f32x16 t257 = (t256 + 0.4999999403953552f);
        const f32x16 t258 = (t249 * t249);
        const f32x16 t259 = (t258 * t257);
        const f32x16 t260 = (t259 + t249);
        const f32x16 t261 = (t260 + 1.0f);
        const f32x16 t262 = (t261 * t244);
        const f32x16 t263 = (t262 * t242);
        t123 = (t123 + t263);
        *(f32x16u *)(p2 + 64 * 1) = t229;
        *(f32x16u *)(p2 + 64 * 1 + 16) = t263;
        const f32x16 t264 = (t87 + t123);
        const f32x16 t265 = (t159 + t195);
        const f32x16 t266 = (t264 + t265);
        const f32x8 t267 = (f32x8){t266[0], t266[1], t266[2], t266[3], t266[4], t266[5], t266[6], t266[7]};
        const f32x8 t268 = (f32x8){t266[8], t266[9], t266[10], t266[11], t266[12], t266[13], t266[14], t266[15]};
        const f32x8 t269 = (t267 + t268);
        const f32x4 t270 = (f32x4){t269[0], t269[1], t269[2], t269[3]};
        const f32x4 t271 = (f32x4){t269[4], t269[5], t269[6], t269[7]};
        const f32x4 t272 = (t270 + t271);
        const f32x2 t273 = (f32x2){t272[0], t272[1]};
        const f32x2 t274 = (f32x2){t272[2], t272[3]};
        const f32x2 t275 = (t273 + t274);
        const f32 t276 = t275[0];
        const f32 t277 = t275[1];
        const f32 t278 = (t276 + t277);
        f32 t279 = t278;
        const f32x4 t280 = (t39 + t52);
        const i32x4 t281 = (t280 < -104.0f);
        const f32x4 t282 = (f32x4)((t281 & (i32x4)((f32)(-104.0f) - (f32x4){0})) | (~t281 & (i32x4)t280));
        const i32x4 t283 = (89.0f < t282);
        const f32x4 t284 = (f32x4)((t283 & (i32x4)((f32)(89.0f) - (f32x4){0})) | (~t283 & (i32x4)t282));
        const f32x4 t285 = (t284 * 1.4426950216293335f);
        const f32x4 t286 = (t285 + 12583166.0f);
        const u32x4 t287 = (u32x4)t286;
        const u32x4 t288 = (t287 >> 1);
        const u32x4 t289 = (- t288);
        const u32x4 t290 = (t287 + t289);
        const u32x4 t291 = (t290 << 23);
        const f32x4 t292 = (f32x4)t291;
        const u32x4 t293 = (t288 << 23);
        const f32x4 t294 = (f32x4)t293;
        const f32x4 t295 = (t286 + -12583166.0f);
        const f32x4 t296 = (t295 * -1.428606765330187e-06f);
        const f32x4 t297 = (t295 * -0.693145751953125f);
        const f32x4 t298 = (t284 + t297);
        const f32x4 t299 = (t298 + t296);
        const f32x4 t300 = (0.0013820745516568422f * t299);
        const f32x4 t301 = (t300 + 0.008369248360395432f);
        const f32x4 t302 = (t301 * t299);
        const f32x4 t303 = (t302 + 0.041668280959129333f);
        const f32x4 t304 = (t303 * t299);
        const f32x4 t305 = (t304 + 0.16666516661643982f);
        const f32x4 t306 = (t305 * t299);
        const f32x4 t307 = (t306 + 0.4999999403953552f);
        const f32x4 t308 = (t299 * t299);
        const f32x4 t309 = (t308 * t307);
        const f32x4 t310 = (t309 + t299);
        const f32x4 t311 = (t310 + 1.0f);
        const f32x4 t312 = (t311 * t294);
        const f32x4 t313 = (t312 * t292);
        f32x4 t314 = (f32x4){0};
        t314 = (t314 + t313);
        *(f32x4u *)(p2 + 64 * 1 + 16 * 2) = t313;
        const f32x2 t315 = (f32x2){t314[0], t314[1]};
        const f32x2 t316 = (f32x2){t314[2], t314[3]};
        const f32x2 t317 = (t315 + t316);
        const f32 t318 = t317[0];
        const f32 t319 = t317[1];
        const f32 t320 = (t318 + t319);
        const f32 t321 = (t279 + t320);
        f32 t322 = t321;
        for (i64 a2 = 0; a2 < 1; a2++) {
            const f32x16 t323 = *(const f32x16u *)(p2 + 64 * a2);
            const f32x16 t324 = (t323 / t322);
            const f32x16 t325 = *(const f32x16u *)(p2 + 64 * a2 + 16);
            const f32x16 t326 = (t325 / t322);
            const f32x16 t327 = *(const f32x16u *)(p2 + 64 * a2 + 32);
            const f32x16 t328 = (t327 / t322);
            const f32x16 t329 = *(const f32x16u *)(p2 + 64 * a2 + 48);
            const f32x16 t330 = (t329 / t322);
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2) = t324;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 16) = t326;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 32) = t328;
            *(f32x16u *)(p1 + 100 * a0 + 64 * a2 + 48) = t330;
        }
        const f32x16 t331 = *(const f32x16u *)(p2 + 64 * 1);
        const f32x16 t332 = (t331 / t322);
        const f32x16 t333 = *(const f32x16u *)(p2 + 64 * 1 + 16);
        const f32x16 t334 = (t333 / t322);
        *(f32x16u *)(p1 + 100 * a0 + 64 * 1) = t332;
        *(f32x16u *)(p1 + 100 * a0 + 64 * 1 + 16) = t334;
        const f32x4 t335 = *(const f32x4u *)(p2 + 64 * 1 + 16 * 2);
        const f32x4 t336 = (t335 / t322);
        *(f32x4u *)(p1 + 100 * a0 + 64 * 1 + 16 * 2) = t336;
    }
}
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[1]}; if (seconds) started = lamina_clock(); parallel(64, fold0_64x100, b); if (seconds) seconds[0] = lamina_clock() - started; }
}
