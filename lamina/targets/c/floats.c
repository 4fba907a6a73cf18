/* Casts of floats of 16 and 8 bits, for vectors of N lanes: see `vectors.c`.

   They are held as their bits. The bits of a normal float32 and those of a small
   float differ by a shift and an offset of the exponent, and a carry out of the rounded fraction
   increments the exponent as it should; what is above the format's range is brought to the first
   number beyond it, so that no exponent is too large. Rounding is to nearest, ties to even: add half
   of the last place that is kept, less one where that place is even. Subnormals round by themselves
   when a power of two is added whose last place is the format's smallest number. STRANGE is the first
   of the bits that are not finite, infinity where there is one. */

#define EXPONENT(exponent) (((exponent) + 127) << 23) /* the bits of a float32 */
#define SMALL_FLOAT(T, U, FRACTION, LEAST, STRANGE, NAN) \
    INLINE f32xN T##_to_f32xN(U##xN bits) { \
        const i32 drop = 23 - FRACTION, width = 8 * sizeof(U), top = 1 << (width - 1); \
        const i32xN word = __builtin_convertvector(bits, i32xN), body = word & (top - 1); \
        const i32xN normal = ((body << drop) + EXPONENT(LEAST - 1)) | ((body >= STRANGE) & 0x7F800000); \
        const f32xN step = (f32xN)splat_i32xN(EXPONENT(LEAST - FRACTION)); \
        const i32xN tiny = (i32xN)(__builtin_convertvector(body, f32xN) * step); \
        const i32xN magnitude = where_i32xN(body < 1 << FRACTION, tiny, normal); \
        return (f32xN)(magnitude | (word & top) << (32 - width)); \
    } \
    INLINE U##xN f32_to_##T##xN(f32xN x) { \
        const i32 drop = 23 - FRACTION, width = 8 * sizeof(U), top = 1 << (width - 1); \
        const i32 beyond = (STRANGE << drop) + EXPONENT(LEAST - 1), magic = EXPONENT(LEAST + drop); \
        const i32xN word = (i32xN)x, magnitude = word & 0x7FFFFFFF; \
        const i32xN inside = min_i32xN(magnitude, splat_i32xN(beyond)); \
        const i32xN half = ((inside >> drop) & 1) + ((1 << (drop - 1)) - 1); \
        const i32xN normal = (inside + half - EXPONENT(LEAST - 1)) >> drop; \
        const i32xN tiny = (i32xN)((f32xN)magnitude + (f32xN)splat_i32xN(magic)) - magic; \
        i32xN body = where_i32xN(magnitude < EXPONENT(LEAST), tiny, normal); \
        body = where_i32xN(magnitude > 0x7F800000, splat_i32xN(NAN), body); \
        return __builtin_convertvector(body | (word >> (32 - width) & top), U##xN); \
    }

/* Where the processor casts float16 itself, Clang needs no more than a cast. GCC 12 makes one of
   each lane, so it is told which instruction to take. Where the processor also computes in float16,
   compilers would leave out roundings between casts, and are told so too, or not to use them. */
#if defined(__F16C__) && __clang_major__ > 14 && !defined(__AVX512FP16__)
typedef _Float16 halfxN __attribute__((vector_size(2 * N)));
INLINE f32xN f16_to_f32xN(u16xN bits) { return __builtin_convertvector((halfxN)bits, f32xN); }
INLINE u16xN f32_to_f16xN(f32xN x) { return (u16xN)__builtin_convertvector(x, halfxN); }
#elif defined(__F16C__) && !defined(__clang__) && N == 1
typedef i16 halves __attribute__((vector_size(16)));
typedef f32 floats __attribute__((vector_size(16)));
INLINE f32xN f16_to_f32xN(u16xN bits) {
    return (f32xN){__builtin_ia32_vcvtph2ps((halves){(i16)bits[0]})[0]};
}
INLINE u16xN f32_to_f16xN(f32xN x) {
    return (u16xN){(u16)__builtin_ia32_vcvtps2ph((floats){x[0]}, 4)[0]};
}
#elif defined(__AVX512F__) && !defined(__clang__) && N == 16
INLINE f32xN f16_to_f32xN(u16xN bits) {
    return __builtin_ia32_vcvtph2ps512_mask((i16xN)bits, (f32xN){0}, -1, 4);
}
INLINE u16xN f32_to_f16xN(f32xN x) {
    return (u16xN)__builtin_ia32_vcvtps2ph512_mask(x, 4, (i16xN){0}, -1);
}
#elif defined(__F16C__) && !defined(__clang__) && N == 8
INLINE f32xN f16_to_f32xN(u16xN bits) { return __builtin_ia32_vcvtph2ps256((i16xN)bits); }
INLINE u16xN f32_to_f16xN(f32xN x) { return (u16xN)__builtin_ia32_vcvtps2ph256(x, 4); }
#else
SMALL_FLOAT(f16, u16, 10, -14, 0x7C00, 0x7E00)
#endif
SMALL_FLOAT(f8_e4m3fn, u8, 3, -6, 0x7F, 0x7F)
SMALL_FLOAT(f8_e5m2, u8, 2, -14, 0x7C, 0x7E)
#undef SMALL_FLOAT
#undef EXPONENT

INLINE f32xN bf16_to_f32xN(u16xN bits) { /* which are the upper half of a float32's */
    return (f32xN)(__builtin_convertvector(bits, i32xN) << 16);
}
INLINE u16xN f32_to_bf16xN(f32xN x) {
    const i32xN word = (i32xN)x, rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
    const i32xN quiet = ((word >> 16) & 0x8000) | 0x7FC0;
    const i32xN bits = where_i32xN((word & 0x7FFFFFFF) > 0x7F800000, quiet, rounded);
    return __builtin_convertvector(bits, u16xN);
}

/* A float64 as float32, rounded to odd, so that rounding once more rounds correctly: Boldo and
   Melquiond 2008, "Emulation of a FMA and correctly rounded sums: proved algorithms using rounding
   to odd", theorem 1. */
INLINE f32xN odd_f32xN(f64xN x) {
    const f32xN near = __builtin_convertvector(x, f32xN);
    const f64xN back = __builtin_convertvector(near, f64xN);
    const i64xN all = (i64xN)splat_u64xN(~0ULL >> 1);
    const i64xN above = (i64xN)(((i64xN)back & all) > ((i64xN)x & all));
    const i32xN word = (i32xN)near + __builtin_convertvector(above, i32xN);
    return (f32xN)(word | (__builtin_convertvector((i64xN)(back != x), i32xN) & 1));
}
#define FROM_DOUBLE(T, U) \
    INLINE U##xN f64_to_##T##xN(f64xN x) { return f32_to_##T##xN(odd_f32xN(x)); }
FROM_DOUBLE(f16, u16)
FROM_DOUBLE(bf16, u16)
FROM_DOUBLE(f8_e4m3fn, u8)
FROM_DOUBLE(f8_e5m2, u8)
#undef FROM_DOUBLE

#if N == 1
#define SCALARS(T, U) \
    SCALAR(T##_to_f32, U, f32) SCALAR(f32_to_##T, f32, U) SCALAR(f64_to_##T, f64, U)
SCALARS(f16, u16)
SCALARS(bf16, u16)
SCALARS(f8_e4m3fn, u8)
SCALARS(f8_e5m2, u8)
#endif
