/* What every program begins with. No header is included: that costs more time than compiling a
   small kernel. */

typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef void (*lamina_parallel_fn)(long, void (*)(void **, long), void **);
#define INLINE static inline __attribute__((always_inline))
/* What few lanes ever need: one copy a file, which costs the compiler little at each use. */
#define RARE static __attribute__((noinline, cold))
#define BUILTIN(name) __builtin_##name
#define EACH_FLOAT(F, name) F(f64, , name) /* see `arithmetic.c` */
#define OF_LIBRARY(name, suffix) __builtin_##name##suffix
#define SCALAR(f, From, To) INLINE To f(From x) { return f##x1((From##x1){x})[0]; }
#define BITS(From, To, x) ((union { From from; To to; }){x}).to

/* A store of a whole line goes past the caches: what is in memory there need not be read before.
   `lines`: do all arrays of the kernel that are stored so begin with a line? */
#ifdef __AVX512F__
#define STREAM(kind, p, at, ...) \
    if (sizeof(kind) < 64 || !lines || (at) * sizeof(*p) % 64) *(kind *)(p + (at)) = __VA_ARGS__; \
    else __asm__("vmovntps %1, %0" : "=m"(*(kind *)(p + (at))) : "v"(__VA_ARGS__));
#else
#define STREAM(kind, p, at, ...) *(kind *)(p + (at)) = __VA_ARGS__;
#endif

struct lamina_time { long seconds, nanoseconds; };
int clock_gettime(int, struct lamina_time *);
static double lamina_clock(void) {
    struct lamina_time t;
    clock_gettime(1, &t);
    return t.seconds + 1e-9 * t.nanoseconds;
}

/* A kernel runs one of its chunks with the buffers `b`. One of row blocks runs each of several kernels
   on one block of rows, whose values stay in `block`, or so on `steps` blocks after each other. */

/* It runs each of its lines once a call. To optimize many takes GCC longer than all kernels together:
   of 700 launches, 2.8 of 4.5 s. */
#ifdef __clang__
#define PLAIN __attribute__((optnone))
#else
#define PLAIN __attribute__((optimize("O0")))
#endif
#define RUN PLAIN void lamina_run(void **buffers, lamina_parallel_fn parallel, double *seconds)
#ifndef LINKAGE /* in a program of several files, all of them see its kernels */
#define LINKAGE static
#endif
/* Not inlined: beside other kernels of row blocks, GCC 12 has no registers left for the sums of tiles. */
#define KERNEL(name) LINKAGE __attribute__((noinline)) void name(void **b, long chunk)
#define POINTER(kind, number) kind *restrict p##number = b[number]
/* Prefetches by hand what the hardware prefetcher misses. It fails in these cases: the next step of
   sums that are accumulated in memory, and the next rows of an in-register transpose, are too many
   streams, or end before they are detected; where much is computed from what was read, the reorder
   buffer is full of dependent arithmetic and reaches no later load; a product reads each line of a
   packed panel once a tile, as fast as the second-level cache gives it; and reads
   its rows in turns, or steps that lie far apart.
   `near`: into which caches, 3 the nearest. */
#define AHEAD(place, by, near) __builtin_prefetch(place + (by), 0, near)
/* Memory may have changed, for all that the compiler knows. Between the steps of a register tile whose
   rows share elements, GCC 12 else unrolls short loops, keeps each shared element in a register from its
   first step to its last, and has none left for the sums: a convolution with 6 x 2 sums, windows of 3 x 3
   that move by 2, took twice as long. */
#define NEXT_STEP __asm__ volatile("" ::: "memory")
#define SCRATCH __attribute__((aligned(64)))
#define TRANSPOSED(kind, name, lanes, ...) kind name[lanes]; transpose_##kind(name, __VA_ARGS__);
#define TURNED(kind, name, lanes, ...) \
    kind name[lanes]; \
    turn_##kind(name, (const kind[lanes]){__VA_ARGS__});
#define AT(number, offset) ((u8 *)buffers[number] + offset)
#define ON_BLOCK(kernel, ...) { void *c[] = {__VA_ARGS__}; kernel(c, chunk); }
#define ROW_BLOCKS(name, bytes, steps, ...) \
    KERNEL(name) { \
        u8 block[bytes] SCRATCH; \
        const long first = steps * chunk; \
        for (long chunk = first; chunk < first + steps; chunk++) { __VA_ARGS__ } \
    }
#define LAUNCH(number, call, ...) { \
        void *b[] = {__VA_ARGS__}; \
        const double started = seconds ? lamina_clock() : 0; \
        call; \
        if (seconds) seconds[number] = lamina_clock() - started; \
    }

/* The lanes of up to 64, as bits, for which ``0 <= first + step * lane < size``: with a step of 3, from
   -1 on and below 7, these are lanes 1 and 2. */
INLINE u64 lanes_in(i64 first, i64 size, int step) {
    if (!step) return first >= 0 && first < size ? ~0ULL : 0;
    if (step < 0) first = size - 1 - first, step = -step; /* the same, counted from the other end */
    const i64 from = first < 0 ? (step - 1 - first) / step : 0;
    const i64 to = first < size ? (size - first + step - 1) / step : 0;
    return from > 63 || to <= 0 ? 0 : (~0ULL << from) & (to > 63 ? ~0ULL : ~(~0ULL << to));
}
