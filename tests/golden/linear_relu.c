/*
fold0_60x70:
split(a1, 32) -> a3, a4
split(a4, 16) -> a5, a6
split(a0, 12) -> a7, a8
reorder(a3, a7, a2, a8, a5, a6)
tensorize(a2, outer_f32_32r)
bind(a3, parallel)
bind(a7, parallel)
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
typedef i32 i32x16 __attribute__((vector_size(64))); typedef i32 i32x16u __attribute__((vector_size(64), aligned(4), may_alias));
typedef i32 i32x2 __attribute__((vector_size(8))); typedef i32 i32x2u __attribute__((vector_size(8), aligned(4), may_alias));
typedef i32 i32x4 __attribute__((vector_size(16))); typedef i32 i32x4u __attribute__((vector_size(16), aligned(4), may_alias));
static void fold0_60x70(void *arg, long chunk) {
    void **b = arg;
    const f32 *restrict p0 = b[0];
    const f32 *restrict p1 = b[1];
    const f32 *restrict p2 = b[2];
    f32 *restrict p3 = b[3];
    const i64 a3 = chunk % 3;
    const i64 a7 = (chunk / 3) % 5;
    if (a3 < 2) {
        f32x16 t4 = (f32x16){0};
        f32x16 t7 = (f32x16){0};
        f32x16 t10 = (f32x16){0};
        f32x16 t12 = (f32x16){0};
        f32x16 t15 = (f32x16){0};
        f32x16 t17 = (f32x16){0};
        f32x16 t20 = (f32x16){0};
        f32x16 t22 = (f32x16){0};
        f32x16 t25 = (f32x16){0};
        f32x16 t27 = (f32x16){0};
        f32x16 t30 = (f32x16){0};
        f32x16 t32 = (f32x16){0};
        f32x16 t35 = (f32x16){0};
        f32x16 t37 = (f32x16){0};
        f32x16 t40 = (f32x16){0};
        f32x16 t42 = (f32x16){0};
        f32x16 t45 = (f32x16){0};
        f32x16 t47 = (f32x16){0};
        f32x16 t50 = (f32x16){0};
        f32x16 t52 = (f32x16){0};
        f32x16 t55 = (f32x16){0};
        f32x16 t57 = (f32x16){0};
        f32x16 t60 = (f32x16){0};
        f32x16 t62 = (f32x16){0};
        for (i64 a2 = 0; a2 < 100; a2++) {
            const f32 t1 = p0[a2 + 1200 * a7];
            const f32x16 t2 = *(const f32x16u *)(p1 + 70 * a2 + 32 * a3);
            const f32x16 t3 = (t1 * t2);
            t4 = (t4 + t3);
            const f32x16 t5 = *(const f32x16u *)(p1 + 70 * a2 + 32 * a3 + 16);
            const f32x16 t6 = (t1 * t5);
            t7 = (t7 + t6);
            const f32 t8 = p0[a2 + 1200 * a7 + 100];
            const f32x16 t9 = (t8 * t2);
            t10 = (t10 + t9);
            const f32x16 t11 = (t8 * t5);
            t12 = (t12 + t11);
            const f32 t13 = p0[a2 + 1200 * a7 + 200];
            const f32x16 t14 = (t13 * t2);
            t15 = (t15 + t14);
            const f32x16 t16 = (t13 * t5);
            t17 = (t17 + t16);
            const f32 t18 = p0[a2 + 1200 * a7 + 300];
            const f32x16 t19 = (t18 * t2);
            t20 = (t20 + t19);
            const f32x16 t21 = (t18 * t5);
            t22 = (t22 + t21);
            const f32 t23 = p0[a2 + 1200 * a7 + 400];
            const f32x16 t24 = (t23 * t2);
            t25 = (t25 + t24);
            const f32x16 t26 = (t23 * t5);
            t27 = (t27 + t26);
            const f32 t28 = p0[a2 + 1200 * a7 + 500];
            const f32x16 t29 = (t28 * t2);
            t30 = (t30 + t29);
            const f32x16 t31 = (t28 * t5);
            t32 = (t32 + t31);
            const f32 t33 = p0[a2 + 1200 * a7 + 600];
            const f32x16 t34 = (t33 * t2);
            t35 = (t35 + t34);
            const f32x16 t36 = (t33 * t5);
            t37 = (t37 + t36);
            const f32 t38 = p0[a2 + 1200 * a7 + 700];
            const f32x16 t39 = (t38 * t2);
            t40 = (t40 + t39);
            const f32x16 t41 = (t38 * t5);
            t42 = (t42 + t41);
            const f32 t43 = p0[a2 + 1200 * a7 + 800];
            const f32x16 t44 = (t43 * t2);
            t45 = (t45 + t44);
            const f32x16 t46 = (t43 * t5);
            t47 = (t47 + t46);
            const f32 t48 = p0[a2 + 1200 * a7 + 900];
            const f32x16 t49 = (t48 * t2);
            t50 = (t50 + t49);
            const f32x16 t51 = (t48 * t5);
            t52 = (t52 + t51);
            const f32 t53 = p0[a2 + 1200 * a7 + 1000];
            const f32x16 t54 = (t53 * t2);
            t55 = (t55 + t54);
            const f32x16 t56 = (t53 * t5);
            t57 = (t57 + t56);
            const f32 t58 = p0[a2 + 1200 * a7 + 1100];
            const f32x16 t59 = (t58 * t2);
            t60 = (t60 + t59);
            const f32x16 t61 = (t58 * t5);
            t62 = (t62 + t61);
        }
        f32x16 t63 = t4;
        f32x16 t64 = t7;
        f32x16 t65 = t10;
        f32x16 t66 = t12;
        f32x16 t67 = t15;
        f32x16 t68 = t17;
        f32x16 t69 = t20;
        f32x16 t70 = t22;
        f32x16 t71 = t25;
        f32x16 t72 = t27;
        f32x16 t73 = t30;
        f32x16 t74 = t32;
        f32x16 t75 = t35;
        f32x16 t76 = t37;
        f32x16 t77 = t40;
        f32x16 t78 = t42;
        f32x16 t79 = t45;
        f32x16 t80 = t47;
        f32x16 t81 = t50;
        f32x16 t82 = t52;
        f32x16 t83 = t55;
        f32x16 t84 = t57;
        f32x16 t85 = t60;
        f32x16 t86 = t62;
        const f32x16 t87 = *(const f32x16u *)(p2 + 32 * a3);
        const f32x16 t88 = (t63 + t87);
        const f32x16 t89 = (f32x16){0};
        const i32x16 t90 = ((t88 > t89) | (t88 != t88));
        const f32x16 t91 = (f32x16)((t90 & (i32x16)t88) | (~t90 & (i32x16)t89));
        const f32x16 t92 = *(const f32x16u *)(p2 + 32 * a3 + 16);
        const f32x16 t93 = (t64 + t92);
        const f32x16 t94 = (f32x16){0};
        const i32x16 t95 = ((t93 > t94) | (t93 != t93));
        const f32x16 t96 = (f32x16)((t95 & (i32x16)t93) | (~t95 & (i32x16)t94));
        const f32x16 t97 = (t65 + t87);
        const f32x16 t98 = (f32x16){0};
        const i32x16 t99 = ((t97 > t98) | (t97 != t97));
        const f32x16 t100 = (f32x16)((t99 & (i32x16)t97) | (~t99 & (i32x16)t98));
        const f32x16 t101 = (t66 + t92);
        const f32x16 t102 = (f32x16){0};
        const i32x16 t103 = ((t101 > t102) | (t101 != t101));
        const f32x16 t104 = (f32x16)((t103 & (i32x16)t101) | (~t103 & (i32x16)t102));
        const f32x16 t105 = (t67 + t87);
        const f32x16 t106 = (f32x16){0};
        const i32x16 t107 = ((t105 > t106) | (t105 != t105));
        const f32x16 t108 = (f32x16)((t107 & (i32x16)t105) | (~t107 & (i32x16)t106));
        const f32x16 t109 = (t68 + t92);
        const f32x16 t110 = (f32x16){0};
        const i32x16 t111 = ((t109 > t110) | (t109 != t109));
        const f32x16 t112 = (f32x16)((t111 & (i32x16)t109) | (~t111 & (i32x16)t110));
        const f32x16 t113 = (t69 + t87);
        const f32x16 t114 = (f32x16){0};
        const i32x16 t115 = ((t113 > t114) | (t113 != t113));
        const f32x16 t116 = (f32x16)((t115 & (i32x16)t113) | (~t115 & (i32x16)t114));
        const f32x16 t117 = (t70 + t92);
        const f32x16 t118 = (f32x16){0};
        const i32x16 t119 = ((t117 > t118) | (t117 != t117));
        const f32x16 t120 = (f32x16)((t119 & (i32x16)t117) | (~t119 & (i32x16)t118));
        const f32x16 t121 = (t71 + t87);
        const f32x16 t122 = (f32x16){0};
        const i32x16 t123 = ((t121 > t122) | (t121 != t121));
        const f32x16 t124 = (f32x16)((t123 & (i32x16)t121) | (~t123 & (i32x16)t122));
        const f32x16 t125 = (t72 + t92);
        const f32x16 t126 = (f32x16){0};
        const i32x16 t127 = ((t125 > t126) | (t125 != t125));
        const f32x16 t128 = (f32x16)((t127 & (i32x16)t125) | (~t127 & (i32x16)t126));
        const f32x16 t129 = (t73 + t87);
        const f32x16 t130 = (f32x16){0};
        const i32x16 t131 = ((t129 > t130) | (t129 != t129));
        const f32x16 t132 = (f32x16)((t131 & (i32x16)t129) | (~t131 & (i32x16)t130));
        const f32x16 t133 = (t74 + t92);
        const f32x16 t134 = (f32x16){0};
        const i32x16 t135 = ((t133 > t134) | (t133 != t133));
        const f32x16 t136 = (f32x16)((t135 & (i32x16)t133) | (~t135 & (i32x16)t134));
        const f32x16 t137 = (t75 + t87);
        const f32x16 t138 = (f32x16){0};
        const i32x16 t139 = ((t137 > t138) | (t137 != t137));
        const f32x16 t140 = (f32x16)((t139 & (i32x16)t137) | (~t139 & (i32x16)t138));
        const f32x16 t141 = (t76 + t92);
        const f32x16 t142 = (f32x16){0};
        const i32x16 t143 = ((t141 > t142) | (t141 != t141));
        const f32x16 t144 = (f32x16)((t143 & (i32x16)t141) | (~t143 & (i32x16)t142));
        const f32x16 t145 = (t77 + t87);
        const f32x16 t146 = (f32x16){0};
        const i32x16 t147 = ((t145 > t146) | (t145 != t145));
        const f32x16 t148 = (f32x16)((t147 & (i32x16)t145) | (~t147 & (i32x16)t146));
        const f32x16 t149 = (t78 + t92);
        const f32x16 t150 = (f32x16){0};
        const i32x16 t151 = ((t149 > t150) | (t149 != t149));
        const f32x16 t152 = (f32x16)((t151 & (i32x16)t149) | (~t151 & (i32x16)t150));
        const f32x16 t153 = (t79 + t87);
        const f32x16 t154 = (f32x16){0};
        const i32x16 t155 = ((t153 > t154) | (t153 != t153));
        const f32x16 t156 = (f32x16)((t155 & (i32x16)t153) | (~t155 & (i32x16)t154));
        const f32x16 t157 = (t80 + t92);
        const f32x16 t158 = (f32x16){0};
        const i32x16 t159 = ((t157 > t158) | (t157 != t157));
        const f32x16 t160 = (f32x16)((t159 & (i32x16)t157) | (~t159 & (i32x16)t158));
        const f32x16 t161 = (t81 + t87);
        const f32x16 t162 = (f32x16){0};
        const i32x16 t163 = ((t161 > t162) | (t161 != t161));
        const f32x16 t164 = (f32x16)((t163 & (i32x16)t161) | (~t163 & (i32x16)t162));
        const f32x16 t165 = (t82 + t92);
        const f32x16 t166 = (f32x16){0};
        const i32x16 t167 = ((t165 > t166) | (t165 != t165));
        const f32x16 t168 = (f32x16)((t167 & (i32x16)t165) | (~t167 & (i32x16)t166));
        const f32x16 t169 = (t83 + t87);
        const f32x16 t170 = (f32x16){0};
        const i32x16 t171 = ((t169 > t170) | (t169 != t169));
        const f32x16 t172 = (f32x16)((t171 & (i32x16)t169) | (~t171 & (i32x16)t170));
        const f32x16 t173 = (t84 + t92);
        const f32x16 t174 = (f32x16){0};
        const i32x16 t175 = ((t173 > t174) | (t173 != t173));
        const f32x16 t176 = (f32x16)((t175 & (i32x16)t173) | (~t175 & (i32x16)t174));
        const f32x16 t177 = (t85 + t87);
        const f32x16 t178 = (f32x16){0};
        const i32x16 t179 = ((t177 > t178) | (t177 != t177));
        const f32x16 t180 = (f32x16)((t179 & (i32x16)t177) | (~t179 & (i32x16)t178));
        const f32x16 t181 = (t86 + t92);
        const f32x16 t182 = (f32x16){0};
        const i32x16 t183 = ((t181 > t182) | (t181 != t181));
        const f32x16 t184 = (f32x16)((t183 & (i32x16)t181) | (~t183 & (i32x16)t182));
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7) = t91;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 16) = t96;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 70) = t100;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 86) = t104;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 140) = t108;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 156) = t112;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 210) = t116;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 226) = t120;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 280) = t124;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 296) = t128;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 350) = t132;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 366) = t136;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 420) = t140;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 436) = t144;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 490) = t148;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 506) = t152;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 560) = t156;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 576) = t160;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 630) = t164;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 646) = t168;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 700) = t172;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 716) = t176;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 770) = t180;
        *(f32x16u *)(p3 + 32 * a3 + 840 * a7 + 786) = t184;
    }
    if (a3 == 2) {
        f32x4 t188 = (f32x4){0};
        f32x4 t191 = (f32x4){0};
        f32x4 t194 = (f32x4){0};
        f32x4 t197 = (f32x4){0};
        f32x4 t200 = (f32x4){0};
        f32x4 t203 = (f32x4){0};
        f32x4 t206 = (f32x4){0};
        f32x4 t209 = (f32x4){0};
        f32x4 t212 = (f32x4){0};
        f32x4 t215 = (f32x4){0};
        f32x4 t218 = (f32x4){0};
        f32x4 t221 = (f32x4){0};
        for (i64 a2 = 0; a2 < 100; a2++) {
            const f32 t185 = p0[a2 + 1200 * a7];
            const f32x4 t186 = *(const f32x4u *)(p1 + 70 * a2 + 32 * a3 + 16 * 0);
            const f32x4 t187 = (t185 * t186);
            t188 = (t188 + t187);
            const f32 t189 = p0[a2 + 1200 * a7 + 100];
            const f32x4 t190 = (t189 * t186);
            t191 = (t191 + t190);
            const f32 t192 = p0[a2 + 1200 * a7 + 200];
            const f32x4 t193 = (t192 * t186);
            t194 = (t194 + t193);
            const f32 t195 = p0[a2 + 1200 * a7 + 300];
            const f32x4 t196 = (t195 * t186);
            t197 = (t197 + t196);
            const f32 t198 = p0[a2 + 1200 * a7 + 400];
            const f32x4 t199 = (t198 * t186);
            t200 = (t200 + t199);
            const f32 t201 = p0[a2 + 1200 * a7 + 500];
            const f32x4 t202 = (t201 * t186);
            t203 = (t203 + t202);
            const f32 t204 = p0[a2 + 1200 * a7 + 600];
            const f32x4 t205 = (t204 * t186);
            t206 = (t206 + t205);
            const f32 t207 = p0[a2 + 1200 * a7 + 700];
            const f32x4 t208 = (t207 * t186);
            t209 = (t209 + t208);
            const f32 t210 = p0[a2 + 1200 * a7 + 800];
            const f32x4 t211 = (t210 * t186);
            t212 = (t212 + t211);
            const f32 t213 = p0[a2 + 1200 * a7 + 900];
            const f32x4 t214 = (t213 * t186);
            t215 = (t215 + t214);
            const f32 t216 = p0[a2 + 1200 * a7 + 1000];
            const f32x4 t217 = (t216 * t186);
            t218 = (t218 + t217);
            const f32 t219 = p0[a2 + 1200 * a7 + 1100];
            const f32x4 t220 = (t219 * t186);
            t221 = (t221 + t220);
        }
        f32x4 t222 = t188;
        f32x4 t223 = t191;
        f32x4 t224 = t194;
        f32x4 t225 = t197;
        f32x4 t226 = t200;
        f32x4 t227 = t203;
        f32x4 t228 = t206;
        f32x4 t229 = t209;
        f32x4 t230 = t212;
        f32x4 t231 = t215;
        f32x4 t232 = t218;
        f32x4 t233 = t221;
        const f32x4 t234 = *(const f32x4u *)(p2 + 32 * a3 + 16 * 0);
        const f32x4 t235 = (t222 + t234);
        const f32x4 t236 = (f32x4){0};
        const i32x4 t237 = ((t235 > t236) | (t235 != t235));
        const f32x4 t238 = (f32x4)((t237 & (i32x4)t235) | (~t237 & (i32x4)t236));
        const f32x4 t239 = (t223 + t234);
        const f32x4 t240 = (f32x4){0};
        const i32x4 t241 = ((t239 > t240) | (t239 != t239));
        const f32x4 t242 = (f32x4)((t241 & (i32x4)t239) | (~t241 & (i32x4)t240));
        const f32x4 t243 = (t224 + t234);
        const f32x4 t244 = (f32x4){0};
        const i32x4 t245 = ((t243 > t244) | (t243 != t243));
        const f32x4 t246 = (f32x4)((t245 & (i32x4)t243) | (~t245 & (i32x4)t244));
        const f32x4 t247 = (t225 + t234);
        const f32x4 t248 = (f32x4){0};
        const i32x4 t249 = ((t247 > t248) | (t247 != t247));
        const f32x4 t250 = (f32x4)((t249 & (i32x4)t247) | (~t249 & (i32x4)t248));
        const f32x4 t251 = (t226 + t234);
        const f32x4 t252 = (f32x4){0};
        const i32x4 t253 = ((t251 > t252) | (t251 != t251));
        const f32x4 t254 = (f32x4)((t253 & (i32x4)t251) | (~t253 & (i32x4)t252));
        const f32x4 t255 = (t227 + t234);
        const f32x4 t256 = (f32x4){0};
        const i32x4 t257 = ((t255 > t256) | (t255 != t255));
        const f32x4 t258 = (f32x4)((t257 & (i32x4)t255) | (~t257 & (i32x4)t256));
        const f32x4 t259 = (t228 + t234);
        const f32x4 t260 = (f32x4){0};
        const i32x4 t261 = ((t259 > t260) | (t259 != t259));
        const f32x4 t262 = (f32x4)((t261 & (i32x4)t259) | (~t261 & (i32x4)t260));
        const f32x4 t263 = (t229 + t234);
        const f32x4 t264 = (f32x4){0};
        const i32x4 t265 = ((t263 > t264) | (t263 != t263));
        const f32x4 t266 = (f32x4)((t265 & (i32x4)t263) | (~t265 & (i32x4)t264));
        const f32x4 t267 = (t230 + t234);
        const f32x4 t268 = (f32x4){0};
        const i32x4 t269 = ((t267 > t268) | (t267 != t267));
        const f32x4 t270 = (f32x4)((t269 & (i32x4)t267) | (~t269 & (i32x4)t268));
        const f32x4 t271 = (t231 + t234);
        const f32x4 t272 = (f32x4){0};
        const i32x4 t273 = ((t271 > t272) | (t271 != t271));
        const f32x4 t274 = (f32x4)((t273 & (i32x4)t271) | (~t273 & (i32x4)t272));
        const f32x4 t275 = (t232 + t234);
        const f32x4 t276 = (f32x4){0};
        const i32x4 t277 = ((t275 > t276) | (t275 != t275));
        const f32x4 t278 = (f32x4)((t277 & (i32x4)t275) | (~t277 & (i32x4)t276));
        const f32x4 t279 = (t233 + t234);
        const f32x4 t280 = (f32x4){0};
        const i32x4 t281 = ((t279 > t280) | (t279 != t279));
        const f32x4 t282 = (f32x4)((t281 & (i32x4)t279) | (~t281 & (i32x4)t280));
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7) = t238;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 70) = t242;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 140) = t246;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 210) = t250;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 280) = t254;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 350) = t258;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 420) = t262;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 490) = t266;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 560) = t270;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 630) = t274;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 700) = t278;
        *(f32x4u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 770) = t282;
    }
    if (a3 == 2) {
        f32x2 t286 = (f32x2){0};
        f32x2 t289 = (f32x2){0};
        f32x2 t292 = (f32x2){0};
        f32x2 t295 = (f32x2){0};
        f32x2 t298 = (f32x2){0};
        f32x2 t301 = (f32x2){0};
        f32x2 t304 = (f32x2){0};
        f32x2 t307 = (f32x2){0};
        f32x2 t310 = (f32x2){0};
        f32x2 t313 = (f32x2){0};
        f32x2 t316 = (f32x2){0};
        f32x2 t319 = (f32x2){0};
        for (i64 a2 = 0; a2 < 100; a2++) {
            const f32 t283 = p0[a2 + 1200 * a7];
            const f32x2 t284 = *(const f32x2u *)(p1 + 70 * a2 + 32 * a3 + 16 * 0 + 4);
            const f32x2 t285 = (t283 * t284);
            t286 = (t286 + t285);
            const f32 t287 = p0[a2 + 1200 * a7 + 100];
            const f32x2 t288 = (t287 * t284);
            t289 = (t289 + t288);
            const f32 t290 = p0[a2 + 1200 * a7 + 200];
            const f32x2 t291 = (t290 * t284);
            t292 = (t292 + t291);
            const f32 t293 = p0[a2 + 1200 * a7 + 300];
            const f32x2 t294 = (t293 * t284);
            t295 = (t295 + t294);
            const f32 t296 = p0[a2 + 1200 * a7 + 400];
            const f32x2 t297 = (t296 * t284);
            t298 = (t298 + t297);
            const f32 t299 = p0[a2 + 1200 * a7 + 500];
            const f32x2 t300 = (t299 * t284);
            t301 = (t301 + t300);
            const f32 t302 = p0[a2 + 1200 * a7 + 600];
            const f32x2 t303 = (t302 * t284);
            t304 = (t304 + t303);
            const f32 t305 = p0[a2 + 1200 * a7 + 700];
            const f32x2 t306 = (t305 * t284);
            t307 = (t307 + t306);
            const f32 t308 = p0[a2 + 1200 * a7 + 800];
            const f32x2 t309 = (t308 * t284);
            t310 = (t310 + t309);
            const f32 t311 = p0[a2 + 1200 * a7 + 900];
            const f32x2 t312 = (t311 * t284);
            t313 = (t313 + t312);
            const f32 t314 = p0[a2 + 1200 * a7 + 1000];
            const f32x2 t315 = (t314 * t284);
            t316 = (t316 + t315);
            const f32 t317 = p0[a2 + 1200 * a7 + 1100];
            const f32x2 t318 = (t317 * t284);
            t319 = (t319 + t318);
        }
        f32x2 t320 = t286;
        f32x2 t321 = t289;
        f32x2 t322 = t292;
        f32x2 t323 = t295;
        f32x2 t324 = t298;
        f32x2 t325 = t301;
        f32x2 t326 = t304;
        f32x2 t327 = t307;
        f32x2 t328 = t310;
        f32x2 t329 = t313;
        f32x2 t330 = t316;
        f32x2 t331 = t319;
        const f32x2 t332 = *(const f32x2u *)(p2 + 32 * a3 + 16 * 0 + 4);
        const f32x2 t333 = (t320 + t332);
        const f32x2 t334 = (f32x2){0};
        const i32x2 t335 = ((t333 > t334) | (t333 != t333));
        const f32x2 t336 = (f32x2)((t335 & (i32x2)t333) | (~t335 & (i32x2)t334));
        const f32x2 t337 = (t321 + t332);
        const f32x2 t338 = (f32x2){0};
        const i32x2 t339 = ((t337 > t338) | (t337 != t337));
        const f32x2 t340 = (f32x2)((t339 & (i32x2)t337) | (~t339 & (i32x2)t338));
        const f32x2 t341 = (t322 + t332);
        const f32x2 t342 = (f32x2){0};
        const i32x2 t343 = ((t341 > t342) | (t341 != t341));
        const f32x2 t344 = (f32x2)((t343 & (i32x2)t341) | (~t343 & (i32x2)t342));
        const f32x2 t345 = (t323 + t332);
        const f32x2 t346 = (f32x2){0};
        const i32x2 t347 = ((t345 > t346) | (t345 != t345));
        const f32x2 t348 = (f32x2)((t347 & (i32x2)t345) | (~t347 & (i32x2)t346));
        const f32x2 t349 = (t324 + t332);
        const f32x2 t350 = (f32x2){0};
        const i32x2 t351 = ((t349 > t350) | (t349 != t349));
        const f32x2 t352 = (f32x2)((t351 & (i32x2)t349) | (~t351 & (i32x2)t350));
        const f32x2 t353 = (t325 + t332);
        const f32x2 t354 = (f32x2){0};
        const i32x2 t355 = ((t353 > t354) | (t353 != t353));
        const f32x2 t356 = (f32x2)((t355 & (i32x2)t353) | (~t355 & (i32x2)t354));
        const f32x2 t357 = (t326 + t332);
        const f32x2 t358 = (f32x2){0};
        const i32x2 t359 = ((t357 > t358) | (t357 != t357));
        const f32x2 t360 = (f32x2)((t359 & (i32x2)t357) | (~t359 & (i32x2)t358));
        const f32x2 t361 = (t327 + t332);
        const f32x2 t362 = (f32x2){0};
        const i32x2 t363 = ((t361 > t362) | (t361 != t361));
        const f32x2 t364 = (f32x2)((t363 & (i32x2)t361) | (~t363 & (i32x2)t362));
        const f32x2 t365 = (t328 + t332);
        const f32x2 t366 = (f32x2){0};
        const i32x2 t367 = ((t365 > t366) | (t365 != t365));
        const f32x2 t368 = (f32x2)((t367 & (i32x2)t365) | (~t367 & (i32x2)t366));
        const f32x2 t369 = (t329 + t332);
        const f32x2 t370 = (f32x2){0};
        const i32x2 t371 = ((t369 > t370) | (t369 != t369));
        const f32x2 t372 = (f32x2)((t371 & (i32x2)t369) | (~t371 & (i32x2)t370));
        const f32x2 t373 = (t330 + t332);
        const f32x2 t374 = (f32x2){0};
        const i32x2 t375 = ((t373 > t374) | (t373 != t373));
        const f32x2 t376 = (f32x2)((t375 & (i32x2)t373) | (~t375 & (i32x2)t374));
        const f32x2 t377 = (t331 + t332);
        const f32x2 t378 = (f32x2){0};
        const i32x2 t379 = ((t377 > t378) | (t377 != t377));
        const f32x2 t380 = (f32x2)((t379 & (i32x2)t377) | (~t379 & (i32x2)t378));
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 4) = t336;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 74) = t340;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 144) = t344;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 214) = t348;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 284) = t352;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 354) = t356;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 424) = t360;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 494) = t364;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 564) = t368;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 634) = t372;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 704) = t376;
        *(f32x2u *)(p3 + 32 * a3 + 16 * 0 + 840 * a7 + 774) = t380;
    }
}
void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, double *seconds) {
    double started = 0;
    { void *b[] = {buffers[2], buffers[3], buffers[4], buffers[1]}; if (seconds) started = lamina_clock(); parallel(15, fold0_60x70, b); if (seconds) seconds[0] = lamina_clock() - started; }
}
