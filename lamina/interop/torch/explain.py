"""What becomes of a PyTorch function: its programs and kernels, and what PyTorch still runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from lamina.interop.torch.compiled import Compiled, Fallback
from lamina.interop.torch.dynamo import Function, compile_with


@dataclass(frozen=True)
class Explanation:
    """graphs: Dynamo's, forward and backward counted apart. programs, kernels: lamina's. left: each
    operation that PyTorch runs, with the user's line and the reason."""

    graphs: int
    programs: int
    kernels: int
    left: tuple[str, ...]

    def __str__(self) -> str:
        counts = f"{self.graphs} graphs, {self.programs} programs, {self.kernels} kernels"
        if not self.left:
            return f"{counts}; nothing is left to PyTorch"
        return "\n".join([f"{counts}; left to PyTorch:", *(f"  {one}" for one in self.left)])


def explain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Compile and run `function`, a PyTorch function or module, on the arguments, with its
    derivative for these and the module's parameters; and tell what lamina ran."""
    seen: list[Compiled] = []

    def compiler(module: fx.GraphModule) -> Compiled:
        seen.append(Compiled(module, Fallback.ALLOWED))
        return seen[-1]

    def backend(graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Function:
        return compile_with(graph, example_inputs, compiler)

    result = torch.compile(function, backend=backend)(*args, **kwargs)
    parameters = list(function.parameters()) if isinstance(function, torch.nn.Module) else []
    _differentiate(result, (args, kwargs, parameters))
    steps = [steps for one in seen for steps in one.versions]
    programs = [program for one in steps for program in one.programs.values()]
    left = [str(operation) for one in seen for operation in one.left]
    kernels = sum(program.kernels for program in programs)
    return Explanation(len(seen), len(programs), kernels, tuple(dict.fromkeys(left)))


def _differentiate(result: Any, inputs: Any) -> None:
    """Run the backward graph, and leave the `grad` of tensors alone."""
    tensors = _requiring_gradients(result)
    leaves = _requiring_gradients(inputs)
    if tensors and leaves:
        weights = [torch.ones_like(one) for one in tensors]
        torch.autograd.grad(tensors, leaves, weights, allow_unused=True)


def _requiring_gradients(tree: Any) -> list[torch.Tensor]:
    parts = torch.utils._pytree.tree_leaves(tree)
    return [one for one in parts if isinstance(one, torch.Tensor) and one.requires_grad]
