"""The timeline of a step, from intervals that are made up."""

from __future__ import annotations

from bench.timeline import Interval, covered, table

KERNELS = [
    Interval("product", 100.0, 140.0),
    Interval("norm", 140.0, 150.0),
    Interval("update", 190.0, 200.0),
]
SUM = Interval("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 120.0, 170.0)
STEP = sorted([*KERNELS, SUM], key=lambda one: one.begin)


def test_time_that_several_take_counts_once() -> None:
    assert covered(KERNELS) == 60.0
    assert covered(STEP) == 80.0


def test_a_collective_has_the_kernels_beside_it() -> None:
    """30 of its 50 us, as the second kernel ends at 150."""
    first, *_, row = table(STEP)
    assert first == "100 us: kernels in 60, 1 collectives in 50, both in 30"
    assert row == "| AllReduce_Sum_f32_RING_LL | 20.0 | 50.0 | 60% | 2: product, norm |"
