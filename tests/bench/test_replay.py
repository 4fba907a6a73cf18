"""Every figure replays: its program, scheduled from the printed schedules of its kernels, prints
the same source again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
import pytest

from bench.cases import Case, load
from bench.cpu import GROUPS
from bench.programs.frameworks import framework
from lamina import pipeline
from lamina.ir.node import Node
from lamina.kernel.schedule import Nest, to_text
from lamina.options import Options
from lamina.pipeline import compile_source

CASES = [case for name in GROUPS for case in load(name).cases]


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_figure_replays_from_its_printed_schedules(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = framework("lamina", 1)
    step = own.step(case, [own.array(one) for one in _arrays(case)], "lamina")
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, "compile_sinks", _stop)
        with pytest.raises(_TracedError) as traced:
            step()
    sinks, options = traced.value.program
    first = compile_source(sinks, options)
    plans = [plan for plan in first.plans.values() if isinstance(plan.nest, Nest)]
    printed = "\n".join(f"[{plan.name}]\n{to_text(plan.moves)}" for plan in plans)
    assert plans
    assert compile_source(sinks, replace(options, schedule=printed)).text == first.text
