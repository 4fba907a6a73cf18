/* In-register transposes: N x N elements, read as rows and used as columns, or computed as rows and
   stored as columns, vectors of N lanes.

   A round interleaves the first half of the rows with the second half, and their lanes likewise; as
   many rounds as N has factors of two transpose. Of vectors with four quarters of 16 bytes, processors
   are quicker to move lanes within all quarters, and then whole quarters: see LOWS to ODD. That leaves
   rows and columns at other numbers, which PLACE says. */

#if N == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOWS 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29
#define HIGHS 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31
#define EVEN 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27
#define ODD 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31
#define PLACE(i) ((i & 3) << 2 | (i & 4) >> 1 | i >> 3)
#elif N == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define LOWS 0, 8, 2, 10, 4, 12, 6, 14
#define HIGHS 1, 9, 3, 11, 5, 13, 7, 15
#define EVEN 0, 1, 4, 5, 8, 9, 12, 13
#define ODD 2, 3, 6, 7, 10, 11, 14, 15
#define PLACE(i) ((i & 1) << 2 | (i & 2) | i >> 2)
#elif N == 4
#define LOW 0, 4, 1, 5
#define HIGH 2, 6, 3, 7
#elif N == 2
#define LOW 0, 2
#define HIGH 1, 3
#endif
#ifdef __clang__
#define SHUFFLE(I, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(I, a, b, ...) __builtin_shuffle(a, b, (I##xN){__VA_ARGS__})
#endif
#define ROUND(I, first, end, FIRST, SECOND) \
    _Pragma("GCC unroll 4") for (int step = first; step < end; step *= 2) { \
        _Pragma("GCC unroll 8") for (int i = 0; i < N / 2; i++) { \
            columns[2 * i] = SHUFFLE(I, rows[i], rows[i + N / 2], FIRST); \
            columns[2 * i + 1] = SHUFFLE(I, rows[i], rows[i + N / 2], SECOND); \
        } \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) rows[i] = columns[i]; \
    }
#if defined PLACE
#define ROUNDS(I) \
    if (sizeof(rows[0]) == 64) { \
        ROUND(I, 1, N / 4, LOWS, HIGHS) \
        ROUND(I, N / 4, N, EVEN, ODD) \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) columns[i] = rows[PLACE(i)]; \
    } else ROUND(I, 1, N, LOW, HIGH)
#elif defined LOW
#define ROUNDS(I) ROUND(I, 1, N, LOW, HIGH)
#else
#define ROUNDS(I) \
    for (int i = 0; i < N; i++) \
        for (int j = 0; j < N; j++) columns[i][j] = rows[j][i];
#endif
#ifndef PLACE
#define PLACE(i) i
#endif
#define TRANSPOSES(T, I) \
    INLINE void turn_##T##xN(T##xN *columns, const T##xN *from) { \
        T##xN rows[N]; \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) { \
            const int at = sizeof(rows[0]) == 64 ? PLACE(i) : i; \
            rows[at] = from[i]; \
        } \
        ROUNDS(I) \
    } \
    INLINE void transpose_##T##xN(T##xN *columns, const T *from, i64 step, _Bool there) { \
        T##xN rows[N]; \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) { \
            AHEAD(from + i * step, 128 / sizeof(T), 2); \
            rows[i] = there ? (T##xN)*(const T##xNu *)(from + i * step) : (T##xN){0}; \
        } \
        turn_##T##xN(columns, rows); \
    }
/* The first `count` lanes, of a row that has fewer elements than vectors have lanes. */
#if defined __AVX512F__ && (N == 16 || N == 8)
#define FIRST(T, store) \
    INLINE void store_first_##T##xN(T *p, int count, T##xN x) { \
        BUILTIN(store)((void *)p, x, (1 << count) - 1); \
    }
#else
#define FIRST(T, store) \
    INLINE void store_first_##T##xN(T *p, int count, T##xN x) { \
        for (int lane = 0; lane < count; lane++) p[lane] = x[lane]; \
    }
#endif
#if N == 16
FIRST(f32, ia32_storeups512_mask)
#elif N == 8
FIRST(f64, ia32_storeupd512_mask)
#endif
#undef FIRST
TRANSPOSES(i8, i8) TRANSPOSES(i16, i16) TRANSPOSES(i32, i32) TRANSPOSES(i64, i64) TRANSPOSES(f32, i32)
TRANSPOSES(u8, i8) TRANSPOSES(u16, i16) TRANSPOSES(u32, i32) TRANSPOSES(u64, i64) TRANSPOSES(f64, i64)
#undef TRANSPOSES
#undef ROUNDS
#undef ROUND
#undef SHUFFLE
#undef PLACE
#undef ODD
#undef EVEN
#undef HIGHS
#undef LOWS
#undef HIGH
#undef LOW
