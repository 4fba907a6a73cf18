"""Tracing: one run of a function on tracers, which have a shape and a dtype but no value.

A trace finds what a program of the function has to compute: its results, the gradients it leaves
behind, and the new values of tensors that it assigns. Every memory that these read gets a number.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from weakref import ref

from lamina import random
from lamina.core.shape import prod
from lamina.errors import JitError
from lamina.explain.origins import ORIGINS
from lamina.frontend import realize as memory
from lamina.frontend.differentiate import map_tree
from lamina.frontend.lowered import TensorSpec
from lamina.frontend.session import (
    SESSION,
    Before,
    changed,
    differentiated,
    during,
    required,
    tracers,
)
from lamina.frontend.tensor import Tensor
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer

_ROUNDS = 8  # of tracing; each may leave behind what the next one captures


class NoMemory(Buffer):
    """The memory of a tracer: there is none."""

    def __init__(self, nbytes: int, device: str) -> None:
        self.device, self.nbytes = device, nbytes

    @property
    def pointer(self) -> int:  # type: ignore[override]
        raise memory.not_yet()


def tracer_like(tensor: Tensor) -> Tensor:
    """A tracer in place of `tensor`."""
    storage = NoMemory(tensor.nbytes, tensor.device)
    node = memory.buffer_node(storage, tensor.shape, tensor.dtype)
    tracer = Tensor.of(node, tensor.device)
    tracer._requires_grad = tensor._requires_grad
    SESSION.unsettle(tracer)
    return tracer


def placeholder(spec: TensorSpec, device: str) -> Tensor:
    """A tensor of the shape and dtype of `spec` on `device`, without memory."""
    storage = NoMemory(prod(spec.shape) * spec.dtype.itemsize, device)
    return Tensor.of(memory.buffer_node(storage, spec.shape, spec.dtype), device)


class Place(int):
    """The number of a result, where the result itself will be."""


@dataclass(frozen=True, slots=True)
class LeftGradient:
    """A gradient that the function leaves behind. owner: the tensor that gets it, or the number of
    an argument. result: which of the results it is, or None where the function forgets it."""

    owner: Tensor | int
    result: int | None


@dataclass(frozen=True, slots=True)
class LeftRequirement:
    """That the function leaves `owner`, a tensor or the number of an argument, with another
    `requires_grad`."""

    owner: Tensor | int
    requires_grad: bool


class Surroundings:
    """Every tensor as a trace finds it.

    nodes: what each is computed as. homes: the BUFFER node of each, an input of its own even where
    two tensors share their memory, as these may part later; None for those without memory. values:
    the home of each node."""

    def __init__(self) -> None:
        self.nodes = {tensor: tensor.node for tensor in SESSION.tensors()}
        self.homes: dict[Tensor, Node | None] = {}
        self.values: dict[Node, Any] = {}
        owners: dict[Node, Tensor] = {}
        for tensor, node in self.nodes.items():
            home = memory.home_of(node)
            if home is not None and owners.setdefault(home, tensor) is not tensor:
                apart = NoMemory(0, tensor.device)
                home = memory.buffer_node(apart, home.shape, home.dtype)
            self.homes[tensor] = home
            self.values.setdefault(node, home)


@dataclass(eq=False)
class Trace:
    """What one run of a function on tracers computes and changes.

    arguments: the tracer of each tensor, by its id. key: the tracer of the random key. result: the
    function's, with a Place for each tensor. gradients, requirements: what it leaves behind. asked:
    the captured tensors whose gradient it asked for, with that. differentiated: the nodes whose
    derivative it took. read: the nodes that the sinks are
    computed from which are in memory or those of tensors. sinks: the results, the gradients, then
    one ASSIGN for each tensor that got a new value, not yet opened. inputs: the memory that the
    sinks read, with its numbers. lines: the user's line of nodes below the sinks, while ORIGINS
    takes notes."""

    arguments: dict[int, Tensor]
    key: Tensor
    around: Surroundings
    result: Any = None
    gradients: list[LeftGradient] = field(default_factory=list)
    requirements: list[LeftRequirement] = field(default_factory=list)
    asked: dict[Tensor, Tensor | None] = field(default_factory=dict)
    differentiated: set[Node] = field(default_factory=set)
    read: set[Node] = field(default_factory=set)
    sinks: list[Node] = field(default_factory=list)
    inputs: dict[Buffer, int] = field(default_factory=dict)
    lines: dict[Node, str] = field(default_factory=dict)

    @property
    def storages(self) -> list[Buffer]:
        """The storage of each argument's tracer, then that of the key's."""
        return [tracer.node.arg.storage for tracer in (*self.arguments.values(), self.key)]

    def owners(self) -> dict[Buffer, Tensor | None]:
        """The tensor that each call reads an input from, by the memory that stands for it here;
        None for the arguments and for the random key."""
        owners: dict[Buffer, Tensor | None] = dict.fromkeys(self.storages)
        for tensor, home in self.around.homes.items():
            home = home or memory.home_of(tensor.node)
            if home is not None and home.arg.storage in self.inputs:
                owners.setdefault(home.arg.storage, tensor)
        return owners

    def run(self, function: Callable[..., Any], arguments: Any) -> list[Tensor]:
        """Trace; returns the tensors that have no memory yet and need it, or nothing."""
        before: dict[Tensor, Before] = {}
        lines: dict[ref[Tensor], str] = {}
        nodes = {tracer.node for tracer in (*self.arguments.values(), self.key)}
        SESSION.traced.update(nodes)
        with during(changed, before), during(required, lines):
            try:
                derivatives = during(differentiated, self.differentiated)
                with during(tracers, nodes), derivatives, random.using(self.key):
                    args, kwargs = map_tree(
                        lambda one: self.arguments.get(id(one), one), arguments, object
                    )
                    result = function(*args, **kwargs)
                missing = self._note(result, before)
                del result
            finally:
                self._restore(before)
        before.clear()  # it holds tensors
        self._refuse_leaks(lines, nodes)
        return missing

    def _note(self, result: Any, before: dict[Tensor, Before]) -> list[Tensor]:
        """Note what the function returned and changed; returns what `run` returns."""
        places: dict[Tensor, int] = {}
        self.result = map_tree(lambda one: Place(places.setdefault(one, len(places))), result)
        known = {one: before[one] for one in self.around.homes if one in before}
        self._note_gradients(known, places)
        written = [one for one, old in known.items() if old.differs_from(one)]
        return self._note_values(list(places), written)

    def _restore(self, before: dict[Tensor, Before]) -> None:
        """Make every tensor what it was; one that the function made is a parameter if it made it
        one."""
        for tensor, state in before.items():
            requires_grad = tensor._requires_grad
            state.restore(tensor)
            if tensor not in self.around.homes:
                tensor.requires_grad = requires_grad

    def _refuse_leaks(self, lines: dict[ref[Tensor], str], nodes: set[Node]) -> None:
        """Raise JitError where parameters outlive the function that made them, on the user's
        `lines`, and depend on the tracers `nodes`: they have no value."""
        if self._leaks(lines, nodes):
            gc.collect()  # layers that nobody holds may still hold each other
        for line in self._leaks(lines, nodes):
            raise JitError(
                f"jit: a parameter outlives the traced function that made it ({line}), and has no "
                "value: make its layer outside, and pass it or capture it"
            )

    def _leaks(self, lines: dict[ref[Tensor], str], nodes: set[Node]) -> list[str]:
        """The `lines` of the parameters that are new, live and depend on `nodes`."""
        alive = [tensor for handle in lines if (tensor := handle()) is not None]
        new = [tensor for tensor in alive if tensor not in self.around.homes]
        traced = memory.readers_of(new, nodes)
        return [lines[tensor.handle] for tensor in new if tensor.node in traced]

    def _note_gradients(self, before: dict[Tensor, Before], places: dict[Tensor, int]) -> None:
        """Find the gradients that were asked for, and those that were left behind, which `places`
        number as results; and which tensors require theirs now, or no longer."""
        numbers = {tracer: number for number, tracer in enumerate(self.arguments.values())}
        for tensor, old in before.items():
            if not (old.forgets or tensor in numbers):
                self.asked[tensor] = old.grad
            gradient = tensor._grad
            if gradient is not old.grad or old.forgets:
                result = None if gradient is None else places.setdefault(gradient, len(places))
                self.gradients.append(LeftGradient(numbers.get(tensor, tensor), result))
            if tensor._requires_grad != old.requires_grad:
                owner = numbers.get(tensor, tensor)
                self.requirements.append(LeftRequirement(owner, tensor._requires_grad))

    def _note_values(self, results: list[Tensor], written: list[Tensor]) -> list[Tensor]:
        """Cut the graphs of `results` and of what was assigned to `written`; nothing where tensors
        lack memory, which are returned."""
        homes, values = self.around.homes, self.around.values
        nodes = [tensor.node for tensor in (*results, *written)]
        computed = memory.pending(nodes)
        self.read = {node for node, place in computed.items() if place or node in values}
        missing = [tensor for tensor in written if homes[tensor] is None]
        missing += self._without_memory(computed)
        if missing:
            return missing
        targets = [memory.numbered(_home(homes[tensor]), self.inputs) for tensor in written]
        lines = ORIGINS.of(computed)
        cut = memory.cut_closed([*nodes, *lines], self.inputs, homes=values)
        self.lines = dict(zip(cut[len(nodes) :], lines.values(), strict=True))
        pairs = zip(targets, cut[len(results) : len(nodes)], strict=True)
        self.sinks = [*cut[: len(results)], *(Node(Op.ASSIGN, pair) for pair in pairs)]
        return []

    def _without_memory(self, computed: dict[Node, Node | None]) -> Iterable[Tensor]:
        """The tensors without memory whose value is read. Numbers need none, but for gradients
        that were asked for: later calls may find others."""
        gradients = {*self.asked.values()}
        for tensor, home in self.around.homes.items():
            if home is not None or computed.get(tensor.node, tensor) is not None:
                continue
            if tensor in gradients or not memory.is_everywhere(tensor.node):
                yield tensor


def _home(node: Node | None) -> Node:
    assert node is not None
    return node


def trace(
    function: Callable[..., Any], arguments: Any, tensors: dict[int, Tensor], default_device: str
) -> Trace:
    """Trace until everything that `function` captures or assigns has memory of its own, on
    `default_device` where no argument has one. `tensors`: those of the arguments, by id."""
    memory.realize(*tensors.values(), *SESSION.assigned())
    device = next((tensor.device for tensor in tensors.values()), default_device)
    for _ in range(_ROUNDS):
        by_id = {number: tracer_like(tensor) for number, tensor in tensors.items()}
        for number, tensor in tensors.items():
            if tensor.grad is not None:
                by_id[number].grad = by_id[id(tensor.grad)]
        found = Trace(by_id, tracer_like(random.key(0, device)), Surroundings())
        missing = found.run(function, arguments)
        if not missing:
            return found
        memory.realize(*missing)
    raise JitError(f"jit: {function!r} leaves new unfinished tensors behind on every call")
