"""What a GPU reads into its cache ahead of collectives that nothing runs beside."""

from __future__ import annotations

import numpy as np
import pytest

from lamina import Tensor, distributed
from lamina.core.options import Options
from lamina.core.target import DEFAULT_CUDA
from lamina.distributed import setup
from lamina.distributed.mesh import Axis
from lamina.pipeline import Planned, compile_source
from lamina.runtime.buffer import Launch
from lamina.targets.read_ahead import with_read_ahead
from tests.distributed.lockstep import hole, opened

PAIR = Axis("pair", 2, 1)
GPU = Options(device="cuda:0", arch="sm_90a")
WIDTH = 4096


@pytest.fixture(autouse=True)
def _first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 2)])


def argument(number: int, *shape: int) -> Tensor:
    return Tensor.of(hole(number, np.zeros(shape, np.float32)), "cpu")


def planned(*results: Tensor) -> Planned:
    return compile_source([opened(x) for x in results], GPU)


def ahead_of_collectives(plan: Planned) -> list[Launch | None]:
    return [launch.ahead for launch in plan.launches if launch.exchange >= 0]


def summed(x: Tensor) -> Tensor:
    return distributed.all_reduce(x, "sum", PAIR)


def test_weights_of_the_next_kernels_are_asked_for() -> None:
    """Of two matrices of 64 MiB that are read at one time, the first 12.5 MiB each."""
    first, gate, up = (argument(number, WIDTH, WIDTH) for number in (1, 2, 3))
    hidden = summed(argument(0, 1, WIDTH) @ first)
    plan = planned((hidden @ gate) * (hidden @ up))
    (ahead,) = ahead_of_collectives(plan)
    assert ahead is not None
    inputs = [plan.program.location(slot) for launch in plan.program.launches
              for slot in launch.slots if slot.kind == "input"]  # fmt: skip
    assert set(ahead.arguments) <= set(inputs)
    assert plan.source is not None
    text = plan.source.kernels[ahead.name]
    half = DEFAULT_CUDA.l2_bytes // 2
    assert f"read_ahead(p0, {half // 2 // 4096 * 4096});" in text
    assert ahead.blocks * ahead.threads * 4096 >= half // 2


def test_nothing_is_asked_for_while_kernels_run() -> None:
    """As if the product did not wait for the sum."""
    first, last = (argument(number, WIDTH, WIDTH) for number in (1, 2))
    plan = planned(summed(argument(0, 1, WIDTH) @ first) @ last)
    assert ahead_of_collectives(plan) != [None]
    free = [launch._replace(after=-1, ahead=None) for launch in plan.launches]
    assert with_read_ahead(plan.program, free, DEFAULT_CUDA) == (free, {})


def test_nothing_is_asked_for_beyond_the_next_collective() -> None:
    """The kernel between both reads no weights."""
    first, last = (argument(number, WIDTH, WIDTH) for number in (1, 2))
    twice = summed(summed(argument(0, 1, WIDTH) @ first) * 2.0)
    none, ahead = ahead_of_collectives(planned(twice @ last))
    assert none is None
    assert ahead is not None


def test_the_text_compiles() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    from lamina.runtime import cuda

    first, last = (argument(number, WIDTH, WIDTH) for number in (1, 2))
    plan = planned(summed(argument(0, 1, WIDTH) @ first) @ last)
    assert plan.source is not None
    assert any(name.startswith("read_ahead") for name in plan.source.kernels)
    cuda.compile_source(plan.source.text, "sm_90a")
