/* Vectors of N lanes; a program has this text once for each number of lanes in it, with the number
   for N. A mask is a vector of signed integers as wide as the elements it selects, all bits set
   where true. */

#define VECTOR(T, I) \
    typedef T T##xN __attribute__((vector_size(sizeof(T) * N))); \
    typedef T T##xNu __attribute__((vector_size(sizeof(T) * N), aligned(sizeof(T)), may_alias));
#define CHOICES(T, I) \
    /* Unlike a sum with 0, the difference keeps the sign of zero. */ \
    INLINE T##xN splat_##T##xN(T x) { return x - (T##xN){0}; } \
    /* GCC makes a blend of this; of an or, it makes more. */ \
    INLINE T##xN where_##T##xN(I##xN c, T##xN a, T##xN b) { \
        return (T##xN)((c & (I##xN)a) ^ (~c & (I##xN)b)); \
    } \
    /* A NaN on either side is the result. */ \
    INLINE T##xN max_##T##xN(T##xN a, T##xN b) { \
        return where_##T##xN((I##xN)((a > b) | (a != a)), a, b); \
    } \
    INLINE T##xN min_##T##xN(T##xN a, T##xN b) { \
        return where_##T##xN((I##xN)((a < b) | (a != a)), a, b); \
    }
#define EACH(F) \
    F(i8, i8) F(i16, i16) F(i32, i32) F(i64, i64) F(f32, i32) \
    F(u8, i8) F(u16, i16) F(u32, i32) F(u64, i64) F(f64, i64)
EACH(VECTOR)
EACH(CHOICES)
#undef EACH
#undef VECTOR
#undef CHOICES

/* Every lane shifted by the same amount. Processors do not shift bytes: two are shifted as one, and a
   mask takes away what went from one to the other. */
#if N > 1
#define LOGICAL(shift, sign, T, Word) \
    INLINE T##xN shift##_##T##xN(T##xN a, T n) { \
        typedef Word words __attribute__((vector_size(sizeof(a)))); \
        return (T##xN)((words)a sign (T)(n & (8 * sizeof(T) - 1))) & shift##_##T(-1, n); \
    }
#define EACH_WAY(I, U, Word) \
    LOGICAL(shl, <<, I, Word) LOGICAL(shl, <<, U, Word) LOGICAL(shr, >>, U, Word) \
    INLINE I##xN shr_##I##xN(I##xN a, I n) { \
        return a >> (I)((u64)n < 8 * sizeof(I) ? n : 8 * sizeof(I) - 1); \
    }
EACH_WAY(i8, u8, u16) EACH_WAY(i16, u16, u16) EACH_WAY(i32, u32, u32) EACH_WAY(i64, u64, u64)
#undef EACH_WAY
#undef LOGICAL
#endif

/* Beyond 2**(fraction bits) every float is whole; below, an integer holds it. */
INLINE f32xN trunc_f32xN(f32xN x) {
    const u32xN sign = (u32xN)x & 0x80000000, magnitude = (u32xN)x ^ sign;
    const i32xN whole = __builtin_convertvector((f32xN)magnitude, i32xN);
    const u32xN cut = (u32xN)__builtin_convertvector(whole, f32xN) | sign;
    return where_f32xN((f32xN)magnitude < 0x1p23f, (f32xN)cut, x);
}
INLINE f64xN trunc_f64xN(f64xN x) {
    const u64xN sign = (u64xN)x & 1ULL << 63, magnitude = (u64xN)x ^ sign;
    const i64xN whole = __builtin_convertvector((f64xN)magnitude, i64xN);
    const u64xN cut = (u64xN)__builtin_convertvector(whole, f64xN) | sign;
    return where_f64xN((i64xN)((f64xN)magnitude < 0x1p52), (f64xN)cut, x);
}
