/*
fold0_64x100:
split(a0, 4) -> a2, a3
bind(a3, unroll)
reorder(a2)
split(a1, 16) -> a4, a5
bind(a5, vector)
bind(a2, parallel)
stage(%4, a2)
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
typedef i32 i32x16 __attribute__((vector_size(64))); typedef i32 i32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef i32 i32x4 __attribute__((vector_size(16))); typedef i32 i32x4u __attribute__((vector_size(16), aligned(4), may_alias));
typedef i32 i32x8 __attribute__((vector_size(32))); typedef i32 i32x8u __attribute__((vector_size(32), aligned(4), may_alias));
typedef u32 u32x16 __attribute__((vector_size(64))); typedef u32 u32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef u32 u32x4 __attribute__((vector_size(16))); typedef u32 u32x4u __attribute__((vector_size(16), aligned(4), may_alias));
static void fold0_64x100(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    f32 *restrict p1 = b[1];
    f32 p2[448] __attribute__((aligned(64)));
    const i64 a2 = chunk % 16;
    {
        f32x16 t2 = ((f32)(-__builtin_inff()) - (f32x16){0});
        f32x16 t5 = ((f32)(-__builtin_inff()) - (f32x16){0});
        f32x16 t8 = ((f32)(-__builtin_inff()) - (f32x16){0});
        f32x16 t11 = ((f32)(-__builtin_inff()) - (f32x16){0});
        for (i64 a4 = 0; a4 < 6; a4++) {
            const f32x16 t1 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4);
            const i32x16 t3 = ((t2 > t1) | (t2 != t2));
            t2 = (f32x16)((t3 & (i32x16)t2) | (~t3 & (i32x16)t1));
            const f32x16 t4 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 100);
            const i32x16 t6 = ((t5 > t4) | (t5 != t5));
            t5 = (f32x16)((t6 & (i32x16)t5) | (~t6 & (i32x16)t4));
            const f32x16 t7 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 200);
            const i32x16 t9 = ((t8 > t7) | (t8 != t8));
            t8 = (f32x16)((t9 & (i32x16)t8) | (~t9 & (i32x16)t7));
            const f32x16 t10 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 300);
            const i32x16 t12 = ((t11 > t10) | (t11 != t11));
            t11 = (f32x16)((t12 & (i32x16)t11) | (~t12 & (i32x16)t10));
        }
        const f32x16 t13 = (f32x16){t2[0], t5[0], t2[1], t5[1], t2[2], t5[2], t2[3], t5[3], t2[4], t5[4], t2[5], t5[5], t2[6], t5[6], t2[7], t5[7]};
        const f32x16 t14 = (f32x16){t2[8], t5[8], t2[9], t5[9], t2[10], t5[10], t2[11], t5[11], t2[12], t5[12], t2[13], t5[13], t2[14], t5[14], t2[15], t5[15]};
        const i32x16 t15 = ((t13 > t14) | (t13 != t13));
        const f32x16 t16 = (f32x16)((t15 & (i32x16)t13) | (~t15 & (i32x16)t14));
        const f32x16 t17 = (f32x16){t8[0], t11[0], t8[1], t11[1], t8[2], t11[2], t8[3], t11[3], t8[4], t11[4], t8[5], t11[5], t8[6], t11[6], t8[7], t11[7]};
        const f32x16 t18 = (f32x16){t8[8], t11[8], t8[9], t11[9], t8[10], t11[10], t8[11], t11[11], t8[12], t11[12], t8[13], t11[13], t8[14], t11[14], t8[15], t11[15]};
        const i32x16 t19 = ((t17 > t18) | (t17 != t17));
        const f32x16 t20 = (f32x16)((t19 & (i32x16)t17) | (~t19 & (i32x16)t18));
        const f32x16 t21 = (f32x16){t16[0], t16[1], t20[0], t20[1], t16[2], t16[3], t20[2], t20[3], t16[4], t16[5], t20[4], t20[5], t16[6], t16[7], t20[6], t20[7]};
        const f32x16 t22 = (f32x16){t16[8], t16[9], t20[8], t20[9], t16[10], t16[11], t20[10], t20[11], t16[12], t16[13], t20[12], t20[13], t16[14], t16[15], t20[14], t20[15]};
        const i32x16 t23 = ((t21 > t22) | (t21 != t21));
        const f32x16 t24 = (f32x16)((t23 & (i32x16)t21) | (~t23 & (i32x16)t22));
        const f32x8 t25 = (f32x8){t24[0], t24[1], t24[2], t24[3], t24[4], t24[5], t24[6], t24[7]};
        const f32x8 t26 = (f32x8){t24[8], t24[9], t24[10], t24[11], t24[12], t24[13], t24[14], t24[15]};
        const i32x8 t27 = ((t25 > t26) | (t25 != t25));
        const f32x8 t28 = (f32x8)((t27 & (i32x8)t25) | (~t27 & (i32x8)t26));
        const f32x4 t29 = (f32x4){t28[0], t28[1], t28[2], t28[3]};
        const f32x4 t30 = (f32x4){t28[4], t28[5], t28[6], t28[7]};
        const i32x4 t31 = ((t29 > t30) | (t29 != t29));
        const f32x4 t32 = (f32x4)((t31 & (i32x4)t29) | (~t31 & (i32x4)t30));
        f32 t33 = t32[0];
        f32 t34 = t32[1];
        f32 t35 = t32[2];
        f32 t36 = t32[3];
        const f32x4 t37 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6);
        f32x4 t38 = ((f32)(-__builtin_inff()) - (f32x4){0});
        const i32x4 t39 = ((t38 > t37) | (t38 != t38));
        t38 = (f32x4)((t39 & (i32x4)t38) | (~t39 & (i32x4)t37));
        const f32x4 t40 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6 + 100);
        f32x4 t41 = ((f32)(-__builtin_inff()) - (f32x4){0});
        const i32x4 t42 = ((t41 > t40) | (t41 != t41));
        t41 = (f32x4)((t42 & (i32x4)t41) | (~t42 & (i32x4)t40));
        const f32x4 t43 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6 + 200);
        f32x4 t44 = ((f32)(-__builtin_inff()) - (f32x4){0});
        const i32x4 t45 = ((t44 > t43) | (t44 != t44));
        t44 = (f32x4)((t45 & (i32x4)t44) | (~t45 & (i32x4)t43));
        const f32x4 t46 = *(const f32x4u *)(p0 + 400 * a2 + 16 * 6 + 300);
        f32x4 t47 = ((f32)(-__builtin_inff()) - (f32x4){0});
        const i32x4 t48 = ((t47 > t46) | (t47 != t47));
        t47 = (f32x4)((t48 & (i32x4)t47) | (~t48 & (i32x4)t46));
        const f32x4 t49 = (f32x4){t38[0], t41[0], t38[1], t41[1]};
        const f32x4 t50 = (f32x4){t38[2], t41[2], t38[3], t41[3]};
        const i32x4 t51 = ((t49 > t50) | (t49 != t49));
        const f32x4 t52 = (f32x4)((t51 & (i32x4)t49) | (~t51 & (i32x4)t50));
        const f32x4 t53 = (f32x4){t44[0], t47[0], t44[1], t47[1]};
        const f32x4 t54 = (f32x4){t44[2], t47[2], t44[3], t47[3]};
        const i32x4 t55 = ((t53 > t54) | (t53 != t53));
        const f32x4 t56 = (f32x4)((t55 & (i32x4)t53) | (~t55 & (i32x4)t54));
        const f32x4 t57 = (f32x4){t52[0], t52[1], t56[0], t56[1]};
        const f32x4 t58 = (f32x4){t52[2], t52[3], t56[2], t56[3]};
        const i32x4 t59 = ((t57 > t58) | (t57 != t57));
        const f32x4 t60 = (f32x4)((t59 & (i32x4)t57) | (~t59 & (i32x4)t58));
        const f32 t61 = (t33 > t60[0] || t33 != t33 ? t33 : t60[0]);
        f32 t62 = t61;
        const f32 t63 = (t34 > t60[1] || t34 != t34 ? t34 : t60[1]);
        f32 t64 = t63;
        const f32 t65 = (t35 > t60[2] || t35 != t35 ? t35 : t60[2]);
        f32 t66 = t65;
        const f32 t67 = (t36 > t60[3] || t36 != t36 ? t36 : t60[3]);
        f32 t68 = t67;
        const f32 t70 = (- t62);
        f32x16 t105 = (f32x16){0};
        const f32 t107 = (- t64);
        f32x16 t142 = (f32x16){0};
        const f32 t144 = (- t66);
        f32x16 t179 = (f32x16){0};
        const f32 t181 = (- t68);
        f32x16 t216 = (f32x16){0};
        for (i64 a4 = 0; a4 < 6; a4++) {
            const f32x16 t69 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4);
            const f32x16 t71 = (t69 + t70);
            const i32x16 t72 = (t71 < -104.0f);
            const f32x16 t73 = (f32x16)((t72 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t72 & (i32x16)t71));
            const i32x16 t74 = (89.0f < t73);
            const f32x16 t75 = (f32x16)((t74 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t74 & (i32x16)t73));
            const f32x16 t76 = (t75 * 1.4426950216293335f);
            const f32x16 t77 = (t76 + 12583166.0f);
            const u32x16 t78 = (u32x16)t77;
            const u32x16 t79 = (t78 >> 1);
            const u32x16 t80 = (- t79);
            const u32x16 t81 = (t78 + t80);
            const u32x16 t82 = (t81 << 23);
            const f32x16 t83 = (f32x16)t82;
            const u32x16 t84 = (t79 << 23);
            const f32x16 t85 = (f32x16)t84;
            const f32x16 t86 = (t77 + -12583166.0f);
            const f32x16 t87 = (t86 * -1.428606765330187e-06f);
            const f32x16 t88 = (t86 * -0.693145751953125f);
            const f32x16 t89 = (t75 + t88);
            const f32x16 t90 = (t89 + t87);
            const f32x16 t91 = (0.0013820745516568422f * t90);
            const f32x16 t92 = (t91 + 0.008369248360395432f);
            const f32x16 t93 = (t92 * t90);
            const f32x16 t94 = (t93 + 0.041668280959129333f);
            const f32x16 t95 = (t94 * t90);
            const f32x16 t96 = (t95 + 0.16666516661643982f);
            const f32x16 t97 = (t96 * t90);
            const f32x16 t98 = (t97 + 0.4999999403953552f);
            const f32x16 t99 = (t90 * t90);
            const f32x16 t100 = (t99 * t98);
            const f32x16 t101 = (t100 + t90);
            const f32x16 t102 = (t101 + 1.0f);
            const f32x16 t103 = (t102 * t85);
            const f32x16 t104 = (t103 * t83);
            t105 = (t105 + t104);
            const f32x16 t106 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 100);
            const f32x16 t108 = (t106 + t107);
            const i32x16 t109 = (t108 < -104.0f);
            const f32x16 t110 = (f32x16)((t109 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t109 & (i32x16)t108));
            const i32x16 t111 = (89.0f < t110);
            const f32x16 t112 = (f32x16)((t111 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t111 & (i32x16)t110));
            const f32x16 t113 = (t112 * 1.4426950216293335f);
            const f32x16 t114 = (t113 + 12583166.0f);
            const u32x16 t115 = (u32x16)t114;
            const u32x16 t116 = (t115 >> 1);
            const u32x16 t117 = (- t116);
            const u32x16 t118 = (t115 + t117);
            const u32x16 t119 = (t118 << 23);
            const f32x16 t120 = (f32x16)t119;
            const u32x16 t121 = (t116 << 23);
            const f32x16 t122 = (f32x16)t121;
            const f32x16 t123 = (t114 + -12583166.0f);
            const f32x16 t124 = (t123 * -1.428606765330187e-06f);
            const f32x16 t125 = (t123 * -0.693145751953125f);
            const f32x16 t126 = (t112 + t125);
            const f32x16 t127 = (t126 + t124);
            const f32x16 t128 = (0.0013820745516568422f * t127);
            const f32x16 t129 = (t128 + 0.008369248360395432f);
            const f32x16 t130 = (t129 * t127);
            const f32x16 t131 = (t130 + 0.041668280959129333f);
            const f32x16 t132 = (t131 * t127);
            const f32x16 t133 = (t132 + 0.16666516661643982f);
            const f32x16 t134 = (t133 * t127);
            const f32x16 t135 = (t134 + 0.4999999403953552f);
            const f32x16 t136 = (t127 * t127);
            const f32x16 t137 = (t136 * t135);
            const f32x16 t138 = (t137 + t127);
            const f32x16 t139 = (t138 + 1.0f);
            const f32x16 t140 = (t139 * t122);
            const f32x16 t141 = (t140 * t120);
            t142 = (t142 + t141);
            const f32x16 t143 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 200);
            const f32x16 t145 = (t143 + t144);
            const i32x16 t146 = (t145 < -104.0f);
            const f32x16 t147 = (f32x16)((t146 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t146 & (i32x16)t145));
            const i32x16 t148 = (89.0f < t147);
            const f32x16 t149 = (f32x16)((t148 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t148 & (i32x16)t147));
            const f32x16 t150 = (t149 * 1.4426950216293335f);
            const f32x16 t151 = (t150 + 12583166.0f);
            const u32x16 t152 = (u32x16)t151;
            const u32x16 t153 = (t152 >> 1);
            const u32x16 t154 = (- t153);
            const u32x16 t155 = (t152 + t154);
            const u32x16 t156 = (t155 << 23);
            const f32x16 t157 = (f32x16)t156;
            const u32x16 t158 = (t153 << 23);
            const f32x16 t159 = (f32x16)t158;
            const f32x16 t160 = (t151 + -12583166.0f);
            const f32x16 t161 = (t160 * -1.428606765330187e-06f);
            const f32x16 t162 = (t160 * -0.693145751953125f);
            const f32x16 t163 = (t149 + t162);
            const f32x16 t164 = (t163 + t161);
            const f32x16 t165 = (0.0013820745516568422f * t164);
            const f32x16 t166 = (t165 + 0.008369248360395432f);
            const f32x16 t167 = (t166 * t164);
            const f32x16 t168 = (t167 + 0.041668280959129333f);
            const f32x16 t169 = (t168 * t164);
            const f32x16 t170 = (t169 + 0.16666516661643982f);
            const f32x16 t171 = (t170 * t164);
            const f32x16 t172 = (t171 + 0.4999999403953552f);
            const f32x16 t173 = (t164 * t164);
            const f32x16 t174 = (t173 * t172);
            const f32x16 t175 = (t174 + t164);
            const f32x16 t176 = (t175 + 1.0f);
            const f32x16 t177 = (t176 * t159);
            const f32x16 t178 = (t177 * t157);
            t179 = (t179 + t178);
            const f32x16 t180 = *(const f32x16u *)(p0 + 400 * a2 + 16 * a4 + 300);
            const f32x16 t182 = (t180 + t181);
            const i32x16 t183 = (t182 < -104.0f);
            const f32x16 t184 = (f32x16)((t183 & (i32x16)((f32)(-104.0f) - (f32x16){0})) | (~t183 & (i32x16)t182));
            const i32x16 t185 = (89.0f < t184);
            const f32x16 t186 = (f32x16)((t185 & (i32x16)((f32)(89.0f) - (f32x16){0})) | (~t185 & (i32x16)t184));
            const f32x16 t187 = (t186 * 1.4426950216293335f);
            const f32x16 t188 = (t187 + 12583166.0f);
            const u32x16 t189 = (u32x16)t188;
            const u32x16 t190 = (t189 >> 1);
            const u32x16 t191 = (- t190);
            const u32x16 t192 = (t189 + t191);
            const u32x16 t193 = (t192 << 23);
            const f32x16 t194 = (f32x16)t193;
            const u32x16 t195 = (t190 << 23);
            const f32x16 t196 = (f32x16)t195;
            const f32x16 t197 = (t188 + -12583166.0f);
            const f32x16 t198 = (t197 * -1.428606765330187e-06f);
            const f32x16 t199 = (t197 * -0.693145751953125f);
            const f32x16 t200 = (t186 + t199);
            const f32x16 t201 = (t200 + t198);
            const f32x16 t202 = (0.0013820745516568422f * t201);
            const f32x16 t203 = (t202 + 0.008369248360395432f);
            const f32x16 t204 = (t203 * t201);
            const f32x16 t205 = (t204 + 0.041668280959129333f);
            const f32x16 t206 = (t205 * t201);
            const f32x16 t207 = (t206 + 0.16666516661643982f);
            const f32x16 t208 = (t207 * t201);
            const f32x16 t209 = (t208 + 0.4999999403953552f);
            const f32x16 t210 = (t201 * t201);
            const f32x16 t211 = (t210 * t209);
            const f32x16 t212 = (t211 + t201);
            const f32x16 t213 = (t212 + 1.0f);
            const f32x16 t214 = (t213 * t196);
            const f32x16 t215 = (t214 * t194);
            t216 = (t216 + t215);
            *(f32x16u *)(p2 + 16 * a4) = t104;
            *(f32x16u *)(p2 + 16 * a4 + 112) = t141;
            *(f32x16u *)(p2 + 16 * a4 + 224) = t178;
            *(f32x16u *)(p2 + 16 * a4 + 336) = t215;
        }
        const f32x16 t217 = (f32x16){t105[0], t142[0], t105[1], t142[1], t105[2], t142[2], t105[3], t142[3], t105[4], t142[4], t105[5], t142[5], t105[6], t142[6], t105[7], t142[7]};
        const f32x16 t218 = (f32x16){t105[8], t142[8], t105[9], t142[9], t105[10], t142[10], t105[11], t142[11], t105[12], t142[12], t105[13], t142[13], t105[14], t142[14], t105[15], t142[15]};
        const f32x16 t219 = (t217 + t218);
        const f32x16 t220 = (f32x16){t179[0], t216[0], t179[1], t216[1], t179[2], t216[2], t179[3], t216[3], t179[4], t216[4], t179[5], t216[5], t179[6], t216[6], t179[7], t216[7]};
        const f32x16 t221 = (f32x16){t179[8], t216[8], t179[9], t216[9], t179[10], t216[10], t179[11], t216[11], t179[12], t216[12], t179[13], t216[13], t179[14], t216[14], t179[15], t216[15]};
        const f32x16 t222 = (t220 + t221);
        const f32x16 t223 = (f32x16){t219[0], t219[1], t222[0], t222[1], t219[2], t219[3], t222[2], t222[3], t219[4], t219[5], t222[4], t222[5], t219[6], t219[7], t222[6], t222[7]};
        const f32x16 t224 = (f32x16){t219[8], t219[9], t222[8], t222[9], t219[10], t219[11], t222[10], t222[11], t219[12], t219[13], t222[12], t222[13], t219[14], t219[15], t222[14], t222[15]};
        const f32x16 t225 = (t223 + t224);
        const f32x8 t226 = (f32x8){t225[0], t225[1], t225[2], t225[3], t225[4], t225[5], t225[6], t225[7]};
        const f32x8 t227 = (f32x8){t225[8], t225[9], t225[10], t225[11], t225[12], t225[13], t225[14], t225[15]};
        const f32x8 t228 = (t226 + t227);
        const f32x4 t229 = (f32x4){t228[0], t228[1], t228[2], t228[3]};
        const f32x4 t230 = (f32x4){t228[4], t228[5], t228[6], t228[7]};
        const f32x4 t231 = (t229 + t230);
        f32 t232 = t231[0];
        f32 t233 = t231[1];
        f32 t234 = t231[2];
        f32 t235 = t231[3];
        const f32x4 t236 = (t37 + t70);
        const i32x4 t237 = (t236 < -104.0f);
        const f32x4 t238 = (f32x4)((t237 & (i32x4)((f32)(-104.0f) - (f32x4){0})) | (~t237 & (i32x4)t236));
        const i32x4 t239 = (89.0f < t238);
        const f32x4 t240 = (f32x4)((t239 & (i32x4)((f32)(89.0f) - (f32x4){0})) | (~t239 & (i32x4)t238));
        const f32x4 t241 = (t240 * 1.4426950216293335f);
        const f32x4 t242 = (t241 + 12583166.0f);
        const u32x4 t243 = (u32x4)t242;
        const u32x4 t244 = (t243 >> 1);
        const u32x4 t245 = (- t244);
        const u32x4 t246 = (t243 + t245);
        const u32x4 t247 = (t246 << 23);
        const f32x4 t248 = (f32x4)t247;
        const u32x4 t249 = (t244 << 23);
        const f32x4 t250 = (f32x4)t249;
        const f32x4 t251 = (t242 + -12583166.0f);
        const f32x4 t252 = (t251 * -1.428606765330187e-06f);
        const f32x4 t253 = (t251 * -0.693145751953125f);
        const f32x4 t254 = (t240 + t253);
        const f32x4 t255 = (t254 + t252);
        const f32x4 t256 = (0.0013820745516568422f * t255);
        const f32x4 t257 = (t256 + 0.008369248360395432f);
        const f32x4 t258 = (t257 * t255);
        const f32x4 t259 = (t258 + 0.041668280959129333f);
        const f32x4 t260 = (t259 * t255);
        const f32x4 t261 = (t260 + 0.16666516661643982f);
        const f32x4 t262 = (t261 * t255);
        const f32x4 t263 = (t262 + 0.4999999403953552f);
        const f32x4 t264 = (t255 * t255);
        const f32x4 t265 = (t264 * t263);
        const f32x4 t266 = (t265 + t255);
        const f32x4 t267 = (t266 + 1.0f);
        const f32x4 t268 = (t267 * t250);
        const f32x4 t269 = (t268 * t248);
        f32x4 t270 = (f32x4){0};
        t270 = (t270 + t269);
        const f32x4 t271 = (t40 + t107);
        const i32x4 t272 = (t271 < -104.0f);
        const f32x4 t273 = (f32x4)((t272 & (i32x4)((f32)(-104.0f) - (f32x4){0})) | (~t272 & (i32x4)t271));
        const i32x4 t274 = (89.0f < t273);
        const f32x4 t275 = (f32x4)((t274 & (i32x4)((f32)(89.0f) - (f32x4){0})) | (~t274 & (i32x4)t273));
        const f32x4 t276 = (t275 * 1.4426950216293335f);
        const f32x4 t277 = (t276 + 12583166.0f);
        const u32x4 t278 = (u32x4)t277;
        const u32x4 t279 = (t278 >> 1);
        const u32x4 t280 = (- t279);
        const u32x4 t281 = (t278 + t280);
        const u32x4 t282 = (t281 << 23);
        const f32x4 t283 = (f32x4)t282;
        const u32x4 t284 = (t279 << 23);
        const f32x4 t285 = (f32x4)t284;
        const f32x4 t286 = (t277 + -12583166.0f);
        const f32x4 t287 = (t286 * -1.428606765330187e-06f);
        const f32x4 t288 = (t286 * -0.693145751953125f);
        const f32x4 t289 = (t275 + t288);
        const f32x4 t290 = (t289 + t287);
        const f32x4 t291 = (0.0013820745516568422f * t290);
        const f32x4 t292 = (t291 + 0.008369248360395432f);
        const f32x4 t293 = (t292 * t290);
        const f32x4 t294 = (t293 + 0.041668280959129333f);
        const f32x4 t295 = (t294 * t290);
        const f32x4 t296 = (t295 + 0.16666516661643982f);
        const f32x4 t297 = (t296 * t290);
        const f32x4 t298 = (t297 + 0.4999999403953552f);
        const f32x4 t299 = (t290 * t290);
        const f32x4 t300 = (t299 * t298);
        const f32x4 t301 = (t300 + t290);
        const f32x4 t302 = (t301 + 1.0f);
        const f32x4 t303 = (t302 * t285);
        const f32x4 t304 = (t303 * t283);
        f32x4 t305 = (f32x4){0};
        t305 = (t305 + t304);
        const f32x4 t306 = (t43 + t144);
        const i32x4 t307 = (t306 < -104.0f);
        const f32x4 t308 = (f32x4)((t307 & (i32x4)((f32)(-104.0f) - (f32x4){0})) | (~t307 & (i32x4)t306));
        const i32x4 t309 = (89.0f < t308);
        const f32x4 t310 = (f32x4)((t309 & (i32x4)((f32)(89.0f) - (f32x4){0})) | (~t309 & (i32x4)t308));
        const f32x4 t311 = (t310 * 1.4426950216293335f);
        const f32x4 t312 = (t311 + 12583166.0f);
        const u32x4 t313 = (u32x4)t312;
        const u32x4 t314 = (t313 >> 1);
        const u32x4 t315 = (- t314);
        const u32x4 t316 = (t313 + t315);
        const u32x4 t317 = (t316 << 23);
        const f32x4 t318 = (f32x4)t317;
        const u32x4 t319 = (t314 << 23);
        const f32x4 t320 = (f32x4)t319;
        const f32x4 t321 = (t312 + -12583166.0f);
        const f32x4 t322 = (t321 * -1.428606765330187e-06f);
        const f32x4 t323 = (t321 * -0.693145751953125f);
        const f32x4 t324 = (t310 + t323);
        const f32x4 t325 = (t324 + t322);
        const f32x4 t326 = (0.0013820745516568422f * t325);
        const f32x4 t327 = (t326 + 0.008369248360395432f);
        const f32x4 t328 = (t327 * t325);
        const f32x4 t329 = (t328 + 0.041668280959129333f);
        const f32x4 t330 = (t329 * t325);
        const f32x4 t331 = (t330 + 0.16666516661643982f);
        const f32x4 t332 = (t331 * t325);
        const f32x4 t333 = (t332 + 0.4999999403953552f);
        const f32x4 t334 = (t325 * t325);
        const f32x4 t335 = (t334 * t333);
        const f32x4 t336 = (t335 + t325);
        const f32x4 t337 = (t336 + 1.0f);
        const f32x4 t338 = (t337 * t320);
        const f32x4 t339 = (t338 * t318);
        f32x4 t340 = (f32x4){0};
        t340 = (t340 + t339);
        const f32x4 t341 = (t46 + t181);
        const i32x4 t342 = (t341 < -104.0f);
        const f32x4 t343 = (f32x4)((t342 & (i32x4)((f32)(-104.0f) - (f32x4){0})) | (~t342 & (i32x4)t341));
        const i32x4 t344 = (89.0f < t343);
        const f32x4 t345 = (f32x4)((t344 & (i32x4)((f32)(89.0f) - (f32x4){0})) | (~t344 & (i32x4)t343));
        const f32x4 t346 = (t345 * 1.4426950216293335f);
        const f32x4 t347 = (t346 + 12583166.0f);
        const u32x4 t348 = (u32x4)t347;
        const u32x4 t349 = (t348 >> 1);
        const u32x4 t350 = (- t349);
        const u32x4 t351 = (t348 + t350);
        const u32x4 t352 = (t351 << 23);
        const f32x4 t353 = (f32x4)t352;
        const u32x4 t354 = (t349 << 23);
        const f32x4 t355 = (f32x4)t354;
        const f32x4 t356 = (t347 + -12583166.0f);
        const f32x4 t357 = (t356 * -1.428606765330187e-06f);
        const f32x4 t358 = (t356 * -0.693145751953125f);
        const f32x4 t359 = (t345 + t358);
        const f32x4 t360 = (t359 + t357);
        const f32x4 t361 = (0.0013820745516568422f * t360);
        const f32x4 t362 = (t361 + 0.008369248360395432f);
        const f32x4 t363 = (t362 * t360);
        const f32x4 t364 = (t363 + 0.041668280959129333f);
        const f32x4 t365 = (t364 * t360);
        const f32x4 t366 = (t365 + 0.16666516661643982f);
        const f32x4 t367 = (t366 * t360);
        const f32x4 t368 = (t367 + 0.4999999403953552f);
        const f32x4 t369 = (t360 * t360);
        const f32x4 t370 = (t369 * t368);
        const f32x4 t371 = (t370 + t360);
        const f32x4 t372 = (t371 + 1.0f);
        const f32x4 t373 = (t372 * t355);
        const f32x4 t374 = (t373 * t353);
        f32x4 t375 = (f32x4){0};
        t375 = (t375 + t374);
        *(f32x4u *)(p2 + 16 * 6) = t269;
        *(f32x4u *)(p2 + 16 * 6 + 112) = t304;
        *(f32x4u *)(p2 + 16 * 6 + 224) = t339;
        *(f32x4u *)(p2 + 16 * 6 + 336) = t374;
        const f32x4 t376 = (f32x4){t270[0], t305[0], t270[1], t305[1]};
        const f32x4 t377 = (f32x4){t270[2], t305[2], t270[3], t305[3]};
        const f32x4 t378 = (t376 + t377);
        const f32x4 t379 = (f32x4){t340[0], t375[0], t340[1], t375[1]};
        const f32x4 t380 = (f32x4){t340[2], t375[2], t340[3], t375[3]};
        const f32x4 t381 = (t379 + t380);
        const f32x4 t382 = (f32x4){t378[0], t378[1], t381[0], t381[1]};
        const f32x4 t383 = (f32x4){t378[2], t378[3], t381[2], t381[3]};
        const f32x4 t384 = (t382 + t383);
        const f32 t385 = (t232 + t384[0]);
        f32 t386 = t385;
        const f32 t387 = (t233 + t384[1]);
        f32 t388 = t387;
        const f32 t389 = (t234 + t384[2]);
        f32 t390 = t389;
        const f32 t391 = (t235 + t384[3]);
        f32 t392 = t391;
        for (i64 a4 = 0; a4 < 6; a4++) {
            const f32x16 t393 = *(const f32x16u *)(p2 + 16 * a4);
            const f32x16 t394 = (t393 / t386);
            const f32x16 t395 = *(const f32x16u *)(p2 + 16 * a4 + 112);
            const f32x16 t396 = (t395 / t388);
            const f32x16 t397 = *(const f32x16u *)(p2 + 16 * a4 + 224);
            const f32x16 t398 = (t397 / t390);
            const f32x16 t399 = *(const f32x16u *)(p2 + 16 * a4 + 336);
            const f32x16 t400 = (t399 / t392);
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4) = t394;
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4 + 100) = t396;
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4 + 200) = t398;
            *(f32x16u *)(p1 + 400 * a2 + 16 * a4 + 300) = t400;
        }
        const f32x4 t401 = *(const f32x4u *)(p2 + 16 * 6);
        const f32x4 t402 = (t401 / t386);
        const f32x4 t403 = *(const f32x4u *)(p2 + 16 * 6 + 112);
        const f32x4 t404 = (t403 / t388);
        const f32x4 t405 = *(const f32x4u *)(p2 + 16 * 6 + 224);
        const f32x4 t406 = (t405 / t390);
        const f32x4 t407 = *(const f32x4u *)(p2 + 16 * 6 + 336);
        const f32x4 t408 = (t407 / t392);
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6) = t402;
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6 + 100) = t404;
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6 + 200) = t406;
        *(f32x4u *)(p1 + 400 * a2 + 16 * 6 + 300) = t408;
    }
}
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[1]}; if (seconds) started = lamina_clock(); parallel(16, fold0_64x100, b); if (seconds) seconds[0] = lamina_clock() - started; }
}
