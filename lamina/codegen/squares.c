/* Squares of N x N elements, read as rows and used as columns, vectors of N lanes. Each of as many
   turns as N has halves has rows of the first half alternate with those of the second, and so their
   lanes. */

#if N == 16
#define LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif N == 8
#define LOW 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH 4, 12, 5, 13, 6, 14, 7, 15
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
#ifdef LOW
#define TURN(I) \
    _Pragma("GCC unroll 4") for (int turned = 1; turned < N; turned *= 2) { \
        _Pragma("GCC unroll 8") for (int i = 0; i < N / 2; i++) { \
            columns[2 * i] = SHUFFLE(I, rows[i], rows[i + N / 2], LOW); \
            columns[2 * i + 1] = SHUFFLE(I, rows[i], rows[i + N / 2], HIGH); \
        } \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) rows[i] = columns[i]; \
    }
#else
#define TURN(I) \
    for (int i = 0; i < N; i++) \
        for (int j = 0; j < N; j++) columns[i][j] = rows[j][i];
#endif
#define SQUARES(T, I) \
    INLINE void square_##T##xN(T##xN *columns, const T *from, i64 step, _Bool there) { \
        T##xN rows[N]; \
        _Pragma("GCC unroll 16") for (int i = 0; i < N; i++) { \
            AHEAD(from + i * step, 128 / sizeof(T)); \
            rows[i] = there ? (T##xN)*(const T##xNu *)(from + i * step) : (T##xN){0}; \
        } \
        TURN(I) \
    }
SQUARES(i8, i8) SQUARES(i16, i16) SQUARES(i32, i32) SQUARES(i64, i64) SQUARES(f32, i32)
SQUARES(u8, i8) SQUARES(u16, i16) SQUARES(u32, i32) SQUARES(u64, i64) SQUARES(f64, i64)
#undef SQUARES
#undef TURN
#undef SHUFFLE
#undef HIGH
#undef LOW
