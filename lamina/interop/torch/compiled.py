"""A graph of ATen's overloads, as programs and the steps between them that PyTorch runs."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from enum import Enum
from itertools import groupby
from typing import Any

import torch
from torch import fx

from lamina.core.options import current
from lamina.core.text import Text
from lamina.errors import LaminaError
from lamina.interop.torch.direct import run_of, unpacked
from lamina.interop.torch.draws import draw_apart
from lamina.interop.torch.host import call_of
from lamina.interop.torch.plan import (
    HostStep,
    Left,
    Plan,
    Refusals,
    Result,
    make_plan,
)
from lamina.interop.torch.program import TensorProgram

_WHOLE_GRAPH = Left("the whole graph", "", "shapes in it depend on data")
_MAX_SHAPES = 32  # of one graph with symbolic sizes; the oldest is compiled anew when it comes back


class Fallback(Enum):
    """Whether PyTorch may run operations that lamina has no row for."""

    ALLOWED = "allowed"
    REFUSED = "refused"


class UnsupportedOperationError(LaminaError):
    """A graph has an operation that lamina cannot run, and PyTorch was not to."""


class Compiled:
    """A callable of the graph's inputs. A graph whose sizes are symbols is compiled once for each
    set of sizes that it is called with."""

    def __init__(self, module: fx.GraphModule, fallback: Fallback) -> None:
        self.fallback = fallback
        self._is_symbolic = has_symbols(module.graph)
        # AOTAutograd takes the descriptions out of a graph once it is compiled.
        self._module = copy.deepcopy(module) if self._is_symbolic else module
        self._of_shapes: OrderedDict[Hashable, Steps] = OrderedDict()
        self.steps: Steps | None = None if self._is_symbolic else Steps(module, fallback)
        self._depends_on_data = self._is_symbolic and _depends_on_data(module.graph)
        if self._depends_on_data and fallback is Fallback.REFUSED:
            raise UnsupportedOperationError(
                f"left to PyTorch: {_WHOLE_GRAPH}: call torch.compile without fullgraph=True, or "
                "compute the shapes outside"
            )

    @property
    def versions(self) -> list[Steps]:
        """What is compiled; if sizes are symbols, for each set of sizes that there was a call of,
        up to the last 32."""
        return list(self._of_shapes.values()) if self.steps is None else [self.steps]

    @property
    def left(self) -> list[Left]:
        """The operations of these that PyTorch runs."""
        if self._depends_on_data:
            return [_WHOLE_GRAPH]
        operations = [one for steps in self.versions for one in steps.plan.left]
        return list(dict.fromkeys(operations))

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        """The results; the list is emptied, so that nobody keeps its tensors."""
        if self._depends_on_data:
            values = list(arguments)
            arguments.clear()
            with torch.no_grad():
                results: Sequence[Any] = self._module(*values)
            return results
        steps = self._for_shapes(arguments) if self._is_symbolic else self.steps
        assert steps is not None
        return steps.run(arguments)

    def _for_shapes(self, arguments: Sequence[Any]) -> Steps:
        key = tuple(
            (one.shape, one.stride()) if isinstance(one, torch.Tensor) else one
            for one in arguments
        )
        steps = self._of_shapes.get(key)
        if steps is None:
            steps = Steps(specialized(self._module, arguments), self.fallback)
            if current().debug:
                print(f"torch: compiling for {key}", file=sys.stderr)
            while len(self._of_shapes) >= _MAX_SHAPES:
                self._of_shapes.popitem(last=False)
        self._of_shapes[key] = steps
        self._of_shapes.move_to_end(key)
        return steps


def has_symbols(graph: fx.Graph) -> bool:
    """Whether sizes or numbers in the graph are symbols."""
    return any(_is_symbolic(node.meta.get("val")) for node in graph.nodes)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return True
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in (*value.shape, *value.stride()))
    return isinstance(value, (list, tuple)) and any(map(_is_symbolic, value))


def _depends_on_data(graph: fx.Graph) -> bool:
    """Whether a size or a number in the graph is known only when an operation has run."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    values = (node.meta.get("val") for node in graph.nodes)
    return any(free_unbacked_symbols(value) for value in values if _is_symbolic(value))


def specialized(module: fx.GraphModule, arguments: Sequence[Any]) -> fx.GraphModule:
    """A copy of the graph whose nodes have the sizes that follow from `arguments`."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    special = copy.deepcopy(module)
    with torch.no_grad():
        FakeTensorProp(special, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*arguments)
    for node, value in zip(special.graph.find_nodes(op="placeholder"), arguments, strict=True):
        if not isinstance(value, torch.Tensor):
            node.meta["val"] = value
    return special


class Steps:
    """A graph of fixed sizes: programs and host steps in order. run: the call, of a list of
    arguments, which it empties."""

    def __init__(self, module: fx.GraphModule, fallback: Fallback) -> None:
        graph = copy.deepcopy(module.graph)
        draw_apart(graph)
        graph.eliminate_dead_code()
        self.plan, self.programs = _compiled_plan(graph, module)
        if fallback is Fallback.REFUSED and self.plan.refusals:
            raise UnsupportedOperationError(_complaint(self.plan))
        if current().debug and self.plan.refusals:
            print(f"torch: {_complaint(self.plan)}", file=sys.stderr)
        self.text = self._written(module)
        self.run = run_of(self.text)

    def _written(self, module: fx.GraphModule) -> Text:
        plan, text = self.plan, Text()
        names = {node: f"a{number}" for number, node in enumerate(plan.inputs)}
        text.add(unpacked([*names.values()], "inputs"), "inputs.clear()")
        for node in plan.constants:
            names[node] = text.name("constant", getattr_of(module, node))
        names |= {node: f"v{number}" for number, node in enumerate(plan.produced)}
        for is_host, steps in groupby(plan.steps, lambda step: isinstance(step, HostStep)):
            if is_host:
                text.add("with no_grad():")
            for step in steps:
                if isinstance(step, HostStep):
                    text.add(f"    {names[step.node]} = {call_of(text, step.node, names)}")
                else:
                    read = [names[node] for node in step.inputs]
                    made = {names[node]: plan.made_as.get(node) for node in step.outputs}
                    self.programs[step].write(text, read, made)
        results = [_expression(text, result, names) for result in plan.results]
        text.add(f"return [{', '.join(results)}]")
        return text


def _expression(text: Text, result: Result, names: Mapping[fx.Node, str]) -> str:
    if result.node is None:
        return text.constant(result.value)
    name = names[result.node]
    return name if result.view is None else f"{text.name('view', result.view)}.of({name})"


def _compiled_plan(
    graph: fx.Graph, module: fx.GraphModule
) -> tuple[Plan, dict[Any, TensorProgram]]:
    """A plan whose segments all compile. An operation whose row refuses its arguments becomes a
    host step, and the rest is planned again."""
    refused: Refusals = {}
    while True:
        plan = make_plan(graph, refused)
        before = len(refused)
        programs: dict[Any, TensorProgram] = {}
        for segment in plan.segments:
            program = TensorProgram(segment, refused)
            if len(refused) > before:
                break
            programs[segment] = program
        if len(refused) == before:
            return plan, programs


def getattr_of(module: fx.GraphModule, node: fx.Node) -> Any:
    """A constant of the graph: ``layer.table`` of the module."""
    value: Any = module
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value


def _complaint(plan: Plan) -> str:
    return f"left to PyTorch: {'; '.join(map(str, plan.left))}"
