/* Micro-kernels that measure what a CPU does in a second: see calibrate.py. Each function returns the
   seconds of its work, which it repeats, of the processor: other programs that run meanwhile take
   their own. Results go to `kept`, so that none is left out. */

#include <stdint.h>
#include <time.h>

#ifndef LANES
#define LANES 16
#endif
typedef float vector __attribute__((vector_size(4 * LANES), aligned(4 * LANES)));
typedef int32_t bits __attribute__((vector_size(4 * LANES)));
typedef float narrow_vector __attribute__((vector_size(16))); /* of which no processor makes two */
typedef int32_t narrow_bits __attribute__((vector_size(16)));

#define UNROLL _Pragma("GCC unroll 16")

volatile float kept;

static double seconds_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Seconds that this thread has had a processor, and seconds on the wall, for what several threads do. */
static double now(void) { return seconds_of(CLOCK_THREAD_CPUTIME_ID); }
static double wall(void) { return seconds_of(CLOCK_MONOTONIC); }

static void keep(vector x) { kept = x[0]; }

/* Reads `bytes` of memory from end to end, 8 vectors at a time. */
double read_memory(const vector *p, long bytes, long repeats) {
    const long count = bytes / (long)sizeof(vector);
    vector sum[8] = {{0}};
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        for (long i = 0; i + 8 <= count; i += 8)
            UNROLL for (int j = 0; j < 8; j++) sum[j] += p[i + j];
        __asm__ volatile("" ::: "memory");
    }
    const double seconds = now() - started;
    UNROLL for (int j = 0; j < 8; j++) keep(sum[j]);
    return seconds;
}

/* Writes them, 8 vectors at a time too: one at a time, the loop takes longer than a store. */
double write_memory(vector *p, long bytes, long repeats) {
    const long count = bytes / (long)sizeof(vector);
    vector value = {0};
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        for (long i = 0; i + 8 <= count; i += 8) {
            UNROLL for (int j = 0; j < 8; j++) p[i + j] = value;
            __asm__ volatile("" ::: "memory");
        }
    }
    return now() - started;
}

/* Reads a vector of each line, `step` lines after the one before, all lines of `bytes` in the end:
   `step` has no divisor in common with their number. */
double read_scattered(const vector *p, long bytes, long step, long repeats) {
    const long lines = bytes / 64, vectors = 64 / (long)sizeof(vector);
    vector sum[4] = {{0}};
    long at = 0;
    const double started = now();
    for (long i = 0; i + 4 <= lines * repeats; i += 4) {
        UNROLL for (int j = 0; j < 4; j++) {
            sum[j] += p[at * vectors];
            at += step;
            at = at < lines ? at : at - lines;
        }
    }
    const double seconds = now() - started;
    UNROLL for (int j = 0; j < 4; j++) keep(sum[j]);
    return seconds;
}

/* 12 independent multiply-adds a turn: with both factors they fit the 16 registers of AVX2, and
   processors have 8 to 10 under way at a time. */
double multiply_adds(long repeats) {
    vector x[12], a, b;
    for (int j = 0; j < LANES; j++) a[j] = 0.5f + (float)repeats * 1e-20f, b[j] = 1.0f;
    UNROLL for (int j = 0; j < 12; j++) x[j] = b * (float)j;
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        UNROLL for (int j = 0; j < 12; j++) x[j] = x[j] * a + b;
        UNROLL for (int j = 0; j < 12; j++) __asm__ volatile("" : "+" REGISTER(x[j]));
    }
    const double seconds = now() - started;
    UNROLL for (int j = 0; j < 12; j++) keep(x[j]);
    return seconds;
}

/* What kernels do beside multiplications: a turn compares COPIES vectors of floats with a number,
   adds it to them and subtracts it, and selects, and shifts, masks and adds as many of integers: of 6,
   all fit the 16 registers of AVX2, and the next of a chain need not wait. */
#define COPIES 6
#define MIXED_OPERATIONS(name, vector, bits, lanes) \
    double name(long repeats) { \
        vector x[COPIES], a; \
        bits n[COPIES], b; \
        for (int j = 0; j < lanes; j++) \
            a[j] = 0.5f + (float)repeats * 1e-20f, b[j] = (int32_t)repeats | 1; \
        UNROLL for (int j = 0; j < COPIES; j++) x[j] = a * (float)j, n[j] = b * j; \
        const double started = now(); \
        for (long r = 0; r < repeats; r++) { \
            UNROLL for (int j = 0; j < COPIES; j++) { \
                const bits less = x[j] < a; \
                x[j] = (vector)((bits)(x[j] + a) & less | (bits)(x[j] - a) & ~less); \
                n[j] = ((n[j] >> 3) & b) + b; \
            } \
            UNROLL for (int j = 0; j < COPIES; j++) \
                __asm__ volatile("" : "+" REGISTER(x[j]), "+" REGISTER(n[j])); \
        } \
        const double seconds = now() - started; \
        UNROLL for (int j = 0; j < COPIES; j++) kept = x[j][0] + (float)n[j][0]; \
        return seconds; \
    }
MIXED_OPERATIONS(mixed_operations, vector, bits, LANES)
MIXED_OPERATIONS(narrow_operations, narrow_vector, narrow_bits, 4)

/* The same of single integers, 4 of them: a turn compares each with a number, adds that to it or
   subtracts it, shifts, masks, adds, and tests two comparisons together. */
double scalar_operations(long repeats) {
    int64_t n[4], b = repeats | 1, held = 0;
    for (int j = 0; j < 4; j++) n[j] = b * j;
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        UNROLL for (int j = 0; j < 4; j++) {
            int64_t less = n[j] < b, more = n[j] > r;
            __asm__ volatile("" : "+r"(less), "+r"(more)); /* no vectors of them */
            n[j] = ((n[j] + b) >> 3) & b;
            held += less & more;
        }
        UNROLL for (int j = 0; j < 4; j++) __asm__ volatile("" : "+r"(n[j]));
    }
    const double seconds = now() - started;
    kept = (float)(n[0] + n[1] + n[2] + n[3] + held);
    return seconds;
}

/* An elementary function of generated programs, in `targets/c/math.c` and `targets/c/doubles.c`: a turn
   computes it of 4 vectors. */
#define TIME_FUNCTION(function, vector) \
    double time_##function(long repeats) { \
        vector x[4], a; \
        for (unsigned j = 0; j < sizeof a / sizeof a[0]; j++) a[j] = 1e-3f * (float)(1 + repeats % 7); \
        const double started = now(); \
        for (long r = 0; r < repeats; r++) { \
            UNROLL for (int j = 0; j < 4; j++) x[j] = a; \
            UNROLL for (int j = 0; j < 4; j++) __asm__ volatile("" : "+" REGISTER(x[j])); \
            UNROLL for (int j = 0; j < 4; j++) x[j] = function(x[j]); \
            UNROLL for (int j = 0; j < 4; j++) __asm__ volatile("" : "+" REGISTER(x[j])); \
        } \
        const double seconds = now() - started; \
        UNROLL for (int j = 0; j < 4; j++) kept = (float)x[j][0]; \
        return seconds; \
    }

/* A chain of dependent additions. */
double chained_additions(long repeats) {
    vector x = {0}, b = {1};
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        x += b;
        __asm__ volatile("" : "+" REGISTER(x));
    }
    const double seconds = now() - started;
    keep(x);
    return seconds;
}

double divisions(long repeats) {
    vector x[4], b;
    for (int j = 0; j < LANES; j++) b[j] = 1.0f + 1e-6f * (float)repeats;
    UNROLL for (int j = 0; j < 4; j++) x[j] = b * (float)j;
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        UNROLL for (int j = 0; j < 4; j++) x[j] = b / x[j];
        UNROLL for (int j = 0; j < 4; j++) __asm__ volatile("" : "+" REGISTER(x[j]));
    }
    const double seconds = now() - started;
    UNROLL for (int j = 0; j < 4; j++) keep(x[j]);
    return seconds;
}

double integer_divisions(long repeats) {
    int64_t x[4] = {1000003, 1000033, 1000037, 1000039}, b = 3 + repeats % 2;
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        UNROLL for (int j = 0; j < 4; j++) x[j] = (x[j] | 0x7000000) / b;
        __asm__ volatile("" : "+r"(b));
    }
    const double seconds = now() - started;
    kept = (float)(x[0] + x[1] + x[2] + x[3]);
    return seconds;
}

double functions(long repeats) {
    double sum = 0, x = 0.1;
    const double started = now();
    for (long r = 0; r < repeats; r++) {
        __asm__ volatile("" : "+m"(x));
        sum += __builtin_exp(x);
    }
    const double seconds = now() - started;
    kept = (float)sum;
    return seconds;
}

typedef void (*parallel_fn)(long n, void (*body)(void **, long), void **arg);
#define TASK 5e-6 /* seconds, so that another thread has time to come */
static void task(void **arg, long i) {
    const double started = wall();
    while (wall() - started < TASK) {}
}

/* A program of the pool: what a parallel loop of a short task for each thread takes beside the task. */
void forks(void **buffers, parallel_fn parallel, double *seconds) {
    double best = 1;
    for (int r = 0; r < 200; r++) {
        const double started = wall();
        parallel((long)buffers[0], task, buffers);
        const double taken = wall() - started - TASK;
        best = taken < best ? taken : best;
    }
    *seconds = best;
}
