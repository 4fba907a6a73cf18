"""The backend of ``torch.compile``: Dynamo's graphs, forward and backward, as lamina's programs.

Dynamo takes a function's Python apart and gives a graph of PyTorch's operations. AOTAutograd makes
a forward and a backward graph of it, without assignments and views of memory, in ATen's overloads;
its partitioner decides what the forward graph keeps for the backward one. `Compiled` runs each.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any, cast

import torch
from torch import fx

from lamina.interop.torch.compiled import Compiled, Fallback
from lamina.interop.torch.rows import ROWS

Function = Callable[[list[Any]], Sequence[Any]]

@cache
def decompositions() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions to core ATen, but of what the table has a row for: whole operations
    are better known to the compiler than their parts. Nor of what draws random numbers by itself:
    the parts of ``bernoulli`` draw others. ``lstm``, which may have dropout, PyTorch runs as its
    parts too."""
    from torch._decomp import core_aten_decompositions

    return {
        overload: parts
        for overload, parts in core_aten_decompositions().items()
        if str(overload) not in ROWS and not _draws_by_itself(overload)
    }


def _draws_by_itself(overload: Any) -> bool:
    return torch.Tag.nondeterministic_seeded in overload.tags and not overload._can_decompose()


class _Decompositions(Mapping[Any, Callable[..., Any]]):
    """`decompositions`, which PyTorch takes 0.2 s to list, for a graph that is traced. One that is
    in PyTorch's cache needs none."""

    def __getitem__(self, overload: Any) -> Callable[..., Any]:
        return decompositions()[overload]

    def __iter__(self) -> Iterator[Any]:
        return iter(decompositions())

    def __len__(self) -> int:
        return len(decompositions())


def backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Function:
    """Compile a graph of Dynamo's. ``torch.compile(f, backend="lamina")`` calls this.

    options: ``{"fallback": False}`` refuses operations that lamina has no row for, as does
    ``fullgraph=True``; otherwise PyTorch runs these between lamina's programs. Raises
    UnsupportedOperationError, which names the operation and the user's line."""
    may_fall_back = (options or {}).get("fallback", not _wants_one_graph())
    mode = Fallback.ALLOWED if may_fall_back else Fallback.REFUSED
    kept = _graph_cache()
    if kept is not None and kept.can_keep(graph, example_inputs):
        with kept.keeping(kept.key_of(graph, mode)):
            return _traced(graph, example_inputs, kept.compilers(mode))
    return compile_with(graph, example_inputs, lambda module: Compiled(module, mode))


@cache
def _graph_cache() -> ModuleType | None:
    """`lamina.interop.torch.graph_cache`; None where PyTorch's cache has room for Inductor's
    results alone."""
    from torch._functorch._aot_autograd import aot_autograd_result

    if not hasattr(aot_autograd_result, "BundledOutputCodeLoadable"):
        return None
    return importlib.import_module("lamina.interop.torch.graph_cache")


def compile_with(
    graph: fx.GraphModule, example_inputs: Sequence[Any],
    compiler: Callable[[fx.GraphModule], Compiled],
) -> Function:  # fmt: skip
    """The forward and the backward graph of AOTAutograd, each made a callable by `compiler`."""

    def compile_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return _boxed(compiler(module))

    names = ("fw_compiler", "bw_compiler", "inference_compiler")
    return _traced(graph, example_inputs, dict.fromkeys(names, compile_graph))


def _traced(
    graph: fx.GraphModule, example_inputs: Sequence[Any], compilers: dict[str, Any]
) -> Function:
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    compiled: Function = aot_autograd(
        partition_fn=min_cut_rematerialization_partition,
        decompositions=_Decompositions(),
        keep_inference_input_mutations=True,
        **compilers,
    )(graph, example_inputs)
    return compiled


def _boxed(compiled: Compiled) -> Function:
    """As AOTAutograd calls it: with one list, which is emptied."""
    steps = compiled.steps

    def in_steps(arguments: list[Any]) -> Sequence[Any]:
        return compiled(arguments)

    call: Any = steps.run if steps is not None else in_steps
    call._boxed_call = True
    return cast(Function, call)


def _wants_one_graph() -> bool:
    """Whether the user said ``fullgraph=True``. Dynamo tells its translator alone."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return bool(InstructionTranslator.current_tx().one_graph)
    except AttributeError:  # the backend was called by hand
        return False
