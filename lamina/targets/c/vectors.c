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
    }
/* The second of equal ones, and where one is a NaN, as instructions of x86 have it. */
#define LARGER(T, I) \
    INLINE T##xN larger_##T##xN(T##xN a, T##xN b) { return where_##T##xN((I##xN)(a > b), a, b); } \
    INLINE T##xN smaller_##T##xN(T##xN a, T##xN b) { return where_##T##xN((I##xN)(a < b), a, b); }
#define INSTRUCTION(T, max, min, ...) \
    INLINE T##xN larger_##T##xN(T##xN a, T##xN b) { return BUILTIN(max)(a, b __VA_ARGS__); } \
    INLINE T##xN smaller_##T##xN(T##xN a, T##xN b) { return BUILTIN(min)(a, b __VA_ARGS__); }
/* A NaN on either side is the result. If `b` is a number in the text, no test for that is left. */
#define EXTREMES(T, I) \
    INLINE T##xN max_##T##xN(T##xN a, T##xN b) { \
        return where_##T##xN((I##xN)(b != b), b, larger_##T##xN(b, a)); \
    } \
    INLINE T##xN min_##T##xN(T##xN a, T##xN b) { \
        return where_##T##xN((I##xN)(b != b), b, smaller_##T##xN(b, a)); \
    }
#define EACH_INTEGER(F) \
    F(i8, i8) F(i16, i16) F(i32, i32) F(i64, i64) F(u8, i8) F(u16, i16) F(u32, i32) F(u64, i64)
#define EACH(F) EACH_INTEGER(F) F(f32, i32) F(f64, i64)
EACH(VECTOR)
EACH(CHOICES)
EACH_INTEGER(LARGER)
#if defined __AVX512F__ && N == 16 && !defined __clang__
INSTRUCTION(f32, ia32_maxps512_mask, ia32_minps512_mask, , a, -1, 4)
#elif defined __AVX__ && N == 8
INSTRUCTION(f32, ia32_maxps256, ia32_minps256)
#elif defined __SSE__ && N == 4
INSTRUCTION(f32, ia32_maxps, ia32_minps)
#else
LARGER(f32, i32)
#endif
#if defined __AVX512F__ && N == 8 && !defined __clang__
INSTRUCTION(f64, ia32_maxpd512_mask, ia32_minpd512_mask, , a, -1, 4)
#elif defined __AVX__ && N == 4
INSTRUCTION(f64, ia32_maxpd256, ia32_minpd256)
#elif defined __SSE2__ && N == 2
INSTRUCTION(f64, ia32_maxpd, ia32_minpd)
#else
LARGER(f64, i64)
#endif
EACH(EXTREMES)
#undef INSTRUCTION
/* How kernels read them: GCC 12 would take what it only widens apart, lane by lane, were the load not
   volatile. */
#define READ(T, ...) typedef const __VA_ARGS__ T##xNu T##xNr;
READ(i8, volatile) READ(u8, volatile) READ(i16, volatile) READ(u16, volatile)
READ(i32) READ(u32) READ(f32) READ(i64) READ(u64) READ(f64)
#ifndef OPAQUE
/* `x`, of which the compiler does not see where it is from: that would undo the above in a bitcast. */
#if defined __x86_64__ && !defined __clang__ && __GNUC__ >= 12
#define OPAQUE(kind, x) ({ kind opaque = x; __asm__("" : "+x"(opaque)); opaque; })
#else
#define OPAQUE(kind, x) x
#endif
#endif

#ifndef HELD
/* `x`, loaded into a register. GCC 12 may read a vector again for each row of a register tile that
   multiplies it, which are more loads than a processor has time for: a convolution with 5 x 2 sums
   took 1.2 times as long. */
#if defined __x86_64__ && !defined __clang__
#define HELD(kind, x) \
    ({ kind held = x; if (sizeof held <= __BIGGEST_ALIGNMENT__) __asm__("" : "+v"(held)); held; })
#else
#define HELD(kind, x) x
#endif
#endif

#ifndef SPREADx2
/* Elements of memory from `p` on, `by` apart, for the lanes of a vector. Of a loop GCC 12 makes pairs,
   which it stores and then loads as one vector: a processor waits there for all of the stores. */
#define SPREADx2(p, by) (p)[0], (p)[by]
#define SPREADx4(p, by) SPREADx2(p, by), SPREADx2((p) + 2 * (by), by)
#define SPREADx8(p, by) SPREADx4(p, by), SPREADx4((p) + 4 * (by), by)
#define SPREADx16(p, by) SPREADx8(p, by), SPREADx8((p) + 8 * (by), by)
#define SPREADx32(p, by) SPREADx16(p, by), SPREADx16((p) + 16 * (by), by)
#define SPREADx64(p, by) SPREADx32(p, by), SPREADx32((p) + 32 * (by), by)
#endif
/* Vectors whose lanes lie `by` elements apart in memory. A register tile has many of them, and a
   compiler takes long for as many scalars in one function, so these are not inlined. */
#define APART(T, I) \
    static __attribute__((noinline)) T##xN load_apart_##T##xN(const T *p, i64 by) { \
        return (T##xN){SPREADxN(p, by)}; \
    } \
    static __attribute__((noinline)) void store_apart_##T##xN(T *p, i64 by, T##xN x) { \
        _Pragma("GCC unroll 64") for (int lane = 0; lane < N; lane++) p[lane * by] = x[lane]; \
    }
EACH(APART)
#undef APART
/* Elements at `p`, and zeros in lanes whose bit is not set, of which nothing is read. */
#define LANES(T) \
    INLINE T##xN masked_##T##xN(const T *p, u64 lanes) { \
        T##xN x = {0}; \
        if (!(~lanes << (64 - N))) return *(const T##xNu *)p; \
        if (!(lanes << (64 - N))) return x; \
        for (int lane = 0; lane < N; lane++) if (lanes >> lane & 1) x[lane] = p[lane]; \
        return x; \
    }
/* The same of elements that lie `by` apart. A loop over lanes puts them together in memory; few lanes,
   and those of which the compiler knows what is read, are put together in a register. */
#ifndef INSIDEx2
#define INSIDEx2(p, by, lanes) (lanes) & 1 ? (p)[0] : 0, (lanes) & 2 ? (p)[by] : 0
#define INSIDEx4(p, by, lanes) INSIDEx2(p, by, lanes), INSIDEx2((p) + 2 * (by), by, (lanes) >> 2)
#define INSIDEx8(p, by, lanes) INSIDEx4(p, by, lanes), INSIDEx4((p) + 4 * (by), by, (lanes) >> 4)
#define INSIDEx16(p, by, lanes) INSIDEx8(p, by, lanes), INSIDEx8((p) + 8 * (by), by, (lanes) >> 8)
#define INSIDEx32(p, by, lanes) INSIDEx16(p, by, lanes), INSIDEx16((p) + 16 * (by), by, (lanes) >> 16)
#define INSIDEx64(p, by, lanes) INSIDEx32(p, by, lanes), INSIDEx32((p) + 32 * (by), by, (lanes) >> 32)
#endif
#define LANES_APART(T, I) \
    INLINE T##xN masked_apart_##T##xN(const T *p, i64 by, u64 lanes) { \
        if (!(~lanes << (64 - N))) return (T##xN){SPREADxN(p, by)}; \
        if (N <= 4 || __builtin_constant_p(lanes)) return (T##xN){INSIDExN(p, by, lanes)}; \
        T##xN x = {0}; \
        if (!(lanes << (64 - N))) return x; \
        for (int lane = 0; lane < N; lane++) if (lanes >> lane & 1) x[lane] = p[lane * by]; \
        return x; \
    }
EACH(LANES_APART)
#undef LANES_APART
#define INSTRUCTION(T, Same, load) \
    INLINE T##xN masked_##T##xN(const T *p, u64 lanes) { \
        return (T##xN)BUILTIN(load)((const void *)p, (Same##xN){0}, lanes); \
    }
#if defined __AVX512BW__ && defined __AVX512VL__ && N == 16
#define TWO(T) INSTRUCTION(T, i16, ia32_loaddquhi256_mask)
#elif defined __AVX512BW__ && defined __AVX512VL__ && N == 8
#define TWO(T) INSTRUCTION(T, i16, ia32_loaddquhi128_mask)
#else
#define TWO LANES
#endif
#if defined __AVX512F__ && N == 16
#define FOUR(T) INSTRUCTION(T, f32, ia32_loadups512_mask)
#elif defined __AVX512VL__ && N == 8
#define FOUR(T) INSTRUCTION(T, f32, ia32_loadups256_mask)
#elif defined __AVX512VL__ && N == 4
#define FOUR(T) INSTRUCTION(T, f32, ia32_loadups128_mask)
#else
#define FOUR LANES
#endif
#if defined __AVX512F__ && N == 8
#define EIGHT(T) INSTRUCTION(T, f64, ia32_loadupd512_mask)
#elif defined __AVX512VL__ && N == 4
#define EIGHT(T) INSTRUCTION(T, f64, ia32_loadupd256_mask)
#elif defined __AVX512VL__ && N == 2
#define EIGHT(T) INSTRUCTION(T, f64, ia32_loadupd128_mask)
#else
#define EIGHT LANES
#endif
LANES(i8) LANES(u8) TWO(i16) TWO(u16) FOUR(i32) FOUR(u32) FOUR(f32) EIGHT(i64) EIGHT(u64) EIGHT(f64)
#undef TWO
#undef FOUR
#undef EIGHT
#undef LANES
#undef INSTRUCTION
#undef EACH
#undef EACH_INTEGER
#undef VECTOR
#undef CHOICES
#undef LARGER
#undef EXTREMES

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
        return SHR(I, a, (I)((u64)n < 8 * sizeof(I) ? n : 8 * sizeof(I) - 1)); \
    }
#define SHR(I, a, n) a >> n
EACH_WAY(i8, u8, u16) EACH_WAY(i16, u16, u16) EACH_WAY(i64, u64, u64)
#if defined __AVX512F__ && N == 16 && !defined __clang__
/* Amounts of all lanes take fewer steps than one amount for all, which GCC would make of them. */
#undef SHR
#define SHR(I, a, n) \
    __builtin_constant_p(n) ? a >> n : (I##xN)BUILTIN(ia32_psrav16si_mask)(a, splat_##I##xN(n), a, -1)
#endif
EACH_WAY(i32, u32, u32)
#undef SHR
#undef EACH_WAY
#undef LOGICAL
#endif

/* Is any lane of a mask true? */
INLINE _Bool any_i32xN(i32xN mask) {
#if defined __AVX512F__ && N == 16 && !defined __clang__
    return __builtin_ia32_ptestmd512(mask, mask, -1);
#elif defined __AVX__ && N == 8
    return __builtin_ia32_movmskps256((f32xN)mask);
#else
    i32 any = 0;
    for (int lane = 0; lane < N; lane++) any |= mask[lane];
    return any;
#endif
}

#if N == 16
/* Elements of a table at the last four bits of what each lane has. */
INLINE f32xN lookup_f32xN(f32xN table, i32xN places) {
#if !defined __clang__
    return __builtin_shuffle(table, places);
#elif defined __AVX512F__
    return __builtin_ia32_permvarsf512(table, places);
#else
    f32xN x;
    for (int lane = 0; lane < N; lane++) x[lane] = table[places[lane] & 15];
    return x;
#endif
}
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
