"""From graphs to memory: which nodes have a buffer, running the rest, and writing in place.

A realised tensor keeps its graph node, so that it can still be differentiated; a weak table maps
the node to a BUFFER node. At execution the graph is cut at the nodes of that table.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamina.errors import GradientError, JitError
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import Buffer

if TYPE_CHECKING:
    from lamina.tensor.core import Tensor


@dataclass(eq=False, slots=True)
class Leaf:
    """The storage of a BUFFER node whose content is still an expression. Equal expressions are one
    node, so two tensors of zeros would share their derivatives. A leaf of its own tells them apart;
    cutting replaces it by the expression, and nothing is stored."""

    node: Node
    watched: bool = False  # a derivative by it will be taken


class _Tracing(threading.local):
    """The stand-ins of the function that this thread traces, or None."""

    stand_ins: frozenset[Node] | None = None


_tracing = _Tracing()


def is_tracing() -> bool:
    """Whether a function is being traced, so that nothing it computes has a value yet."""
    return _tracing.stand_ins is not None


@contextlib.contextmanager
def tracing(stand_ins: Iterable[Tensor]) -> Iterator[None]:
    """Inside the ``with`` block nothing runs that depends on `stand_ins`, and no assignment."""
    _tracing.stand_ins = frozenset(one.node for one in stand_ins)
    try:
        yield
    finally:
        _tracing.stand_ins = None


def not_yet() -> JitError:
    """What to raise when a traced value is asked for."""
    return JitError(
        "a traced value was asked for; it exists only when the compiled program runs: return it "
        "from the function, or choose with where() in place of if"
    )


# Where the value of a node is, None for a BUFFER that was overwritten. A BUFFER that is not in
# the table holds its own value.
_places: weakref.WeakKeyDictionary[Node, Node | None] = weakref.WeakKeyDictionary()
overwritten = [0]  # buffers so far, by `realize`: what was found in memory may have moved since
_exported: weakref.WeakSet[Buffer] = weakref.WeakSet()
live: weakref.WeakSet[Tensor] = weakref.WeakSet()  # assignments must not change their values


def live_tensors() -> list[Tensor]:
    """Every tensor that exists, the oldest first."""
    return sorted(live, key=lambda tensor: tensor.number)


def leaf(node: Node, device: str, watched: bool = False) -> Node:
    """A leaf of its own identity with the value of `node`."""
    return Node(Op.BUFFER, (), BufferRef(Leaf(node, watched), node.shape, node.dtype, device))


def is_watched(tensors: Iterable[Tensor]) -> bool:
    """Whether `tensors` are computed from leaves by which a derivative will be taken."""
    waiting = pending(one.node for one in tensors)
    leaves = (one.arg.storage for one, place in waiting.items()
              if place is None and one.op is Op.BUFFER)  # fmt: skip
    return any(isinstance(one, Leaf) and one.watched for one in leaves)


def buffer_node(buffer: Buffer, like: Node) -> Node:
    """A BUFFER node over `buffer` with the shape and dtype of `like`."""
    return Node(Op.BUFFER, (), BufferRef(buffer, like.shape, like.dtype, buffer.device))


def stored(node: Node) -> Node | None:
    """The BUFFER node that holds the value of `node`, or None when no memory does."""
    holds = node.op is Op.BUFFER and not isinstance(node.arg.storage, Leaf)
    return _places.get(node, node if holds else None)


def share(node: Node, same: Node) -> None:
    """Note that `same` has the value of `node`, which may be computed already."""
    if node in _places:
        _places[same] = _places[node]


def _operands(node: Node) -> tuple[Node, ...]:
    """What `node` is computed from; nothing for a BUFFER that was overwritten."""
    if node.op is not Op.BUFFER:
        return node.src
    return (node.arg.storage.node,) if isinstance(node.arg.storage, Leaf) else ()


def pending(sinks: Iterable[Node]) -> dict[Node, Node | None]:
    """What `sinks` have to be computed from, operands first, down to the nodes that a BUFFER
    holds; each with that BUFFER."""
    order: dict[Node, Node | None] = {}
    seen: set[Node] = set()
    stack: list[Any] = list(sinks)[::-1]
    while stack:
        node = stack.pop()
        if node is None:  # the operands of what lies below are done
            order[stack.pop()] = None
        elif node not in seen:
            seen.add(node)
            place = stored(node)
            if place is None:
                stack += (node, None, *_operands(node)[::-1])
            else:
                order[node] = place
    return order


def cut(sinks: Sequence[Node]) -> list[Node]:
    """`sinks` with every computed node replaced by its BUFFER, and no DETACH; raises
    GradientError where the value of a BUFFER is lost."""
    done: dict[Node, Node] = {}
    for node, place in pending(sinks).items():
        old = _operands(node)
        if place is not None:
            done[node] = place
        elif not old and node.op is Op.BUFFER:
            raise GradientError(
                f"{node}: the value was overwritten by assign, and a derivative or a "
                "recomputation needs it; differentiate first, or keep a clone"
            )
        elif node.op in (Op.BUFFER, Op.DETACH):
            done[node] = done[old[0]]
        else:
            new = tuple(done[operand] for operand in old)
            done[node] = node if new == old else Node(node.op, new, node.arg)
    return [done[sink] for sink in sinks]


def realize(*tensors: Tensor) -> None:
    """Compute `tensors` and carry out their assignments, all in one program a device."""
    batch = {tensor: None for tensor in tensors if tensor.assigned or stored(tensor.node) is None}
    if batch and is_tracing():
        batch = _computable(batch)
    if not batch:
        return
    keep = _protect(batch)
    for device in dict.fromkeys([one.device for one in batch] + [one.arg.device for one in keep]):
        here = [tensor for tensor in batch if tensor.device == device]
        _run(here, [home for home in keep if home.arg.device == device], device)


def _protect(batch: dict[Tensor, None]) -> list[Node]:
    """Extend `batch` by every tensor whose value the batch's assignments would change; returns
    the overwritten BUFFER nodes that other tensors live in and that must be copied first."""
    everyone: list[Tensor] = []
    keep: dict[Node, None] = {}
    handled: set[Node] = set()
    while targets := _claim_targets(batch) - handled:
        handled |= targets
        everyone = everyone or live_tensors()
        others = [tensor for tensor in everyone if tensor not in batch]
        readers = _readers(others, targets)
        for tensor in others:
            if tensor.target in targets:
                tensor.target = None
            place = stored(tensor.node)
            if not tensor.assigned and place in targets:
                keep[place] = None
            elif tensor.node in readers:
                batch[tensor] = None
    return list(keep)


def _readers(tensors: Iterable[Tensor], targets: Set[Node | None]) -> set[Node]:
    """What `tensors` are computed from that is in the BUFFER nodes `targets` or reads them."""
    readers: set[Node] = set()
    for node, place in pending(tensor.node for tensor in tensors).items():
        if place in targets or (place is None and not readers.isdisjoint(_operands(node))):
            readers.add(node)
    return readers


def _computable(batch: dict[Tensor, None]) -> dict[Tensor, None]:
    """Those of `batch` that do not depend on what is being traced."""
    written = {one.target for one in live if one.assigned and one.target is not None}
    readers = _readers(batch, written.union(_tracing.stand_ins or ()))
    return {one: None for one in batch if not (one.assigned or one.node in readers)}


def _claim_targets(batch: Iterable[Tensor]) -> set[Node]:
    """The buffers that `batch` overwrites; two tensors never write to one."""
    claimed: set[Node] = set()
    for tensor in batch:
        target = tensor.target
        if target in claimed or (target and target.arg.storage in _exported):
            tensor.target = None
        elif target:
            claimed.add(target)
    return claimed


def _run(batch: list[Tensor], keep: list[Node], device: str) -> None:
    """Execute one device's share and note where the results are."""
    from lamina.pipeline import execute  # the compiler loads when it is first needed

    targets = {tensor.target for tensor in batch if tensor.target is not None}
    values = cut([tensor.node for tensor in batch])
    copies = {home: Node(Op.CONTIGUOUS, (home,)) for home in keep}
    sinks = [_sink(*pair, targets) for pair in zip(batch, values, strict=True)]
    distinct = list(dict.fromkeys([*copies.values(), *filter(None, sinks)]))
    results = dict(zip(distinct, execute(distinct, device), strict=True)) if distinct else {}
    moved = {home: buffer_node(results[copy], home) for home, copy in copies.items()}
    _vacate(targets, moved)
    for tensor, value, sink in zip(batch, values, sinks, strict=True):
        _file(tensor, value, None if sink is None else results[sink])


def _sink(tensor: Tensor, value: Node, targets: set[Node]) -> Node | None:
    """What to execute for `tensor`; None when a BUFFER that stays already holds the value."""
    if tensor.target is not None:
        return Node(Op.ASSIGN, (tensor.target, value))
    stays = value.op is Op.BUFFER and value not in targets and not tensor.assigned
    return None if stays else value


def _vacate(targets: set[Node], moved: dict[Node, Node]) -> None:
    """What was stored in `targets` is found in its copy from now on, or is not stored."""
    for node, place in list(_places.items()) if targets else ():
        if place in moved:
            _places[node] = moved[place]
        elif place in targets:
            del _places[node]
    overwritten[0] += len(targets)
    for target in targets:
        _places[target] = moved.get(target)


def _file(tensor: Tensor, value: Node, buffer: Buffer | None) -> None:
    """Note where `tensor` is stored now; an assigned one becomes a new leaf without history."""
    if buffer is None:
        _places[tensor.node] = value
    elif tensor.target is not None:
        # A new leaf over the same memory, whose old content is gone.
        owner = buffer if buffer.owner is None else buffer.owner
        fresh = Buffer.wrap(buffer.pointer, buffer.nbytes, buffer.device, owner)
        tensor.node = buffer_node(fresh, tensor.target)
    else:
        place = buffer_node(buffer, value)
        if tensor.assigned:
            tensor.node = leaf(place, tensor.device)
        _places[tensor.node] = place
    tensor.assigned = False
    tensor.target = None


def upload(array: Any, dtype: Any, device: str) -> Node:
    """A BUFFER node with a copy of the content of a NumPy array."""
    import numpy as np

    source = np.asarray(array)
    buffer = Buffer(source.size * dtype.itemsize, device)
    np.frombuffer(buffer.view(), dtype.numpy)[:] = source.reshape(-1)
    return Node(Op.BUFFER, (), BufferRef(buffer, tuple(source.shape), dtype, device))


def memory_of(tensor: Tensor) -> Buffer:
    """The buffer that holds `tensor`, computed when necessary."""
    realize(tensor)
    place = None if tensor.assigned else stored(tensor.node)
    if place is None:
        raise not_yet()
    buffer: Buffer = place.arg.storage
    return buffer


def is_exported(buffer: Buffer) -> bool:
    """Whether a consumer outside lamina keeps this memory."""
    return buffer in _exported


def export(tensor: Tensor) -> Buffer:
    """Like `memory_of`, for a consumer that keeps the memory: it is never overwritten again."""
    buffer = memory_of(tensor)
    _exported.add(buffer)
    return buffer


def download(tensor: Tensor) -> Any:
    """A NumPy view of the memory of `tensor`."""
    import numpy as np

    view = memory_of(tensor).view()
    return np.frombuffer(view, tensor.dtype.numpy).reshape(tensor.shape)


def native(tensor: Tensor) -> Any:
    """The values in a dtype of NumPy's own: small floats as float32."""
    small = tensor.dtype.is_float and tensor.dtype.bits < 32
    return download(tensor).astype("float32") if small else download(tensor)


def copy_to(tensor: Tensor, device: str) -> Node:
    """A computed node with the value of `tensor` on another device."""
    source = memory_of(tensor)
    buffer = Buffer(source.nbytes, device)
    buffer.view()[:] = source.view()
    node = Node(Op.COPY, (tensor.node,), device)
    _places[node] = buffer_node(buffer, tensor.node)
    return node
