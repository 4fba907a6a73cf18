"""The state of a process: its tensors, where their values are, and what it may build again.

`SESSION` is the one owner. What belongs to a node or to a memory is found through weak tables, so
that no operation looks at every tensor of the process:

    node          the BUFFER node that holds its value          `Session.stored`
    BUFFER node   the nodes whose value it holds                `Session.nodes_in`
    BUFFER node   the tensors whose value it holds              `Session.tensors_in`
    leaf          the tensors that collect its derivative       `Session.leaves_of`

A tensor that is new, or whose node changed, is *unsettled*. It is filed in these tables when
somebody asks them the next time, once; only those whose value is not in memory stay unsettled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary, ref

from lamina.core.recent import Recent
from lamina.core.seeds import SEEDS
from lamina.errors import user_line
from lamina.ir.node import Node
from lamina.ir.ops import Op

if TYPE_CHECKING:
    from lamina.frontend.tensor import Tensor

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_BUFFER = Op.BUFFER  # members of an enumeration are slow to look up


@dataclass(eq=False, slots=True)
class Leaf:
    """The storage of a BUFFER node whose content is still an expression. Equal expressions are one
    node, so two tensors of zeros would share their derivatives. A leaf of its own tells them apart;
    cutting replaces it by the expression, and nothing is stored."""

    node: Node


def content_of(node: Node) -> Node:
    """The expression that the leaf `node` stands for; any other node as it is."""
    is_leaf = node.op is _BUFFER and type(node.arg.storage) is Leaf
    return node.arg.storage.node if is_leaf else node


class WeakTable(dict[ref[Node], T]):
    """Values by node. An entry goes with its node, which runs no Python."""

    def put(self, node: Node, value: T) -> None:
        self[ref(node, self.pop)] = value

    def find(self, node: Node) -> T | None:
        return self.get(ref(node))

    def find_or(self, node: Node, make: Callable[[], T]) -> T:
        """The value of `node`, at first a new one."""
        value = self.get(ref(node))
        return self.setdefault(ref(node, self.pop), make()) if value is None else value


class Handles(set["ref[Tensor]"]):
    """Tensors, by their handles, which keep nobody alive. A tensor has one handle, so that a set
    never compares tensors, which is elementwise."""

    def file(self, handle: ref[Tensor]) -> None:
        self.add(handle)
        if len(self) % 16 == 0:  # forget those that are gone now and then
            self.difference_update([handle for handle in list(self) if handle() is None])

    def alive(self) -> list[Tensor]:
        return [tensor for handle in list(self) if (tensor := handle()) is not None]


@dataclass(frozen=True, slots=True)
class Before:
    """What a tensor was before a traced function changed it; `forgets`: the first change was to
    forget its gradient, whatever that was."""

    node: Node
    requires_grad: bool
    grad: Tensor | None
    assigned: int
    target: Node | None
    forgets: bool

    def differs_from(self, tensor: Tensor) -> bool:
        """Whether `tensor` has another value now, and not only a leaf of its own for it."""
        if tensor.assigned != self.assigned:
            return True
        return self.node not in (tensor.node, content_of(tensor.node))

    def restore(self, tensor: Tensor) -> None:
        tensor.node, tensor._requires_grad, tensor._grad = self.node, self.requires_grad, self.grad
        tensor.assigned, tensor.target = self.assigned, self.target
        SESSION.unsettle(tensor)


# While this thread traces or differentiates a function, the nodes of the tracers in place of its
# tensors: what depends on them has no value yet, and no assignment runs.
tracers: ContextVar[Set[Node] | None] = ContextVar("tracers", default=None)
# The tensors that the traced function changed, with what they were before.
changed: ContextVar[dict[Tensor, Before] | None] = ContextVar("changed", default=None)
# The tensors that it made require their derivative, by their handles, with the user's lines.
required: ContextVar[dict[ref[Tensor], str] | None] = ContextVar("required", default=None)


@contextmanager
def during(variable: ContextVar[Any], value: object) -> Iterator[None]:
    """Inside the ``with`` block `variable` has `value`."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


class Session:
    """What a process knows of its tensors; see the module."""

    def __init__(self) -> None:
        # Held by the thread that chooses what to read and to overwrite, until that has run; by
        # none in a child that begins.
        self.turn = RLock()
        self.seeds = SEEDS  # of the random keys
        self.places: WeakTable[Node] = WeakTable()  # of computed nodes
        self.unsettled: set[ref[Tensor]] = set()  # a tensor leaves it with its last reference
        self._nodes_in: WeakTable[set[ref[Node]]] = WeakTable()  # by BUFFER node
        self._tensors_in: WeakTable[Handles] = WeakTable()  # by BUFFER node
        self._leaves: WeakTable[Handles] = WeakTable()
        # What the next run computes beforehand, in a program of its own; see `compute_first`.
        self.first: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        # The tracers of all threads; what a traced function left behind has no value.
        self.traced: WeakSet[Node] = WeakSet()
        self._caches: list[Callable[[], object]] = []  # what empties each

    # Places.

    def stored(self, node: Node) -> Node | None:
        """The BUFFER node that holds the value of `node`, or None when no memory does."""
        if node.op is _BUFFER and type(storage := node.arg.storage) not in (Leaf, int):
            return None if storage.overwritten else node
        return self.places.get(ref(node))

    def place(self, node: Node, place: Node) -> None:
        """Note that the value of `node` is in the BUFFER node `place`."""
        self.places.put(node, place)
        nodes = self._nodes_in.find_or(place, set)
        nodes.add(ref(node, nodes.discard))

    def nodes_in(self, place: Node) -> list[ref[Node]]:
        """The computed nodes whose value is in the BUFFER node `place`."""
        return list(self._nodes_in.find(place) or ())

    def tensors_in(self, place: Node) -> list[Tensor]:
        """The settled tensors whose value is in the BUFFER node `place`."""
        handles = self._tensors_in.find(place)
        return [
            tensor for tensor in (handles.alive() if handles else ())
            if not tensor.assigned and self.stored(tensor.node) is place
        ]  # fmt: skip

    # Tensors.

    def unsettle(self, tensor: Tensor) -> None:
        """Note that the node of `tensor` changed, or whether it collects its derivative."""
        self.unsettled.add(tensor.handle)

    def unfinished(self) -> list[Tensor]:
        """Settle what can be: the other tensors, whose value is not in memory or which were
        assigned, the oldest first."""
        others: list[Tensor] = []
        for handle in list(self.unsettled):
            tensor = handle()
            if tensor is None:
                continue
            node, requires_grad = tensor.node, tensor._requires_grad
            if requires_grad:
                self._leaves.find_or(node, Handles).file(handle)
            place = None if tensor.assigned else self.stored(node)
            if place is None:
                others.append(tensor)
                continue
            # It is filed before it leaves: other threads, and who catches an interrupt, find it in
            # one of the tables at every moment.
            self._tensors_in.find_or(place, Handles).file(handle)
            self.unsettled.discard(handle)
            is_same = tensor.node is node and tensor._requires_grad == requires_grad
            if tensor.assigned or not is_same:  # another thread changed it meanwhile
                self.unsettled.add(handle)
        return sorted(others, key=_AGE)

    def leaves_of(self, nodes: Iterable[Node]) -> list[Tensor]:
        """The tensors that collect the derivatives of `nodes`, the oldest first."""
        self.unfinished()
        tensors: list[Tensor] = []
        for node in nodes:
            handles = self._leaves.find(node)
            if handles is not None:
                tensors += [
                    tensor for tensor in handles.alive()
                    if tensor._requires_grad and tensor.node is node
                ]  # fmt: skip
        return sorted(tensors, key=_AGE)

    def assigned(self) -> list[Tensor]:
        """The tensors whose assignments are this thread's to carry out, the oldest first. To other
        threads these are values like others: who assigns may be building on memory that would be
        overwritten."""
        thread = get_ident()
        return [tensor for tensor in self.unfinished() if tensor.assigned == thread]

    def tensors(self) -> list[Tensor]:
        """Every tensor that exists, the oldest first; takes time in proportion to their number."""
        tensors = {id(tensor): tensor for tensor in self.unfinished()}
        for settled in list(self._tensors_in.values()):
            tensors |= {id(tensor): tensor for tensor in settled.alive()}
        return sorted(tensors.values(), key=_AGE)

    def change(self, tensor: Tensor, forgets: bool = False) -> None:
        """Note what `tensor` is, before it changes, for a trace that this thread is in."""
        states = changed.get()
        if states is not None and tensor not in states:
            states[tensor] = Before(
                tensor.node, tensor._requires_grad, tensor._grad, tensor.assigned, tensor.target,
                forgets,
            )  # fmt: skip

    def compute_first(self, tensor: Tensor) -> None:
        """Have the next run compute `tensor` beforehand; what a traced function draws or loads has
        no value that could be computed."""
        if changed.get() is None:
            self.first[id(tensor)] = tensor

    def require(self, tensor: Tensor) -> None:
        """Note the user's line that made `tensor` require its derivative, for a trace that this
        thread is in."""
        lines = required.get()
        if lines is not None and tensor.handle not in lines:
            lines[tensor.handle] = user_line() or "by no line"

    # Caches.

    def cached(self, size: int) -> Callable[[F], F]:
        """A decorator: the results of the last `size` calls are kept until `forget`."""

        def decorate(function: F) -> F:
            cached: Any = lru_cache(size)(function)
            self._caches.append(cached.cache_clear)
            return cached  # type: ignore[no-any-return]

        return decorate

    def recent(self, size: int) -> Recent[Any]:
        """A table of the last `size` keys, which `forget` empties."""
        table: Recent[Any] = Recent(size)
        self._caches.append(table.clear)
        return table

    def forget(self) -> None:
        """Empty every cache: what comes next is built as if it were the first."""
        for clear in self._caches:
            clear()

    def reset(self) -> None:
        """`forget`, and begin the random keys again; tensors keep their values."""
        self.forget()
        self.seeds.restart(self.seeds.FIRST)

    def counts(self) -> dict[str, int]:
        """How many ``tensors`` there are, how many of them ``unfinished``, and how many computed
        nodes have a place in memory (``places``)."""
        unfinished = len(self.unfinished())
        return {
            "tensors": len(self.tensors()), "unfinished": unfinished, "places": len(self.places),
        }  # fmt: skip


_AGE: Callable[[Any], int] = attrgetter("serial")  # tensors are numbered as they are made

SESSION = Session()
os.register_at_fork(
    before=SESSION.turn.acquire,
    after_in_parent=SESSION.turn.release,
    after_in_child=SESSION.turn.release,
)
