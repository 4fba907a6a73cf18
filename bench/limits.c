/* What this machine can do at most: multiply-adds, reading and copying, with some threads. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FMA, READ, COPY, MEMCPY, STREAM };

typedef float vector __attribute__((vector_size(VECTOR_BYTES)));

typedef struct {
    int kind;
    long repeats, size; /* of steps, or of passes over so many bytes */
    char *from, *to;
} job;

/* Twelve chains of multiply-adds hide the latency of one and fit the registers. */
static float multiply(long steps) {
    vector a[12], x = {0}, y = {0};
    x += 0.999f;
    y += 1e-3f;
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++) a[i] = y * (float)i;
    for (long s = 0; s < steps; s++) {
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            a[i] = a[i] * x + y;
            __asm__ volatile("" : "+" VECTOR_REGISTER(a[i]));
        }
    }
    vector total = a[0];
#pragma GCC unroll 12
    for (int i = 1; i < 12; i++) total += a[i];
    return total[0];
}

static float read_all(const char *from, long size) {
    vector sums[8] = {{0}}, total;
    for (long i = 0; i + 8 * VECTOR_BYTES <= size; i += 8 * VECTOR_BYTES) {
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++) sums[j] += *(const vector *)(from + i + j * VECTOR_BYTES);
    }
    total = sums[0];
    for (int j = 1; j < 8; j++) total += sums[j];
    return total[0];
}

static void copy_all(char *to, const char *from, long size) {
    for (long i = 0; i + 4 * VECTOR_BYTES <= size; i += 4 * VECTOR_BYTES) {
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            *(vector *)(to + i + j * VECTOR_BYTES) = *(const vector *)(from + i + j * VECTOR_BYTES);
    }
}

/* Past the caches: what is in memory where the copy goes need not be read before. */
static void stream_all(char *to, const char *from, long size) {
#ifdef __AVX512F__
    typedef float line __attribute__((vector_size(64)));
    for (long i = 0; i + 64 <= size; i += 64)
        __asm__("vmovntps %1, %0" : "=m"(*(line *)(to + i)) : "v"(*(const line *)(from + i)));
#else
    copy_all(to, from, size);
#endif
}

static volatile float sink;

static void *work(void *argument) {
    job *own = argument;
    if (own->kind == FMA) {
        sink = multiply(own->repeats);
        return NULL;
    }
    for (long r = 0; r < own->repeats; r++) {
        if (own->kind == READ) sink = read_all(own->from, own->size);
        if (own->kind == COPY) copy_all(own->to, own->from, own->size);
        if (own->kind == MEMCPY) memcpy(own->to, own->from, own->size);
        if (own->kind == STREAM) stream_all(own->to, own->from, own->size);
        __asm__ volatile("" ::: "memory");
    }
    return NULL;
}

/* `size` bytes on large pages where the system has them, written once, and not with zeros: some
   processors write lines of these past the caches quicker than any other. */
char *allocate(long size) {
    char *block = aligned_alloc(1 << 21, (size + (1 << 21) - 1) >> 21 << 21);
#ifdef MADV_HUGEPAGE
    if (block) madvise(block, size, MADV_HUGEPAGE);
#endif
    if (block) memset(block, 1, size);
    return block;
}

/* Each thread does `repeats` steps, or passes over its part of the arrays. */
void run(int kind, int threads, long repeats, char *from, char *to, long size) {
    pthread_t started[64];
    job jobs[64];
    long part = size / threads / 4096 * 4096;
    for (int t = 0; t < threads; t++) {
        jobs[t] = (job){kind, repeats, part, from + t * part, to + t * part};
        if (t) pthread_create(&started[t], NULL, work, &jobs[t]);
    }
    work(&jobs[0]);
    for (int t = 1; t < threads; t++) pthread_join(started[t], NULL);
}
