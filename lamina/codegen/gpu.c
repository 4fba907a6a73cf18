/* What programs for GPUs have, whatever the dialect. Before it come `arithmetic.c` and the prelude of
   the dialect, which has types (`i8` to `f64`) and casts of halves; KERNEL, POINTER and PLACE, of which
   the head of a kernel consists; THREAD, BLOCK, BARRIER, UNROLL, ALIGNED, GLOBAL, INLINE, BITS and
   BUILTIN, as they are used here, in kernels and in `arithmetic.c`; and REDUCE, a loop over steps in
   each of which `exchange` gives what another of a row's threads has, until a thread had what all have. */

#define SCRATCH /* of each thread */
#define EACH_BLOCK(word, threads, workers) const word worker = BLOCK
#define EACH_THREAD(word, threads, workers) \
    const word worker = (word)BLOCK * threads + THREAD; \
    if (worker >= workers) return

#define LIBRARY32(name) INLINE f32 name##_f32(f32 x) { return BUILTIN(name##f)(x); }
LIBRARY32(exp) LIBRARY32(exp2) LIBRARY32(log) LIBRARY32(log2) LIBRARY32(sin) LIBRARY32(cos)
LIBRARY32(atan) LIBRARY32(erf)

/* Casts of floats of 8 bits: see `floats.c`, which does this for vectors. */

#define EXPONENT(exponent) (((exponent) + 127) << 23) /* the bits of a float32 */
#define SMALL_FLOAT(T, FRACTION, LEAST, STRANGE, NAN) \
    INLINE f32 T##_to_f32(u8 x) { \
        const i32 drop = 23 - FRACTION, body = x & 0x7F, sign = (x & 0x80) << 24; \
        const i32 normal = (body << drop) + EXPONENT(LEAST - 1); \
        const f32 tiny = body * BITS(i32, f32, EXPONENT(LEAST - FRACTION)); \
        const i32 finite = body < 1 << FRACTION ? BITS(f32, i32, tiny) : normal; \
        return BITS(i32, f32, finite | sign | (body >= STRANGE ? 0x7F800000 : 0)); \
    } \
    INLINE u8 f32_to_##T(f32 x) { \
        const i32 drop = 23 - FRACTION, word = BITS(f32, i32, x), magnitude = word & 0x7FFFFFFF; \
        const i32 beyond = (STRANGE << drop) + EXPONENT(LEAST - 1), magic = EXPONENT(LEAST + drop); \
        const i32 inside = magnitude < beyond ? magnitude : beyond; \
        const i32 part = ((inside >> drop) & 1) + ((1 << (drop - 1)) - 1); \
        const f32 raised = BITS(i32, f32, magnitude) + BITS(i32, f32, magic); \
        i32 body = (inside + part - EXPONENT(LEAST - 1)) >> drop; \
        if (magnitude < EXPONENT(LEAST)) body = BITS(f32, i32, raised) - magic; \
        if (magnitude > 0x7F800000) body = NAN; \
        return body | (word >> 24 & 0x80); \
    }
SMALL_FLOAT(f8_e4m3fn, 3, -6, 0x7F, 0x7F)
SMALL_FLOAT(f8_e5m2, 2, -14, 0x7C, 0x7E)

/* A bottom-up merge sort of each row of n keys by a block, which ends where it is wanted:
   the place of an element in two merged runs is its place in its own and the number of elements
   before it in the other. NaN comes last. */

#define SORT(name, kind, n, threads) \
    KERNEL(threads) name(POINTER(const kind, 0), POINTER(i64, 1), POINTER(i64, 2) PLACE) { \
        GLOBAL const kind *keys = p0 + BLOCK * (i64)n; \
        GLOBAL i64 *from = p1 + BLOCK * (i64)n, *to = p2 + BLOCK * (i64)n; \
        for (i64 width = 1; width < n; width *= 2) { /* so that the last one writes p1 */ \
            GLOBAL i64 *swap = from; from = to; to = swap; \
        } \
        for (i64 i = THREAD; i < n; i += threads) from[i] = i; \
        BARRIER; \
        for (i64 width = 1; width < n; width *= 2) { \
            for (i64 i = THREAD; i < n; i += threads) { \
                const i64 start = i / (2 * width) * (2 * width); \
                const i64 middle = min(start + width, (i64)n), end = min(middle + width, (i64)n); \
                const bool right = i >= middle; \
                const kind own = keys[from[i]]; \
                i64 low = right ? start : middle, high = right ? middle : end; \
                const i64 begin = low; \
                while (low < high) { \
                    const i64 probe = (low + high) / 2; \
                    const kind other = keys[from[probe]]; \
                    const bool before = right ? !(own < other || (other != other && own == own)) \
                                              : other < own || (own != own && other == other); \
                    if (before) low = probe + 1; else high = probe; \
                } \
                to[i - (right ? middle - start : 0) + low - begin] = from[i]; \
            } \
            BARRIER; \
            GLOBAL i64 *swap = from; from = to; to = swap; \
        } \
    }
