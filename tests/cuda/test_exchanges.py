"""What threads of a block exchange for a scan, on the CPU: a thread of it for each of them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

PRELUDE = Path(__file__).parents[2] / "lamina/targets/cuda/prelude.cu"
# Of CUDA what a scan has. Shared memory is static, and the lanes of a warp wait for one another.
BEFORE = r"""
#include <algorithm>
#include <barrier>
#include <cstdio>
#include <thread>
#include <vector>
#define INLINE inline
#define __shared__ static
using std::min; using std::max;
constexpr int THREADS = 512, COUNT = 3, TIMES = 4;  // elements of a thread, and steps of a block
struct Place { int x; };
static thread_local Place threadIdx;
static std::barrier<> block_barrier(THREADS);
static std::barrier<> *warp_barriers[THREADS / 32];
static float sent[THREADS], elements[TIMES][THREADS][COUNT], results[TIMES][THREADS][COUNT];
static void __syncthreads() { block_barrier.arrive_and_wait(); }
static float from_lane(float mine, int lane) {
    auto *barrier = warp_barriers[threadIdx.x / 32];
    sent[threadIdx.x] = mine;
    barrier->arrive_and_wait();
    const float got = sent[threadIdx.x / 32 * 32 + lane];
    barrier->arrive_and_wait();
    return got;
}
static float __shfl_up_sync(unsigned, float mine, int apart) {
    const int lane = threadIdx.x % 32;
    return from_lane(mine, lane >= apart ? lane - apart : lane);
}
static float __shfl_sync(unsigned, float mine, int lane) { return from_lane(mine, lane % 32); }
"""
# Columns that are threads side by side, each with the sums of whole numbers down it.
AFTER = r"""
static void thread(int number) {
    threadIdx.x = number;
    float last = 0;
    for (int time = 0; time < TIMES; time++) {
        const float *own = elements[time][number];
        float sum = own[0] + own[1] + own[2];
        SCAN(THREADS, SIDE) {
            const auto found = earlier(sum, last, s);
            if (!precedes(s)) continue;
            sum = found + sum;
        }
        for (int each = 0; each < COUNT; each++) results[time][number][each] = sum += own[each];
    }
}
int main() {
    for (auto &barrier : warp_barriers) barrier = new std::barrier<>(32);
    for (int i = 0; i < TIMES * THREADS * COUNT; i++) elements[0][0][i] = i * 7 % 11;
    std::vector<std::thread> threads;
    for (int number = 0; number < THREADS; number++) threads.emplace_back(thread, number);
    for (auto &each : threads) each.join();
    int wrong = 0;
    for (int column = 0; column < SIDE; column++) {
        float sum = 0;
        for (int time = 0; time < TIMES; time++)
            for (int number = column; number < THREADS; number += SIDE)
                for (int each = 0; each < COUNT; each++)
                    wrong += (sum += elements[time][number][each]) != results[time][number][each];
    }
    printf("%d wrong\n", wrong);
}
"""


@pytest.mark.parametrize("side", [1, 8, 16, 32])
def test_scans_of_columns_side_by_side(side: int, tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no compiler of C++")
    found = re.search(r"^#define SCAN\(.*?^}$", PRELUDE.read_text(), re.DOTALL | re.MULTILINE)
    assert found
    source, program = tmp_path / "scan.cpp", tmp_path / "scan"
    source.write_text(BEFORE + found[0] + AFTER)
    flags = ["-std=c++20", "-O1", "-w", "-pthread", f"-DSIDE={side}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout == "0 wrong\n"
