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
#define SCALAR(f, From, To) INLINE To f(From x) { return f##x1((From##x1){x})[0]; }
#define BITS(From, To, x) ((union { From from; To to; }){x}).to

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

/* A shift by the width or more gives what endless shifting would. */

#define SHIFTS(T) \
    INLINE T shl_##T(T a, T n) { return (u64)n < 8 * sizeof(T) ? a << n : 0; } \
    INLINE T shr_##T(T a, T n) { return (u64)n < 8 * sizeof(T) ? a >> n : a < 0 ? -1 : 0; }
SIGNED(SHIFTS)
UNSIGNED(SHIFTS)

/* A NaN on either side is the result. */

#define EXTREMES(T) \
    INLINE T max_##T(T a, T b) { return a > b || a != a ? a : b; } \
    INLINE T min_##T(T a, T b) { return a < b || a != a ? a : b; }
SIGNED(EXTREMES)
UNSIGNED(EXTREMES)
EXTREMES(f32)
EXTREMES(f64)

#define LIBRARY(name) INLINE f64 name##_f64(f64 x) { return __builtin_##name(x); }
LIBRARY(sqrt) LIBRARY(exp) LIBRARY(exp2) LIBRARY(log) LIBRARY(log2) LIBRARY(sin) LIBRARY(cos)
LIBRARY(atan) LIBRARY(erf) LIBRARY(trunc)
INLINE f32 sqrt_f32(f32 x) { return __builtin_sqrtf(x); }
INLINE f32 trunc_f32(f32 x) { return __builtin_truncf(x); }

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
