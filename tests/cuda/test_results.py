"""`store_results` of `results.cu` on the CPU: what a warp writes, by chunks of each size."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lamina.targets.cuda import printer

# What CUDA has: 32 threads stand for the lanes of the second warp of a block. Results are the
# numbers 1000 * row + column, each in the registers of the lane that tensor cores give it to.
PROGRAM = r"""
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>
#define INLINE inline
#define HAS_TMA 0
#define __align__(n) alignas(n)
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
void __syncwarp() { barrier.wait(); }
%s
alignas(16) u8 lines[4096];
template <class C, class T, int count> void walk(i64 pitch, i64 rows, i64 columns) {
    std::vector<u64> memory(64 * pitch, 0);
    T *to = (T *)memory.data();
    std::vector<std::thread> lanes;
    for (int lane = 0; lane < 32; lane++)
        lanes.emplace_back([=] {
            threadIdx.x = 32 + lane;
            for (int at = 0; at < 64; at += count) {  // 64 sums: 128 columns of 16 rows
                T values[count];
                for (int i = 0; i < count; i++) {
                    const int sum = at + i, row = 16 + sum / 2 %% 2 * 8 + lane / 4;
                    values[i] = T(1000 * row + sum / 4 * 8 + lane %% 4 * 2 + sum %% 2);
                }
                store_results<C>(to, pitch, rows, columns, lines, at, values);
            }
        });
    for (auto &lane : lanes) lane.join();
    for (int i = 0; i < 33 * pitch; i++) std::printf("%%d ", (int)to[i]);
    std::printf("\n");
}
int main() { %s }
"""
# The chunk, the elements, sums at a time, elements from row to row, the rows and columns there are.
CASES = [
    ("u16", "u16", 8, 89, 29, 89),
    ("u16", "u16", 16, 127, 100, 127),
    ("u32", "u16", 8, 130, 32, 130),
    ("u64", "u16", 8, 100, 27, 100),
    ("uint4", "u16", 8, 136, 32, 136),
    ("u32", "u32", 8, 89, 30, 89),
    ("u64", "u32", 8, 90, 32, 90),
    ("uint4", "u32", 16, 128, 17, 120),
]


def test_each_result_is_stored_at_its_place(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or pytest.skip("no compiler of C++")
    text = Path(printer.__file__).with_name("results.cu").read_text(encoding="utf-8")
    stored = "INLINE void store_chunk(void *to, uint4 chunk) { std::memcpy(to, &chunk, 16); }"
    text = re.sub(r"INLINE void store_chunk\(void \*to, uint4 chunk\) {.*?\n}", stored, text,
                  flags=re.DOTALL)  # fmt: skip
    calls = [
        f"walk<{chunk}, {dtype}, {count}>({pitch}, {rows}, {columns});"
        for chunk, dtype, count, pitch, rows, columns in CASES
    ]
    source, program = tmp_path / "results.cpp", tmp_path / "results"
    source.write_text(PROGRAM % (text, "".join(calls)))
    flags = ["-std=c++17", "-pthread", "-fno-strict-aliasing", "-w"]
    subprocess.run([compiler, *flags, "-o", program, source], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    for case, line in zip(CASES, output.splitlines(), strict=True):
        _, dtype, _, pitch, rows, columns = case
        bits = 16 if dtype == "u16" else 32
        row, column = np.indices((33, pitch))
        expected = (1000 * row + column) % (1 << bits)
        is_stored = (row >= 16) & (row < min(rows, 32)) & (column < min(columns, 128))
        found = np.array(line.split(), np.int64).reshape(33, pitch)
        np.testing.assert_array_equal(found, np.where(is_stored, expected, 0), err_msg=str(case))
