/* Functions of scalars, for C and the C++ of GPUs alike. */

#define SIGNED(F) F(i8) F(i16) F(i32) F(i64)
#define UNSIGNED(F) F(u8) F(u16) F(u32) F(u64)
#define nan_f32 BUILTIN(nanf)("")
#define nan_f64 BUILTIN(nan)("")
#define inf_f32 BUILTIN(inff)()
#define inf_f64 BUILTIN(inf)()

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
        if (b < 0) return a == 1 ? 1 : a == (T)-1 ? (b & 1 ? a : 1) : 0; \
        for (; b; b >>= 1, a *= a) if (b & 1) r *= a; \
        return r; \
    }
SIGNED(POWER)
UNSIGNED(POWER)

#define REMAINDER(T, F) \
    INLINE T mod_##T(T a, T b) { \
        T r = BUILTIN(fmod##F)(a, b); \
        if (r == 0) return BUILTIN(copysign##F)(r, b); \
        return (r < 0) != (b < 0) ? r + b : r; \
    } \
    INLINE T pow_##T(T a, T b) { return b == 1 ? a : BUILTIN(pow##F)(a, b); } /* exactly */
REMAINDER(f32, f)

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

/* Of floats, by the instructions of x86 that give the second operand if one is a NaN: compilers take a
   branch for the comparison, which nobody can predict. */

#ifdef __SSE2__
#define FLOAT_EXTREMES(T, larger, smaller) \
    INLINE T max_##T(T a, T b) { \
        typedef T lanes __attribute__((vector_size(16))); \
        return a != a ? a : larger((lanes){a}, (lanes){b})[0]; \
    } \
    INLINE T min_##T(T a, T b) { \
        typedef T lanes __attribute__((vector_size(16))); \
        return a != a ? a : smaller((lanes){a}, (lanes){b})[0]; \
    }
#else
#define FLOAT_EXTREMES(T, larger, smaller) EXTREMES(T)
#endif
#ifndef HAS_EXTREMES
FLOAT_EXTREMES(f32, __builtin_ia32_maxss, __builtin_ia32_minss)
#endif

INLINE f32 sqrt_f32(f32 x) { return BUILTIN(sqrtf)(x); }
INLINE f32 trunc_f32(f32 x) { return BUILTIN(truncf)(x); }

/* The same of doubles, which Metal has not. */

#ifndef __METAL_VERSION__
REMAINDER(f64, )
FLOAT_EXTREMES(f64, __builtin_ia32_maxsd, __builtin_ia32_minsd)
INLINE f64 sqrt_f64(f64 x) { return BUILTIN(sqrt)(x); }
INLINE f64 trunc_f64(f64 x) { return BUILTIN(trunc)(x); }
#endif

/* Functions of floats, a row each. The prelude's EACH_FLOAT says of which floats they are defined here,
   and its OF_LIBRARY how the language calls its own: double only on the CPU, where `math.c` has those
   of float32 in vectors; both with CUDA; float32 only with Metal. */

#define LIBRARY(T, suffix, name) INLINE T name##_##T(T x) { return OF_LIBRARY(name, suffix)(x); }
EACH_FLOAT(LIBRARY, exp)
EACH_FLOAT(LIBRARY, exp2)
EACH_FLOAT(LIBRARY, log)
EACH_FLOAT(LIBRARY, log2)
#ifdef HAS_WAVES /* the prelude has those of float32 */
LIBRARY(f64, , sin)
LIBRARY(f64, , cos)
#else
EACH_FLOAT(LIBRARY, sin)
EACH_FLOAT(LIBRARY, cos)
#endif
EACH_FLOAT(LIBRARY, atan)
EACH_FLOAT(LIBRARY, erf)
EACH_FLOAT(LIBRARY, tanh)

/* x / by, for x up to 1 and by from 1 to 2. */
#define QUOTIENT(T, suffix, name) INLINE T name##_##T(T x, T by) { return x / by; }
#ifdef HAS_QUOTIENT /* the prelude has that of float32 */
QUOTIENT(f64, , quotient)
#else
EACH_FLOAT(QUOTIENT, quotient)
#endif

#define LOGISTIC(T, suffix, name) \
    INLINE T name##_##T(T x) { \
        const T small = exp_##T(x < 0 ? x : -x); /* neither overflows nor loses what is small */ \
        return quotient_##T(x < 0 ? small : 1, small + 1); \
    }
EACH_FLOAT(LOGISTIC, logistic)

/* The bits of the keys of a sort, as words that are in the order of the keys: -0 is 0, and NaN, of
   which only the bits are greater than `most`, comes last. */

#define KEY_BITS(kind) bits_##kind
#define KEY_ORDER(kind, x) ordered_##kind(x)
#define ORDER(kind, U, ...) \
    typedef U bits_##kind; \
    INLINE U ordered_##kind(U x) { return __VA_ARGS__; }
#define TOP(U) ((U)1 << (8 * sizeof(U) - 1))
#define ORDER_INTEGERS(bits) ORDER(u##bits, u##bits, x) ORDER(i##bits, u##bits, x ^ TOP(u##bits))
#define ORDER_FLOATS(kind, U, most) \
    ORDER(kind, U, (x & ~TOP(U)) > most ? ~0 : (x & ~TOP(U)) == 0 ? TOP(U) : x & TOP(U) ? ~x : x | TOP(U))
ORDER(bool, u8, x)
ORDER_INTEGERS(8) ORDER_INTEGERS(16) ORDER_INTEGERS(32) ORDER_INTEGERS(64)
ORDER_FLOATS(f8_e4m3fn, u8, 0x7E) ORDER_FLOATS(f8_e5m2, u8, 0x7C)
ORDER_FLOATS(f16, u16, 0x7C00) ORDER_FLOATS(bf16, u16, 0x7F80) ORDER_FLOATS(f32, u32, 0x7F800000)
ORDER_FLOATS(f64, u64, (u64)0x7FF00000 << 32)
