"""Gradients that are added up over several calls of a jitted function."""

from __future__ import annotations

import pytest

import lamina as lm


def test_gradients_that_come_and_go_are_compiled_for_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Once for the first part of a batch, which finds none, and once for the others."""
    weight = lm.ones((2,), requires_grad=True)

    @lm.jit
    def backward(x: lm.Tensor) -> None:
        (weight * x).sum().backward()

    with lm.using(debug=1):
        for _ in range(3):
            for count in range(1, 4):
                backward(lm.asarray([1.0, 2.0]))
                assert weight.grad is not None
                assert weight.grad.tolist() == [1.0 * count, 2.0 * count]
            weight.grad = None
    assert capsys.readouterr().err.count("jit backward: compiling") == 2
