"""``python -m tests.interop.zoo.check NAME``: a model's results and training step beside eager
PyTorch's. Prints an `Outcome` as JSON.

Equal means what PyTorch's own benchmark of Inductor means (torch/_dynamo/utils.py, `same`): close
to eager, or as near as eager is to float64 where the model takes that. The tolerances are those of
benchmarks/dynamo: 1e-3 for results and 1e-2 for training. A training step has the loss, the
derivative of every parameter, and the parameters and running statistics after a step of SGD.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.utils import same

from lamina.interop.torch.compiled import Compiled, Fallback
from lamina.interop.torch.dynamo import Function, compile_with
from tests.interop.zoo.table import MODELS, Inputs, Model

FORWARD_TOLERANCE, TRAINING_TOLERANCE = 1e-3, 1e-2


@dataclass(frozen=True)
class Outcome:
    """forward, training: whether they equal eager's. graphs: of Dynamo, backward ones too. left:
    the operations that PyTorch ran, with reasons. seconds: until both were computed."""

    name: str
    forward: bool = False
    training: bool = False
    graphs: int = 0
    programs: int = 0
    kernels: int = 0
    left: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class _Results:
    forward: list[torch.Tensor]
    training: list[torch.Tensor]


class _Recorder:
    """A backend that keeps what it compiled."""

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return compile_with(graph, inputs, self._compile)

    def _compile(self, module: fx.GraphModule) -> Compiled:
        compiled = Compiled(module, Fallback.ALLOWED)
        self.compiled.append(compiled)
        return compiled


def outputs_of(module: nn.Module, inputs: Inputs) -> list[torch.Tensor]:
    """The tensors of floats that a call returns, in whatever they are."""
    result = module(**inputs)
    parts = torch.utils._pytree.tree_leaves(dict(result) if hasattr(result, "keys") else result)
    tensors = [part for part in parts if isinstance(part, torch.Tensor)]
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def loss_of(module: nn.Module, inputs: Inputs) -> torch.Tensor:
    """A number on which all of these depend."""
    return torch.stack([tensor.square().mean() for tensor in outputs_of(module, inputs)]).sum()


def _results(
    module: nn.Module, inputs: Inputs, wrap: Callable[[Any], Any] = lambda function: function
) -> _Results:
    """wrap: compiles a function, or leaves it to eager PyTorch."""
    forward = functools.partial(outputs_of, module, inputs)
    loss = functools.partial(loss_of, module, inputs)
    module.eval()
    with torch.no_grad():
        tensors = [tensor.clone() for tensor in wrap(forward)()]
    module.train()
    torch.manual_seed(1)
    value = wrap(loss)()
    value.backward()
    slopes = [one.grad for one in module.parameters() if one.grad is not None]
    torch.optim.SGD(module.parameters(), lr=0.01).step()
    return _Results(tensors, [value.detach(), *slopes, *module.state_dict().values()])


def _exact_results(module: nn.Module, inputs: Inputs) -> _Results | None:
    """Those in float64; None where PyTorch or the model refuses that."""
    exact_inputs = {
        name: value.double() if value.is_floating_point() else value
        for name, value in inputs.items()
    }
    try:
        return _results(module.double(), exact_inputs)
    except RuntimeError:
        return None


def compare(model: Model) -> Outcome:
    """Raises what PyTorch or the backend raise."""
    torch.manual_seed(0)
    module, inputs = model.build(), model.inputs()
    eager = _results(copy.deepcopy(module), inputs)
    exact = _exact_results(copy.deepcopy(module), inputs)
    recorder = _Recorder()
    start = time.perf_counter()
    ours = _results(
        module, inputs, lambda function: torch.compile(function, backend=recorder)
    )
    seconds = time.perf_counter() - start
    steps = [steps for one in recorder.compiled for steps in one.versions]
    programs = [program for one in steps for program in one.programs.values()]
    left = [str(operation) for one in recorder.compiled for operation in one.left]
    return Outcome(
        model.name,
        same(eager.forward, ours.forward, exact and exact.forward, tol=FORWARD_TOLERANCE),
        same(eager.training, ours.training, exact and exact.training, tol=TRAINING_TOLERANCE),
        len(recorder.compiled),
        len(programs),
        sum(program.kernels for program in programs),
        tuple(dict.fromkeys(left)),
        round(seconds, 1),
    )


def declare_torchvision() -> None:
    """torchvision built for a GPU cannot load its operators beside PyTorch for the CPU, and then
    looks for the schemas of two of them. No model here calls these."""
    package = importlib.util.find_spec("torchvision")
    if package is None or package.origin is None:
        return
    try:
        torch.ops.load_library(Path(package.origin).with_name("_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)


_LIBRARIES: list[torch.library.Library] = []  # a library that is freed takes its schemas with it


def main() -> None:
    (name,) = sys.argv[1:]
    warnings.simplefilter("ignore")
    declare_torchvision()
    (model,) = (model for model in MODELS if model.name == name)
    try:
        outcome = compare(model)
    except Exception as error:  # whatever any library raises becomes a line of the page
        inner = getattr(error, "inner_exception", error)
        reason = f"{type(inner).__name__}: {' '.join(str(inner).split())}"
        outcome = Outcome(name, error=reason[:300])
    print(json.dumps(asdict(outcome)))


if __name__ == "__main__":
    main()
