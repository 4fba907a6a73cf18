"""The C, CUDA C++ and Metal text of fixed programs for a fixed machine, so that a change shows
what it does to them.

Refresh them with ``pytest --refresh-golden tests/golden``, and read the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import lamina as lm
from lamina import Tensor, TensorSpec, backends, pipeline
from lamina.compiled import Planned
from lamina.core.options import current
from lamina.core.target import cpu_target
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from tests.conftest import Golden
from tests.fuse.graphs import PROGRAMS

TARGET = cpu_target(vector_bytes=64, cores=2)
FOLDER = Path(__file__).parent


@pytest.mark.parametrize(("device", "suffix"), [("cpu", "c"), ("cuda:0", "cu"), ("metal", "metal")])
@pytest.mark.parametrize("name", PROGRAMS)
def test_generated_code(
    name: str, device: str, suffix: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        backends,
        "schedule_for_cpu",
        lambda kernel, _, knobs: schedule_for_cpu(kernel, TARGET, knobs),
    )
    settings = replace(current(), device=device)
    planned = pipeline.compile_source([PROGRAMS[name]()], settings)
    golden(FOLDER / f"{name}.{suffix}", with_notes(planned))


def with_notes(planned: Planned) -> str:
    """The kernels to read, below their schedules and launches."""
    plans = [planned.plans[launch.kernel] for launch in planned.program.launches]
    notes = [f"{plan.name}:\n{plan}" for plan in plans]
    notes += [f"{one.name}<<<{one.blocks}, {one.threads}>>>" for one in planned.launches]
    return "/*\n" + "\n\n".join(notes) + "\n*/\n\n" + planned.listing


@dataclass(frozen=True)
class Tensorized:
    """A program with products in tiles: its function, and the shapes and dtype of its arguments."""

    function: Callable[..., Tensor]
    shapes: tuple[tuple[int, ...], ...]
    dtype: str = "bfloat16"


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return lm.scaled_dot_product_attention(query, key, value, is_causal=True)


TENSORIZED = {
    "product_with_epilogue": Tensorized(
        lambda left, right, bias: lm.relu(left @ right + bias), ((512, 512), (512, 512), (512,))
    ),
    "product_of_float16": Tensorized(
        lambda left, right: left @ right, ((512, 300), (300, 512)), "float16"
    ),
    "product_of_tf32": Tensorized(
        lambda left, right: left @ right, ((512, 512), (512, 512)), "float32"
    ),
    "causal_attention": Tensorized(causal_attention, ((2, 4, 256, 64),) * 3),
}


@pytest.mark.parametrize("name", TENSORIZED)
def test_tensorized_code(name: str, golden: Golden) -> None:
    """For an H100. The lines of this file are no part of it."""
    program = TENSORIZED[name]
    arguments = [TensorSpec(shape, program.dtype) for shape in program.shapes]
    with lm.using(tf32=True):
        lowered = lm.jit(program.function).lower(*arguments, device="cuda:0", arch="sm_90a")
    golden(FOLDER / f"{name}.cu", with_notes(replace(lowered.planned, lines={})))
