"""`jit`: a function of tensors becomes one program, compiled once for each signature.

`jit(f)` runs `f` once with tracers in place of its tensors, which nothing can read, and compiles
all that it returns and all that it assigns (parameters, optimiser state, running statistics) into
one program. Later calls with arguments of the same shapes, dtypes and devices lay addresses into
that program's table and make a single foreign call; no Python of `f` runs again.

What is not a tensor is part of the signature: another number traces `f` again, because `f` may
compute with it in Python, choose by it, or make a shape of it. All but the first two such traces
find their program compiled; a tensor of shape () in place of the number is traced once. Whatever
else `f` looks at (attributes, global variables, the clock) is fixed when it is traced. Tensors that
`f` finds elsewhere than among its arguments are read anew on each call, as are their later
assignments. Random draws take a fresh key on each call.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple
from weakref import ref

from lamina.core.options import Options, current
from lamina.errors import CompilerNotFoundError, DeviceError, JitError
from lamina.explain.origins import ORIGINS
from lamina.frontend import realize as memory
from lamina.frontend.constants import constants_of, kept_bytes, with_constants
from lamina.frontend.differentiate import map_tree
from lamina.frontend.lowered import Lowered, TensorSpec, lower_graph
from lamina.frontend.program import Program, kind_of
from lamina.frontend.quick import MISS, QuickCall
from lamina.frontend.session import tracers
from lamina.frontend.tensor import Tensor, check_device, leaf
from lamina.frontend.trace import placeholder, trace
from lamina.runtime.profile import runs

__all__ = ["jit"]

_MAX_PROGRAMS = 256  # of one function; each number that is passed makes another
_MAX_WAITING = 4  # of one signature
# Programs of one function that keep arrays of constants: the last 4, and more as long as what they
# keep has no more bytes, as of a small model with a program for each of many lengths.
_MAX_KEEPING, _MAX_KEPT = 4, 1 << 30


class _QuickEntry(NamedTuple):
    """A call that was found before. options: those it is for."""

    options: Options
    call: QuickCall


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
        self._programs: dict[Hashable, Program] = {}
        # By signature: programs for other gradients than the last call found, as of additions to
        # gradients that are there.
        self._waiting: dict[Hashable, list[Program]] = {}
        self._quick: dict[Hashable, _QuickEntry] = {}  # by the kinds of arguments
        self._latest: _QuickEntry | None = None  # the one that was called last
        self._keeping: list[Program] = []  # the one that was called last at the end
        self._last: dict[str, Hashable] = {}  # what each argument was when last compiled
        self._lock = threading.RLock()

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __reduce__(self) -> Any:
        return jit, (self.function,)  # programs belong to the tensors that they captured

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program that fits, found in the first of these ways: the quick call that was
        called last; another one, by the kinds of positional tensors (`_quick`); by the signature, a
        program that captured nothing, or whose captured values are as they were; one that is
        compiled or found anew (`_fitting`). While an outer function is traced, and in the
        interpreter, the function itself is called."""
        is_traced = tracers.get() is not None
        options = current()
        if not (is_traced or kwargs or runs):
            latest = self._latest
            if latest is not None and latest.options is options:
                result = latest.call(args)
                if result is not MISS:
                    return result
            if self._quick:
                result = self._call_quickly(args, options)
                if result is not MISS:
                    return result
        return self._call_by_signature(args, kwargs, options, is_traced=is_traced)

    def _call_by_signature(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options, *, is_traced: bool
    ) -> Any:
        """The result of a call that is not quick, or not yet."""
        by_id: dict[int, Tensor] = {}
        of_names = _signature(kwargs, by_id) if kwargs else ()
        key = options, of_names, *map(_signature, args, repeat(by_id))  # other calls wait for this
        tensors = list(by_id.values())
        program = None if is_traced else self._programs.get(key)
        result = MISS if program is None else self._call_known(program, tensors)
        is_compiled = program is not None or not (is_traced or _is_interpreted(tensors, options))
        if result is MISS and is_compiled:
            with suppress(CompilerNotFoundError), self._lock:  # the function itself says why
                known, program = program, self._fitting(key, (args, kwargs), by_id, options)
                result = program.call(tensors)
                self._keep(program)
                if program is known:
                    self._note_state(program)
        if result is MISS:
            return self._call_function((args, kwargs), by_id, is_traced=is_traced)
        if program is not None and not kwargs:
            self._note_quick(program, args, tensors, options)
        return result

    def _call_quickly(self, args: tuple[Any, ...], options: Options) -> Any:
        """The result of the quick call for arguments of their kinds, unless that was called last;
        MISS where there is none."""
        try:
            entry = self._quick[*map(kind_of, args),]
        except (AttributeError, LookupError, TypeError):
            return MISS
        if entry is self._latest or entry.options is not options:
            return MISS
        self._latest = entry
        return entry.call(args)

    def _call_known(self, program: Program, tensors: list[Tensor]) -> Any:
        """The result of a program that was called with such tensors before; MISS if it may have to
        be another one now."""
        if program.quick is not None and not runs:
            result = program.quick(tensors)
            if result is not MISS:
                return result
        if not program.is_pure:
            return MISS
        if program.has_quick_call:
            with self._lock:
                self._note_state(program)
                self._keep(program)
        return program.call(tensors)

    def _call_function(self, arguments: Any, by_id: dict[int, Tensor], *, is_traced: bool) -> Any:
        """What the function itself returns. `by_id`: the tensors in the place of arguments."""
        args, kwargs = map_tree(lambda one: by_id.get(id(one), one), arguments, object)
        result = self.function(*args, **kwargs)
        # An outer trace or derivative sees through it.
        handles: dict[Tensor, Tensor] = {}  # one for each tensor of the result
        for x in _tensors_in(result):
            handles[x] = Tensor.of(x.node, x.device) if is_traced else leaf(x.node, x.device)
        return map_tree(handles.__getitem__, result)

    def _note_state(self, program: Program) -> None:
        """Let later calls find out quickly that nothing changed that `program` captured. The first
        call leaves that to the second one, as it takes a millisecond."""
        noted = program.noted
        if program.quick is None or (noted is not None and not noted.is_unchanged()):
            program.note_state(self._lock)

    def _keep(self, program: Program) -> None:
        """Free what programs keep that were not called for long, other than `program`."""
        if not program.kept.nbytes:
            return
        self._keeping = [other for other in self._keeping if other is not program]
        self._keeping.append(program)
        while len(self._keeping) > _MAX_KEEPING and self._kept_bytes() > _MAX_KEPT:
            self._keeping.pop(0).forget_state()
            self._forget_quick()  # it holds what they kept

    def _kept_bytes(self) -> int:
        return kept_bytes(program.kept for program in self._keeping)

    def _note_quick(
        self, program: Program, args: Any, tensors: list[Tensor], options: Options
    ) -> None:
        """Let later calls with such arguments as `args` find the quick call of `program`, if these
        are its `tensors`, each once."""
        is_each_once = [*map(id, args)] == [*map(id, tensors)]
        if is_each_once and program.quick is not None:
            self._latest = self._quick[*map(kind_of, args),] = _QuickEntry(options, program.quick)

    def _forget_quick(self) -> None:
        self._quick.clear()
        self._latest = None

    def _fitting(
        self, key: Hashable, arguments: Any, tensors: dict[int, Tensor], options: Options
    ) -> Program:
        """The program of the signature `key`; a new one where what it captured has changed."""
        last = self._programs.get(key)
        if last is not None and last.fits():
            return last
        waiting = self._waiting.pop(key, [])
        program = next((one for one in waiting if one.fits()), None)
        is_new = program is None
        if program is None:
            args, kwargs = arguments
            self._explain(args, kwargs, options)
            self._drop_programs()
            # The trace holds nodes of tensors, and so has to be gone before the call.
            traced = trace(self.function, arguments, tensors, options.device)
            has_constants = last is None or (last.has_constants and not last.gave_up)
            program = Program(traced, options, has_constants=has_constants)
            del traced
        others = [last, *waiting] if last is not None else waiting
        # The rest fit no call any more.
        kept = [one for one in others if one is not program and not one.finds_gradients()]
        if kept:
            self._waiting[key] = kept[:_MAX_WAITING]
        self._programs[key] = program
        if is_new:
            self._forget_dropped()
        return program

    def _forget_dropped(self) -> None:
        """Keep nothing of programs that no call finds any more."""
        found = {*map(id, self._programs.values())}
        for programs in self._waiting.values():
            found.update(map(id, programs))
        self._keeping = [one for one in self._keeping if id(one) in found]
        self._forget_quick()  # it holds programs; the next calls fill it again

    def _drop_programs(self) -> None:
        """Drop the programs whose signature can come no more, and the oldest of too many."""
        held = list(self._programs)
        dropped = {*filter(_is_lost, held), *held[:-_MAX_PROGRAMS]}
        for old in dropped:
            del self._programs[old]
            self._waiting.pop(old, None)

    def lower(
        self, *args: Any, device: str | None = None, arch: str = "sm_90a", **kwargs: Any
    ) -> Lowered:
        """The function at every stage of the compiler; nothing is loaded or run.

        Arguments are as in a call, or a TensorSpec in place of a tensor on the default device.
        device: "cpu", "cuda:0" or "metal", which need not be there, nor be where the tensors are.
        arch: the architecture of the GPU that CUDA's programs are for.
        Raises UnknownDeviceError for a kind of device that lamina lacks, ArgumentError for the
        interpreter and for what is no architecture, and what a call would raise."""
        from lamina.compiled import runner  # it loads when it is first needed

        options = replace(current(), device=device or current().device, arch=arch)
        traced_on = _tracing_device()
        arguments = map_tree(lambda spec: placeholder(spec, traced_on), (args, kwargs), TensorSpec)
        tensors: dict[int, Tensor] = {}
        _signature(arguments, tensors)
        with ORIGINS.noted():
            traced = trace(self.function, arguments, tensors, traced_on)
        opened = memory.opened((*traced.sinks, *traced.lines))
        sinks = list(dict.fromkeys(opened[: len(traced.sinks)]))
        moved = memory.on_device([*sinks, *opened[len(traced.sinks) :]], options.device)
        if runner(options).keeps_constants:
            moved = with_constants(moved, constants_of(traced, traced.owners()))
        lines = dict(zip(moved[len(sinks) :], traced.lines.values(), strict=True))
        return lower_graph(moved[: len(sinks)], options, arch, lines)

    def _explain(self, args: Any, kwargs: Any, options: Options) -> None:
        """Say why a program is compiled."""
        parts = {f"argument {number}": value for number, value in enumerate(args)} | kwargs
        now = {name: _signature(value, {}) for name, value in parts.items()} | {"options": options}
        before, self._last = self._last, now
        if not options.debug:
            return
        changes = [
            f"{name} is {value}, was {before.get(name, 'absent')}"
            for name, value in now.items() if before.get(name) != value
        ]  # fmt: skip
        reason = "; ".join(changes) or "another captured tensor, or one argument given twice"
        name = getattr(self.function, "__name__", "function")
        print(f"jit {name}: compiling: {reason if before else 'first call'}", file=sys.stderr)


def _tracing_device() -> str:
    """Where a function is traced that is only lowered: on the default device, as what it captures
    and makes lives there; on the CPU where that device is not there, so that no tensor can be."""
    try:
        return check_device(None)
    except DeviceError:
        return "cpu"


def _is_interpreted(tensors: list[Tensor], options: Options) -> bool:
    """Whether a call with these tensors is the reference interpreter's."""
    return "interp" in (options.device, *[tensor.device for tensor in tensors])


def _tensors_in(tree: Any) -> list[Tensor]:
    """The tensors in `tree`, in order."""
    tensors: list[Tensor] = []
    map_tree(tensors.append, tree)
    return tensors


def _signature(value: Any, tensors: dict[int, Tensor]) -> Hashable:
    """What a program depends on; the tensors in `value` are added to `tensors`, by identity."""
    if isinstance(value, Tensor) or hasattr(value, "__array__"):
        return _of_tensor(value, tensors)
    if isinstance(value, dict):
        return dict, tuple((key, _signature(part, tensors)) for key, part in value.items())
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_signature(part, tensors) for part in value)
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


def _of_tensor(value: Any, tensors: dict[int, Tensor]) -> Hashable:
    if id(value) in tensors:
        return "again", list(tensors).index(id(value))
    tensor = tensors[id(value)] = value if isinstance(value, Tensor) else Tensor(value)
    kind, gradient = kind_of(tensor), tensor.grad
    return kind if gradient is None else (kind, _signature(gradient, tensors))


def _is_lost(part: Hashable) -> bool:
    """Whether a signature has a part that no longer exists."""
    if isinstance(part, ref):
        return part() is None
    return isinstance(part, tuple) and any(map(_is_lost, part))
