"""Results that are stored by whole rows, on the CPU: what a warp writes, by chunks of each size."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import lamina as lm
from lamina.targets.c.operations import ELEMENTS
from lamina.targets.cuda.results import CHUNKS, RowLines
from lamina.targets.gpu_printer import BATCH_RESULTS

# What CUDA has: 32 threads stand for the lanes of the second warp of a block. Results are the
# numbers 1000 * row + column, each in the registers of the lane that tensor cores give it to.
PROGRAM = r"""
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>
#define INLINED
#define UNROLLED
#define THREAD threadIdx.x
#define WARP_BARRIER barrier.wait()
#define __align__(n) alignas(n)
template <class T> struct __align__(2 * sizeof(T)) Pair { T first, second; };
template <class C> void store_chunk(void *to, C chunk) { std::memcpy(to, &chunk, sizeof(C)); }
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32;
typedef long long i64; typedef unsigned long long u64;
struct uint4 { u32 x, y, z, w; };
template <class A> A min(A a, A b) { return b < a ? b : a; }
thread_local struct { int x; } threadIdx;
struct Barrier {
    std::mutex mutex; std::condition_variable changed; int waiting = 0, turn = 0;
    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        const int mine = turn;
        if (++waiting == 32) { waiting = 0; turn++; changed.notify_all(); return; }
        changed.wait(lock, [&] { return turn != mine; });
    }
} barrier;
alignas(16) u8 lines[8192], *const shared = lines;
int main() {
%s
}
"""
# What all lanes of a warp do, and what is in memory then.
WALK = r"""
{
    const i64 pitch = %(pitch)d;
    std::vector<u64> memory(64 * pitch, 0);
    %(element)s *all = (%(element)s *)memory.data();
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < 32; lane++)
        lanes.emplace_back([=] {
            threadIdx.x = 32 + lane;
            const auto result = [&](int i) -> %(element)s {
                const int row = 16 + i / 2 %% 2 * 8 + lane / 4;
                return 1000 * row + i / 4 * 8 + lane %% 4 * 2 + i %% 2;
            };
%(text)s
        });
    for (auto &lane : lanes) lane.join();
    for (int i = 0; i < 33 * pitch; i++) std::printf("%%d ", (int)all[i]);
    std::printf("\n");
}
"""
SUMS = 64  # of a thread: 128 columns of 16 rows
# The bytes of a chunk, the dtype, elements from row to row, the rows and columns there are.
CASES = [
    (2, lm.uint16, 89, 29, 89),
    (2, lm.uint16, 127, 100, 127),
    (4, lm.uint16, 130, 32, 130),
    (8, lm.uint16, 100, 27, 100),
    (16, lm.uint16, 136, 32, 136),
    (4, lm.uint32, 89, 30, 89),
    (8, lm.uint32, 90, 32, 90),
    (16, lm.uint32, 128, 17, 120),
]


def walk(chunk_bytes: int, dtype: lm.DType, pitch: int, rows: int, columns: int) -> str:
    """The text of a warp that stores all sums of its threads."""
    lines = RowLines(0, 0, dtype, chunk_bytes, pitch)
    text = lines.function()
    for first in range(0, SUMS, BATCH_RESULTS):
        values = [f"result({number})" for number in range(first, first + BATCH_RESULTS)]
        text += lines.fill(first, values, has_matrices=False)
        if (first + BATCH_RESULTS) % lines.sums == 0:
            column = 2 * (first + BATCH_RESULTS - lines.sums)
            text.append(f"write_rows0(all, {rows}, {columns}, {column});")
    return WALK % {"pitch": pitch, "element": ELEMENTS[dtype], "text": "\n".join(text)}


def test_each_result_is_stored_at_its_place(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or pytest.skip("no compiler of C++")
    assert {case[0] for case in CASES} == set(CHUNKS)
    source, program = tmp_path / "results.cpp", tmp_path / "results"
    source.write_text(PROGRAM % "".join(walk(*case) for case in CASES))
    flags = ["-std=c++17", "-pthread", "-fno-strict-aliasing", "-w"]
    subprocess.run([compiler, *flags, "-o", program, source], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    for case, line in zip(CASES, output.splitlines(), strict=True):
        _, dtype, pitch, rows, columns = case
        row, column = np.indices((33, pitch))
        expected = (1000 * row + column) % (1 << dtype.bits)
        is_stored = (row >= 16) & (row < min(rows, 32)) & (column < min(columns, 128))
        found = np.array(line.split(), np.int64).reshape(33, pitch)
        np.testing.assert_array_equal(found, np.where(is_stored, expected, 0), err_msg=str(case))
