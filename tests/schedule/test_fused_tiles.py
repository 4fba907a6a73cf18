"""Products of float32 without tensor cores on a GPU: predictions beside times of an H200, and what
is chosen by them."""

from __future__ import annotations

import re
from itertools import permutations

import pytest

import lamina as lm
from lamina.core.target import CUDA
from lamina.frontend.lowered import LoweredKernel
from lamina.schedule.gpu.atoms import ATOMS

ARCH = "sm_90a"
# Of products of a batch: equation, left and right shape, and microseconds of an H200 by the atom
# and the order, of one block of a multiprocessor and of blocks side by side.
PRODUCTS = {
    "columns of a transposed tile": (
        "bik,bkj->bij", (256, 431, 170), (256, 170, 16),
        {("128x64", 128): 155.4, ("64x64", 1792): 92.0, ("128x64", 1024): 114.2},
    ),
    "one step": (
        "bik,bkj->bij", (4000, 33, 20), (4000, 20, 65),
        {("64x128", 130): 100.3, ("64x64", 8000): 67.3, ("64x128", 4000): 55.9},
    ),
    "ten steps": (
        "bik,bjk->bij", (96, 300, 300), (96, 300, 300),
        {("128x128", 124): 228.1, ("64x64", 2400): 170.7, ("64x128", 1440): 168.0,
         ("64x192", 960): 178.6, ("128x128", 864): 206.3},
    ),
    "rows that begin anywhere": (
        "bik,bkj->bij", (500, 77, 257), (500, 257, 101),
        {("128x128", 125): 193.9, ("64x64", 2000): 179.8, ("128x128", 500): 155.0,
         ("64x128", 1000): 159.8},
    ),
}  # fmt: skip
# Of x of rows by k and w of k by columns: microseconds by the atom and the blocks that share tiles.
SHARED = {
    (3328, 7680, 64): {
        ("128x64", 130): 102.5, ("64x128", 264): 148.3, ("64x128", 396): 155.4,
        ("64x64", 396): 93.1, ("64x64", 528): 90.5, ("64x192", 264): 208.4,
    },
    (192, 5240, 3536): {
        ("64x128", 132): 200.6, ("64x128", 264): 168.8, ("64x128", 396): 165.5,
        ("64x64", 396): 197.6, ("64x64", 528): 200.7, ("64x192", 264): 168.3,
    },
    (3840, 3136, 216): {
        ("128x256", 120): 147.3, ("64x128", 264): 153.5, ("64x128", 396): 141.3,
        ("64x64", 396): 167.0, ("64x64", 528): 164.5, ("64x192", 264): 206.4,
    },
    (512, 4096, 512): {
        ("128x128", 128): 60.9, ("64x128", 264): 59.4, ("64x128", 396): 60.6,
        ("64x64", 396): 63.0, ("64x64", 528): 61.9, ("64x192", 264): 71.4,
    },
    (1024, 1024, 1024): {
        ("128x128", 128): 57.6, ("64x128", 264): 55.7, ("64x128", 396): 54.4,
        ("64x64", 396): 63.4, ("64x64", 528): 60.8, ("64x192", 264): 64.0,
    },
    (100, 3000, 520): {
        ("64x64", 126): 25.1, ("64x128", 264): 38.7, ("64x128", 396): 44.2,
        ("64x64", 396): 33.9, ("64x64", 528): 36.6, ("64x192", 264): 46.3,
    },
    (3323, 7723, 64): {
        ("128x64", 130): 169.2, ("64x128", 264): 229.4, ("64x128", 396): 201.1,
        ("64x64", 396): 139.6, ("64x64", 528): 130.9, ("64x192", 264): 272.3,
    },
}  # fmt: skip
TIMES = [(name, atom, blocks) for name, case in PRODUCTS.items() for atom, blocks in case[3]]


def kernel_of(name: str, schedule: str = "") -> LoweredKernel:
    """The only kernel of a product, by a schedule or as it is chosen."""
    equation, left, right, _ = PRODUCTS[name]
    specs = lm.TensorSpec(left), lm.TensorSpec(right)
    with lm.using(schedule=schedule, search=0, tf32=False):
        lowered = lm.jit(lambda x, y: lm.einsum(equation, x, y)).lower(
            *specs, device="cuda:0", arch=ARCH
        )
    (kernel,) = lowered.kernels
    return kernel


@pytest.mark.parametrize(("name", "atom", "blocks"), TIMES)
def test_predictions_are_near_recorded_times(name: str, atom: str, blocks: int) -> None:
    kernel = kernel_of(name, f"tensorize(fma_f32_{atom}); order(whole, {blocks})")
    assert 1 / 1.5 < kernel.cost.seconds * 1e6 / PRODUCTS[name][3][atom, blocks] < 1.5
    assert kernel.cost.bound < kernel.cost.seconds


@pytest.mark.parametrize("name", PRODUCTS)
def test_what_is_chosen_takes_about_as_long_as_the_fastest(name: str) -> None:
    times = PRODUCTS[name][3]
    schedule = kernel_of(name).schedule
    found = re.search(r"tensorize\(fma_f32_(\w+)\)\norder\(whole, (\d+)\)", schedule)
    assert found is not None, schedule
    assert times[found[1], int(found[2])] <= 1.05 * min(times.values())


def kernel_of_shared(sizes: tuple[int, int, int], schedule: str = "") -> LoweredKernel:
    """The only kernel of x @ w, by a schedule or as it is chosen."""
    rows, k, columns = sizes
    specs = lm.TensorSpec((rows, k)), lm.TensorSpec((k, columns))
    with lm.using(schedule=schedule, search=0, tf32=False):
        lowered = lm.jit(lambda x, w: x @ w).lower(*specs, device="cuda:0", arch=ARCH)
    (kernel,) = lowered.kernels
    return kernel


@pytest.mark.parametrize("sizes", SHARED, ids=str)
def test_predictions_of_shared_tiles_are_near_recorded_times(sizes: tuple[int, int, int]) -> None:
    """Of any two, one of which took a fifth longer, it is predicted to take longer."""
    predicted = {
        (atom, blocks): kernel_of_shared(
            sizes, f"tensorize(fma_f32_{atom}); order(stream_k, {blocks})"
        ).cost.seconds
        for atom, blocks in SHARED[sizes]
    }
    times = SHARED[sizes]
    for one in times:
        assert 1 / 1.25 < predicted[one] * 1e6 / times[one] < 1.25
    for shorter, longer in permutations(times, 2):
        if 1.2 * times[shorter] < times[longer]:
            assert predicted[shorter] < predicted[longer]


@pytest.mark.parametrize("sizes", SHARED, ids=str)
def test_shared_tiles_that_are_chosen_take_about_as_long_as_the_fastest(
    sizes: tuple[int, int, int],
) -> None:
    times = SHARED[sizes]
    schedule = kernel_of_shared(sizes).schedule
    found = re.search(r"tensorize\(fma_f32_(\w+)\)\norder\(stream_k, (\d+)\)", schedule)
    assert found is not None, schedule
    assert times[found[1], int(found[2])] <= 1.1 * min(times.values())


def test_long_sums_have_a_block_of_a_multiprocessor() -> None:
    spec = lm.TensorSpec((4096, 4096))
    with lm.using(tf32=False):
        lowered = lm.jit(lambda x, y: x @ y).lower(spec, spec, device="cuda:0", arch=ARCH)
    (kernel,) = lowered.kernels
    assert "tensorize(fma_f32_128x256)\norder(whole, 128)\ndepth(4)" in kernel.schedule


@pytest.mark.parametrize("name", [name for name in ATOMS if name.startswith("fma")])
def test_a_multiprocessor_has_room_for_blocks_side_by_side(name: str) -> None:
    """Of 65,536 registers, and shared memory for the steps that the buffers of each hold."""
    atom = ATOMS[name]
    columns = 2 * atom.n
    specs = lm.TensorSpec((4000, 64, 72)), lm.TensorSpec((4000, 72, columns))
    schedule = f"[reduce0_4000x64x{columns}]\ntensorize({name})\norder(whole, 8000)"
    with lm.using(schedule=schedule, tf32=False):
        lowered = lm.jit(lambda x, y: x @ y).lower(*specs, device="cuda:0", arch=ARCH)
    (launch,) = lowered.planned.launches
    at_once = atom.side_by_side(are_shared=False)
    assert f"KERNEL({launch.threads}, {at_once})" in lowered.kernels[0].source
    assert at_once * launch.threads * 96 <= 1 << 16
    of_block = launch.shared + (1 << 10)  # what the driver takes
    assert at_once * of_block <= CUDA[ARCH].shared_bytes + (1 << 10)


@pytest.mark.parametrize("name", [name for name in ATOMS if name.startswith("fma")])
def test_a_multiprocessor_has_room_for_blocks_that_share_tiles(name: str) -> None:
    """A thread of these also loads half as many sums of another block as it has, so that no more
    run side by side than of whole tiles: as many as have room for the sums alone one and a half
    times."""
    atom = ATOMS[name]
    at_once = atom.side_by_side(are_shared=True)
    assert at_once <= atom.side_by_side(are_shared=False)
    schedule = f"tensorize({name}); order(stream_k, {at_once * 132})"
    source = kernel_of_shared((256, 6400, 2 * atom.n), schedule).source
    found = re.search(r"KERNEL\((\d+), (\d+)\)", source)
    assert found is not None
    threads, blocks = map(int, found.groups())
    assert blocks == at_once
    sums = atom.m * atom.n // threads
    assert blocks * threads * (sums + sums // 2) <= 1 << 16
