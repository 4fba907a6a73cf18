"""The kernel dialect: what one kernel stores, as scalars over named loop axes.

A kernel that subtracts from each row of a (64, 100) array its maximum. Its row axis is a0; r1 is
the axis of the reduction, and once more that of the columns of the store:

    kernel p0: f32[6400], p1: f32[6400] written
      %0 = load 100*a0 + r1 parameter=0 : f32[]
      %1 = loop_reduce %0, r1 monoid=MAX component=0 : f32[]
      %2 = neg %1 : f32[]
      %3 = add %0, %2 : f32[]
      for a0 < 64, r1 < 100: p1[100*a0 + r1] = %3

Rows, the axes that every store begins with, are independent of each other: any of them may run in
parallel. `lamina/ir/verify_kernel.py` lists the invariants.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

from lamina.core.dtypes import DType, bool_, int64
from lamina.core.exchange import Exchange
from lamina.core.recent import memoized
from lamina.core.shape import Shape
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Broadcast, Combine, Op, Order, SendTo

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
    constant: bool = False  # it is the same in most calls of the program

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


@dataclass(frozen=True)
class Store:
    """``parameter[index] = value`` for every index of `axes`, outermost first."""

    parameter: int
    index: Node  # in elements, from the start of the parameter
    value: Node
    axes: tuple[Node, ...]
    condition: Node = TRUE  # of this store to happen
    monoid: Monoid | None = None  # combines the value with what is there, in the order of the axes
    # Where a store that fills scratch memory runs: in the body of the loop over this axis. None if
    # its value depends on reductions: then it runs where the value is computed first.
    at: Node | None = None
    # Each update is an atomic operation of a GPU, so that the updates may run in any order
    # (`lamina/loops/scatters.py`).
    atomic: bool = False

    def rebuilt(self, done: Mapping[Node, Node]) -> "Store":
        """The same store of rebuilt expressions: `done` holds what each has become."""
        return replace(
            self,
            index=done[self.index],
            value=done[self.value],
            condition=done[self.condition],
        )


@dataclass(frozen=True)
class Kernel:
    """Stores that share their first `rows` axes. Equal kernels share one compilation."""

    parameters: tuple[Parameter, ...]
    stores: tuple[Store, ...]
    rows: int
    blocks: int = 0  # how many of the rows number row blocks; they come first

    @property
    def row_axes(self) -> tuple[Node, ...]:
        """The axes that all stores begin with, outermost first."""
        return self.stores[0].axes[: self.rows]

    @property
    def block_axes(self) -> tuple[Node, ...]:
        """The row axes that number row blocks."""
        return self.row_axes[: self.blocks]

    @cached_property
    def nodes(self) -> list[Node]:
        """Every expression of every store, operands first."""
        return toposort(root for store in self.stores for root in roots_of(store))

    def of(self, op: Op) -> list[Node]:
        """Every expression that is this operation, operands first."""
        return [node for node in self.nodes if node.op is op]

    @cached_property
    def with_loops(self) -> list[Node]:
        """Reductions and scans, the nodes that have loops of their own, operands first."""
        return [node for node in self.nodes if bound_axes(node)]

    @cached_property
    def indices(self) -> list[Node]:
        """The index of each load, then that of each store."""
        return [load.src[0] for load in self.of(Op.LOAD)] + [store.index for store in self.stores]

    @cached_property
    def values(self) -> list[Node]:
        """The nodes that are no indices, as the text form and schedules number them."""
        return [node for node in self.nodes if node.op not in (Op.AXIS, Op.AFFINE, Op.CONST)]


@dataclass(frozen=True)
class SortKernel:
    """Computes the places of some ranks in each of `rows` rows of `length` keys.

    apart: elements from one key of a row to the next; rows 0 to apart - 1 begin side by side. 1 for
        rows that lie one after the other
    kernels: how many launches sort the rows; a GPU needs several for long ones
    left: how many of them follow this one; the last one writes the places
    """

    parameters: tuple[Parameter, ...]  # the keys, the int64 places, int64 scratch
    rows: int
    length: int
    apart: int
    order: Order
    kernels: int
    left: int
    short_row: ClassVar[int] = 64  # keys that a GPU compares with one another, at most
    stores: ClassVar[tuple[Store, ...]] = ()  # it has neither expressions nor axes
    nodes: ClassVar[list[Node]] = []
    block_axes: ClassVar[tuple[Node, ...]] = ()

    @property
    def ranks(self) -> int:
        """How many places each row has."""
        return self.order.last - self.order.first


@dataclass(frozen=True)
class BinKernel:
    """One of the two kernels of a BIN_SUM, of flat arrays.

    The first takes chunks of the updates, and puts those of a bin side by side in scratch memory.
    The last adds those of each bin, of all chunks, to its places: a block has their sums in memory
    of its own, and reads no update of another bin. Each bin has one of every `bins` sectors of 8
    places, so that updates of neighbours are shared by all bins.

    operands: the parameters that are base, places and updates. The last two are the result and the
    scratch memory
    left: 1 of the first, 0 of the last
    """

    parameters: tuple[Parameter, ...]
    operands: tuple[int, int, int]
    bins: int
    left: int
    stores: ClassVar[tuple[Store, ...]] = ()
    nodes: ClassVar[list[Node]] = []
    block_axes: ClassVar[tuple[Node, ...]] = ()
    chunk: ClassVar[int] = 6144  # updates: 6 of each of 1024 threads, 36 KiB with their places

    @property
    def places(self) -> int:
        """Elements of the base."""
        return self.parameters[self.operands[0]].size

    @property
    def updates(self) -> int:
        return self.parameters[self.operands[2]].size

    @property
    def size(self) -> int:
        """Places of a bin."""
        return places_of_bin(self.places, self.bins)

    @property
    def chunks(self) -> int:
        return -(-self.updates // self.chunk)  # rounded up

    @property
    def result(self) -> int:
        """The parameter that gets the sums."""
        return len(self.parameters) - 2

    @classmethod
    def scratch(cls, updates: int, bins: int) -> int:
        """The int64 of scratch memory: the updates of all chunks, each with 2 bytes for its place
        in a bin, and 2 bytes for each chunk and bin, and for the end of the last one."""
        chunks = -(-updates // cls.chunk)
        nbytes = chunks * cls.chunk * 6 + chunks * (bins + 1) * 2
        return -(-nbytes // 8)


def places_of_bin(places: int, bins: int) -> int:
    """How many places each of so many bins has, in sectors of 8: 1,487,554 of 132 have 11,272."""
    return 8 * -(-places // (8 * bins))


def exchange_of(op: Op, arg: Any, dtype: DType, shape: Shape) -> Exchange:
    """What a collective operation on an operand of `dtype` and `shape` asks of an engine."""
    return Exchange(
        operation=op.name.lower(),
        combine=arg.monoid.name if isinstance(arg, Combine) else "",
        dtype=dtype,
        shape=shape,
        ranks=arg.ranks,
        stride=arg.stride,
        root=arg.root if isinstance(arg, Broadcast) else 0,
        targets=arg.targets if isinstance(arg, SendTo) else (),
    )


@dataclass(frozen=True)
class Collective:
    """A collective operation among processes, which an engine of the runtime carries out: a step of
    a program in the place of a kernel."""

    parameters: tuple[Parameter, ...]  # the operand, the result
    op: Op
    arg: Any  # of the operation, as in the graph
    shape: Shape  # of the operand
    stores: ClassVar[tuple[Store, ...]] = ()
    nodes: ClassVar[list[Node]] = []
    block_axes: ClassVar[tuple[Node, ...]] = ()

    @property
    def exchange(self) -> Exchange:
        """What the engine is asked."""
        return exchange_of(self.op, self.arg, self.parameters[0].dtype, self.shape)


AnyKernel = Kernel | SortKernel | BinKernel | Collective
Terms = dict[Node, int]  # the coefficient of each operand of an index


def terms_of(index: Node) -> tuple[Terms, int]:
    """Coefficient of each operand of an index, and the constant: {i: 4, j: 1} and 2 for
    ``4*i + j + 2``."""
    if index.op is Op.AFFINE:
        return dict(zip(index.src, index.arg.coefficients, strict=True)), index.arg.constant
    if index.op is Op.CONST:
        return {}, index.arg.value
    return {index: 1}, 0


@memoized(65536)
def bounds(index: Node) -> tuple[int, int]:
    """The lowest and highest value that an index can have, both included; of data, those of
    int64. ``4*i - j`` is within -2 and 12 for i < 4 and j < 3."""
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
        choose = min if index.op is Op.MIN else max
        return choose(lows), choose(highs)
    divisor = divisor_of(index)
    if not divisor:
        return -(1 << 63), (1 << 63) - 1
    if index.op is Op.MOD:
        return 0, divisor - 1
    low, high = bounds(index.src[0])
    return low // divisor, high // divisor


def divisor_of(index: Node) -> int:
    """The positive constant by which `index` divides, as a floor division or modulus; 0 for
    anything else."""
    if index.op not in (Op.IDIV, Op.MOD) or index.dtype is not int64:
        return 0
    divisor = index.src[1]
    return max(divisor.arg.value, 0) if divisor.op is Op.CONST else 0


def bound_axes(node: Node) -> tuple[Node, ...]:
    """The axes that a LOOP_REDUCE or LOOP_SCAN runs over; nothing else has any."""
    return node.src[node.arg.monoid.arity :] if node.op in (Op.LOOP_REDUCE, Op.LOOP_SCAN) else ()


@memoized(1 << 17)
def free_axes(node: Node) -> frozenset[Node]:
    """The axes that the value of `node` depends on: not those that a reduction beneath it runs
    over."""
    if node.op is Op.AXIS:
        return frozenset((node,))
    free = frozenset[Node]().union(*map(free_axes, node.src))
    return free - frozenset(bound_axes(node)) if node.op is Op.LOOP_REDUCE else free


def free_axes_of(nodes: Iterable[Node]) -> frozenset[Node]:
    """The axes that at least one of `nodes` depends on."""
    return frozenset[Node]().union(*map(free_axes, nodes))


def all_axes(node: Node) -> frozenset[Node]:
    """The axes of all loops in which `node` is computed step by step: those that it depends on, and
    those that it runs over itself."""
    return free_axes(node).union(bound_axes(node))


def loads_beneath(values: Iterable[Node]) -> list[Node]:
    """Every LOAD that computing `values` takes, operands first."""
    return [node for node in toposort(values) if node.op is Op.LOAD]


@memoized(1 << 17)
def indices_of(node: Node) -> tuple[Node, ...]:
    """The indices that decide the value of `node` together: each sum of axes beneath it, such as
    ``i + k - 3`` of a load and of its condition. An axis is one of them by itself where a division,
    data or a reduction depends on it."""
    if node.op is Op.AXIS:
        return (node,)
    if node.op is Op.AFFINE and all(term.op is Op.AXIS for term in node.src):
        return (node,)
    if bound_axes(node):
        return tuple(sorted(free_axes(node), key=lambda axis: axis.arg.number))
    return tuple(dict.fromkeys(index for operand in node.src for index in indices_of(operand)))


def needed_again(kernel: Kernel, ops: Set[Op]) -> list[Node]:
    """The nodes that are `ops` and that several passes over a row need. A softmax has three passes,
    the maximum, the sum and the store: the last two need the same exponentials."""
    return [node for node, count in passes(kernel).items() if node.op in ops and count > 1]


def passes(kernel: Kernel, kept: Set[Op] = frozenset()) -> dict[Node, int]:
    """How many passes over a row need each node. A reduction is in the pass after those that it
    depends on, and so is a store. All three passes of a softmax need the load; just two if the
    first one that needs an exponential has `kept` it."""
    return {node: len(inside) for node, inside in _passes_that_need(kernel, kept).items()}


def _passes_that_need(kernel: Kernel, kept: Set[Op] = frozenset()) -> dict[Node, set[int]]:
    """The passes over a row that need each node, by their numbers from 1 on: see `passes`."""
    last_pass: dict[Node, int] = {}  # of the reductions at and beneath each node; 0 without any
    for node in kernel.nodes:
        beneath = max(map(last_pass.__getitem__, node.src), default=0)
        last_pass[node] = beneath + 1 if node.op is Op.LOOP_REDUCE else beneath
    needed_in = {node: set[int]() for node in kernel.nodes}
    for store in kernel.stores:
        needed_in[store.value].add(last_pass[store.value] + 1)
    for node in reversed(kernel.nodes):
        inside = needed_in[node]
        if node.op is Op.LOOP_REDUCE:
            inside = needed_in[node] = {last_pass[node]}
        elif node.op in kept and inside:
            inside = {min(inside)}
        for operand in node.src:
            needed_in[operand] |= inside
    return needed_in


def kept_between_passes(kernel: Kernel) -> list[Node]:
    """The values that are kept from a pass over a row to later ones if nothing is computed again,
    at the end of the pass where they are most.

    Of ``v / rms(v)`` with v = x[i] + y[i] the second pass needs v alone, though both loads are
    beneath it. Of a softmax the second pass needs the load, and the third the exponential."""
    needed_in = _passes_that_need(kernel)
    first_pass = {node: min(inside) for node, inside in needed_in.items() if inside}
    of_loads = set[Node]()  # loads, and what is computed from these in the same loops
    for node in kernel.nodes:
        is_computed = node.op is not Op.LOOP_REDUCE and not of_loads.isdisjoint(node.src)
        if node.op is Op.LOAD or is_computed:
            of_loads.add(node)
    most: list[Node] = []
    for ended in range(1, max(first_pass.values(), default=0)):
        later = [node for node in first_pass if first_pass[node] > ended]
        operands = {operand for node in later for operand in node.src}
        kept = [node for node in operands & of_loads if first_pass[node] <= ended]
        most = max(most, kept, key=len)
    return most


def points(axes: Iterable[Node]) -> int:
    """How many points nested loops over `axes` have: the iterations of the innermost one."""
    return prod(int(axis.arg.size) for axis in axes)


def roots_of(store: Store) -> tuple[Node, ...]:
    """The expressions that a store needs: value, index and condition."""
    return store.value, store.index, store.condition


def kernel_name(kernel: AnyKernel, number: int) -> str:
    """What a kernel does and on how many elements: ``reduce3_64x10``."""
    if isinstance(kernel, SortKernel):
        return f"sort{number}_{kernel.rows}x{kernel.length}"
    if isinstance(kernel, BinKernel):
        return f"{'bin' if kernel.left else 'add'}{number}_{kernel.places}x{kernel.updates}"
    if isinstance(kernel, Collective):
        sizes = "x".join(map(str, kernel.shape)) or "1"
        return f"{kernel.exchange.operation}{number}_{sizes}"
    store, ops = kernel.stores[-1], {node.op for node in kernel.nodes}
    kind = "reduce" if Op.LOOP_REDUCE in ops else "scan" if Op.LOOP_SCAN in ops else "map"
    kind = kind if store.monoid is None else "scatter"
    return f"{kind}{number}_{'x'.join(str(axis.arg.size) for axis in store.axes) or '1'}"
