"""The schedule primitives: a short list of moves that turns a kernel into a loop nest.

    split(a, factor)   a = outer * factor + inner; a ragged end becomes a nest of its own
    fuse(a, b)         two axes that every index walks as one
    reorder(...)       the order of the loops, outermost first
    bind(a, to)        parallel | serial | vector | unroll
    stage(fold, memory)  where a reduction's running value lives
    tensorize(fold, atom)  compute a reduction's innermost nest with an atom

A schedule is data. It prints as text, one move a line, and parses back, so that any kernel can
be replayed with another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from lamina.errors import FormatError
from lamina.ir.kernel import Kernel, Store, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.kernel.atoms import ATOMS
from lamina.simplify import index as ix

BINDINGS = ("serial", "parallel", "vector", "unroll")
MEMORIES = ("register",)


@dataclass(frozen=True)
class Split:
    """Axis `axis` becomes ``outer * factor + inner``."""

    axis: int
    factor: int
    outer: int
    inner: int

    def __str__(self) -> str:
        return f"split(a{self.axis}, {self.factor}) -> a{self.outer}, a{self.inner}"


@dataclass(frozen=True)
class Fuse:
    """Axes `first` and `second` become one, walked as ``first * size of second + second``."""

    first: int
    second: int
    into: int

    def __str__(self) -> str:
        return f"fuse(a{self.first}, a{self.second}) -> a{self.into}"


@dataclass(frozen=True)
class Reorder:
    """The order of loops; axes left out keep their place after those named."""

    axes: tuple[int, ...]

    def __str__(self) -> str:
        return f"reorder({', '.join(f'a{axis}' for axis in self.axes)})"


@dataclass(frozen=True)
class Bind:
    """Who runs `axis`; axes not bound are serial."""

    axis: int
    to: str

    def __str__(self) -> str:
        return f"bind(a{self.axis}, {self.to})"


@dataclass(frozen=True)
class Stage:
    """Keep the running value of the reduction over `axis` in `memory`, one for each point of the
    unrolled and vector axes around it.

    Registers are the only memory yet, and where such values are without this move too: for now it
    only says so. Packed panels will be the first memory that changes the nest.
    """

    axis: int
    memory: str

    def __str__(self) -> str:
        return f"stage(a{self.axis}, {self.memory})"


@dataclass(frozen=True)
class Tensorize:
    """Compute the innermost nest of the reduction over `axis` with an atom of the table."""

    axis: int
    atom: str

    def __str__(self) -> str:
        return f"tensorize(a{self.axis}, {self.atom})"


Move = Split | Fuse | Reorder | Bind | Stage | Tensorize
Schedule = tuple[Move, ...]


def to_text(schedule: Iterable[Move]) -> str:
    """One move a line."""
    return "\n".join(map(str, schedule))


_MOVE = re.compile(r"(\w+)\(([^)]*)\)(?:\s*->\s*(.*))?$")


def parse(text: str) -> Schedule:
    """Read `to_text` back. Raises FormatError naming the line that is not a move."""
    moves = []
    for number, line in enumerate(text.replace(";", "\n").splitlines(), 1):
        if line := line.split("#")[0].strip():
            moves.append(_parse_move(number, line))
    return tuple(moves)


def parse_sections(text: str) -> dict[str, Schedule]:
    """Schedules by kernel: a line ``[fold0_64x10]`` begins that kernel's moves, and moves before
    any such line, under "", are for every other kernel."""
    sections: dict[str, list[str]] = {}
    lines = sections.setdefault("", []) if not text.lstrip().startswith("[") else []
    for line in text.replace(";", "\n").splitlines():
        if line.strip().startswith("[") and line.strip().endswith("]"):
            lines = sections.setdefault(line.strip()[1:-1], [])
        else:
            lines.append(line)
    return {name: parse("\n".join(moves)) for name, moves in sections.items()}


def _parse_move(number: int, line: str) -> Move:
    match = _MOVE.match(line)
    try:
        if match is None:
            raise ValueError
        name, inside, result = match.groups()
        given = [one.strip() for one in inside.split(",")]
        made = [_axis(one.strip()) for one in result.split(",")] if result else []
        if name == "split":
            return Split(_axis(given[0]), int(given[1]), *made)
        if name == "fuse":
            return Fuse(_axis(given[0]), _axis(given[1]), *made)
        if name == "reorder":
            return Reorder(tuple(map(_axis, given)))
        if name == "bind":
            return Bind(_axis(given[0]), given[1])
        if name == "stage":
            return Stage(_axis(given[0]), given[1])
        if name == "tensorize":
            return Tensorize(_axis(given[0]), given[1])
        raise ValueError(name)
    except (ValueError, IndexError, TypeError):
        raise FormatError(f"schedule, line {number}: {line!r} is not a move") from None


def _axis(text: str) -> int:
    if not text.startswith("a"):
        raise ValueError(text)
    return int(text[1:])


@dataclass(frozen=True)
class Nest:
    """A kernel with its schedule applied.

    order: every axis, outermost first. binding: axes that are not serial. pieces: a split axis,
    by number of its outermost piece, as the chain of pieces (outermost first). extent: the exact
    number of iterations of a whole chain, which the product of its pieces may exceed.
    """

    kernel: Kernel
    order: tuple[Node, ...]
    binding: Mapping[Node, str]
    chains: Mapping[Node, tuple[Node, ...]] = field(default_factory=dict)
    extents: Mapping[Node, int] = field(default_factory=dict)

    def chain(self, head: Node) -> tuple[Node, ...]:
        """The pieces of the axis whose outermost piece is `head`."""
        return self.chains.get(head, (head,))

    def is_head(self, axis: Node) -> bool:
        """Is `axis` the outermost piece of its chain, or never split?"""
        return all(axis not in chain[1:] for chain in self.chains.values())

    def extent(self, head: Node) -> int:
        """How many iterations that axis has."""
        return self.extents.get(head, head.arg.size)

    def bound(self, axis: Node) -> str:
        """The binding of `axis`."""
        return self.binding.get(axis, "serial")


def axes_of(kernel: Kernel) -> list[Node]:
    """Every axis of a kernel: those of its stores in their order, then those of its folds."""
    found: dict[Node, None] = {}
    for store in kernel.stores:
        found.update(dict.fromkeys(store.axes))
    for store in kernel.stores:
        for node in toposort(roots_of(store)):
            if node.op is Op.AXIS:
                found[node] = None
            elif node.op in (Op.FOLD, Op.PREFIX):
                found.update(dict.fromkeys(node.src[node.arg.monoid.arity :]))
    return list(found)


def serial_axes(kernel: Kernel) -> frozenset[Node]:
    """Axes whose iterations must run one after another: those of a PREFIX, and the columns of a
    store that may write an element twice."""
    found: set[Node] = set()
    for store in kernel.stores:
        for node in toposort(roots_of(store)):
            if node.op is Op.PREFIX:
                found.update(node.src[node.arg.monoid.arity :])
        scattered = any(term.op is not Op.AXIS for term in ix.terms_of(store.index)[0])
        if store.monoid is not None or scattered:
            found.update(store.axes[kernel.rows :])
    return frozenset(found)


def apply(kernel: Kernel, schedule: Schedule) -> Nest:
    """The loop nest of `kernel` under `schedule`. Raises FormatError for a move that does not
    fit the kernel."""
    nest = Nest(kernel, tuple(axes_of(kernel)), {})
    for move in schedule:
        nest = apply_move(nest, move)
    return nest


def apply_move(nest: Nest, move: Move) -> Nest:
    """`nest` after one more move."""
    if isinstance(move, Split):
        return _split(nest, move)
    if isinstance(move, Fuse):
        return _fuse(nest, move)
    if isinstance(move, Reorder):
        named = [_find(nest, axis) for axis in move.axes]
        rest = [axis for axis in nest.order if axis not in named]
        return replace(nest, order=(*named, *rest))
    axis = _find(nest, move.axis)
    if isinstance(move, Bind):
        if move.to not in BINDINGS:
            raise FormatError(f"{move}: a binding is one of {', '.join(BINDINGS)}")
        return replace(nest, binding={**nest.binding, axis: move.to})
    if isinstance(move, Stage):
        if move.memory not in MEMORIES:
            raise FormatError(f"{move}: a memory is one of {', '.join(MEMORIES)}")
        _check_reduced(move, axis)
        return nest
    _check_reduced(move, axis)
    return _tensorize(nest, move)


def _check_reduced(move: Move, axis: Node) -> None:
    if not axis.arg.reduce:
        raise FormatError(f"{move}: a{axis.arg.number} is not the axis of a reduction")


def _tensorize(nest: Nest, move: Tensorize) -> Nest:
    """The last three axes of the order become the atom's rows, vectors and lanes."""
    if move.atom not in ATOMS:
        raise FormatError(f"{move}: an atom is one of {', '.join(ATOMS)}")
    atom = ATOMS[move.atom]
    sizes = tuple(one.arg.size for one in nest.order[-3:])
    if len(sizes) < 3 or sizes[0] > atom.m or sizes[1] > atom.n or sizes[2] != atom.lanes:
        raise FormatError(f"{move}: the innermost axes have sizes {sizes}; the atom takes at most "
                          f"({atom.m}, {atom.n}, {atom.lanes})")  # fmt: skip
    m, n, lanes = nest.order[-3:]
    return replace(nest, binding={**nest.binding, m: "unroll", n: "unroll", lanes: "vector"})


def _find(nest: Nest, number: int) -> Node:
    for axis in nest.order:
        if axis.arg.number == number:
            return axis
    raise FormatError(f"the kernel has no axis a{number}; it has "
                      f"{', '.join(f'a{axis.arg.number}' for axis in nest.order)}")  # fmt: skip


def _replace_axes(kernel: Kernel, old: tuple[Node, ...], index: dict[Node, Node],
                  new: tuple[Node, ...]) -> Kernel:  # fmt: skip
    """`kernel` with the adjacent axes `old` written as `index` over the axes `new`."""
    memo: dict[Node, Node] = {}
    stores = []
    for store in kernel.stores:
        for node in toposort(roots_of(store)):
            memo[node] = _rewritten(node, old, index, new, memo)
        stores.append(
            Store(
                store.parameter,
                memo[store.index],
                memo[store.value],
                _swap(store.axes, old, new),
                None if store.condition is None else memo[store.condition],
                store.monoid,
            )
        )
    rows = kernel.rows
    if kernel.stores and set(old) & set(kernel.stores[0].axes[:rows]):
        rows += len(new) - len(old)
    return Kernel(kernel.parameters, tuple(stores), rows)


def _rewritten(node: Node, old: tuple[Node, ...], index: dict[Node, Node],
               new: tuple[Node, ...], memo: dict[Node, Node]) -> Node:  # fmt: skip
    if node.op in (Op.FOLD, Op.PREFIX):
        parts = node.arg.monoid.arity
        components = tuple(memo[one] for one in node.src[:parts])
        return Node(node.op, components + _swap(node.src[parts:], old, new), node.arg)
    return ix.rebuild(node, tuple(memo[one] for one in node.src), index)


def _swap(axes: tuple[Node, ...], old: tuple[Node, ...], new: tuple[Node, ...]) -> tuple[Node, ...]:
    if old[0] not in axes:
        return axes
    start = axes.index(old[0])
    return axes[:start] + new + axes[start + len(old) :]


def _split(nest: Nest, move: Split) -> Nest:
    axis, factor = _find(nest, move.axis), move.factor
    taken = {one.arg.number for one in nest.order}
    if factor < 1 or move.outer == move.inner or {move.outer, move.inner} & taken:
        raise FormatError(f"{move}: the factor is positive and the new axes are new")
    if axis in nest.binding:
        raise FormatError(f"{move}: the axis is bound; bind its pieces")
    size, reduce = axis.arg.size, axis.arg.reduce
    outer = ix.axis(move.outer, -(-size // factor), reduce=reduce)
    inner = ix.axis(move.inner, factor, reduce=reduce)
    index = {axis: ix.add(ix.scale(outer, factor), inner)}
    kernel = _replace_axes(nest.kernel, (axis,), index, (outer, inner))
    order = [one for old in nest.order for one in ((outer, inner) if old is axis else (old,))]
    head = next((key for key, chain in nest.chains.items() if axis in chain), axis)
    pieces = nest.chain(head)
    place = pieces.index(axis)
    if place and size % factor:
        raise FormatError(f"{move}: a piece of {size} is not split evenly")
    chain = (*pieces[:place], outer, inner, *pieces[place + 1 :])
    chains = {key: value for key, value in nest.chains.items() if key is not head}
    extents = {key: value for key, value in nest.extents.items() if key is not head}
    chains[chain[0]], extents[chain[0]] = chain, nest.extent(head)
    return replace(nest, kernel=kernel, order=tuple(order), chains=chains, extents=extents)


def can_fuse(kernel: Kernel, first: Node, second: Node) -> bool:
    """Does every index of the kernel walk these neighbours as one axis?"""
    if not first.arg.size or not second.arg.size:
        return False
    for store in kernel.stores:
        axes = store.axes
        if (first in axes) != (second in axes):
            return False
        if first in axes and axes.index(second) != axes.index(first) + 1:
            return False
        for node in toposort(roots_of(store)):
            if not _fusable_in(node, first, second):
                return False
    return True


def _fusable_in(node: Node, first: Node, second: Node) -> bool:
    if node.op is Op.AFFINE:
        terms, _ = ix.terms_of(node)
        return bool(terms.get(first, 0) == terms.get(second, 0) * second.arg.size)
    if node.op in (Op.FOLD, Op.PREFIX):
        axes = node.src[node.arg.monoid.arity :]
        if (first in axes) != (second in axes):
            return False
        if first in axes and axes.index(second) != axes.index(first) + 1:
            return False
        return all(one not in (first, second) for one in node.src[: node.arg.monoid.arity])
    return first not in node.src and second not in node.src


def _fuse(nest: Nest, move: Fuse) -> Nest:
    first, second = _find(nest, move.first), _find(nest, move.second)
    if not can_fuse(nest.kernel, first, second):
        raise FormatError(f"{move}: some index does not walk the two as one")
    taken = {one for chain in nest.chains.values() for one in chain} | set(nest.binding)
    if {first, second} & taken or move.into in {one.arg.number for one in nest.order}:
        raise FormatError(f"{move}: an axis is split or bound already, or the new one is not new")
    size = first.arg.size * second.arg.size
    whole = ix.axis(move.into, size, reduce=first.arg.reduce)
    index = {
        first: ix.floordiv(whole, second.arg.size),
        second: ix.mod(whole, second.arg.size),
    }
    kernel = _replace_axes(nest.kernel, (first, second), index, (whole,))
    order = [whole if one is first else one for one in nest.order if one is not second]
    return replace(nest, kernel=kernel, order=tuple(order))
