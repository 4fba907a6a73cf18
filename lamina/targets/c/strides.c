/* Vectors of N elements that lie 2, 3 or 4 apart in memory, or backwards. As many vectors as these are
   apart are read as they lie there, the last one up to the last element that is needed, and shuffles
   pick the lanes: of 16 that lie 3 apart 3 reads and 2 shuffles, in place of 16 reads and as many
   steps that put them together. */

#ifndef EACH_LANEx2
#define EACH_LANEx2(F, i) F((i)), F((i) + 1)
#define EACH_LANEx4(F, i) EACH_LANEx2(F, i), EACH_LANEx2(F, (i) + 2)
#define EACH_LANEx8(F, i) EACH_LANEx4(F, i), EACH_LANEx4(F, (i) + 4)
#define EACH_LANEx16(F, i) EACH_LANEx8(F, i), EACH_LANEx8(F, (i) + 8)
#endif
#ifdef __clang__
#define PICK(I, a, b, F) __builtin_shufflevector(a, b, EACH_LANExN(F, 0))
#else
#define PICK(I, a, b, F) __builtin_shuffle(a, b, (I##xN){EACH_LANExN(F, 0)})
#endif
/* The place of lane i in two vectors, of which the second begins a place earlier than it would as a
   neighbour of the first, as it ends with the last element. */
#define OF_TWO(i) ((i) * 2 < N ? (i) * 2 : (i) * 2 + 1)
/* The same of the first two of three vectors, and of these with the third, which begins two earlier. */
#define OF_THREE(i) ((i) * 3 % (2 * N))
#define WITH_THIRD(i) ((i) * 3 < 2 * N ? (i) : (i) * 3 - N + 2)
/* Of the first two and the last two of four vectors, and of both. */
#define OF_FOUR(i) ((i) * 4 % (2 * N))
#define OF_LAST(i) (((i) * 4 < 3 * N ? (i) * 4 : (i) * 4 + 3) % (2 * N))
#define OF_BOTH(i) ((i) < N / 2 ? (i) : N + (i))
#define BACKWARDS(i) (N - 1 - (i))
#define NEAR(T, p) (T##xN)*(const T##xNu *)(p)
#define STRIDED(T, I) \
    INLINE T##xN each_second_##T##xN(const T *p) { \
        return PICK(I, NEAR(T, p), NEAR(T, p + N - 1), OF_TWO); \
    } \
    INLINE T##xN each_third_##T##xN(const T *p) { \
        const T##xN first = PICK(I, NEAR(T, p), NEAR(T, p + N), OF_THREE); \
        return PICK(I, first, NEAR(T, p + 2 * N - 2), WITH_THIRD); \
    } \
    INLINE T##xN each_fourth_##T##xN(const T *p) { \
        const T##xN first = PICK(I, NEAR(T, p), NEAR(T, p + N), OF_FOUR); \
        const T##xN last = PICK(I, NEAR(T, p + 2 * N), NEAR(T, p + 3 * N - 3), OF_LAST); \
        return PICK(I, first, last, OF_BOTH); \
    } \
    INLINE T##xN backwards_##T##xN(const T *p) { \
        const T##xN x = NEAR(T, p + 1 - N); \
        return PICK(I, x, x, BACKWARDS); \
    }
/* The same where only some lanes are read, which are bits: an element for each bit that is set, and
   zeros for the others. */
#if defined __AVX512F__ && defined __AVX512VL__ && defined __BMI2__ && !defined __clang__
#define SPREAD_BITS(lanes, by) __builtin_ia32_pdep_di(lanes, by)
#define SOME(T, number) masked_##T##xN(p + number * N, bits >> (number * N))
#define MASKED(T, I) \
    INLINE T##xN masked_each_second_##T##xN(const T *p, u64 lanes) { \
        const u64 bits = SPREAD_BITS(lanes, 0x5555555555555555); \
        return PICK(I, SOME(T, 0), SOME(T, 1), NEAR_TWO); \
    } \
    INLINE T##xN masked_each_third_##T##xN(const T *p, u64 lanes) { \
        const u64 bits = SPREAD_BITS(lanes, 0x9249249249249249); \
        return PICK(I, PICK(I, SOME(T, 0), SOME(T, 1), OF_THREE), SOME(T, 2), NEAR_THIRD); \
    } \
    INLINE T##xN masked_each_fourth_##T##xN(const T *p, u64 lanes) { \
        const u64 bits = SPREAD_BITS(lanes, 0x1111111111111111); \
        const T##xN first = PICK(I, SOME(T, 0), SOME(T, 1), OF_FOUR); \
        return PICK(I, first, PICK(I, SOME(T, 2), SOME(T, 3), OF_FOUR), OF_BOTH); \
    }
#define NEAR_TWO(i) ((i) * 2)
#define NEAR_THIRD(i) ((i) * 3 < 2 * N ? (i) : (i) * 3 - N)
#else
#define MASKED(T, I) \
    INLINE T##xN masked_each_second_##T##xN(const T *p, u64 lanes) { \
        return masked_apart_##T##xN(p, 2, lanes); \
    } \
    INLINE T##xN masked_each_third_##T##xN(const T *p, u64 lanes) { \
        return masked_apart_##T##xN(p, 3, lanes); \
    } \
    INLINE T##xN masked_each_fourth_##T##xN(const T *p, u64 lanes) { \
        return masked_apart_##T##xN(p, 4, lanes); \
    }
#endif
STRIDED(i32, i32) STRIDED(u32, i32) STRIDED(f32, i32)
STRIDED(i64, i64) STRIDED(u64, i64) STRIDED(f64, i64)
MASKED(i32, i32) MASKED(u32, i32) MASKED(f32, i32) MASKED(i64, i64) MASKED(u64, i64) MASKED(f64, i64)
#undef STRIDED
#undef MASKED
#undef NEAR
#undef PICK
