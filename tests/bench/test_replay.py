"""Every figure replays: its program, scheduled from the printed schedules of its kernels, prints
the same source again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pytest

import lamina as lm
from bench.cases import Case, gpu, load
from bench.cpu import GROUPS
from bench.programs.frameworks import framework
from lamina.core.options import Options
from lamina.frontend import execution
from lamina.frontend.trace import placeholder
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.loops.text import to_text
from lamina.pipeline import compile_source

CASES = [case for name in GROUPS for case in load(name).cases]
GPU_CASES = [case for group in gpu.GROUPS.values() for case in group.cases]


class _TracedError(Exception):
    """Carries what a jitted function would compile."""

    def __init__(self, sinks: tuple[Node, ...], options: Options) -> None:
        self.program = sinks, options


def _stop(sinks: tuple[Node, ...], options: Options) -> NoReturn:
    raise _TracedError(sinks, options)


def _arrays(case: Case) -> list[Any]:
    if callable(case.inputs):
        return case.arrays(1)
    return [np.zeros(shape, np.float32) for shape in case.inputs]


def _traced(step: Callable[[], Any], patches: pytest.MonkeyPatch) -> tuple[Any, Options]:
    """What the first call of a jitted function would compile."""
    with patches.context() as patch:
        patch.setattr(execution, "compile_sinks", _stop)
        with pytest.raises(_TracedError) as traced:
            step()
    return traced.value.program


def _replays(sinks: tuple[Node, ...], options: Options) -> bool:
    """Does a program print the same source from its own printed schedules?"""
    first = compile_source(sinks, options)
    plans = [plan for plan in first.plans.values() if isinstance(plan.nest, Nest)]
    assert any(one.op is Op.LOAD for plan in plans for one in plan.nest.kernel.nodes)
    printed = "\n".join(f"[{plan.name}]\n{to_text(plan.moves)}" for plan in plans)
    return compile_source(sinks, replace(options, schedule=printed)).text == first.text


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_figure_replays_from_its_printed_schedules(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = framework("lamina", 1)
    step = own.step(case, [own.array(one) for one in _arrays(case)], "lamina")
    assert _replays(*_traced(step, monkeypatch))


@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: case.name)
def test_a_figure_of_a_gpu_replays(case: gpu.GpuCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced on the CPU, compiled for a GPU."""
    kind = getattr(lm, case.kind)
    if callable(case.inputs):
        shapes = [(one.shape, getattr(lm, one.dtype.name)) for one in case.arrays(1)]
    else:
        shapes = [(shape, kind) for shape in case.inputs]
    if case.channels_last:
        shapes = [((n, *sizes, c), kind) for (n, c, *sizes), kind in shapes]
    arrays = [placeholder(lm.TensorSpec(shape, dtype), "cpu") for shape, dtype in shapes]
    step = lm.jit(partial(case.function("lamina"), lm))
    sinks, options = _traced(partial(step, *arrays), monkeypatch)
    assert _replays(sinks, replace(options, device="cuda:0"))
