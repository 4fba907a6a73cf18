"""What blocks do before they wait for the kernel before: they read inputs, and nothing else."""

from __future__ import annotations

import re

import pytest

import lamina as lm
from lamina import Tensor
from lamina.frontend.lowered import Lowered
from lamina.runtime.cuda import compile_source
from lamina.runtime.source import KERNELS

ROWS, COLUMNS = 4096, 2048


def two_products(weights: Tensor, others: Tensor, x: Tensor) -> Tensor:
    first = (weights.cast(lm.float32) * x).sum(1)
    return (others.cast(lm.float32) * first[:COLUMNS]).sum(1)


def updated(weights: Tensor, others: Tensor, x: Tensor) -> Tensor:
    """A kernel writes `others` after they are read."""
    result = two_products(weights, others, x)
    others.assign(others + 1.0)
    return result


def shifted(weights: Tensor, others: Tensor, x: Tensor) -> Tensor:
    """Accesses of rows that begin within one are not aligned."""
    first = (weights.cast(lm.float32) * x).sum(1)
    return (others[:, 1:-1].cast(lm.float32) * first[1 : COLUMNS - 1]).sum(1)


def lowered(function: object = two_products, columns: int = COLUMNS) -> Lowered:
    weights = lm.TensorSpec((ROWS, columns), lm.bfloat16)
    others = lm.TensorSpec((ROWS, COLUMNS), lm.float16)  # so that the kernels differ
    arguments = weights, others, lm.TensorSpec((columns,))
    return lm.jit(function).lower(*arguments, device="cuda:0", arch="sm_90a")


def products_of(program: Lowered) -> list[str]:
    """The texts of both products, in order."""
    return [kernel.source for kernel in program.kernels if kernel.name.startswith("reduce")]


def test_a_kernel_reads_what_nothing_writes_before_it_waits() -> None:
    first, second = products_of(lowered())
    assert "EARLY(" not in first  # what runs before the program may write its inputs
    _, _, text = second.partition("*/")  # the comment that says what the kernel computes
    before, _, after = text.partition("FOLLOW;")
    accesses = re.findall(r"EARLY\((early_\d+), (.*)\);", before)
    # Neither the sums of the first kernel nor the results: only the weights, parameter 0.
    assert accesses
    assert all(place.startswith("p0 + ") for _, place in accesses)
    assert not re.search(r"p\d\[", before)
    # Every element of every access is used once, and none is read again.
    elements = re.findall(r"element<u16>\((early_\d+), (\d)\)", after)
    assert sorted(elements) == sorted(
        (name, str(lane)) for name, _ in accesses for lane in range(8)
    )
    assert "p0[" not in after


def test_what_the_program_writes_is_read_after_it_waits() -> None:
    _, second = products_of(lowered(updated))
    assert "EARLY(" not in second


def test_a_kernel_that_runs_first_anywhere_reads_nothing_early() -> None:
    """Both products are one kernel, launched twice."""

    def twice(weights: Tensor, others: Tensor, x: Tensor) -> Tensor:
        return two_products(weights, others.cast(lm.bfloat16), x)

    weights = lm.TensorSpec((ROWS, COLUMNS), lm.bfloat16)
    arguments = weights, weights, lm.TensorSpec((COLUMNS,))
    program = lm.jit(twice).lower(*arguments, device="cuda:0", arch="sm_90a")
    (product,) = products_of(program)
    assert len(program.planned.program.launches) == 2
    assert "EARLY(" not in product


def test_accesses_that_are_not_aligned_are_not_early() -> None:
    _, second = products_of(lowered(shifted))
    assert "EARLY(" not in second


@pytest.mark.parametrize("function", [two_products, updated, shifted])
def test_they_compile(function: object) -> None:
    source = lowered(function).planned.source
    assert source is not None
    for text in source.kernels.values():
        assert compile_source(f"{source.prelude}\n{KERNELS}\n{text}", "sm_90a")
