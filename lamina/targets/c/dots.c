/* In each of N lanes, the sum of the products of the four integers of 8 bits there, which is exact.
   A side has four of them for each lane, or for all. */

#ifndef DOT
#define splat_i32(x) (x)
#define WORDS(T, x) \
    (sizeof(x) == 4 ? splat_##T(BITS(__typeof__(x), i32, x)) : BITS(__typeof__(x), T, x))
#define DOT(T, A, a, B, b) dot_##A##_##B##_##T(WORDS(T, a), WORDS(T, b))
#endif

#if N == 16 && defined __AVX512VNNI__ && defined __clang__
#define DOT_xN __builtin_ia32_vpdpbusd512
#elif N == 16 && defined __AVX512VNNI__
#define DOT_xN __builtin_ia32_vpdpbusd_v16si
#elif N == 8 && defined __AVX512VNNI__ && defined __AVX512VL__ && defined __clang__
#define DOT_xN __builtin_ia32_vpdpbusd256
#elif N == 8 && defined __AVX512VNNI__ && defined __AVX512VL__
#define DOT_xN __builtin_ia32_vpdpbusd_v8si
#endif

INLINE i32xN dot_u8_i8_i32xN(i32xN a, i32xN b) {
#ifdef DOT_xN
    typedef int words __attribute__((vector_size(4 * N)));
#if defined __clang__ && __clang_major__ >= 21
    typedef unsigned char left __attribute__((vector_size(4 * N)));
    typedef signed char right __attribute__((vector_size(4 * N)));
#else
    typedef words left, right;
#endif
    return (i32xN)DOT_xN((words){0}, (left)a, (right)b);
#else
    i32xN sum = {0};
    for (int at = 0; at < 32; at += 8) sum += (a >> at & 255) * ((b << (24 - at)) >> 24);
    return sum;
#endif
}
/* Of the other signs, 128 away from those. */
INLINE i32xN dot_i8_u8_i32xN(i32xN a, i32xN b) { return dot_u8_i8_i32xN(b, a); }
INLINE i32xN dot_i8_i8_i32xN(i32xN a, i32xN b) {
    const i32xN top = (i32xN)((u32xN){0} + 0x80808080);
    return dot_u8_i8_i32xN(a ^ top, b) - dot_u8_i8_i32xN(top, b);
}
INLINE i32xN dot_u8_u8_i32xN(i32xN a, i32xN b) {
    const i32xN top = (i32xN)((u32xN){0} + 0x80808080);
    return dot_u8_i8_i32xN(a, b ^ top) - dot_u8_i8_i32xN(a, top);
}
#if N == 1
#define SCALAR_DOT(name) \
    INLINE i32 name##_i32(i32 a, i32 b) { return name##_i32x1((i32x1){a}, (i32x1){b})[0]; }
SCALAR_DOT(dot_u8_i8) SCALAR_DOT(dot_i8_u8) SCALAR_DOT(dot_i8_i8) SCALAR_DOT(dot_u8_u8)
#endif
