"""How blocks share the steps of a product, and the threads of each a tile."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import lamina as lm
from lamina.core.target import DEFAULT_CUDA
from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.stream_k import FEWER_BLOCKS, _divided, divisions, stream_k

UNITS = DEFAULT_CUDA.multiprocessors


@pytest.mark.parametrize(
    ("tiles", "steps"), [(1, 1), (1536, 12), (18, 256), (72, 256), (133, 40), (15, 7), (284, 27)]
)
def test_blocks_share_all_steps(tiles: int, steps: int) -> None:
    for atom in ATOMS.values():
        for division in divisions(atom, tiles, steps, UNITS):
            assert division.blocks <= tiles * steps
        division = stream_k(atom, tiles, steps, UNITS)
        assert division.blocks <= UNITS
        assert tiles * steps <= division.blocks * division.steps
        assert division.steps <= -(-tiles // UNITS) * steps


@pytest.mark.parametrize(("others", "is_shared"), [(1, True), (40, True), (125, False)])
def test_blocks_share_the_last_of_many_tiles_where_that_takes_less_time(
    others: int, is_shared: bool
) -> None:
    """Of float32, a step of which takes longer than to add sums up: each block has two tiles."""
    steps = 81
    division = stream_k(ATOMS["fma_f32_128x128"], 2 * UNITS + others, steps, UNITS)
    assert (division.steps < 3 * steps) == is_shared
    assert UNITS * division.steps >= (2 * UNITS + others) * steps


@pytest.mark.parametrize("dtype", [lm.float32, lm.bfloat16])
def test_loops_hide_no_array_in_shared_memory(dtype: lm.DType) -> None:
    """Nothing else in a kernel has the name of an address in shared memory: `left` was once the
    left factor's, and the steps left of a block."""
    specs = lm.TensorSpec((2424, 2576), dtype), lm.TensorSpec((2576, 2032), dtype)
    atom = "fma_f32_128x128" if dtype is lm.float32 else "mma_bf16_128x128"
    with lm.using(schedule=f"tensorize({atom}); order(stream_k, 132)"):
        kernels = lm.jit(lambda a, b: a @ b).lower(*specs, device="cuda:0", arch="sm_90a").kernels
    source = kernels[-1].source
    assert "next_tile" in source
    names = re.findall(r"const u32 (\w+) = shared_address", source)
    assert {"left", "right"} <= set(names)
    for name in names:
        assert len(re.findall(rf"[ ,(]{name} = ", source)) == 1


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
