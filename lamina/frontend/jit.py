"""Tracing: a function of tensors becomes one program, compiled once for each signature.

`jit(f)` runs `f` once with stand-ins for its tensors, which nothing can read, and compiles all
that it returns and all that it assigns (parameters, optimiser state, running statistics) into one
program. Later calls with arguments of the same shapes, dtypes and devices lay addresses into that
program's table and make a single foreign call; no Python of `f` runs again.

What is not a tensor is part of the signature: another number traces `f` again, and all but the
first two find their program compiled. Whatever else `f` looks at (attributes, global variables, the
clock) is fixed when it is traced. Tensors that `f` finds elsewhere than among its arguments are
read anew on each call, as are their later assignments. Random draws take a fresh key on each call.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from operator import attrgetter, eq
from typing import TYPE_CHECKING, Any, cast
from weakref import ref

from lamina import random
from lamina.core.options import Options, current
from lamina.core.shape import prod
from lamina.errors import CompilerNotFoundError, JitError
from lamina.frontend import realize as memory
from lamina.frontend.differentiate import map_tree
from lamina.frontend.lowered import Lowered, TensorSpec, lower_graph
from lamina.frontend.session import SESSION, Before, changed, during, tracers
from lamina.frontend.tensor import Tensor
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter, runs

if TYPE_CHECKING:
    from lamina.runtime.cpu import CpuProgram

__all__ = ["jit"]

_kind = attrgetter("node.shape", "node.dtype", "device", "_requires_grad")  # of a tensor
_kind_and_grad = attrgetter("node.shape", "node.dtype", "device", "_requires_grad", "_grad")


class jit:  # noqa: N801  a decorator, written as a function's name
    """`function`, compiled as one program for each signature of its arguments.

    Arguments and results are tensors, NumPy arrays (arguments only), hashable values, and dicts,
    lists and tuples of them. Results are tensors of their own, without history: take derivatives
    inside; an outer trace or derivative sees through it. An argument that is also captured is read
    as it was before the call. Raises JitError where `function` reads a traced value, or gets an
    argument that cannot be part of a signature. LAMINA_DEBUG=1 prints why a program is compiled.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise JitError(f"jit: {function!r} is no function")
        functools.update_wrapper(self, function)
        self.function = function
        self._programs: dict[Hashable, _Program] = {}
        self._quick: dict[Hashable, tuple[Options, Callable[..., Any]]] = {}
        self._last: dict[str, Hashable] = {}  # what each argument was when last compiled
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        return jit, (self.function,)  # programs belong to the tensors that they captured

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        options, outer = current(), tracers.get()
        if self._quick and outer is None and not (kwargs or runs):
            try:  # what short programs wait for: of tensors alone, each given once
                known, call = self._quick[len({*args}), *map(_kind_and_grad, args)]
            except (AttributeError, LookupError, TypeError):
                known = None
            if known is options:
                return call(args)
        found: dict[int, Tensor] = {}
        given = _signature(kwargs, found) if kwargs else ()
        key = options, given, *map(_signature, args, repeat(found))  # other calls wait for this
        tensors = list(found.values())
        program = self._programs.get(key) if outer is None else None
        if program is not None and program.is_pure:
            if not kwargs and [*map(id, args)] == [*map(id, tensors)]:  # each given once
                call = program.quick or program.call
                self._quick[len(args), *map(_kind_and_grad, args)] = options, call
            return program.call(tensors)
        where = (one.device for one in tensors)
        if program is not None or (outer is None and "interp" not in (options.device, *where)):
            with suppress(CompilerNotFoundError), self._lock:  # the function itself says why
                program = self._programs.get(key)
                if program is None or not program.fits():
                    self._explain(args, kwargs, options)
                    held = list(self._programs)  # a new one for each number that is given
                    for lost in {*filter(_is_lost, held), *held[:-256]}:
                        del self._programs[lost]
                    program = _compile(self.function, (args, kwargs), found, options)
                    self._programs[key] = program
                return program.call(tensors)
        args, kwargs = map_tree(lambda one: found.get(id(one), one), (args, kwargs), object)
        return map_tree(lambda one: Tensor.of(one.node, one.device), self.function(*args, **kwargs))

    def lower(
        self, *args: Any, device: str | None = None, arch: str = "sm_90a", **kwargs: Any
    ) -> Lowered:
        """The function at every stage of the compiler; nothing is loaded or run.

        Arguments are as in a call, or a TensorSpec in place of a tensor. device: "cpu", "cuda:0" or
        "metal", which need not be there. arch: the architecture that CUDA's `compile` is for.
        Raises UnknownDeviceError for a kind of device that lamina lacks, ArgumentError for the
        interpreter, and what a call would raise."""
        options = replace(current(), device=device or current().device)
        arguments = map_tree(_placeholder, (args, kwargs), TensorSpec)
        found: dict[int, Tensor] = {}
        _signature(arguments, found)
        trace = _traced(self.function, arguments, found, options)
        sinks = list(dict.fromkeys(trace.sinks))
        return lower_graph(memory.moved(sinks, options.device), options, arch)

    def _explain(self, args: Any, kwargs: Any, options: Options) -> None:
        """Say why a program is compiled."""
        parts = {f"argument {number}": value for number, value in enumerate(args)} | kwargs
        now = {name: _signature(value, {}) for name, value in parts.items()} | {"options": options}
        before, self._last = self._last, now
        if options.debug:
            changes = [f"{name} is {value}, was {before.get(name, 'absent')}"
                       for name, value in now.items() if before.get(name) != value]  # fmt: skip
            reason = "; ".join(changes) or "another captured tensor, or one argument given twice"
            name = getattr(self.function, "__name__", "function")
            print(f"jit {name}: compiling: {reason if before else 'first call'}", file=sys.stderr)


def _signature(value: Any, tensors: dict[int, Tensor]) -> Hashable:
    """What a program depends on; the tensors in `value` are added to `tensors`, by identity."""
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        if id(value) in tensors:
            return "again", list(tensors).index(id(value))
        one = tensors[id(value)] = value if isinstance(value, Tensor) else Tensor(value)
        own, grad = _kind(one), one.grad
        return own if grad is None else (own, _signature(grad, tensors))
    if isinstance(value, dict):
        return dict, tuple((key, _signature(one, tensors)) for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_signature(one, tensors) for one in value)
    if isinstance(value, (float, complex)):
        return type(value), repr(value)  # tells zeros apart, and finds NaN again
    try:
        hash(value)
    except TypeError:
        raise JitError(
            f"jit: a {type(value).__name__} cannot be part of a signature; pass tensors, "
            "hashable values, or dicts, lists and tuples of them"
        ) from None
    kind: Any = type(value)
    if kind.__eq__ is object.__eq__ and kind.__weakrefoffset__:
        return ref(value)  # whatever equals itself alone, such as a model: its programs go with it
    return kind, value


def _is_lost(part: Hashable) -> bool:
    """Whether a signature has a part that no longer exists."""
    if isinstance(part, ref):
        return part() is None
    return isinstance(part, tuple) and any(map(_is_lost, part))


class _Traced(Buffer):
    """The memory of a stand-in: there is none."""

    def __init__(self, nbytes: int, device: str) -> None:
        self.device, self.nbytes = device, nbytes

    @property
    def pointer(self) -> int:  # type: ignore[override]
        raise memory.not_yet()


def _stand_in(like: Tensor) -> Tensor:
    storage = _Traced(like.nbytes, like.device)
    tensor = Tensor.of(memory.buffer_node(storage, like.shape, like.dtype), like.device)
    tensor.requires_grad = like.requires_grad
    return tensor


def _compile(
    function: Callable[..., Any], arguments: Any, found: dict[int, Tensor], options: Options
) -> _Program:
    """The program of a trace, which holds nodes of tensors, and so is gone before a call."""
    return _Program(_traced(function, arguments, found, options), options)


def _placeholder(spec: TensorSpec) -> Tensor:
    """A tensor of the shape and dtype of `spec`, without memory."""
    shape, dtype = spec.shape, spec.dtype
    storage = _Traced(prod(shape) * dtype.itemsize, "cpu")
    return Tensor.of(memory.buffer_node(storage, shape, dtype), "cpu")


def _traced(
    function: Callable[..., Any], arguments: Any, found: dict[int, Tensor], options: Options
) -> _Trace:
    """Trace until everything that `function` captures or assigns has memory of its own."""
    memory.realize(*found.values(), *SESSION.assigned())
    device = next((one.device for one in found.values()), options.device)
    for _ in range(8):  # each may leave behind what the next one captures
        trace = _Trace(found, device)
        missing = trace.run(function, arguments)
        if not missing:
            return trace
        memory.realize(*missing)
    raise JitError(f"jit: {function!r} leaves new unfinished tensors behind on every call")


class _Trace:
    """One run of a function on stand-ins: its results and its effects."""

    def __init__(self, found: dict[int, Tensor], device: str) -> None:
        self.stand_ins = {name: _stand_in(one) for name, one in found.items()}
        for name, one in found.items():
            if one.grad is not None:
                self.stand_ins[name].grad = self.stand_ins[id(one.grad)]
        self.key = _stand_in(random.key(0, device))
        # The memory of each tensor, the stand-ins too, and of each value, as an input of its own.
        self.homes: dict[Tensor, Any] = {}
        self.values: dict[Node, Any] = {}
        owners: dict[Node, Tensor] = {}
        self.nodes = {one: one.node for one in SESSION.tensors()}
        for one, node in self.nodes.items():
            home = memory.stored(node)
            if home and owners.setdefault(home, one) is not one:  # tensors in one memory may part
                home = memory.buffer_node(_Traced(0, one.device), home.shape, home.dtype)
            self.homes[one] = home
            self.values.setdefault(node, home)
        self.storages = [one.node.arg.storage for one in (*self.stand_ins.values(), self.key)]
        # Whose, or the number of an argument; and which of the results.
        self.grads: list[tuple[Tensor | int, int | None]] = []
        self.asked: dict[Tensor, Tensor | None] = {}  # whose gradient was asked for, and that
        self.sinks: list[Node] = []  # of the results, then of what was assigned
        self.inputs: dict[Buffer, int] = {}  # of the sinks, and their numbers

    def run(self, function: Callable[..., Any], arguments: Any) -> list[Tensor]:
        """Trace; returns the tensors that have no memory yet and need it, or nothing."""
        args, kwargs = map_tree(lambda one: self.stand_ins.get(id(one), one), arguments, object)
        before: dict[Tensor, Before] = {}
        nodes = {one.node for one in (*self.stand_ins.values(), self.key)}
        SESSION.traced.update(nodes)
        with during(changed, before):
            try:
                with during(tracers, nodes), random.using(self.key):
                    result = function(*args, **kwargs)
                known = {one: before[one] for one in self.homes if one in before}
                return self._gather(result, known)
            finally:
                for one, state in before.items():
                    state.restore(one)

    def _gather(self, result: Any, before: dict[Tensor, Before]) -> list[Tensor]:
        places: dict[Tensor, int] = {}
        self.result = map_tree(lambda one: _Place(places.setdefault(one, len(places))), result)
        numbers = {one: number for number, one in enumerate(self.stand_ins.values())}
        for one, old in before.items():
            if not (old.forgets or one in numbers):
                self.asked[one] = old.grad
            if (grad := one._grad) is not old.grad or old.forgets:
                place = None if grad is None else places.setdefault(grad, len(places))
                self.grads.append((numbers.get(one, one), place))
        written = [
            x for x, old in before.items() if (x.node, x.assigned) != (old.node, old.assigned)
        ]
        nodes = [one.node for one in (*places, *written)]
        missing = [one for one in written if self.homes[one] is None]
        computed = memory.pending(nodes)
        self.read = {one for one, place in computed.items() if place or one in self.values}
        kept = {*self.asked.values()}  # which may be numbers, that later calls find others for
        homeless = (one for one, home in self.homes.items() if home is None)
        missing += [one for one in homeless if computed.get(one.node, one) is None
                    and (one in kept or not memory.is_everywhere(one.node))]  # fmt: skip
        if not missing:
            targets = [memory.numbered(self.homes[one], self.inputs) for one in written]
            values = memory.cut(nodes, self.inputs, homes=self.values)
            new = zip(targets, values[len(places) :], strict=True)
            self.sinks = [*values[: len(places)], *(Node(Op.ASSIGN, pair) for pair in new)]
        return missing


def _now(held: Sequence[tuple[Tensor, bool]]) -> list[Any]:
    """Tensors, or their gradients where those are meant."""
    return [one._grad if is_grad else one for one, is_grad in held]


class _Program:
    """What one trace compiled to, and where its inputs come from."""

    def __init__(self, trace: _Trace, options: Options) -> None:
        from lamina import pipeline  # the compiler loads when it is first needed

        sinks = list(dict.fromkeys(trace.sinks))
        devices = dict.fromkeys(one.device for one in trace.inputs) or {trace.key.device: None}
        if len(devices) > 1:
            raise JitError(f"jit: tensors on {' and '.join(devices)} in one program; move one")
        (self.device,) = devices
        self.options = replace(options, device=self.device)
        program, self.numbers = memory.lifted(tuple(sinks), len(trace.inputs), self.device)
        self.compiled = pipeline.compile_sinks(program, self.options)
        self.inputs = [*trace.inputs, *self.numbers]
        self.run = pipeline.run_compiled
        self.result, self.grads = trace.result, trace.grads
        results = [one for one in trace.sinks if one.op is not Op.ASSIGN]
        self.results = [sinks.index(one) for one in results]
        self.likes = [(one.shape, one.dtype, self.device) for one in dict.fromkeys(results)]
        numbers = trace.inputs
        owners: dict[Buffer, Tensor | None] = dict.fromkeys(trace.storages)
        # Each call may find another gradient: so the program knows whose it is.
        of = {old: (one, True) for one, old in trace.asked.items() if old is not None}
        self.asked = [(one, old is None) for one, old in trace.asked.items()]
        for one, own in trace.homes.items():
            home = own or memory.stored(one.node)
            if home is not None and home.arg.storage in numbers:
                owners.setdefault(home.arg.storage, one)
        # What is read may be one of several tensors, or be computed, until they change.
        count = Counter(trace.nodes.values())
        below = {one for node in toposort(trace.read) for one in node.src if one in count}
        unsure = below.union(one for one in trace.read if count[one] > 1 or one.op is not Op.BUFFER)
        same = {one: node for one, node in trace.nodes.items() if node in unsure}
        self.same, self.nodes = [of.get(one, (one, False)) for one in same], [*same.values()]
        self.draws = trace.storages[-1] in numbers
        held = [one for one in owners.values() if one is not None]
        self.states, self.kinds = [of.get(one, (one, False)) for one in held], [*map(_kind, held)]
        written = {one.src[0].arg.storage for one in sinks if one.op is Op.ASSIGN}
        # By number of argument, of the key and of state; and by number of input.
        self.writes: list[tuple[int, int]] = []
        self.reads: list[tuple[int, int]] = []
        for place, storage in enumerate(owners):
            if storage in numbers:
                number = numbers.pop(storage)
                (self.writes if number in written else self.reads).append((place, number))
        self.is_pure = not (self.states or self.writes or self.grads or self.same or self.asked)
        self.quick = _quick(self)

    def fits(self) -> bool:
        """May it run, or must the function be traced again?"""
        grads = all((one._grad is None) is none for one, none in self.asked)
        same = grads and [one.node for one in _now(self.same)] == self.nodes
        return same and all(map(eq, map(_kind, _now(self.states)), self.kinds))

    def call(self, tensors: Sequence[Tensor]) -> Any:
        inputs = self.inputs.copy()
        if self.draws or self.states:
            key: Any = random.next_key(self.device) if self.draws else None
            tensors = [*tensors, key, *_now(self.states)]
        for place, number in self.writes:
            inputs[number] = _own_memory(tensors[place])
        written = {inputs[number].pointer for _, number in self.writes} if self.writes else ()
        for place, number in self.reads:
            inputs[number] = buffer = memory.memory_of(tensors[place])
            if buffer.pointer in written:
                inputs[number] = memory.memory_of(tensors[place].clone())  # as it was before
        buffers = self.run(self.compiled, inputs, self.options)
        nodes = [Node.unique(one, *like) for one, like in zip(buffers, self.likes, strict=False)]
        values = [Tensor.of(nodes[number], self.device) for number in self.results]
        for one, which in self.grads:
            owner = tensors[one] if isinstance(one, int) else one
            owner.grad = None if which is None else values[which]
        if type(self.result) is _Place:
            return values[self.result]
        return map_tree(values.__getitem__, self.result, _Place)


def _quick(program: _Program) -> Callable[[Sequence[Tensor]], Tensor] | None:
    """`call` in few steps, which take as long as a short kernel, for a program that only returns
    one small tensor: the result goes over the last one, if nobody has that any more."""
    planned, options = program.compiled, program.options
    count, fixed = len(program.inputs), program.numbers
    only_reads = program.is_pure and len(program.reads) + len(fixed) == count
    watched = program.draws or options.debug or options.check
    if program.device != "cpu" or watched or not only_reads or type(program.result) is not _Place:
        return None
    ((shape, dtype, device),), arena = program.likes, planned.program.arena
    size, kernels = prod(shape) * dtype.itemsize, len(planned.program.chains)
    code, memory_of = cast("CpuProgram", planned.code), memory.memory_of
    places = [(place, number - count) for place, number in program.reads]
    kept: dict[int, list[Any]] = {}  # what no call has now: a result, its job, its scratch memory

    def call(tensors: Sequence[Tensor]) -> Tensor:
        own = kept.pop(0, None)
        if own is None:
            own = [None, code.job([scratch := Buffer(arena)] * (2 + len(places)) + fixed), scratch]
        if sys.getrefcount(own[0]) > 2:  # somebody has it besides the list and the counter
            own[0] = Buffer(size)
            own[1][-1 - count] = own[0].pointer
        result, job, _ = own
        for place, number in places:
            job[number] = memory_of(tensors[place]).pointer
        counter.kernels += kernels
        code.call(job)
        kept[0] = own
        return Tensor.of(Node.unique(result, shape, dtype, device), device)

    return call if size + arena <= 1 << 16 else None  # more bytes are not kept for the next call


def _own_memory(tensor: Tensor) -> Buffer:
    """The memory of `tensor`, to be overwritten: whoever else needs what is there has a copy."""
    buffer, held = memory.memory_of(tensor), memory.stored(tensor.node) is tensor.node
    # Its tensor and the counter have the node. A name would count, but not in every Python.
    if held and sys.getrefcount(tensor.node) <= 2 and not buffer.exported:
        return buffer
    return memory.memory_of(tensor.assign(tensor))


class _Place(int):
    """The number of a result, where the result itself will be."""
