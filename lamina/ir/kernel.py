"""The kernel dialect: what one kernel stores, as scalars over named loop axes.

Rows, the axes that every store begins with, are independent of each other: any of them may run in
parallel. `lamina/ir/verify_kernel.py` lists the invariants.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import ClassVar

from lamina.core.dtypes import DType, bool_, int64
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op

TRUE = const(True, bool_)


@dataclass(frozen=True)
class Parameter:
    """A buffer a kernel reads or writes."""

    dtype: DType
    size: int  # in elements
    written: bool = False
    # "device"; "block", what each thread has for a block of rows; or "scratch", what it has for a
    # schedule that stages values
    memory: str = "device"

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Store:
    """``parameter[index] = value`` for every index of `axes`, outermost first."""

    parameter: int
    index: Node
    value: Node
    axes: tuple[Node, ...]
    condition: Node = TRUE  # of this store to happen
    monoid: Monoid | None = None  # combines the value with what is there, in the order of the axes
    # Where a store that fills scratch memory runs: in the body of the loop over this axis. None if
    # its value depends on reductions: then it runs where the value is computed first.
    at: Node | None = None

    def rebuilt(self, done: Mapping[Node, Node]) -> "Store":
        """The store of what its expressions have become."""
        index, value, condition = done[self.index], done[self.value], done[self.condition]
        return replace(self, index=index, value=value, condition=condition)


@dataclass(frozen=True)
class Kernel:
    """Stores that share their first `rows` axes. Equal kernels share one compilation."""

    parameters: tuple[Parameter, ...]
    stores: tuple[Store, ...]
    rows: int
    blocks: int = 0  # how many of the rows number row blocks; they come first

    @property
    def block_axes(self) -> tuple[Node, ...]:
        return self.row_axes[: self.blocks]

    @property
    def row_axes(self) -> tuple[Node, ...]:
        return self.stores[0].axes[: self.rows]

    @cached_property
    def nodes(self) -> list[Node]:
        """Every expression of every store, operands first."""
        return toposort(root for store in self.stores for root in roots_of(store))

    def of(self, op: Op) -> list[Node]:
        """Every expression that is this operation."""
        return [one for one in self.nodes if one.op is op]

    @cached_property
    def values(self) -> list[Node]:
        """The nodes that are no indices, as the text form and schedules number them."""
        return [one for one in self.nodes if one.op not in (Op.AXIS, Op.AFFINE, Op.CONST)]


@dataclass(frozen=True)
class SortKernel:
    """Computes the stable ascending order of `rows` rows of `length` keys, or does one step of
    that: `left` kernels come after it, and the last one leaves the order."""

    parameters: tuple[Parameter, ...]  # the keys, their int64 order, int64 scratch
    rows: int
    length: int
    left: int
    stores: ClassVar[tuple[Store, ...]] = ()  # it has neither expressions nor axes
    nodes: ClassVar[list[Node]] = []
    block_axes: ClassVar[tuple[Node, ...]] = ()


AnyKernel = Kernel | SortKernel
Terms = dict[Node, int]


def terms_of(index: Node) -> tuple[Terms, int]:
    """Coefficient of each operand of an index, and the constant."""
    if index.op is Op.AFFINE:
        return dict(zip(index.src, index.arg.coefficients, strict=True)), index.arg.constant
    if index.op is Op.CONST:
        return {}, index.arg.value
    return {index: 1}, 0


@lru_cache(maxsize=65536)
def bounds(index: Node) -> tuple[int, int]:
    """The least and greatest value; of data, those of int64."""
    if index.op is Op.AXIS:
        return 0, max(index.arg.size - 1, 0)
    if index.op is Op.AFFINE or index.op is Op.CONST:
        terms, low = terms_of(index)
        high = low
        for operand, factor in terms.items():
            ends = [end * factor for end in bounds(operand)]
            low += min(ends)
            high += max(ends)
        return low, high
    if index.op in (Op.MIN, Op.MAX):
        lows, highs = zip(*map(bounds, index.src), strict=True)
        nearer = min if index.op is Op.MIN else max
        return nearer(lows), nearer(highs)
    divisor = divisor_of(index)
    if not divisor:
        return -(1 << 63), (1 << 63) - 1
    if index.op is Op.MOD:
        return 0, divisor - 1
    low, high = bounds(index.src[0])
    return low // divisor, high // divisor


def divisor_of(index: Node) -> int:
    """The positive constant of which this is a floor division or modulus; 0 for anything else."""
    if index.op not in (Op.IDIV, Op.MOD) or index.dtype is not int64:
        return 0
    return max(index.src[1].arg.value, 0) if index.src[1].op is Op.CONST else 0


def bound_axes(node: Node) -> tuple[Node, ...]:
    """The axes that a LOOP_REDUCE or LOOP_SCAN runs over; nothing else has any."""
    return node.src[node.arg.monoid.arity :] if node.op in (Op.LOOP_REDUCE, Op.LOOP_SCAN) else ()


@lru_cache(maxsize=1 << 17)
def free_axes(node: Node) -> frozenset[Node]:
    """The axes that the value of `node` depends on."""
    if node.op is Op.AXIS:
        return frozenset((node,))
    free = frozenset[Node]().union(*map(free_axes, node.src))
    return free - frozenset(bound_axes(node)) if node.op is Op.LOOP_REDUCE else free


def contraction(values: Iterable[Node], rows: Iterable[Node]) -> Node | None:
    """The first reduction beneath `values` that is like a matrix product: it reads two arrays, each
    of which is reused along a row axis that the other varies along. Register tiles are for it."""
    known = frozenset(rows)
    for reduction in toposort(values):
        if reduction.op is Op.LOOP_REDUCE:
            loads = [one for one in toposort(reduction.src) if one.op is Op.LOAD]
            vary = {(free_axes(one) & known).difference(bound_axes(reduction)) for one in loads}
            if any(a - b and b - a for a in vary for b in vary):
                return reduction
    return None


def needed_again(kernel: Kernel, ops: Set[Op]) -> list[Node]:
    """The nodes that are `ops` and that several passes over a row need. Reductions that depend on
    each other are in different passes; a store is in the one after those that it depends on."""
    rounds: dict[Node, int] = {}
    for node in kernel.nodes:
        beneath = max(map(rounds.__getitem__, node.src), default=0)
        rounds[node] = beneath + 1 if node.op is Op.LOOP_REDUCE else beneath
    needed = {node: set[int]() for node in kernel.nodes}
    for store in kernel.stores:
        needed[store.value].add(rounds[store.value] + 1)
    for node in reversed(kernel.nodes):
        for one in node.src:
            needed[one] |= {rounds[node]} if node.op is Op.LOOP_REDUCE else needed[node]
    return [one for one in kernel.nodes if one.op in ops and len(needed[one]) > 1]


def points(axes: Iterable[Node]) -> int:
    """How many iterations loops over `axes` have."""
    return prod(int(axis.arg.size) for axis in axes)


def roots_of(store: Store) -> tuple[Node, ...]:
    """Every expression of a store."""
    return store.value, store.index, store.condition
