"""Tracing: a function of tensors becomes one program, compiled once for each signature.

`jit(f)` runs `f` once with stand-ins for its tensors, which nothing can read, and compiles all
that it returns and all that it assigns (parameters, optimiser state, running statistics) into one
program. Later calls with arguments of the same shapes, dtypes and devices lay addresses into that
program's table and make a single foreign call; no Python of `f` runs again.

What is not a tensor is part of the signature, and whatever else `f` looks at (attributes, global
variables, the clock) is fixed when it is traced. Tensors that `f` finds elsewhere than among its
arguments are read anew on each call, as are their later assignments. Random draws take a fresh
key on each call.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from types import ModuleType
from typing import Any

from lamina import random
from lamina.errors import CompilerNotFoundError, JitError
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Op
from lamina.options import Options, current
from lamina.runtime.buffer import Buffer
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor
from lamina.tensor.differentiate import map_tree

__all__ = ["jit"]

_MOST_ATTEMPTS = 8
_HOLDERS = 3  # references to a node that nobody else sees: its tensor's, ours, the counter's


class jit:  # noqa: N801  a decorator, written as a function's name
    """`function`, compiled as one program for each signature of its arguments.

    Arguments and results are tensors, NumPy arrays (arguments only), hashable values, and dicts,
    lists and tuples of them. Results are tensors of their own, without history: take derivatives
    inside. An argument that is also captured is read as it was before the call. Raises JitError
    where `function` reads a traced value, or gets an argument that cannot be part of a signature.
    LAMINA_DEBUG=1 prints the reason of every compilation.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._programs: dict[Hashable, _Program] = {}
        self._last: dict[str, Hashable] = {}  # what each argument was when last compiled
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        return jit, (self.function,)  # programs belong to the tensors that they captured

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        options = current()
        found: dict[int, Tensor] = {}
        signature = _signature((args, kwargs), found)
        tensors = list(found.values())
        interprets = any(one.device == "interp" for one in tensors) or options.device == "interp"
        if interprets or memory.is_tracing() or memory.is_watched(tensors):
            return self.function(*args, **kwargs)  # an outer trace or derivative sees through it
        with self._lock:
            key = signature, options
            program = self._programs.get(key)
            try:
                if program is None or not program.fits():
                    self._explain(args, kwargs, options)
                    program = _compile(self.function, (args, kwargs), found, options)
                    self._programs[key] = program
            except CompilerNotFoundError:
                return self.function(*args, **kwargs)  # says why, or runs in the interpreter
            return program(tensors)

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
        return one.shape, one.dtype, one.device, one.requires_grad
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
    return type(value), value


class _Traced(Buffer):
    """The memory of a stand-in: there is none."""

    __slots__ = ()

    def __init__(self, nbytes: int, device: str) -> None:
        self.device, self.nbytes, self._block = device, nbytes, 0

    @property
    def pointer(self) -> int:  # type: ignore[override]
        raise memory.not_yet()


def _stand_in(like: Tensor) -> Tensor:
    storage = _Traced(like.nbytes, like.device)
    node = Node(Op.BUFFER, (), BufferRef(storage, like.shape, like.dtype, like.device))
    tensor = Tensor.of(node, like.device)
    tensor.requires_grad = like.requires_grad
    return tensor


class _Handle:
    """A tensor as it was before the trace."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.node, self.grad = tensor.node, tensor.grad
        self.assigned, self.target = tensor.assigned, tensor.target
        self.home = memory.stored(tensor.node)

    def separate(self, leaves: set[Node]) -> None:
        """Be an input of its own, unless that ends a history: tensors in one memory may part."""
        is_leaf = self.node.op is Op.DETACH or self.tensor.requires_grad
        below = toposort(() if is_leaf else [self.node])
        if self.home and leaves.isdisjoint(below):
            old = self.home.arg.storage
            buffer = Buffer.wrap(old.pointer, old.nbytes, old.device, old)
            self.tensor.node = self.home = memory.buffer_node(buffer, self.home)

    def restore(self) -> None:
        tensor = self.tensor
        tensor.node, tensor.grad = self.node, self.grad
        tensor.assigned, tensor.target = self.assigned, self.target

    def set_grad(self, grad: Tensor | None) -> None:
        """A derivative that the program reads stays the object that it reads."""
        if grad is not None and self.grad is not None:
            self.grad.rebind(grad)
            grad = self.grad
        self.tensor.grad = grad


def _compile(
    function: Callable[..., Any], arguments: Any, found: dict[int, Tensor], options: Options
) -> _Program:
    """Trace until everything that `function` captures or assigns has memory of its own."""
    memory.realize(*found.values(), *(one for one in memory.live_tensors() if one.assigned))
    device = next((one.device for one in found.values()), options.device)
    for _ in range(_MOST_ATTEMPTS):
        trace = _Trace(found, device)
        missing = trace.run(function, arguments)
        if not missing:
            return _Program(trace, options)
        memory.realize(*missing)
    raise JitError(f"jit: {function!r} leaves new unfinished tensors behind on every call")


class _Trace:
    """One run of a function on stand-ins: its results and its effects."""

    def __init__(self, found: dict[int, Tensor], device: str) -> None:
        self.captured = [_Handle(one) for one in memory.live_tensors()]
        self.stand_ins = {name: _stand_in(one) for name, one in found.items()}
        self.known = [*self.stand_ins.values(), *(one.tensor for one in self.captured)]
        self.key = _stand_in(random.key(0, device))
        self.storages = [one.node.arg.storage for one in (*self.stand_ins.values(), self.key)]
        self.result: Any = None
        self.grads: list[tuple[_Handle, int | None]] = []  # whose, and which of the results
        self.sinks: list[Node] = []  # of the results, then of what was assigned
        self.count = 0  # of results

    def run(self, function: Callable[..., Any], arguments: Any) -> list[Tensor]:
        """Trace; returns the tensors that have no memory yet and need it, or nothing."""
        args, kwargs = map_tree(lambda one: self.stand_ins.get(id(one), one), arguments, object)
        owners: dict[Node | None, _Handle] = {}
        leaves = {one.node for one in self.captured if one.tensor.requires_grad}
        try:
            for handle in self.captured:
                if owners.setdefault(handle.home, handle) is not handle:
                    handle.separate(leaves)
            before = [(one, one.node) for one in self.known]
            with memory.tracing([*self.stand_ins.values(), self.key]), random.using(self.key):
                result = function(*args, **kwargs)
            for one, node in before:
                if one.node is not node and not one.assigned:  # by an item assignment
                    new, one.node = Tensor.of(one.node, one.device), node
                    one.assign(new)
            return self._gather(result)
        finally:
            for handle in self.captured:
                handle.restore()

    def _gather(self, result: Any) -> list[Tensor]:
        places: dict[Tensor, int] = {}
        self.result = map_tree(lambda one: _Place(places.setdefault(one, len(places))), result)
        for handle in self.captured:
            grad = handle.tensor.grad
            if grad is not handle.grad:
                place = None if grad is None else places.setdefault(grad, len(places))
                self.grads.append((handle, place))
        written = [one for one in self.known if one.assigned]
        nodes = [one.node for one in (*places, *written)]
        missing = [one for one in written if one.target is None]
        computed = memory.pending(nodes)
        missing += [
            one.tensor for one in self.captured
            if one.node in computed and computed[one.node] is None and not _is_number(one.node)
        ]  # fmt: skip
        if not missing:
            targets = [None] * len(places) + [one.target for one in written]
            self.count = len(places)
            self.sinks = [
                value if target is None else Node(Op.ASSIGN, (target, value))
                for value, target in zip(memory.cut(nodes), targets, strict=True)
            ]
        return missing


class _State:
    """A tensor as an input of a program, which may write to its memory."""

    def __init__(self, tensor: Tensor, number: int, written: bool) -> None:
        self.tensor, self.number, self.written = tensor, number, written
        self.kind = tensor.shape, tensor.dtype, tensor.device
        self.node: Node | None = None

    def fits(self) -> bool:
        """Is it still what the program was compiled for?"""
        return (self.tensor.shape, self.tensor.dtype, self.tensor.device) == self.kind

    def _is_shared(self) -> bool:
        """May anything but the tensor itself look at this memory?"""
        holders = sys.getrefcount(self.node)
        return holders > _HOLDERS or memory.is_exported(self.buffer)

    def find(self) -> Buffer:
        """The memory; whoever else needs a value that will be lost gets a copy first."""
        if self.tensor.node is not self.node or (
            self._is_shared() if self.written else self.overwritten != memory.overwritten[0]
        ):
            self._note()
            is_own = memory.stored(self.tensor.node) is self.node
            if self.written and (not is_own or self._is_shared()):
                self.node = None
                self.tensor.assign(self.tensor)
                self._note()
        return self.buffer

    def _note(self) -> None:
        self.buffer = memory.memory_of(self.tensor)
        self.node = self.tensor.node
        self.overwritten = memory.overwritten[0]


class _Program:
    """What one trace compiled to, and where its inputs come from."""

    def __init__(self, trace: _Trace, options: Options) -> None:
        sinks = list(dict.fromkeys(trace.sinks))
        outputs, self.inputs = _pipeline().normalized(sinks)
        self.compiled = _pipeline().compile_outputs(outputs, options)
        self.options, self.device = options, trace.key.device
        self.result, self.grads = trace.result, trace.grads
        self.results = [
            (sinks.index(one), BufferRef(None, one.shape, one.dtype, self.device))
            for one in trace.sinks[: trace.count]
        ]
        written = {one.src[0].arg.storage for one in sinks if one.op is Op.ASSIGN}
        numbers = {storage: number for number, storage in enumerate(self.inputs)}
        self.arguments = [
            (place, numbers.pop(storage), storage in written)
            for place, storage in enumerate(trace.storages) if storage in numbers
        ]  # fmt: skip
        homes = [(one.tensor, one.home or memory.stored(one.node)) for one in trace.captured]
        self.states = [
            _State(tensor, numbers.pop(storage), storage in written)
            for tensor, home in homes
            if home is not None and (storage := home.arg.storage) in numbers
        ]
        self.states.sort(key=lambda one: not one.written)

    def fits(self) -> bool:
        """May it run, or must the function be traced again?"""
        grads = all((one.tensor.grad is None) is (one.grad is None) for one, _ in self.grads)
        return grads and all(one.fits() for one in self.states)

    def __call__(self, tensors: Sequence[Tensor]) -> Any:
        inputs = list(self.inputs)
        written: set[int] = set()  # the addresses
        found = list(self.states)  # those first that are written: others may have to move
        for place, number, changes in self.arguments:
            key = place == len(tensors)
            tensor = random.next_key(self.device) if key else tensors[place]
            found.insert(0 if changes else len(found), _State(tensor, number, changes))
        for state in found:
            buffer = state.find()
            if state.written:
                written.add(buffer.pointer)
            elif buffer.pointer in written:
                buffer = memory.memory_of(state.tensor.clone())  # it is read as it was
            inputs[state.number] = buffer
        run = _pipeline().run_compiled
        buffers = run(self.compiled, inputs, self.options, self.device)
        values = [
            Tensor.of(Node(Op.BUFFER, (), like._replace(storage=buffers[sink])), like.device)
            for sink, like in self.results
        ]
        for handle, which in self.grads:
            handle.set_grad(None if which is None else values[which])
        return map_tree(values.__getitem__, self.result, _Place)


class _Place(int):
    """The number of a result, where the result itself will be."""


def _is_number(node: Node) -> bool:
    return node.op is Op.CONST or (node.op is Op.EXPAND and node.src[0].op is Op.CONST)


def _pipeline() -> ModuleType:
    """The compiler, which loads when it is first needed."""
    import lamina.pipeline

    return lamina.pipeline
