"""From graphs to memory: which nodes have a buffer, running the rest, and writing in place.

A realised tensor keeps its graph node, so that it can still be differentiated; a weak table maps
the node to a BUFFER node. At execution the graph is cut at the nodes of that table.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from lamina.errors import GradientError
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import Buffer

if TYPE_CHECKING:
    from lamina.tensor.core import Tensor


class Leaf:
    """The storage of a BUFFER node whose content is still an expression.

    Equal expressions are one node, so two tensors of zeros would share their derivatives. A leaf
    of its own tells them apart; cutting replaces it by the expression, and nothing is stored.
    """

    __slots__ = ("node",)

    def __init__(self, node: Node) -> None:
        self.node = node


_realised: weakref.WeakKeyDictionary[Node, Node] = weakref.WeakKeyDictionary()
_overwritten: weakref.WeakSet[Node] = weakref.WeakSet()
_exported: weakref.WeakSet[Buffer] = weakref.WeakSet()
_memory: weakref.WeakKeyDictionary[Buffer, Buffer] = weakref.WeakKeyDictionary()
_live: weakref.WeakSet[Tensor] = weakref.WeakSet()


def register(tensor: Tensor) -> None:
    """Make `tensor` known to assignments, which must not change its value."""
    _live.add(tensor)


def live_tensors() -> list[Tensor]:
    """Every tensor that exists, the oldest first."""
    return sorted(_live, key=lambda tensor: tensor.number)


def leaf(node: Node, device: str) -> Node:
    """A leaf of its own identity with the value of `node`."""
    return Node(Op.BUFFER, (), BufferRef(Leaf(node), node.shape, node.dtype, device))


def buffer_node(buffer: Buffer, like: Node) -> Node:
    """A BUFFER node over `buffer` with the shape and dtype of `like`."""
    return Node(Op.BUFFER, (), BufferRef(buffer, like.shape, like.dtype, buffer.device))


def stored(node: Node) -> Node | None:
    """The BUFFER node that holds the value of `node`, or None when no memory does."""
    found = _realised.get(node)
    if found is not None:
        return found
    if node.op is not Op.BUFFER or isinstance(node.arg.storage, Leaf) or node in _overwritten:
        return None
    return node


def _operands(node: Node) -> tuple[Node, ...]:
    """What has to be computed before `node`; raises GradientError where that is lost."""
    if node.op is not Op.BUFFER:
        return node.src
    if node in _overwritten:
        raise GradientError(
            f"{node}: the value was overwritten by assign, and a derivative or a recomputation "
            "needs it; differentiate first, or keep a clone"
        )
    return (node.arg.storage.node,)


def share(node: Node, same: Node) -> None:
    """Note that `same` has the value of `node`, which may be computed already."""
    found = _realised.get(node)
    if found is not None:
        _realised[same] = found


def cut(sinks: Sequence[Node]) -> list[Node]:
    """`sinks` with every computed node replaced by its BUFFER."""
    done: dict[Node, Node] = {}
    stack = list(sinks)
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        found = stored(node)
        if found is not None:
            done[node] = found
            continue
        src = _operands(node)
        missing = [operand for operand in src if operand not in done]
        if missing:
            stack.extend(missing)
            continue
        new = tuple(done[operand] for operand in src)
        if node.op is Op.BUFFER:
            done[node] = new[0]
        else:
            done[node] = node if new == src else Node(node.op, new, node.arg)
    return [done[sink] for sink in sinks]


def realize(*tensors: Tensor) -> None:
    """Compute `tensors` and carry out their assignments, all in one program a device."""
    batch = {
        tensor: None
        for tensor in tensors
        if tensor.assigned or stored(tensor.node) is None
    }
    if not batch:
        return
    keep = _protect(batch)
    for device in dict.fromkeys(tensor.device for tensor in [*batch, *keep]):
        _run(
            [tensor for tensor in batch if tensor.device == device],
            [tensor for tensor in keep if tensor.device == device],
            device,
        )


def _protect(batch: dict[Tensor, None]) -> list[Tensor]:
    """Extend `batch` by every tensor whose value the batch's assignments would change.

    Returns the computed tensors that live in overwritten memory and must move out first.
    """
    everyone: list[Tensor] = []
    keep: dict[Tensor, None] = {}
    handled: set[Node] = set()
    while True:
        targets = _claim_targets(batch) - handled
        if not targets:
            return list(keep)
        handled |= targets
        everyone = everyone or live_tensors()
        reached: dict[Node, bool] = {}
        for tensor in everyone:
            if tensor in batch:
                continue
            if tensor.target in targets:
                tensor.target = None
            if not tensor.assigned and stored(tensor.node) in targets:
                keep[tensor] = None
            elif _reaches(tensor.node, targets, reached):
                batch[tensor] = None


def _claim_targets(batch: Iterable[Tensor]) -> set[Node]:
    """The buffers that `batch` overwrites; two tensors never write to one."""
    claimed: set[Node] = set()
    for tensor in batch:
        if tensor.target is None:
            continue
        if tensor.target in claimed or tensor.target.arg.storage in _exported:
            tensor.target = None
        else:
            claimed.add(tensor.target)
    return claimed


def _reaches(node: Node, targets: set[Node], reached: dict[Node, bool]) -> bool:
    """Whether computing `node` reads one of `targets`; `reached` remembers the answers."""
    stack = [node]
    while stack:
        top = stack[-1]
        if top in reached:
            stack.pop()
            continue
        found = stored(top)
        if found is not None or top in _overwritten:
            reached[top] = found in targets
            continue
        src = _operands(top)
        missing = [operand for operand in src if operand not in reached]
        if missing:
            stack.extend(missing)
            continue
        reached[top] = any(reached[operand] for operand in src)
    return reached[node]


def _run(batch: list[Tensor], keep: list[Tensor], device: str) -> None:
    """Execute one device's share and file the results."""
    moved = list(dict.fromkeys(_home(tensor) for tensor in keep))
    targets = {tensor.target for tensor in batch}
    values = cut([tensor.node for tensor in batch])
    sinks = [Node(Op.CONTIGUOUS, (home,)) for home in moved]
    for tensor, value in zip(batch, values, strict=True):
        plain = _plain(value)
        if tensor.target is not None:
            sinks.append(Node(Op.ASSIGN, (tensor.target, value)))
        elif tensor.assigned or plain is None or plain in targets:
            sinks.append(value)
    distinct = list(dict.fromkeys(sinks))
    results = dict(zip(distinct, _execute(distinct, device), strict=True)) if distinct else {}
    copies = {home: buffer_node(results[Node(Op.CONTIGUOUS, (home,))], home) for home in moved}
    _vacate(copies, {target for target in targets if target is not None})
    for tensor, value in zip(batch, values, strict=True):
        _file(tensor, value, results)


def _execute(sinks: list[Node], device: str) -> list[Buffer]:
    from lamina.pipeline import execute  # the compiler loads when it is first needed

    return execute(sinks, device)


def _home(tensor: Tensor) -> Node:
    home = stored(tensor.node)
    assert home is not None
    return home


def _plain(value: Node) -> Node | None:
    """The BUFFER that already holds `value`, when nothing has to be computed."""
    while value.op is Op.DETACH:
        value = value.src[0]
    return value if value.op is Op.BUFFER else None


def _vacate(copies: dict[Node, Node], targets: set[Node]) -> None:
    """What was stored in `targets` is found in its copy from now on, or is not stored."""
    for node, place in list(_realised.items()) if targets else ():
        if place in copies:
            _realised[node] = copies[place]
        elif place in targets:
            del _realised[node]
    _realised.update(copies)
    _overwritten.update(targets - copies.keys())


def _file(tensor: Tensor, value: Node, results: dict[Node, Buffer]) -> None:
    """Note where `tensor` is stored now; an assigned one becomes a new leaf without history."""
    if tensor.target is not None:
        sink = Node(Op.ASSIGN, (tensor.target, value))
        tensor.node = _renewed(tensor.target, results[sink])
    else:
        place = buffer_node(results[value], value) if value in results else _plain(value)
        assert place is not None
        if tensor.assigned:
            tensor.node = leaf(place, tensor.device)
        _realised[tensor.node] = _realised.get(place, place)
    tensor.assigned = False
    tensor.target = None


def _renewed(target: Node, buffer: Buffer) -> Node:
    """A new leaf over the memory of `target`, whose old content is gone."""
    root = _memory.get(buffer, buffer)
    fresh = Buffer.wrap(root.pointer, root.nbytes, root.device, owner=root)
    _memory[fresh] = root
    return buffer_node(fresh, target)


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
    buffer: Buffer = _home(tensor).arg.storage
    return buffer


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


def copy_to(tensor: Tensor, device: str) -> Node:
    """A computed node with the value of `tensor` on another device."""
    source = memory_of(tensor)
    buffer = Buffer(source.nbytes, device)
    buffer.view()[:] = source.view()
    node = Node(Op.COPY, (tensor.node,), device)
    _realised[node] = buffer_node(buffer, tensor.node)
    return node
