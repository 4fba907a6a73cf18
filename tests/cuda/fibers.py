"""Runs programs for CUDA on the processor, where threads of a block wait for each other.

Each thread of a block is a fiber, which runs up to where it waits: for its warp, in an exchange, or
for its block, in a barrier. All threads of a warp have to reach each exchange, and those of a block
each barrier; the process ends if some do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lamina.compiled import Planned
from tests.cuda.on_host import run_on_host

Array = np.ndarray[Any, Any]

# Shared memory of 256 KiB begins with other bits than 0, as a GPU's may.
OPENING = """
#include <math.h>
#include <string.h>
#include <ucontext.h>
#include <utility>
#include <vector>
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_assume(holds) do { if (!(holds)) __builtin_trap(); } while (0)
struct Place { unsigned x; };
static Place blockIdx, threadIdx, blockDim;
__align__(16) unsigned char private_bytes[1 << 18];
static ucontext_t scheduler;
static std::vector<ucontext_t> fibers;
static unsigned long long exchanged[1024];
enum State { RUNS, WAITS_FOR_WARP, WAITS_FOR_BLOCK, IS_DONE };
static std::vector<State> states;
static void wait(State state) {
    states[threadIdx.x] = state;
    swapcontext(&fibers[threadIdx.x], &scheduler);
}
static void __syncthreads() { wait(WAITS_FOR_BLOCK); }
static void __syncwarp() { wait(WAITS_FOR_WARP); }
template <class T> static T __shfl_sync(unsigned, T x, unsigned lane) {
    memcpy(&exchanged[threadIdx.x], &x, sizeof x);
    __syncwarp();
    memcpy(&x, &exchanged[threadIdx.x / 32 * 32 + lane], sizeof x);
    __syncwarp();
    return x;
}
static unsigned __ballot_sync(unsigned, bool holds) {
    exchanged[threadIdx.x] = holds;
    __syncwarp();
    unsigned lanes = 0;
    for (unsigned i = 0; i < 32; i++) lanes |= unsigned(exchanged[threadIdx.x / 32 * 32 + i]) << i;
    __syncwarp();
    return lanes;
}
static int __popc(unsigned word) { return __builtin_popcount(word); }
template <class T> static T atomicAdd(T *at, T x) { const T old = *at; *at += x; return old; }
template <class T> static T atomicMax(T *at, T x) {
    const T old = *at;
    if (old < x) *at = x;
    return old;
}
template <class T> static T min(T a, T b) { return a < b ? a : b; }
template <class T> static T max(T a, T b) { return a > b ? a : b; }
static float __int_as_float(int x) { float y; memcpy(&y, &x, sizeof y); return y; }
"""
ENDING = """
extern "C" void *__nv_associate_access_property(const void *array, unsigned long long) {
    return (void *)array;
}
static void (*body)(void *, void **);
static void *chosen, **given;
static void fiber() { body(chosen, given); states[threadIdx.x] = IS_DONE; }
static State run_warp(unsigned first) { /* until it waits for the block, or is done */
    for (;;) {
        for (threadIdx.x = first; threadIdx.x < first + 32; threadIdx.x++)
            if (states[threadIdx.x] != IS_DONE) swapcontext(&scheduler, &fibers[threadIdx.x]);
        for (unsigned i = first; i < first + 32; i++)
            if (states[i] != states[first]) __builtin_trap();
        if (states[first] != WAITS_FOR_WARP) return states[first];
    }
}
static void run_block(unsigned threads) {
    static std::vector<char> stacks(1024 << 15);
    memset(private_bytes, 0xA5, sizeof private_bytes);
    fibers.resize(threads);
    states.assign(threads, RUNS);
    for (unsigned i = 0; i < threads; i++) {
        getcontext(&fibers[i]);
        fibers[i].uc_stack = {&stacks[i << 15], 0, 1 << 15};
        fibers[i].uc_link = &scheduler;
        makecontext(&fibers[i], fiber, 0);
    }
    for (State of_block = RUNS; of_block != IS_DONE;) {
        of_block = run_warp(0);
        for (unsigned first = 32; first < threads; first += 32)
            if (run_warp(first) != of_block) __builtin_trap();
    }
}
template <class... A, std::size_t... I>
static void call_with(void (*kernel)(A...), void **arrays, std::index_sequence<I...>) {
    kernel((A)arrays[I]...);
}
template <class... A> static void call(void *kernel, void **arrays) {
    call_with((void (*)(A...))kernel, arrays, std::index_sequence_for<A...>());
}
template <class... A>
static void run(void (*kernel)(A...), void **arrays, unsigned blocks, unsigned threads) {
    body = call<A...>, chosen = (void *)kernel, given = arrays, blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) run_block(threads);
}
"""


def run_in_fibers(planned: Planned, inputs: Sequence[Array], folder: Path) -> list[Array]:
    """The results of a program on `inputs`, flat. folder: for what the compiler makes."""
    return run_on_host(planned, inputs, folder, OPENING, ENDING)
