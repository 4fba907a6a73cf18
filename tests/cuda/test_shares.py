"""How blocks share the steps of a product: `StreamK` of `products.cu` on the CPU, and how the
threads of each share a tile."""

from __future__ import annotations

import random
import shutil
import subprocess
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from lamina.core.target import DEFAULT_CUDA
from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.stream_k import FEWER_BLOCKS, _divided, stream_k
from lamina.targets.cuda import printer

# What CUDA has; each block walks alone, and says of each of its parts of a tile: which, from which
# step on, how many steps, in which slot its sums are, or how many others' sums it adds up.
UNITS = DEFAULT_CUDA.multiprocessors
PROGRAM = """
#include <cstdio>
typedef int i32; typedef unsigned u32; typedef long long i64; typedef unsigned long long u64;
struct { u32 x; } blockIdx;
template <class A, class B> A min(A a, B b) { return b < (B)a ? (A)b : a; }
template <class A, class B> A max(A a, B b) { return (B)a < b ? (A)b : a; }
%s
template <i32 give, i32 take, u32 tiles, u32 steps, u32 share, u32 blocks> void walk() {
    typedef StreamK<give, take, tiles, steps, share, blocks> Way;
    std::printf("%%u %%u %%u %%u\\n", tiles, steps, share, blocks);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        Way way;
        while (way.left) {
            const u32 first = way.step, tile = way.tile, here = way.here();
            for (u32 i = 0; i < here; i++, way.pass(way.later, 1))
                if (way.later.tile != tile || way.later.step != first + i) std::printf("other ");
            std::printf("%%u %%u %%u %%u %%u %%u\\n", blockIdx.x, tile, first, here,
                        share < steps ? way.slot_of(tile, first) : 0, (u32)Way::slots);
            way.pass(way, here);
        }
    }
    std::printf("end\\n");
}
int main() { %s }
"""


def test_every_step_has_one_block_and_every_sum_a_slot(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or pytest.skip("no compiler of C++")
    text = Path(printer.__file__).with_name("products.cu").read_text(encoding="utf-8")
    end = text.index("/* Barriers of the multistage buffer.")
    walk = text[text.index("constexpr i32 smaller(") : end]
    rng = random.Random(0)
    sizes = [(54, 256), (36, 256), (72, 256), (18, 256), (8, 129), (6, 14), (131, 191), (1, 1)]
    sizes += [(rng.randint(1, UNITS - 1), rng.randint(1, 400)) for _ in range(40)]
    calls = {(m, k, -(-m * k // n), n) for m, k in sizes for n in (UNITS // m * m, UNITS)}
    calls |= {(512, 64, 256, 128), (128, 16, 16, 128)}
    main = "".join(
        f"walk<{costs}, {', '.join(map(str, one))}>();"
        for one in sorted(calls)
        for costs in ("0, 0", "5, 3")
    )
    source, program = tmp_path / "walk.cpp", tmp_path / "walk"
    source.write_text(PROGRAM % (walk, main))
    subprocess.run([compiler, "-std=c++17", "-o", program, source], check=True)
    output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    assert "other" not in output
    for page in output.split("end\n")[:-1]:
        (tiles, steps, share, _), *parts = (
            list(map(int, line.split())) for line in page.splitlines()
        )
        every = sorted((tile, first + i) for _, tile, first, here, *_ in parts for i in range(here))
        assert every == [(tile, step) for tile in range(tiles) for step in range(steps)]
        owners = {tile: (block, slot) for block, tile, first, _, slot, _ in parts if not first}
        for tile, (block, others) in owners.items() if share < steps else ():
            given = [(by, slot) for by, one, first, _, slot, _ in parts if one == tile and first]
            assert sorted(slot for _, slot in given) == list(range(others))
            assert all(by < block for by, _ in given)
            assert others <= parts[0][-1]


@pytest.mark.parametrize(("tiles", "steps"), [(1, 1), (1536, 12), (18, 256), (72, 256), (133, 40)])
def test_blocks_share_all_steps(tiles: int, steps: int) -> None:
    for atom in ATOMS.values():
        division = stream_k(atom, tiles, steps, UNITS)
        assert division.blocks <= UNITS
        assert tiles * steps <= division.blocks * division.steps
        if tiles >= UNITS:
            assert division.steps % steps == 0
        else:
            assert division.steps <= steps


@pytest.mark.parametrize("steps", [64, 512, 2048, 20000])
@pytest.mark.parametrize("tiles", [1, 2, 5])
def test_few_tiles_have_about_as_many_parts_as_are_fastest(tiles: int, steps: int) -> None:
    """Within the margin that is for all multiprocessors, and an eighth, of the fastest of all
    numbers of equal parts."""
    for atom in ATOMS.values():
        every = [
            _divided(atom, tiles, steps, parts * tiles) for parts in range(2, UNITS // tiles + 1)
        ]
        assert stream_k(atom, tiles, steps, UNITS).time <= 9 / 8 * FEWER_BLOCKS * min(every).time


@pytest.mark.parametrize("name", ATOMS)
def test_every_element_of_an_atom_is_in_one_register(name: str) -> None:
    atom = ATOMS[name]
    for is_left_transposed, is_right_transposed in product((False, True), repeat=2):
        rows = atom.row_splits.of(is_left_transposed)
        columns = atom.column_splits.of(is_right_transposed)
        pieces = (*rows, *columns)
        assert (np.prod(rows), np.prod(columns)) == (atom.m, atom.n)
        assert sorted((*atom.thread_loops, *atom.register_loops)) == list(range(len(pieces)))
        assert np.prod([pieces[one] for one in atom.thread_loops]) == 2 * atom.m
