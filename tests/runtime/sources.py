"""C programs that the tests of the runtime share."""

from __future__ import annotations

import numpy as np

from lamina.runtime.buffer import Buffer


def numbers(*values: int) -> Buffer:
    """What the programs below read as NUMBERS: their second buffer."""
    buffer = Buffer(8 * len(values))
    np.frombuffer(buffer.view(), np.int64)[:] = values
    return buffer


HEADER = """
#include <stdint.h>
typedef void (*lamina_parallel_fn)(long n, void (*body)(void *arg, long i), void *arg);
#define RUN void lamina_run(void **buffers, lamina_parallel_fn parallel, double *seconds)
#define NUMBERS ((int64_t *)buffers[1])
"""

# out[i] += i + 1 for every i below NUMBERS[0]
ADD_INDEX = (
    HEADER
    + """
static void body(void *arg, long i) { ((int64_t *)arg)[i] += i + 1; }
RUN { parallel(NUMBERS[0], body, buffers[0]); }
"""
)

# item i does work that grows with i squared
UNEVEN = (
    HEADER
    + """
static void body(void *arg, long i) {
    uint64_t value = i;
    for (long k = 0; k < i * i; k++) value = value * 6364136223846793005u + 1442695040888963407u;
    ((uint64_t *)arg)[i] = value;
}
RUN { parallel(NUMBERS[0], body, buffers[0]); }
"""
)

# an outer loop over rows whose bodies run a parallel loop over columns
NESTED = (
    HEADER
    + """
struct row { lamina_parallel_fn parallel; int64_t *out; int64_t columns; };
struct cell { int64_t *row; int64_t number; };
static void column(void *arg, long j) {
    struct cell *cell = arg;
    cell->row[j] += cell->number * 1000 + j;
}
static void row(void *arg, long i) {
    struct row *all = arg;
    struct cell cell = {all->out + i * all->columns, i};
    all->parallel(all->columns, column, &cell);
}
RUN {
    struct row all = {parallel, buffers[0], NUMBERS[1]};
    parallel(NUMBERS[0], row, &all);
}
"""
)

# who[i] = the thread that ran item i; items are long enough for every thread to get some
WHO = (
    HEADER
    + """
#include <pthread.h>
#include <time.h>
static void body(void *arg, long i) {
    struct timespec nap = {0, 2000000};
    nanosleep(&nap, 0);
    ((uint64_t *)arg)[i] = (uint64_t)pthread_self();
}
RUN { parallel(NUMBERS[0], body, buffers[0]); }
"""
)

TIMED = (
    HEADER
    + """
RUN { if (seconds) for (int k = 0; k < NUMBERS[0]; k++) seconds[k] = 0.5 * k; }
"""
)
