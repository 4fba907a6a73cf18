"""A function at every stage of the compiler, as text, for devices that need not be there.

    lowered = lm.jit(f).lower(lm.TensorSpec((64, 10)), device="cuda:0")
    print(lowered.stages["schedule"])
    print(lowered.kernels[0].source)

The function is traced and every pass of `lamina.pipeline` runs, but nothing is loaded on a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import Options
from lamina.errors import ArgumentError
from lamina.explain.origins import known
from lamina.frontend.arguments import as_dtype, sizes_of
from lamina.graph.split_complex import split_complex
from lamina.ir.node import Node

if TYPE_CHECKING:
    from lamina.compiled import Planned
    from lamina.schedule.cost import KernelCost, ProgramCost

__all__ = ["Lowered", "TensorSpec"]


class TensorSpec:
    """The shape and dtype of a tensor, in its place where no values are needed.

    shape: sizes. dtype: float32 by default. Raises ShapeError for a negative size and DTypeError
    for a dtype that lamina lacks."""

    def __init__(self, shape: Iterable[int], dtype: Any = dtypes.default_float) -> None:
        self.shape = sizes_of("TensorSpec", tuple(shape))
        self.dtype: DType = as_dtype(dtype)

    def __repr__(self) -> str:
        return f"TensorSpec({self.shape}, {self.dtype.name})"


@dataclass(frozen=True)
class LoweredKernel:
    """One kernel: its name, its schedule as text that LAMINA_SCHEDULE replays, and its source,
    below a comment with what it computes. lines: those of the user's program that it is of, such as
    ``train.py:12: logits = a @ b``, as far as they can be told. program_cost: says what its program
    is predicted to take."""

    name: str
    schedule: str
    source: str
    lines: tuple[str, ...] = ()
    program_cost: Callable[[], ProgramCost] | None = field(default=None, repr=False, compare=False)

    @property
    def cost(self) -> KernelCost:
        """What one run of it is predicted to take, in seconds; as `Lowered.cost`."""
        assert self.program_cost is not None
        return self.program_cost().kernels[self.name]


@dataclass(frozen=True)
class Lowered:
    """A traced function after every pass.

    stages: for each pass, by name and in order, the text of what it returned; "graph" is the
    function as traced. kernels: in the order of their first launch. scratch_bytes: memory that a
    run needs besides its inputs and outputs, in bytes."""

    options: Options
    arch: str
    stages: Mapping[str, str] = field(repr=False)
    kernels: tuple[LoweredKernel, ...] = field(repr=False)
    scratch_bytes: int
    planned: Planned = field(repr=False)
    program_cost: Callable[[], ProgramCost] = field(repr=False, compare=False)

    @property
    def source(self) -> str:
        """The whole translation unit."""
        return self.planned.text

    @property
    def cost(self) -> ProgramCost:
        """What a run is predicted to take, and a bound that none goes below, in seconds. On a CPU
        the first use on a machine measures how fast that is, for about four seconds. Of GPUs only
        those of `core/rates.py` have a cost: sm_90a. Raises ArgumentError for others."""
        return self.program_cost()

    def compile(self) -> dict[str, bytes]:
        """What the compiler of the device makes of the source, by name: a library for the CPU, a
        binary of each kernel for CUDA, of the architecture `arch`. Raises CompileError, and
        CompilerNotFoundError where there is no compiler."""
        from lamina.backends import backend

        assert self.planned.source is not None
        return backend(self.options).compile(self.planned.source, self.arch, self.options)


def lower_graph(
    sinks: Iterable[Node], options: Options, arch: str, lines: Mapping[Node, str]
) -> Lowered:
    """Run every pass on a graph whose BUFFER leaves have numbers in place of storage. `lines`: the
    user's line of some nodes."""
    from lamina import pipeline

    if options.device == "interp":
        raise ArgumentError(
            "the interpreter compiles nothing; name a device that does", operation="lower"
        )
    traced = tuple(sinks)
    graph = split_complex((*traced, *lines))
    lines_of_graph = dict(zip(graph[len(traced) :], lines.values(), strict=True))
    stages: dict[str, str] = {}

    def observe(pass_: pipeline.Pass, value: Any) -> None:
        stages[pass_.name] = pipeline.text_of(pass_.writes, value)

    with known(lines_of_graph):
        planned = pipeline.compile_source(graph[: len(traced)], options, observe)
    assert planned.source is not None

    def program_cost() -> ProgramCost:
        return pipeline.cost_of(planned, options)

    kernels = _kernels(planned, program_cost)
    arena = planned.program.arena
    return Lowered(options, arch, stages, kernels, arena, planned, program_cost)


def _kernels(
    planned: Planned, program_cost: Callable[[], ProgramCost]
) -> tuple[LoweredKernel, ...]:
    from lamina.targets.formulas import comment
    from lamina.targets.horizontal import text_with

    assert planned.source is not None
    kernels = []
    for kernel, plan in planned.plans.items():
        lines = tuple(planned.lines.get(kernel, ()))
        text = text_with(planned.source.kernels, plan.name)  # "" of a collective
        source = f"{comment(kernel, lines)}\n{text}"
        kernels.append(LoweredKernel(plan.name, str(plan), source, lines, program_cost))
    return tuple(kernels)
