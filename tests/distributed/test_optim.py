"""Norms and decisions where a process has parts of parameters."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, distributed
from lamina.distributed import setup
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError
from tests.distributed.lockstep import on_ranks

PAIR = Axis("pair", 2, 1)


@pytest.fixture(autouse=True)
def _first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 2)])


def parameter() -> Tensor:
    return Tensor(np.ones(3, np.float32), requires_grad=True)


def test_the_norm_of_parts_in_float16_does_not_overflow() -> None:
    """The largest is 65504, and the squares of 300 are more."""
    own = parameter()
    optimizer = distributed.PartsLamb([own], over=PAIR, parts=[own])
    operands = [np.full(2, 300.0, np.float16)] * 2
    for norm in on_ranks(lambda x: optimizer.norm_of(0, x), operands):
        np.testing.assert_allclose(norm, 600.0, rtol=1e-6)


def test_parts_are_parameters_of_the_optimiser() -> None:
    own = parameter()
    with pytest.raises(ArgumentError, match=r"part 0, float32 \(3,\), is no parameter"):
        distributed.PartsLamb([own], over=PAIR, parts=[parameter()])
    with pytest.raises(ArgumentError, match="parts need the axis"):
        distributed.PartsLamb([own], parts=[own])


def test_a_parameter_is_whole_or_a_part() -> None:
    own = parameter()
    own.grad = lm.ones((3,))
    with pytest.raises(ArgumentError, match="1 parameters are among the parts as well"):
        distributed.clip_grad_norm([own], [own], 1.0, PAIR)
