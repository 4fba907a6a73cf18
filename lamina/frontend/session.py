"""The state of a process: its tensors, where their values are, and what it may build again.

`SESSION` is the one owner. What belongs to a node or to a memory is found through weak tables, so
that no operation looks at every tensor of the process:

    node          the BUFFER node that holds its value          `Session.home_of`
    BUFFER node   the nodes whose value it holds                `Session.nodes_in`
    BUFFER node   the tensors whose value it holds              `Session.tensors_in`
    BUFFER node   the tensors that read it                      `Session.readers_of`
    leaf          the tensors that collect its derivative       `Session.leaves_of`

A tensor that is new, or whose node changed, is *unsettled*. It is filed by its memory, or without
one by what it reads, when somebody asks these tables the next time, once. It is unsettled again
when its value gets memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from operator import attrgetter
from threading import RLock, get_ident
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar
from weakref import WeakSet, WeakValueDictionary, ref

from lamina.core.recent import CACHES, forget
from lamina.core.seeds import SEEDS
from lamina.errors import user_line
from lamina.ir.node import Node, toposort
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


class Elsewhere:
    """The storage of a BUFFER node that no memory of this process has, as parts of it are in
    several: a graph with one is never run. local: the part of this process."""

    overwritten: ClassVar[bool] = True  # as far as anybody asks who would read it
    local: Tensor

    def refuse(self, node: Node) -> NoReturn:
        """Raise the error of who asks for the value of `node`, or gives it another one."""
        raise NotImplementedError


def elsewhere(node: Node) -> Elsewhere | None:
    """The storage of `node`, if parts of it are in several processes."""
    storage = node.arg.storage if node.op is _BUFFER else None
    return storage if isinstance(storage, Elsewhere) else None


def own_of(tensor: Tensor) -> Tensor:
    """The part of this process where parts of `tensor` are in several; any other as it is."""
    storage = elsewhere(tensor.node)
    return tensor if storage is None else storage.local


def content_of(node: Node) -> Node:
    """The expression that the leaf `node` stands for; any other node as it is."""
    is_leaf = node.op is _BUFFER and type(node.arg.storage) is Leaf
    return node.arg.storage.node if is_leaf else node


def operands_of(node: Node) -> tuple[Node, ...]:
    """What `node` is computed from; nothing for a BUFFER that was overwritten."""
    if node.op is not _BUFFER:
        return node.src
    return (node.arg.storage.node,) if type(node.arg.storage) is Leaf else ()


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


class WeakRefs(set["ref[T]"], Generic[T]):
    """References that keep nothing alive: of nodes, or the handles of tensors. A tensor has one
    handle, so that a set never compares tensors, which is elementwise."""

    limit = 16  # entries; at more of them the dead ones are dropped

    def file(self, reference: ref[T]) -> None:
        self.add(reference)
        if len(self) > self.limit:
            self.difference_update([one for one in list(self) if one() is None])
            self.limit = max(16, 2 * len(self))  # so that a reference costs constant time

    def alive(self) -> list[T]:
        return [found for reference in list(self) if (found := reference()) is not None]


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
# The nodes whose derivative it took.
differentiated: ContextVar[set[Node] | None] = ContextVar("differentiated", default=None)


@contextmanager
def during(variable: ContextVar[Any], value: object) -> Iterator[None]:
    """Inside the ``with`` block `variable` has `value`."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


@contextmanager
def changes_undone() -> Iterator[None]:
    """Inside the ``with`` block tensors may get other values; after it each has the one that it had
    before. What was computed from the others meanwhile stays as it is."""
    before: dict[Tensor, Before] = {}
    try:
        with during(changed, before):
            yield
    finally:
        for tensor, state in before.items():
            state.restore(tensor)


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
        self._tensors_in: WeakTable[WeakRefs[Tensor]] = WeakTable()  # by BUFFER node
        self._leaves: WeakTable[WeakRefs[Tensor]] = WeakTable()
        # The tensors whose node it is that had no memory when they were settled.
        self._waiting: WeakTable[WeakRefs[Tensor]] = WeakTable()
        self._users: WeakTable[WeakRefs[Node]] = WeakTable()  # what is computed from a node
        self._assigned: set[ref[Tensor]] = set()
        # What the next run computes beforehand, in a program of its own; see `compute_first`.
        self.first: WeakValueDictionary[int, Tensor] = WeakValueDictionary()
        # The tracers of all threads; what a traced function left behind has no value.
        self.traced: WeakSet[Node] = WeakSet()
        # That functions use a compiled program, by its sinks and options.
        self.programs: WeakValueDictionary[object, object] = WeakValueDictionary()

    # Places.

    def home_of(self, node: Node) -> Node | None:
        """The BUFFER node that holds the value of `node`, or None when no memory does."""
        if node.op is _BUFFER and type(storage := node.arg.storage) not in (Leaf, int):
            return None if storage.overwritten else node
        return self.places.get(ref(node))

    def place(self, node: Node, place: Node) -> None:
        """Note that the value of `node` is in the BUFFER node `place`."""
        self.places.put(node, place)
        nodes = self._nodes_in.find_or(place, set)
        nodes.add(ref(node, nodes.discard))
        waiting = self._waiting.find(node)
        if waiting is not None:
            self.unsettled.update([tensor.handle for tensor in waiting.alive()])

    def nodes_in(self, place: Node) -> list[ref[Node]]:
        """The computed nodes whose value is in the BUFFER node `place`."""
        return list(self._nodes_in.find(place) or ())

    def tensors_in(self, place: Node) -> list[Tensor]:
        """The settled tensors whose value is in the BUFFER node `place`."""
        handles = self._tensors_in.find(place)
        return [
            tensor for tensor in (handles.alive() if handles else ())
            if not tensor.assigned and self.home_of(tensor.node) is place
        ]  # fmt: skip

    # Tensors.

    def unsettle(self, tensor: Tensor, node: Node | None = None) -> None:
        """Note that the node of `tensor` changed, or whether it collects its derivative; or that
        its node will be `node`."""
        self.unsettled.add(tensor.handle)
        if tensor._requires_grad:
            self._leaves.find_or(node or tensor.node, WeakRefs).file(tensor.handle)
        if tensor.assigned:
            self._assigned.add(tensor.handle)

    def settle(self) -> None:
        """File each tensor that is unsettled, under its memory or under what it reads."""
        for handle in list(self.unsettled):
            tensor = handle()
            if tensor is None:
                self.unsettled.discard(handle)
                continue
            node, assigned = tensor.node, tensor.assigned
            place = None if assigned else self.home_of(node)
            # It is filed before it leaves: other threads, and who catches an interrupt, find it in
            # one of the tables at every moment.
            if place is not None:
                self._tensors_in.find_or(place, WeakRefs).file(handle)
            else:
                self._link(node)
                self._waiting.find_or(node, WeakRefs).file(handle)
            self.unsettled.discard(handle)
            is_same = tensor.node is node and tensor.assigned == assigned
            now = None if assigned else self.home_of(node)
            if not is_same or now is not place:  # another thread changed it meanwhile
                self.unsettled.add(handle)

    def _link(self, node: Node) -> None:
        """Note for each node below `node`, down to memory, what is computed from it. Operands come
        first, and the last of them last: what that one knows as a user is linked throughout, even
        after an interrupt."""
        links: dict[Node, tuple[Node, ...]] = {}

        def below(user: Node) -> tuple[Node, ...]:
            operands = operands_of(user)
            if operands and self.home_of(user) is None:
                users = self._users.find(operands[-1])
                if users is None or ref(user) not in users:
                    links[user] = operands
                    return operands
            return ()

        for user in toposort([node], below=below):
            for operand in links.get(user, ()):
                self._users.find_or(operand, WeakRefs).file(ref(user))

    def readers_of(self, places: Iterable[Node]) -> list[Tensor]:
        """The tensors whose value is in one of the BUFFER nodes `places`, or is not in memory and
        computed from what is there; the oldest first."""
        self.settle()
        tensors: dict[int, Tensor] = {}
        readers: set[Node] = set(places)
        for place in places:
            tensors |= {id(tensor): tensor for tensor in self.tensors_in(place)}
            nodes = [node for entry in self.nodes_in(place) if (node := entry()) is not None]
            readers.update(node for node in nodes if self.home_of(node) is place)
        remaining = list(readers)
        while remaining:
            node = remaining.pop()
            waiting = self._waiting.find(node)
            for tensor in () if waiting is None else waiting.alive():
                if tensor.node is node:
                    tensors[id(tensor)] = tensor
            users = self._users.find(node)
            for user in () if users is None else users.alive():
                if user not in readers and self.home_of(user) is None:
                    readers.add(user)
                    remaining.append(user)
        return sorted(tensors.values(), key=_AGE)

    def leaves_of(self, nodes: Iterable[Node]) -> list[Tensor]:
        """The tensors that collect the derivatives of `nodes`, the oldest first."""
        tensors: list[Tensor] = []
        for node in nodes:
            handles = self._leaves.find(node)
            if handles is not None:
                tensors += [
                    tensor for tensor in handles.alive()
                    if tensor._requires_grad and tensor.node is node
                ]  # fmt: skip
        return sorted(tensors, key=_AGE)

    def all_assigned(self) -> list[Tensor]:
        """The tensors with assignments that no thread has carried out, the oldest first."""
        tensors: list[Tensor] = []
        for handle in list(self._assigned):
            tensor = handle()
            if tensor is not None and tensor.assigned:
                tensors.append(tensor)
                continue
            self._assigned.discard(handle)
            if tensor is not None and tensor.assigned:  # by another thread meanwhile
                self._assigned.add(handle)
                tensors.append(tensor)
        return sorted(tensors, key=_AGE)

    def assigned(self) -> list[Tensor]:
        """The tensors whose assignments are this thread's to carry out, the oldest first. To other
        threads these are values like others: who assigns may be building on memory that would be
        overwritten."""
        thread = get_ident()
        return [tensor for tensor in self.all_assigned() if tensor.assigned == thread]

    def tensors(self) -> list[Tensor]:
        """Every tensor that exists, the oldest first; takes time in proportion to their number."""
        # In this order: a tensor that is settled meanwhile is filed before it leaves.
        unsettled = [tensor for handle in list(self.unsettled) if (tensor := handle()) is not None]
        tensors = {id(tensor): tensor for tensor in unsettled}
        for filed in (*self._waiting.values(), *self._tensors_in.values()):
            tensors |= {id(tensor): tensor for tensor in filed.alive()}
        return sorted(tensors.values(), key=_AGE)

    def unfinished(self) -> list[Tensor]:
        """The tensors whose value is not in memory or which were assigned, the oldest first; takes
        time in proportion to the number of all tensors."""
        return [
            tensor for tensor in self.tensors()
            if tensor.assigned or self.home_of(tensor.node) is None
        ]  # fmt: skip

    def overwrite(self, tensor: Tensor) -> None:
        """As `change`, before `tensor` gets another value. Raises the error of `Elsewhere.refuse`
        where parts of it are in several processes: these would keep the old one."""
        storage = elsewhere(tensor.node)
        if storage is not None:
            storage.refuse(tensor.node)
        self.change(tensor)

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

    def differentiate(self, nodes: Iterable[Node]) -> None:
        """Note that derivatives of `nodes` are taken, for a trace that this thread is in."""
        noted = differentiated.get()
        if noted is not None:
            noted.update(nodes)

    def require(self, tensor: Tensor) -> None:
        """Note the user's line that made `tensor` require its derivative, for a trace that this
        thread is in."""
        lines = required.get()
        if lines is not None and tensor.handle not in lines:
            lines[tensor.handle] = user_line() or "by no line"

    # Caches.

    def forget(self) -> None:
        """Empty every cache (`lamina/core/recent.py`): what comes next is built as if it were the
        first."""
        forget()

    def reset(self) -> None:
        """`forget`, and begin the random keys again; tensors keep their values. What a ``with``
        block sets, such as a recorder or a key for draws, ends with the block."""
        self.forget()
        self.seeds.restart(self.seeds.FIRST)

    def counts(self) -> dict[str, int]:
        """How many ``tensors`` there are, how many of them ``unfinished``, how many computed nodes
        have a place in memory (``places``), how many ``programs`` functions use, and how many
        ``results`` the caches keep. Takes time in proportion to the number of tensors."""
        return {
            "tensors": len(self.tensors()),
            "unfinished": len(self.unfinished()),
            "places": len(self.places),
            "programs": len(self.programs),
            "results": sum(cache.size() for cache in CACHES),
        }


_AGE: Callable[[Any], int] = attrgetter("serial")  # tensors are numbered as they are made

SESSION = Session()
os.register_at_fork(
    before=SESSION.turn.acquire,
    after_in_parent=SESSION.turn.release,
    after_in_child=SESSION.turn.release,
)
