"""What a trace compiled to, and where the inputs of each call come from."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import attrgetter, eq
from typing import Any
from weakref import finalize, ref

from lamina import random
from lamina.core.options import Options
from lamina.errors import JitError
from lamina.explain.origins import carried, known
from lamina.frontend import realize as memory
from lamina.frontend.constants import MAX_CHANGES, KeptArrays, constants_of, with_constants
from lamina.frontend.differentiate import map_tree
from lamina.frontend.quick import quick_call
from lamina.frontend.session import SESSION
from lamina.frontend.tensor import Tensor
from lamina.frontend.trace import LeftGradient, LeftRequirement, Place, Trace
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer

kind_of = attrgetter("node.shape", "node.dtype", "device", "_requires_grad")  # of a tensor
_node_of, _requirement_of = attrgetter("node"), attrgetter("_requires_grad")
_assigned_of = attrgetter("assigned")
_writes = attrgetter("writes")


@dataclass(frozen=True, slots=True)
class Captured:
    """A tensor that a program captured, or its gradient, which may be another one at each call."""

    tensor: Tensor
    is_gradient: bool = False


def _now(captured: Iterable[Captured]) -> list[Any]:
    return [one.tensor._grad if one.is_gradient else one.tensor for one in captured]


@dataclass(frozen=True, slots=True)
class Asked:
    """A tensor whose gradient the function asked for, and whether there was none."""

    tensor: Tensor
    was_none: bool


@dataclass(frozen=True, slots=True)
class Binding:
    """Input number `input` of the program is the memory of tensor number `tensor` of a call: the
    arguments, the random key, then the captured tensors."""

    tensor: int
    input: int


class Watched:
    """Tensors that a program captured, as its last call found them: the next one looks for the
    memory of those alone that have changed. A token of a language model takes some hundred weights
    and caches.

    Nodes are held weakly, as references to one decide whether its memory may be overwritten; and
    memory is, as others may get it once the tensor has another value."""

    def __init__(self, captured: Iterable[Captured]) -> None:
        self.captured = [*captured]
        self._nodes: list[ref[Node] | None] = [None] * len(self.captured)
        self._requirements = [False] * len(self.captured)
        self._memory: list[Callable[[], Buffer | None]] = [_nothing] * len(self.captured)

    def known(self) -> list[Buffer | None]:
        """The memory of each tensor; None of one that is not as it was."""
        tensors = _now(self.captured)
        buffers: list[Buffer | None] = [one() for one in self._memory]
        nodes = [*map(ref, map(_node_of, tensors))]
        requirements = [*map(_requirement_of, tensors)]
        is_changed = nodes != self._nodes or requirements != self._requirements
        if is_changed or any(map(_assigned_of, tensors)):
            known = zip(self._nodes, self._requirements, strict=True)
            now = zip(nodes, requirements, strict=True)
            are_same = map(eq, known, now)
            for number, (tensor, is_same) in enumerate(zip(tensors, are_same, strict=True)):
                if not is_same or tensor.assigned:
                    buffers[number] = None
        return [None if one is None or one.overwritten else one for one in buffers]

    def find(self, buffers: list[Buffer | None]) -> list[Buffer]:
        """`buffers`, as `known` gives them, with the memory of the changed tensors, which are found
        so by the next call."""
        found: list[Buffer] = []
        for number, buffer in enumerate(buffers):
            found.append(self._find(number) if buffer is None else buffer)
        return found

    def _find(self, number: int) -> Buffer:
        (tensor,) = _now(self.captured[number : number + 1])
        buffer = memory.memory_of(tensor)
        self._nodes[number], self._memory[number] = ref(tensor.node), ref(buffer)
        self._requirements[number] = tensor._requires_grad
        return buffer


def _nothing() -> None:
    """In the place of a reference, where nothing was found yet."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A quick call of a program, and the captured tensors as they were when it was made.

    tensors: those that were captured. nodes: theirs, weakly, as references to a node decide whether
        its memory may be overwritten. requirements: whether they required their derivative
    memory: what the call reads of them. writes: how often that had been written
    call: None if the program has no quick call. kept: what it keeps from call to call
    """

    tensors: list[Tensor]
    nodes: list[ref[Node]]
    requirements: list[bool]
    memory: list[Buffer]
    writes: list[int]
    call: Callable[[Sequence[Tensor]], Any] | None
    kept: KeptArrays

    def is_unchanged(self) -> bool:
        """Are the tensors, and what is in their memory, as they were? Then the program fits."""
        if [*map(_writes, self.memory)] != self.writes:
            return False
        if [*map(ref, map(_node_of, self.tensors))] != self.nodes:
            return False
        return [*map(_requirement_of, self.tensors)] == self.requirements

    def may_call(self) -> bool:
        """`is_unchanged`, asked for a call, which then counts as one that found the constants of
        the call before."""
        if not self.is_unchanged():
            return False
        self.kept.changes = 0
        return True


class Program:
    """A compiled trace. It holds no node of a tensor but those of `same`: references to a node
    decide whether its memory may be overwritten."""

    def __init__(self, trace: Trace, options: Options, *, has_constants: bool = True) -> None:
        """has_constants: whether it takes captured tensors for the same in most calls."""
        owners = trace.owners()
        constants = constants_of(trace, owners) if has_constants else set[int]()
        self._compile(trace, options, constants)
        self.result = trace.result
        self.gradients, self.requirements = trace.gradients, trace.requirements
        # Each call may find another gradient: so the program knows whose it is.
        gradient_of = {
            gradient: Captured(tensor, is_gradient=True)
            for tensor, gradient in trace.asked.items() if gradient is not None
        }  # fmt: skip
        self.asked = [Asked(tensor, old is None) for tensor, old in trace.asked.items()]
        self._watch(trace, gradient_of)
        self._bind(trace, owners, gradient_of)
        self._watched = Watched(dict.fromkeys((*self.captured, *self.same)))
        # The memory of what it watches, from `fits` to the call that follows.
        self._known: list[Buffer | None] | None = None
        is_left = self.writes or self.gradients or self.requirements
        self.only_reads = not (is_left or self.asked or self.draws)
        self.is_pure = self.only_reads and not (self.captured or self.same)
        self.has_constants = has_constants
        self.noted: Noted | None = None
        if self.is_pure:
            self.note_state()

    def _compile(self, trace: Trace, options: Options, constants: set[int]) -> None:
        from lamina import pipeline  # the compiler loads when it is first needed
        from lamina.backends import backend

        sinks = list(dict.fromkeys(trace.sinks))
        devices = dict.fromkeys(buffer.device for buffer in trace.inputs)
        if len(devices) > 1:
            raise JitError(f"jit: tensors on {' and '.join(devices)} in one program; move one")
        self.device = next(iter(devices), trace.key.device)
        self.options = replace(options, device=self.device)
        if not backend(self.options).keeps_constants:
            constants = set()
        marked = tuple(with_constants(sinks, constants))
        program, self.numbers = memory.lifted(marked, len(trace.inputs), self.device)
        with known(carried(sinks, program, trace.lines)):
            self.compiled = pipeline.compile_sinks(program, self.options)
        self.kept = KeptArrays(self.compiled, self.options, constants)
        self._use = use_of(program, self.options)
        self.run = pipeline.run_compiled
        self.inputs = [*trace.inputs, *self.numbers]
        results = [sink for sink in trace.sinks if sink.op is not Op.ASSIGN]
        self.results = [sinks.index(sink) for sink in results]
        # The results whose value an earlier one has as well.
        self.repeated = [
            at for at, number in enumerate(self.results) if number in self.results[:at]
        ]
        self.likes = [(one.shape, one.dtype, self.device) for one in dict.fromkeys(results)]

    def _watch(self, trace: Trace, gradient_of: dict[Tensor, Captured]) -> None:
        """Note the captured tensors that the program fits only while their nodes stay the same:
        what it reads may be the value of several tensors, or be computed, until they change."""
        nodes = trace.around.nodes
        count = Counter(nodes.values())
        below = {operand for node in toposort(trace.read) for operand in node.src}
        unsure = below.intersection(count)
        unsure |= {node for node in trace.read if count[node] > 1 or node.op is not Op.BUFFER}
        same = {tensor: node for tensor, node in nodes.items() if node in unsure}
        self.same = [gradient_of.get(tensor, Captured(tensor)) for tensor in same]
        self.nodes = list(same.values())

    def _bind(
        self,
        trace: Trace,
        owners: dict[Buffer, Tensor | None],
        gradient_of: dict[Tensor, Captured],
    ) -> None:
        """Find the tensor of each input, and what the program writes."""
        numbers = trace.inputs
        self.arguments = len(trace.arguments)
        self.draws = trace.storages[-1] in numbers
        held = [tensor for tensor in owners.values() if tensor is not None]
        self.captured = [gradient_of.get(tensor, Captured(tensor)) for tensor in held]
        self.kinds = [*map(kind_of, held)]
        # The numbers of the holes that ASSIGN writes to.
        written = {sink.src[0].arg.storage for sink in trace.sinks if sink.op is Op.ASSIGN}
        self.writes: list[Binding] = []
        self.reads: list[Binding] = []
        for place, storage in enumerate(owners):
            if storage in numbers:
                number = numbers[storage]
                bindings = self.writes if number in written else self.reads
                bindings.append(Binding(place, number))
                self.inputs[number] = _NOTHING  # each call puts the memory of its tensor here

    def finds_gradients(self) -> bool:
        """Have the same tensors gradients now as when the function was traced, of those whose
        gradients it asked for? When gradients are added up, the first call finds none, the second
        does, and after `zero_grad` the next one finds none again."""
        return all((asked.tensor._grad is None) is asked.was_none for asked in self.asked)

    def fits(self) -> bool:
        """May it run, or must the function be traced again?"""
        if not self.finds_gradients() or self.gave_up or self.kept.is_shared:
            return False
        self._known = self._watched.known()
        if None not in self._known:  # nothing has changed since a call that it fitted
            return True
        if [tensor.node for tensor in _now(self.same)] != self.nodes:
            return False
        return all(map(eq, map(kind_of, _now(self.captured)), self.kinds))

    @property
    def gave_up(self) -> bool:
        """Whether its constants have turned out to change from call to call."""
        return self.kept.changes > MAX_CHANGES

    def note_state(self) -> None:
        """Note the captured tensors, and make a quick call that reads their memory, where there is
        one."""
        if not self.only_reads:
            return
        captured = [one.tensor for one in self.captured]
        tensors = [*captured, *[one.tensor for one in self.same]]
        # Nodes come first: if another thread changes a tensor meanwhile, the next call sees that.
        nodes = [*map(ref, map(_node_of, tensors))]
        requirements = [*map(_requirement_of, tensors)]
        buffers = [memory.memory_of(tensor) for tensor in captured]
        writes = [*map(_writes, buffers)]
        call = quick_call(self, buffers)
        self.noted = Noted(tensors, nodes, requirements, buffers, writes, call, self.kept)

    def forget_state(self) -> None:
        """Free the arrays that it keeps from call to call; the next call makes them again."""
        self.noted = None
        self.kept.drop()

    @property
    def argument_reads(self) -> list[Binding]:
        """What it reads of the arguments."""
        return [binding for binding in self.reads if binding.tensor < self.arguments]

    def captured_buffers(self, captured: Sequence[Buffer]) -> list[Buffer]:
        """What it keeps from call to call, and its inputs with `captured`, the memory of the
        captured tensors; nothing in the places of others, which each call fills."""
        inputs = self.inputs.copy()
        for binding in self.reads:
            place = binding.tensor - self.arguments - 1  # after the arguments and the random key
            if place >= 0:
                inputs[binding.input] = captured[place]
        return [*self.kept.of(inputs), *inputs]

    def call(self, tensors: Sequence[Tensor]) -> Any:
        """Run on the tensors of the arguments."""
        if self.draws or self.captured:
            key: Any = random.next_key(self.device) if self.draws else None
            tensors = [*tensors, key, *_now(self.captured)]
        known, self._known = self._known, None
        has_moved = _take_own_memory([tensors[binding.tensor] for binding in self.writes])
        inputs = self._inputs_of(tensors, None if has_moved else known)
        for binding in self.writes:
            inputs[binding.input].writes += 1
        try:
            buffers = self.run(self.compiled, inputs, self.options, self.kept.in_call(inputs))
        finally:
            for binding in self.writes:  # again: who read meanwhile may have seen a part
                inputs[binding.input].writes += 1
        # Those of ASSIGN come last, and are in the tensors' own memory.
        nodes = [Node.unique(one, *like) for one, like in zip(buffers, self.likes, strict=False)]
        values = [Tensor.of(nodes[number], self.device) for number in self.results]
        for at in self.repeated:  # derivatives tell it from the earlier one
            values[at].node = memory.stored_leaf(values[at].node, self.device)
        for gradient in self.gradients:
            owner = _owner(gradient, tensors)
            owner.grad = None if gradient.result is None else values[gradient.result]
        for requirement in self.requirements:
            _owner(requirement, tensors).requires_grad = requirement.requires_grad
        if type(self.result) is Place:
            return values[self.result]
        return map_tree(values.__getitem__, self.result, Place)


    def _inputs_of(
        self, tensors: Sequence[Tensor], known: list[Buffer | None] | None
    ) -> list[Buffer]:
        """The memory that a call reads and writes. tensors: the arguments, the random key, and the
        captured ones. known: the memory of what it watches, if `fits` has found that it fits, and
        nothing has changed since."""
        inputs = self.inputs.copy()
        if known is not None:
            captured = self._watched.find(known)
        else:
            captured = [memory.memory_of(one) for one in tensors[self.arguments + 1 :]]
        bindings = *self.writes, *self.reads
        for binding in bindings:
            place = binding.tensor - self.arguments - 1  # after the arguments and the random key
            if place >= 0:
                inputs[binding.input] = captured[place]
            else:
                inputs[binding.input] = memory.memory_of(tensors[binding.tensor])
        written = {inputs[binding.input].pointer for binding in self.writes}
        for binding in self.reads:
            if inputs[binding.input].pointer in written:  # as it was before
                copy = tensors[binding.tensor].clone()
                inputs[binding.input] = memory.memory_of(copy)
        return inputs


def _owner(left: LeftGradient | LeftRequirement, tensors: Sequence[Tensor]) -> Tensor:
    """The tensor that gets what the function leaves behind; `tensors`: those of a call."""
    return tensors[left.owner] if isinstance(left.owner, int) else left.owner


_NOTHING = Buffer(0)  # until a call


class _Use:
    """That functions use a compiled program: with the last of them the compiler drops it."""


def use_of(sinks: tuple[Node, ...], options: Options) -> object:
    from lamina import pipeline

    use = SESSION.programs.get((sinks, options))
    if use is None:
        use = SESSION.programs.setdefault((sinks, options), _Use())
        finalize(use, pipeline.compile_sinks.drop, sinks, options).atexit = False
    return use


def _take_own_memory(tensors: Sequence[Tensor]) -> bool:
    """See that the memory of each of `tensors` can be overwritten. Those whose memory others need
    get a copy: all by one program, but those in one memory one after the other, as equal copies
    would be in one memory again. Returns whether any got one."""
    sharing: dict[int, list[Tensor]] = {}  # by the address of their memory
    for tensor in tensors:
        if not _owns_memory(tensor):
            sharing.setdefault(memory.memory_of(tensor).pointer, []).append(tensor)
    for batch in zip_longest(*sharing.values()):
        memory.realize(*[tensor.assign(tensor) for tensor in batch if tensor is not None])
    return bool(sharing)


def _owns_memory(tensor: Tensor) -> bool:
    """Whether nobody else needs what is in the memory of `tensor`."""
    buffer = memory.memory_of(tensor)
    is_held = memory.stored(tensor.node) is tensor.node
    # Two references are expected: the tensor's, and that of getrefcount's argument. The node must
    # not be bound to a name here: whether that counts depends on the version of Python.
    return is_held and sys.getrefcount(tensor.node) <= 2 and not buffer.exported
