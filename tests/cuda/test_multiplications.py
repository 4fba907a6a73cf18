"""What threads read of tiles to multiply them, by the printed text: the right elements, and no two
lanes that memory serves at once in one bank."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

import lamina as lm
from lamina.core.dtypes import DType
from lamina.schedule.gpu.atoms import ATOMS
from lamina.targets.cuda.multiplications import Multiplication, transpose_lines
from lamina.tiles.layouts import SWIZZLE_128, elements_of
from lamina.tiles.program import Alloc, TileAxis

WARP = 32


def tiles_of(rows: int, columns: int, steps: int, dtype: DType, turned: int) -> tuple[Alloc, Alloc]:
    """The buffers of both factors, whose lines lie along steps unless they are turned."""
    sides = ("left", TileAxis("row", rows)), ("right", TileAxis("column", columns))
    step = TileAxis("k", steps)
    left, right = (
        Alloc(name, "shared", dtype, 1, (step, axis) if turned else (axis, step), SWIZZLE_128)
        for name, axis in sides
    )
    return left, right


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("name", [name for name in ATOMS if name.startswith("fma_f32")])
def test_what_threads_read_of_float32(name: str, turned: int) -> None:
    """That chunks of a tile have, at each step, the rows or columns of a thread's sums, and that
    the lanes that memory serves at once meet in no bank."""
    atom = ATOMS[name]
    tiles = tiles_of(atom.m, atom.n, 32, lm.float32, turned)
    sums = atom.n // 2  # those of 64 rows, of 128 threads
    products = Multiplication("f32", "fma", tiles[0], tiles[1], "sums", sums, "0")
    text = "\n".join(products.lines())

    def formulas(pattern: str, where: str = text) -> list[str]:
        found = re.search(pattern.replace(" ", r"\s+"), where)
        assert found
        return [one.replace("/", "//") for one in found.groups()]

    row_split, column_split = atom.row_splits.of(turned), atom.column_splits.of(turned)
    pieces, split = (*row_split, *column_split), len(row_split)
    parts = slice(split), slice(split, None)
    held = np.indices([pieces[one] for one in (*atom.thread_loops, *atom.register_loops)])
    where = dict(zip((*atom.thread_loops, *atom.register_loops), held, strict=True))
    thread = np.arange(4 * WARP)
    for side, (part, apart) in enumerate(zip(parts, (8, 16), strict=True)):
        size, kind, tile_name = (64, atom.n)[side], ("row", "column")[side], tiles[side].name
        index = [where[one] for one in range(len(pieces))][part]
        rows = np.ravel_multi_index(index, pieces[part]).reshape(-1, 8, sums // 8)[thread]
        wanted = rows[:, 0] if side else rows[:, :, 0]
        row, step = np.indices((size, 32))
        line, along = (step, row) if turned else (row, step)
        place = along // 32 * 1024 + line * 32 + (along % 32 // 4 ^ line % 8) * 4 + along % 4
        tile = np.empty((size * 32, 2), int)
        tile[place] = np.stack([row, step], -1)
        if not turned:
            lines = "\n".join(transpose_lines(tiles[side], apart, 0, 2 * atom.m))
            line_of, chunk_of = formulas(r"const int line = (i.*), chunk = (.*);", lines)
            line = eval(line_of, {"i": np.arange(2 * size)})
            chunk = eval(chunk_of, {"i": np.arange(2 * size), "line": line})
            first, (a, b) = line * 32 + chunk * 4, np.indices((4, 4))[..., None]
            tile[first + a * apart * 32 + b] = tile[first + b * apart * 32 + a]
        (block,) = formulas(rf"const int {kind}_block = (.*);")
        slot = rf"{tile_name} \+ \d+ \* slot(?: \+ 8192 \* group)?"
        (begin,) = formulas(rf"const u32 {kind}s = {slot} \+ (.*);")
        (place_of,) = formulas(rf"const u32 {kind} = (.*);")
        (to_next,) = formulas(rf"load_chunk\(\w\[to\] \+ 4 \* i, {kind} \+ (\d+) \* i\);")
        start_of = eval(begin, {f"{kind}_block": eval(block, {"THREAD": thread})})
        for step in range(32):
            start = eval(place_of, {f"{kind}s": start_of, "eight": step // 8, "k": step % 8})
            for i in range(wanted.shape[1]):
                found = tile[(start + i // 4 * int(to_next)) // 4 + i % 4]
                np.testing.assert_array_equal(found, np.stack([wanted[:, i], 0 * start + step], -1))
            for few in start.reshape(-1, 8):
                assert len({*(few % 128)}) == len({*few})


@pytest.mark.parametrize("kind", ["bf16", "tf32"])
@pytest.mark.parametrize("turned", [0, 1])
def test_what_warps_load_for_tensor_cores(turned: int, kind: str) -> None:
    """Of every product of 16 rows by 8 columns the matrices in their order, from lines where the
    swizzle has put them: PTX ISA, fragments of mma.m16n8k16 and m16n8k8."""
    columns, chunk = 128, 4 if kind == "tf32" else 8  # elements
    steps, dtype = 8 * chunk, lm.float32 if kind == "tf32" else lm.bfloat16
    if turned and kind == "tf32":
        return  # its left factor is read by words, and its right one is not transposed
    tiles = tiles_of(64, columns, steps, dtype, turned)
    text = "\n".join(Multiplication(kind, "mma", tiles[0], tiles[1], "sums", 64, "0").lines())
    lanes = np.arange(4 * WARP)
    bits = {"line": lanes % 8, "low": lanes // 8 % 2, "high": lanes // 16 % 2}
    for to, side, groups in (("x", "rows", [0]), ("y", "columns", range(0, columns // 8, 2))):
        load = re.search(rf"(load_matrices\w*)\({to}, {side} \+ (.*)\);", text)
        assert load
        assert load[1].endswith("_transposed") is bool(turned)
        tile = tiles[to == "y"]
        lines, length = tile.shape
        elements = elements_of(SWIZZLE_128, tile.shape, dtype.itemsize)
        of_place = np.empty((lines * length, 2), int)
        of_place[elements] = np.stack(np.indices(tile.shape), -1)
        for part, j in product(range(4), groups):
            known = {**bits, "THREAD": lanes, "part": part, "j": j}
            places = eval(load[2].replace("/", "//"), known) + 0 * lanes
            for lane, place in enumerate(places):
                matrix, at = lane % WARP // 8, lane % 8
                # Matrices of x: both halves of rows, then of steps; of y the other way round.
                half, k_half = (matrix % 2, matrix // 2) if to == "x" else (matrix // 2, matrix % 2)
                row = (lane // WARP * 16 if to == "x" else 8 * j) + 8 * half
                step = (2 * part + k_half) * chunk
                first = (step + at, row) if turned else (row + at, step)
                assert tuple(of_place[place // dtype.itemsize]) == first
            for few in places.reshape(-1, 8):  # of one matrix
                assert len({*(few % 128)}) == 8


@pytest.mark.parametrize("count", [24, 32, 40, 48, 60, 64, 100])
def test_fused_multiply_adds_pass_over_what_a_line_lacks(count: int) -> None:
    """Of a line of 32 k they multiply eight at a time, as many as have an element."""
    specs = lm.TensorSpec((128, count)), lm.TensorSpec((count, 128))
    with lm.using(schedule="tensorize(fma_f32_64x64)", tf32=False):
        lowered = lm.jit(lm.matmul).lower(*specs, device="cuda:0", arch="sm_90a")
    (kernel,) = lowered.kernels
    (times,) = re.findall(r"eight = 0; eight < (.*?); eight\+\+", kernel.source)
    parts = re.fullmatch(r"\(step % (\d+) == (\d+) \? (\d+) : (\d+)\)", times)
    lines = -(-count // 32)
    of_step = [int(times)] * lines if parts is None else [int(parts[4])] * lines
    if parts is not None:
        assert (int(parts[1]), int(parts[2])) == (lines, lines - 1)
        of_step[-1] = int(parts[3])
    for step, eights in enumerate(of_step):
        left = min(count - 32 * step, 32)
        assert left <= 8 * eights < left + 8
