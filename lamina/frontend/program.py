"""What a trace compiled to, and where the inputs of each call come from."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import zip_longest
from operator import and_, attrgetter, eq
from typing import Any
from weakref import finalize, ref

from lamina import random
from lamina.core.options import Options
from lamina.core.recent import Cached
from lamina.errors import JitError
from lamina.explain.origins import carried, known
from lamina.frontend import realize as memory
from lamina.frontend.constants import MAX_CHANGES, KeptArrays, constants_of, with_constants
from lamina.frontend.differentiate import map_tree
from lamina.frontend.quick import QuickCall, QuickCode, has_quick_call, results_of
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


@dataclass(slots=True)
class Snapshot:
    """Tensors as they were at a time. Nodes are held weakly, as references to one decide whether
    its memory may be overwritten.

    nodes: of their values; None of a tensor that nobody has looked at
    requirements: whether they required their derivative
    """

    nodes: list[ref[Node] | None]
    requirements: list[bool]

    @staticmethod
    def of(tensors: Sequence[Tensor]) -> Snapshot:
        """Tensors as they are now."""
        return Snapshot([*map(ref, map(_node_of, tensors))], [*map(_requirement_of, tensors)])

    @staticmethod
    def of_nothing(count: int) -> Snapshot:
        """So many tensors that nobody has looked at."""
        return Snapshot([None] * count, [False] * count)

    def are_same(self, other: Snapshot) -> Iterable[bool]:
        """Of each tensor, whether it is in both as it is in the other one."""
        nodes = map(eq, self.nodes, other.nodes)
        return map(and_, nodes, map(eq, self.requirements, other.requirements))


class Watched:
    """Tensors that a program captured, as its last call found them: the next one looks for the
    memory of those alone that have changed. A token of a language model takes some hundred weights
    and caches. Memory is held weakly, as others may get it once the tensor has another value."""

    def __init__(self, captured: Iterable[Captured]) -> None:
        self.captured = [*captured]
        self._seen = Snapshot.of_nothing(len(self.captured))
        self._memory: list[Callable[[], Buffer | None]] = [_nothing] * len(self.captured)

    def known(self) -> list[Buffer | None]:
        """The memory of each tensor; None of one that is not as it was."""
        tensors = _now(self.captured)
        buffers: list[Buffer | None] = [one() for one in self._memory]
        now = Snapshot.of(tensors)
        if now != self._seen or any(map(_assigned_of, tensors)):
            are_same = now.are_same(self._seen)
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
        self._seen.nodes[number], self._memory[number] = ref(tensor.node), ref(buffer)
        self._seen.requirements[number] = tensor._requires_grad
        return buffer


def _nothing() -> None:
    """In the place of a reference, where nothing was found yet."""


@dataclass(frozen=True, slots=True)
class Noted:
    """The captured tensors of a program as they were when its quick call was made.

    tensors: those that were captured. seen: what they were
    memory: what the call reads of them alone. writes: how often that had been written
    written: those that get new values. ungraded: those that have no gradient, as the program needs
    kept: what the program keeps from call to call
    """

    tensors: list[Tensor]
    seen: Snapshot
    memory: list[Buffer]
    writes: list[int]
    written: list[Tensor]
    ungraded: list[Tensor]
    kept: KeptArrays

    def is_unchanged(self) -> bool:
        """Are the tensors, and what is in their memory, as they were? Then the program fits."""
        if [*map(_writes, self.memory)] != self.writes:
            return False
        if Snapshot.of(self.tensors) != self.seen:
            return False
        return all(tensor._grad is None for tensor in self.ungraded)

    def may_call(self, arguments: Sequence[Tensor]) -> bool:
        """`is_unchanged`, asked for a call with these arguments, which then counts as one that
        found the constants of the call before. Where the call writes, nobody else may need what was
        there: not an argument either, which is read as it was before."""
        if not self.is_unchanged():
            return False
        if self.written and not self._may_write(arguments):
            return False
        self.kept.changes = 0
        return True

    def _may_write(self, arguments: Sequence[Tensor]) -> bool:
        passed = {*map(id, arguments)}
        return passed.isdisjoint(map(id, self.written)) and all(map(_is_own, self.written))


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
        # Whether it reads no gradient, leaves none behind, and draws nothing.
        has_gradients = self.gradients or not all(asked.was_none for asked in self.asked)
        self.only_computes = not (has_gradients or self.requirements or self.draws)
        is_fixed = not (self.writes or self.captured or self.same or self.asked)
        self.is_pure = self.only_computes and is_fixed
        self.has_quick_call = has_quick_call(self)
        self._quick_code: QuickCode | None = None  # made by `note_state`
        self.has_constants = has_constants
        self.noted: Noted | None = None
        self.quick: QuickCall | None = None

    def _compile(self, trace: Trace, options: Options, constants: set[int]) -> None:
        from lamina.compiled import find_closed, runner, store_closed
        from lamina.frontend.execution import run_compiled  # as they are first needed

        devices = dict.fromkeys(buffer.device for buffer in trace.inputs)
        if len(devices) > 1:
            raise JitError(f"jit: tensors on {' and '.join(devices)} in one program; move one")
        self.device = next(iter(devices), trace.key.device)
        self.options = replace(options, device=self.device)
        if not runner(self.options).keeps_constants:
            constants = set()
        closed = with_constants(trace.sinks, constants)
        distinct = tuple(dict.fromkeys(closed))
        found = None if trace.lines else find_closed(distinct, self.options)
        if found is not None:
            self.compiled, self.numbers, values = found, list[Buffer](), closed
            self._use = use_of(find_closed, distinct, self.options)
        else:
            values = self._compile_opened(trace, closed, constants)
            if not self.numbers and len(distinct) == len({*values}):
                store_closed(distinct, self.compiled, self.options)
        self.kept = KeptArrays(self.compiled, self.options, constants)
        self.run = run_compiled
        self.inputs = [*trace.inputs, *self.numbers]
        sinks = list(dict.fromkeys(values))
        pairs = zip(values, trace.sinks, strict=True)
        results = [value for value, sink in pairs if sink.op is not Op.ASSIGN]
        self.results = [sinks.index(value) for value in results]
        # The results whose value an earlier one has as well.
        self.repeated = [
            at for at, number in enumerate(self.results) if number in self.results[:at]
        ]
        self.likes = [(one.shape, one.dtype, self.device) for one in dict.fromkeys(results)]

    def _compile_opened(
        self, trace: Trace, closed: Sequence[Node], constants: set[int]
    ) -> list[Node]:
        """Compile the sinks `closed` of a trace; what they are when opened."""
        from lamina.frontend.execution import compile_sinks  # as it is first needed

        of_lines = with_constants([*trace.lines], constants)
        opened = memory.opened((*closed, *of_lines))
        lines = dict(zip(opened[len(closed) :], trace.lines.values(), strict=True))
        sinks = tuple(dict.fromkeys(opened[: len(closed)]))
        program, self.numbers = memory.lifted(sinks, len(trace.inputs), self.device)
        with known(carried(sinks, program, lines)):
            self.compiled = compile_sinks(program, self.options)
        self._use = use_of(compile_sinks, program, self.options)
        return opened[: len(closed)]

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
        tracers = trace.arguments.values()
        self.argument_kinds = [*map(kind_of, tracers)]
        self.has_graded_arguments = any(tracer.grad is not None for tracer in tracers)
        self.draws = trace.storages[-1] in numbers
        held = [tensor for tensor in owners.values() if tensor is not None]
        self.captured = [gradient_of.get(tensor, Captured(tensor)) for tensor in held]
        self.kinds = [*map(kind_of, held)]
        # The numbers of the input leaves that ASSIGN writes to.
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
        known = self._watched.known()
        is_unchanged = None not in known  # since a call that it fitted
        fits = is_unchanged or self._has_same_kinds()
        self._known = known if fits else None  # memory is held for the call that follows alone
        return fits

    def _has_same_kinds(self) -> bool:
        """Are the captured tensors of the kinds that it was compiled for, and those whose nodes it
        needs the same?"""
        if [tensor.node for tensor in _now(self.same)] != self.nodes:
            return False
        return all(map(eq, map(kind_of, _now(self.captured)), self.kinds))

    @property
    def gave_up(self) -> bool:
        """Whether its constants have turned out to change from call to call."""
        return self.kept.changes > MAX_CHANGES

    def note_state(self, lock: AbstractContextManager[Any]) -> None:
        """Note the captured tensors, and make a quick call that reads and writes their memory,
        where there is one. lock: is held by calls that write."""
        if not self.has_quick_call:
            return
        if self._quick_code is None:
            self._quick_code = QuickCode(self)
        if self.is_pure:
            self.quick = self._quick_code.bind(self)
            return
        captured = [one.tensor for one in self.captured]
        tensors = [*captured, *[one.tensor for one in self.same]]
        # It comes first: if another thread changes a tensor meanwhile, the next call sees that.
        seen = Snapshot.of(tensors)
        buffers = [memory.memory_of(tensor) for tensor in captured]
        places = [self.place_of(binding) for binding in self.writes]
        read = [buffer for place, buffer in enumerate(buffers) if place not in places]
        writes = [*map(_writes, read)]
        written = [captured[place] for place in places]
        ungraded = [asked.tensor for asked in self.asked]
        self.noted = Noted(tensors, seen, read, writes, written, ungraded, self.kept)
        self.quick = self._quick_code.bind(self, buffers, self.noted.may_call, lock)

    def place_of(self, binding: Binding) -> int:
        """The place among the captured tensors of the one of `binding`; negative for an argument
        and for the random key, which come before them."""
        return binding.tensor - self.arguments - 1

    def forget_state(self) -> None:
        """Free the arrays that it keeps from call to call; the next call makes them again."""
        self.noted = self.quick = None
        self.kept.drop()

    @property
    def argument_reads(self) -> list[Binding]:
        """What it reads of the arguments."""
        return [binding for binding in self.reads if binding.tensor < self.arguments]

    def captured_buffers(self, captured: Sequence[Buffer]) -> list[Buffer]:
        """What it keeps from call to call, and its inputs with `captured`, the memory of the
        captured tensors; nothing in the places of others, which each call fills."""
        inputs = self.inputs.copy()
        for binding in (*self.reads, *self.writes):
            place = self.place_of(binding)
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
        values = results_of(nodes, self.results, self.repeated, self.device)
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
            place = self.place_of(binding)
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


def use_of(compiled: Cached[..., Any], sinks: tuple[Node, ...], options: Options) -> object:
    """That a function uses the program that `compiled` keeps for these arguments."""
    use = SESSION.programs.get((compiled, sinks, options))
    if use is None:
        use = SESSION.programs.setdefault((compiled, sinks, options), _Use())
        finalize(use, compiled.drop, sinks, options).atexit = False
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


def _is_own(tensor: Tensor) -> bool:
    """`_owns_memory` of a tensor with a value, in few steps: False where these do not tell."""
    storage = getattr(tensor.node.arg, "storage", None)
    if type(storage) is not Buffer or tensor.assigned or storage.overwritten or storage.exported:
        return False
    return sys.getrefcount(tensor.node) <= 2


def _owns_memory(tensor: Tensor) -> bool:
    """Whether nobody else needs what is in the memory of `tensor`."""
    buffer = memory.memory_of(tensor)
    is_held = memory.home_of(tensor.node) is tensor.node
    # Two references are expected: the tensor's, and that of getrefcount's argument. The node must
    # not be bound to a name here: whether that counts depends on the version of Python.
    return is_held and sys.getrefcount(tensor.node) <= 2 and not buffer.exported
