"""From graphs to memory: which nodes have a buffer, running the rest, and writing in place.

A realised tensor keeps its graph node, so that it can still be differentiated; a weak table maps
the node to a BUFFER node. At execution the graph is cut at the nodes of that table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, WeakValueDictionary, ref

from lamina.core.dtypes import DType
from lamina.core.shape import Shape, prod
from lamina.errors import GradientError, JitError, LaminaError
from lamina.graph.lift_numbers import hole as hole
from lamina.graph.lift_numbers import numbers_of, update_histories, with_inputs
from lamina.graph.split_complex import split_complex
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import ALIGNMENT, HOST_DEVICES, Buffer
from lamina.runtime.profile import counter

if TYPE_CHECKING:
    from lamina.frontend.tensor import Tensor

__all__ = ["realize"]


@dataclass(eq=False, slots=True)
class Leaf:
    """The storage of a BUFFER node whose content is still an expression. Equal expressions are one
    node, so two tensors of zeros would share their derivatives. A leaf of its own tells them apart;
    cutting replaces it by the expression, and nothing is stored."""

    node: Node


_BUFFER = Op.BUFFER  # members of an enumeration are slow to look up

# While this thread traces or differentiates a function, the stand-ins of the traced one: what
# depends on them has no value yet, and no assignment runs.
stand_ins: ContextVar[Set[Node] | None] = ContextVar("stand_ins", default=None)
traced = WeakSet[Node]()  # those of all threads; what a traced function left behind has no value
# The tensors that the traced function changed, with what they were before.
changed: ContextVar[dict[Tensor, tuple[Any, ...]] | None] = ContextVar("changed", default=None)


@contextmanager
def during(variable: ContextVar[Any], value: object) -> Iterator[None]:
    """Inside the ``with`` block `variable` has `value`."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def not_yet() -> JitError:
    """What to raise when a traced value is asked for."""
    return JitError(
        "a traced value was asked for; it exists only when the compiled program runs: return it "
        "from the function, or choose with where() in place of if"
    )


# Where the value of a node is; a BUFFER holds its own. Entries go with their node, which runs no
# Python.
_places: dict[ref[Node], Node] = {}
live: dict[ref[Tensor], None] = {}  # the oldest first; assignments must not change their values
# What the next run computes beforehand, in a program of its own; by id, because a weak set would
# compare tensors, which is elementwise.
first: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
# Held by the thread that chooses what to read and to overwrite, until that has run; by none in a
# child that begins.
_turn = RLock()
os.register_at_fork(
    before=_turn.acquire, after_in_parent=_turn.release, after_in_child=_turn.release
)
Nodes = Sequence[Node | None]
# Graphs over holes that were built before, and what is known of their numbers: see `called` and
# `lifted`.
_known: Callable[[Hashable], list[Any]] = lru_cache(2048)(lambda key: [])


def change(tensor: Tensor, forgets: bool = False) -> None:
    """Note what `tensor` is, before it changes, for a trace that this thread is in; and whether the
    first that this does is to forget its gradient, whatever that is."""
    if (states := changed.get()) is not None:
        now = tensor.node, tensor._grad, tensor.assigned, tensor.target
        states.setdefault(tensor, (*now, forgets))


def assigned() -> list[Tensor]:
    """The tensors whose assignments are this thread's to carry out. To other threads these are
    values like others: who assigns may be building on memory that would be overwritten."""
    return [one for one in live_tensors() if one.assigned and one.assigned == get_ident()]


def live_tensors() -> list[Tensor]:
    """Every tensor that exists, the oldest first."""
    return [one for entry in list(live) if (one := entry()) is not None]


def leaf(node: Node, device: str) -> Node:
    """A leaf of its own identity with the value of `node`."""
    return Node(Op.BUFFER, (), BufferRef(Leaf(node), node.shape, node.dtype, device))


def buffer_node(buffer: Buffer, shape: Shape, dtype: DType) -> Node:
    """A BUFFER node over `buffer`."""
    return Node(Op.BUFFER, (), BufferRef(buffer, shape, dtype, buffer.device))


def stored(node: Node) -> Node | None:
    """The BUFFER node that holds the value of `node`, or None when no memory does."""
    if node.op is _BUFFER and type(storage := node.arg.storage) not in (Leaf, int):
        return None if storage.overwritten else node
    return _places.get(ref(node))


def _place(node: Node, place: Node) -> None:
    _places[ref(node, _places.pop)] = place


def _operands(node: Node) -> tuple[Node, ...]:
    """What `node` is computed from; nothing for a BUFFER that was overwritten."""
    if node.op is not Op.BUFFER:
        return node.src
    return (node.arg.storage.node,) if isinstance(node.arg.storage, Leaf) else ()


def pending(sinks: Iterable[Node]) -> dict[Node, Node | None]:
    """What `sinks` have to be computed from, operands first, down to the nodes that a BUFFER
    holds; each with that BUFFER."""
    places: dict[Node, Node | None] = {}

    def below(node: Node) -> tuple[Node, ...]:
        places[node] = place = stored(node)
        return _operands(node) if place is None else ()

    return {node: places[node] for node in toposort(sinks, below=below)}


def numbered(place: Node, inputs: dict[Buffer, int]) -> Node:
    """The BUFFER node `place` with the number that `inputs` give its memory in place of storage,
    so that equal programs are one graph."""
    return hole(inputs.setdefault(place.arg.storage, len(inputs)), place, place.arg.device)


def called(key: Hashable, leaves: Sequence[Node], make: Callable[[], Nodes]) -> Nodes:
    """The graphs over holes that `make` returned when `key` was new, each with `leaves` as its
    operands: one node, whose content is built where it is needed."""
    known = _known(key)
    if not known:  # what reads memory of its own, which no number names, is not kept: a TypeError
        known[:] = [one and (one, [int(at.arg.storage) for at in _holes(one)]) for one in make()]
    return [one and Node(Op.CALL, tuple([leaves[i] for i in one[1]]), one[0]) for one in known]


def _holes(graph: Node) -> list[Node]:
    return [one for one in toposort([graph]) if one.op is _BUFFER]


def rebuilt(sinks: Sequence[Node], done: dict[Node, Node], opens: bool | None = True) -> list[Node]:
    """`sinks` with nodes replaced as `done` says, which all others are added to. `opens`: a CALL is
    replaced by its content. Unless it is None, what is computed is computed then as well."""
    for node in toposort(sinks, lambda one: one not in done):
        src = tuple([done[one] for one in node.src])
        if opens and node.op is Op.CALL:
            (done[node],) = rebuilt([node.arg], dict(zip(_holes(node.arg), src, strict=True)))
        else:
            done[node] = node if src == node.src else Node(node.op, src, node.arg)
        if opens is not None and ref(node) in _places:
            _place(done[node], _places[ref(node)])
    return [done[one] for one in sinks]


def over(sinks: Sequence[Node], leaves: list[Node], first: int = 0, device: str = "") -> list[Node]:
    """`sinks` with holes in place of `leaves`, numbered from `first` on."""
    holes = {one: hole(at, one, device) for at, one in enumerate(leaves, first)}
    return rebuilt(sinks, holes, None)


def moved(sinks: Sequence[Node], device: str) -> list[Node]:
    """`sinks` over holes of the same numbers on another device."""
    holes = {
        node: hole(node.arg.storage, node, device)
        for node in toposort(sinks)
        if node.op is _BUFFER
    }
    return rebuilt(sinks, dict(holes), None)


@lru_cache(256)
def _opened(sinks: tuple[Node, ...]) -> list[Node]:
    """What is cut, which has no memory, with the content of each CALL, and without the DETACH of
    that: whether a step was built before makes no other program."""
    done: dict[Node, Node] = {}
    opened = rebuilt(sinks, {})
    for node in toposort(opened):
        src = tuple([done[one] for one in node.src])
        if node.op is Op.DETACH:
            (done[node],) = src
        else:
            done[node] = node if src == node.src else Node(node.op, src, node.arg)
    return [done[one] for one in opened]


def stretch(node: Node) -> Node | None:
    """A BUFFER of its own for a part of what another one holds, if it is one stretch of memory."""
    place = stored(node.src[0]) if node.op is Op.SHRINK and 0 not in node.shape else None
    if place is None:
        return None
    first, step, whole = 0, place.dtype.itemsize, True
    for size, one in zip(node.src[0].shape[::-1], node.arg[::-1], strict=True):
        if len(one) > 1 and not (whole and one.step == 1):
            return None
        whole, first, step = whole and len(one) == size, first + one.start * step, step * size
    held, count = place.arg.storage, prod(node.shape)
    if first % ALIGNMENT and held.device not in HOST_DEVICES:  # which can read it anywhere
        return None
    part = Buffer.wrap(held.pointer + first, count * place.dtype.itemsize, held.device, held)
    return buffer_node(part, (count,), place.dtype)


def cut(
    sinks: Sequence[Node], inputs: dict[Buffer, int], written: Container[Node] | None = None,
    homes: dict[Node, Node] | None = None,
) -> list[Node]:  # fmt: skip
    """`sinks` with every computed node replaced by its BUFFER, `numbered`, and no DETACH; raises
    GradientError where the value of a BUFFER is lost. Of others than those `written`, if given, a
    `stretch` is an input as well: then no program knows where it begins. `homes`: other BUFFERs."""
    done: dict[Node, Node] = {}
    for node, place in pending(sinks).items():
        if place is not None:
            done[node] = numbered((homes or {}).get(node) or place, inputs)
        elif written is not None and (part := stretch(node)) and stored(node.src[0]) not in written:
            done[node] = Node(Op.RESHAPE, (numbered(part, inputs),), node.shape)
        elif node.op not in (_BUFFER, Op.DETACH):
            new = tuple([done[one] for one in node.src])
            done[node] = node if new == node.src else Node(node.op, new, node.arg)
        elif below := _operands(node):
            done[node] = done[below[0]]
        else:
            raise GradientError(
                f"{node}: the value was overwritten by assign, and a derivative or a "
                "recomputation needs it; differentiate first, or keep a clone"
            )
    return _opened(tuple([done[sink] for sink in sinks]))


@lru_cache(256)
def lifted(sinks: tuple[Node, ...], first: int, device: str) -> tuple[tuple[Node, ...], list[Any]]:
    """`sinks` without complex numbers; and inputs of theirs, the `first` of which is told, in place
    of the numbers by which alone they differ from earlier ones: one program serves all of those."""
    if device == "interp":
        return sinks, []
    sinks = split_complex(sinks)
    numbers = numbers_of(sinks)
    apart = {number: at for at, number in enumerate(numbers, first)}
    known = _known((first, *with_inputs(sinks, apart, device)))
    known[:] = seen = update_histories(known, numbers)
    inputs: dict[int, Node] = {}  # values, each by the place of the first number that has it
    for number, history in zip(numbers, seen, strict=True):
        if history.value is None:
            inputs[history.twin] = number.value
    places = {twin: at for at, twin in enumerate(inputs, first)}
    changed = {number: places[history.twin]
               for number, history in zip(numbers, seen, strict=True)
               if history.value is None}  # fmt: skip
    held = [upload(value.arg.value, value.dtype, device) for value in inputs.values()]
    return tuple(with_inputs(sinks, changed, device)), [one.arg.storage for one in held]


def realize(*tensors: Tensor) -> None:
    """Compute `tensors` and carry out their assignments, all in one program a device."""
    while first:
        realize(*[one for key in list(first) if (one := first.pop(key, None)) is not None])
    own = get_ident()
    with _turn:
        batch = {one: None for one in tensors if one.assigned == own or stored(one.node) is None}
        if batch and (own_traced := stand_ins.get()):  # what does not depend on these
            written = {
                one.target for one in live_tensors() if one.assigned and one.target is not None
            }
            readers = _readers(batch, written.union(own_traced))
            batch = {one: None for one in batch if not (one.assigned or one.node in readers)}
        if not batch:
            return
        _protect(batch)
        for device in dict.fromkeys(tensor.device for tensor in batch):
            _run([tensor for tensor in batch if tensor.device == device], device)


def _protect(batch: dict[Tensor, None]) -> None:
    """Extend `batch` by every tensor whose value the batch's assignments would change."""
    everyone, own = live_tensors() if any(map(_target, batch)) else [], get_ident()
    places = {one: stored(one.node) for one in everyone}
    held = {one.target or place for one, place in places.items() if one.assigned != own}
    handled: set[Node | None] = {None}  # what is in other memory stays
    while targets := _claim_targets(batch, held) - handled:
        handled |= targets
        suspects = (one for one in everyone if one.target or places[one] in handled)
        others = [one for one in suspects if one not in batch]
        readers = _readers(others, targets).difference(_readers(others if traced else (), traced))
        for tensor in others:
            if tensor.target in targets:
                tensor.target = None
            if tensor.node in readers:
                batch[tensor] = None


def _readers(tensors: Iterable[Tensor], targets: Set[Any]) -> set[Node]:
    """What `tensors` are computed from that is in the BUFFER nodes `targets` or reads them."""
    readers: set[Node] = set()
    for node, place in pending(tensor.node for tensor in tensors).items():
        if place in targets or (place is None and not readers.isdisjoint(_operands(node))):
            readers.add(node)
    return readers


def _claim_targets(batch: Iterable[Tensor], held: Set[Node | None]) -> set[Node]:
    """The buffers that `batch` overwrites: of those that hold the value of another tensor, or are
    another's to write, none."""
    claimed: set[Node] = set()
    for tensor in batch:
        target = _target(tensor)
        if target and (target in claimed or target in held or target.arg.storage.exported):
            tensor.target = None
        elif target:
            claimed.add(target)
    return claimed


def _run(batch: list[Tensor], device: str) -> None:
    """Execute one device's share and note where the results are."""
    from lamina.pipeline import execute  # the compiler loads when it is first needed

    inputs: dict[Buffer, int] = {}
    written = {place: one for one in batch if (place := _target(one))}
    targets = {place: numbered(place, inputs) for place in written}
    nodes, sinks, own = [one.node for one in batch], list[Node | None](), get_ident()
    for tensor, value in zip(batch, cut(nodes, inputs, targets), strict=True):
        is_there = value.op is _BUFFER and value not in targets.values() and tensor.assigned != own
        kept, place = None if is_there else value, _target(tensor)
        sinks.append(Node(Op.ASSIGN, (targets[place], value)) if place else kept)
    distinct = list(dict.fromkeys(filter(None, sinks)))
    program, held = lifted(tuple(distinct), len(inputs), device)
    fresh: list[tuple[Buffer, Tensor, Node]] = []  # new leaves over the same memory
    for place, tensor in written.items():
        old: Buffer = place.arg.storage
        owner = old if old.owner is None else old.owner
        same = Buffer.wrap(old.pointer, old.nbytes, old.device, owner)
        fresh.append((old, tensor, buffer_node(same, tensor.shape, tensor.dtype)))
    lost = [one for one in list(_places) if _places.get(one) in targets] if targets else []
    ran, buffers = counter.kernels, list[Buffer]()
    try:
        buffers = execute(program, [*inputs, *held], device) if program else []
    finally:  # what a handler of signals raises may come after the program wrote
        if buffers or (counter.kernels > ran and not isinstance(sys.exception(), LaminaError)):
            for old, tensor, new in fresh:  # without a call, in which another signal may come
                old.overwritten, tensor.node, tensor.assigned, tensor.target = True, new, 0, None
            while lost:  # what was there is stored nowhere; no reference stays to outlive it
                _places.pop(lost.pop(), None)
    results = dict(zip(distinct, buffers, strict=True))
    for tensor, node, sink in zip(batch, nodes, sinks, strict=True):
        if sink is None:  # below nothing but DETACH
            _place(node, *filter(None, pending([node]).values()))
        elif sink.op is not Op.ASSIGN:
            _file(tensor, node, results[sink])


def _target(tensor: Tensor) -> Node | None:
    """The BUFFER that this thread is to write the new value of `tensor` to."""
    return tensor.target if tensor.assigned == get_ident() else None


def is_everywhere(node: Node) -> bool:
    """Is `node` made of constants alone? Then it is one node on every device."""
    first = node
    while first.src:
        first = first.src[0]
    return first.op is not Op.BUFFER and all(one.op is not Op.BUFFER for one in toposort([node]))


def _file(tensor: Tensor, node: Node, buffer: Buffer) -> None:
    """Note where the value `node` of `tensor` is stored now; what this thread assigned becomes a
    new leaf without history."""
    place, mine = buffer_node(buffer, node.shape, node.dtype), tensor.assigned == get_ident()
    if tensor.node is node and (mine or is_everywhere(node)):
        node = tensor.node = leaf(place, tensor.device)
    if mine:
        tensor.assigned, tensor.target = 0, None
    _place(node, place)


def upload(array: Any, dtype: Any, device: str) -> Node:
    """A BUFFER node with a copy of the content of a NumPy array, or with a number."""
    import numpy as np

    array = np.asarray(array, dtype.numpy)
    buffer = Buffer.staging(array.size * dtype.itemsize, device)
    np.frombuffer(buffer.view(), dtype.numpy)[:] = array.reshape(-1)
    return buffer_node(buffer.to(device), array.shape, dtype)


def memory_of(tensor: Tensor) -> Buffer:
    """The buffer that holds `tensor`, computed when necessary."""
    asked: Node | None = None
    while (place := None if tensor.assigned == get_ident() else stored(tensor.node)) is None:
        if tensor.node is asked:  # and no other thread or handler of signals assigned meanwhile
            raise not_yet()
        asked = tensor.node
        realize(tensor)
    buffer: Buffer = place.arg.storage
    return buffer


def download(tensor: Tensor) -> Any:
    """A NumPy view of the memory of `tensor`, or of a copy where the host cannot see it."""
    import numpy as np

    view = memory_of(tensor).on_host().view()
    return np.frombuffer(view, tensor.dtype.numpy).reshape(tensor.shape)


def native(tensor: Tensor) -> Any:
    """The values in a dtype of NumPy's own: small floats as float32."""
    array = download(tensor)
    return array.astype("float32") if tensor.dtype.is_small else array


def copy_to(tensor: Tensor, device: str) -> Node:
    """A computed node with the value of `tensor` on another device."""
    node = Node(Op.COPY, (tensor.node,), device)
    _place(node, buffer_node(memory_of(tensor).to(device), tensor.shape, tensor.dtype))
    return node
