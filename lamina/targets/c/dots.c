/* Sums of products of bytes, which are exact: to the sum in each of N lanes, DOT adds the products of
   the four bytes there, a word. A side has a word for each lane, or one for all. */

#ifndef DOT
#define splat_i32(x) (x)
#define WORDS(T, x) \
    (sizeof(x) == 4 ? splat_##T(BITS(__typeof__(x), i32, x)) : BITS(__typeof__(x), T, x))
#define DOT(T, sum, A, a, B, b) dot_##A##_##B##_##T(sum, WORDS(T, a), WORDS(T, b))
/* Words anywhere in memory: one, vectors of neighbours, and square blocks, whose rows are so many bytes
   apart, as the vectors of their columns. */
typedef i32 word __attribute__((aligned(1), may_alias));
#define WORD_AT(p) (*(const word *)(p))
#define WORDS_AT(kind, lanes, p) \
    (((union { words_##lanes words; kind bytes; }){*(const words_##lanes##_anywhere *)(p)}).bytes)
#define WORDS_TRANSPOSED(kind, name, lanes, p, step) \
    i32 name##_rows[lanes * lanes] __attribute__((aligned(64))); \
    for (int i = 0; i < lanes; i++) \
        *(words_##lanes *)(name##_rows + i * lanes) = \
            *(const words_##lanes##_anywhere *)(p + (i64)i * (step)); \
    TRANSPOSED(kind, name, lanes, name##_rows, lanes, 1)
#define PASTED(a, b) a##b
#define NAMED(a, b) PASTED(a, b)
#endif

#define WORDS_N NAMED(words_, N)
typedef i32 WORDS_N __attribute__((vector_size(4 * N), may_alias));
typedef i32 NAMED(WORDS_N, _anywhere) __attribute__((vector_size(4 * N), aligned(1), may_alias));

/* The words of which a, b, c and d are the first, second, third and fourth bytes. GCC 12 would widen
   bytes lane by lane. */
INLINE i32xN NAMED(in_turns_, N)(i8xN a, i8xN b, i8xN c, i8xN d) {
    typedef u32 words __attribute__((vector_size(4 * N)));
    typedef int signed_words __attribute__((vector_size(4 * N)));
    typedef char bytes __attribute__((vector_size(16)));
#if !defined __clang__ && N == 16 && defined __AVX512F__
#define WIDENED(x) (words)BUILTIN(ia32_pmovzxbd512_mask)((bytes)x, (signed_words){0}, -1)
#elif !defined __clang__ && N == 8 && defined __AVX2__
#define WIDENED(x) (words)BUILTIN(ia32_pmovzxbd256)((bytes)(i64 __attribute__((vector_size(16)))){BITS(i8xN, i64, x)})
#else
#define WIDENED(x) __builtin_convertvector((u8xN)x, words)
#endif
    return (i32xN)(WIDENED(a) | WIDENED(b) << 8 | WIDENED(c) << 16 | WIDENED(d) << 24);
#undef WIDENED
}

/* Intel's instruction multiplies unsigned bytes by signed ones. */
#if defined __clang__ && N == 16 && defined __AVX512VNNI__
#define DOT_xN __builtin_ia32_vpdpbusd512
#elif N == 16 && defined __AVX512VNNI__
#define DOT_xN __builtin_ia32_vpdpbusd_v16si
#elif defined __AVX512VNNI__ && defined __AVX512VL__ || defined __AVXVNNI__
#if N == 8 && defined __clang__
#define DOT_xN __builtin_ia32_vpdpbusd256
#elif N == 8
#define DOT_xN __builtin_ia32_vpdpbusd_v8si
#elif N <= 4 && defined __clang__
#define DOT_xN __builtin_ia32_vpdpbusd128
#elif N <= 4
#define DOT_xN __builtin_ia32_vpdpbusd_v4si
#endif
#endif

/* Older ones multiply 16 bits, and add up two products. */
#if defined __clang__ && N == 16 && defined __AVX512BW__
#define PAIRS(a, b) __builtin_ia32_pmaddwd512(a, b)
#elif N == 16 && defined __AVX512BW__
#define PAIRS(a, b) __builtin_ia32_pmaddwd512_mask(a, b, (words){0}, -1)
#elif N == 8 && defined __AVX2__
#define PAIRS(a, b) __builtin_ia32_pmaddwd256(a, b)
#elif N == 4 && defined __SSE2__
#define PAIRS(a, b) __builtin_ia32_pmaddwd128(a, b)
#endif

#define FLIPPED(x) (x ^ (i32xN)((u32xN){0} + 0x80808080)) /* 128 away, as bytes of the other sign */
#if defined DOT_xN
/* The instructions take four words at least: one word or two, as at the end of a row, are the first ones
   of four, and the others are 0. */
#define MIN_FOUR (N < 4 ? 4 : N)
#if N == 1
#define FOUR_OR_MORE(x) (words){x[0]}
#define FIRST_xN(x) (i32xN){x[0]}
#elif N == 2
#define FOUR_OR_MORE(x) (words){x[0], x[1]}
#define FIRST_xN(x) (i32xN){x[0], x[1]}
#else
#define FOUR_OR_MORE(x) (words)x
#define FIRST_xN(x) (i32xN)x
#endif
INLINE i32xN dot_u8_i8_i32xN(i32xN sum, i32xN a, i32xN b) {
    typedef int words __attribute__((vector_size(4 * MIN_FOUR)));
#if defined __clang__ && __clang_major__ >= 21
    typedef unsigned char left __attribute__((vector_size(4 * MIN_FOUR)));
    typedef signed char right __attribute__((vector_size(4 * MIN_FOUR)));
#else
    typedef words left, right;
#endif
    const left unsigned_bytes = (left)FOUR_OR_MORE(a);
    const right signed_bytes = (right)FOUR_OR_MORE(b);
    const words sums = (words)DOT_xN(FOUR_OR_MORE(sum), unsigned_bytes, signed_bytes);
    return FIRST_xN(sums);
}
#undef MIN_FOUR
#undef FOUR_OR_MORE
#undef FIRST_xN
INLINE i32xN dot_i8_u8_i32xN(i32xN sum, i32xN a, i32xN b) { return dot_u8_i8_i32xN(sum, b, a); }
INLINE i32xN dot_i8_i8_i32xN(i32xN sum, i32xN a, i32xN b) {
    const i32xN zero = {0};
    return dot_u8_i8_i32xN(sum, FLIPPED(a), b) - dot_u8_i8_i32xN(zero, FLIPPED(zero), b);
}
INLINE i32xN dot_u8_u8_i32xN(i32xN sum, i32xN a, i32xN b) {
    const i32xN zero = {0};
    return dot_u8_i8_i32xN(sum, a, FLIPPED(b)) - dot_u8_i8_i32xN(zero, a, FLIPPED(zero));
}

#elif N == 4 && defined __ARM_FEATURE_DOTPROD
#define ARM_DOT(instruction, name) \
    INLINE i32xN name(i32xN sum, i32xN a, i32xN b) { \
        __asm__(instruction " %0.4s, %1.16b, %2.16b" : "+w"(sum) : "w"(a), "w"(b)); \
        return sum; \
    }
ARM_DOT("sdot", dot_i8_i8_i32xN)
ARM_DOT("udot", dot_u8_u8_i32xN)
#undef ARM_DOT
INLINE i32xN dot_u8_i8_i32xN(i32xN sum, i32xN a, i32xN b) { /* 128 is twice 64 */
    const i32xN half = (i32xN){0} + 0x40404040;
    sum = dot_i8_i8_i32xN(dot_i8_i8_i32xN(sum, half, b), half, b);
    return dot_i8_i8_i32xN(sum, FLIPPED(a), b);
}
INLINE i32xN dot_i8_u8_i32xN(i32xN sum, i32xN a, i32xN b) { return dot_u8_i8_i32xN(sum, b, a); }

#elif defined PAIRS
/* The bytes with even numbers, and those with odd ones, as 16 bits. */
#define BYTES(A, T) \
    INLINE i32xN even_##A##_i32xN(i32xN a) { \
        typedef T pairs __attribute__((vector_size(4 * N))); \
        return (i32xN)((pairs)((pairs)a << 8) >> 8); \
    } \
    INLINE i32xN odd_##A##_i32xN(i32xN a) { \
        typedef T pairs __attribute__((vector_size(4 * N))); \
        return (i32xN)((pairs)a >> 8); \
    }
BYTES(i8, i16) BYTES(u8, u16)
#undef BYTES
#define SUM_OF_PAIRS(A, B) \
    INLINE i32xN dot_##A##_##B##_i32xN(i32xN sum, i32xN a, i32xN b) { \
        typedef short pairs __attribute__((vector_size(4 * N))); \
        typedef int words __attribute__((vector_size(4 * N))); \
        sum += (i32xN)PAIRS((pairs)even_##A##_i32xN(a), (pairs)even_##B##_i32xN(b)); \
        return sum + (i32xN)PAIRS((pairs)odd_##A##_i32xN(a), (pairs)odd_##B##_i32xN(b)); \
    }
SUM_OF_PAIRS(u8, i8) SUM_OF_PAIRS(i8, u8) SUM_OF_PAIRS(i8, i8) SUM_OF_PAIRS(u8, u8)
#undef SUM_OF_PAIRS

#else
#define BYTE_i8(x, at) (i32xN)((i32xN)((u32xN)x << (24 - at)) >> 24)
#define BYTE_u8(x, at) (x >> at & 255)
#define SUM_OF_BYTES(A, B) \
    INLINE i32xN dot_##A##_##B##_i32xN(i32xN sum, i32xN a, i32xN b) { \
        for (int at = 0; at < 32; at += 8) sum += BYTE_##A(a, at) * BYTE_##B(b, at); \
        return sum; \
    }
SUM_OF_BYTES(u8, i8) SUM_OF_BYTES(i8, u8) SUM_OF_BYTES(i8, i8) SUM_OF_BYTES(u8, u8)
#undef SUM_OF_BYTES
#undef BYTE_i8
#undef BYTE_u8
#endif
#undef FLIPPED
#undef DOT_xN
#undef PAIRS
#undef WORDS_N

#if N == 1
#define SCALAR_DOT(name) \
    INLINE i32 name##_i32(i32 sum, i32 a, i32 b) { \
        return name##_i32x1((i32x1){sum}, (i32x1){a}, (i32x1){b})[0]; \
    }
SCALAR_DOT(dot_u8_i8) SCALAR_DOT(dot_i8_u8) SCALAR_DOT(dot_i8_i8) SCALAR_DOT(dot_u8_u8)
#endif
