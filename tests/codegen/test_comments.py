"""What a kernel computes, as a formula above its text, which is no part of what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lamina as lm
from lamina import TensorSpec
from lamina.frontend.lowered import Lowered
from lamina.targets.formulas import formulas


def lowered(function: Callable[..., Any], *shapes: tuple[int, ...], device: str = "cpu") -> Lowered:
    return lm.jit(function).lower(*map(TensorSpec, shapes), device=device)


def lines(function: Callable[..., Any], *shapes: tuple[int, ...]) -> list[str]:
    """The formulas of every kernel of a function."""
    return [
        line for kernel in lowered(function, *shapes).planned.plans for line in formulas(kernel)
    ]


def test_a_product_with_a_bias() -> None:
    assert lines(lambda a, b, c: a @ b + c, (60, 200), (200, 70), (70,)) == [
        "p3[row, column] = (sum_k p0[row, k] * p1[k, column]) + p2[column]"
    ]


def test_a_value_with_several_users_has_a_name() -> None:
    assert lines(lambda x: lm.exp(x) / lm.exp(x).sum(axis=1, keepdims=True), (64, 100)) == [
        "v1 = exp(p0[row, column])",
        "p1[row, column] = v1 / (sum_column v1)",
    ]


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (lambda x: (x + 1) * (x - 2), "p1[i] = (p0[i] + 1) * (p0[i] - 2)"),
        (lambda x: -x / (x * x), "p1[i] = -p0[i] / (p0[i] * p0[i])"),
        (lambda x: 1 - lm.sqrt(x), "p1[i] = -sqrt(p0[i]) + 1"),
        (lambda x: lm.where(x < 3, x, 0), "p1[i] = (p0[i] if p0[i] < 3 else 0)"),
        (lambda x: lm.cumsum(x), "p1[row] = running_sum_row p0[row]"),
        (lambda x: lm.argmax(x), "p1[0] = argmax_k(p0[k], k)[1]"),
        (lambda x: lm.argsort(x), "p1[row] = the order of p0[row], ascending"),
        (lambda x: lm.flip(x), "p1[i] = p0[-i + 39]"),
        (lambda x: x.cast(lm.int32) // 3, "p1[i] = i32(p0[i]) // 3"),
    ],
)
def test_formulas(function: Callable[..., Any], line: str) -> None:
    assert lines(function, (40,)) == [line]


def test_long_graphs_have_few_lines() -> None:
    def function(x: lm.Tensor) -> lm.Tensor:
        for _ in range(400):
            x = lm.sin(x) + 1
        return x

    (kernel, *_) = lowered(function, (40,)).planned.plans
    found = formulas(kernel)
    assert len(found) <= 25
    assert max(map(len, found)) < 300


@pytest.mark.parametrize("device", ["cpu", "cuda:0", "metal"])
def test_comments_are_not_compiled(device: str) -> None:
    program = lowered(lambda x: x + 1, (40,), device=device)
    (kernel,) = program.kernels
    comment = "/* p1[i] = p0[i] + 1"
    assert kernel.source.startswith(comment)
    assert comment in program.planned.listing
    assert comment not in program.source
