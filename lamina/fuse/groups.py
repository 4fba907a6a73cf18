"""Which values share a kernel.

Values come in topological order, and each joins the youngest kernel that takes it; if none does, it
begins one. Take ``softmax(x @ w)``, whose five values `lamina.fuse.values` lists:

    kernel 0    product                      rows (64, 100): one sum of products for each
    kernel 1    top, e, total, result        rows (64,)

`product` begins a kernel. `top`, the row maxima, reduces over a row of it; a kernel of a product of
matrices computes one element a row, in tiles, so `top` begins another. `e` needs the maximum of its
own row alone, and so `total` and the result need only what kernel 1 has at hand. `top`, `e` and
`total` then have no reader outside their kernel and need no buffer: `product` alone is passed on.

A value may join a kernel if

- it has something to do with it: it reads one of its members; or it has the same extent as a
  member, and reads the same array or serves the same user (so that one pass reads the array once);
  or both are small tables that read no array (so that one start of a kernel makes all of them);
- no other kernel stands between: none needs a member and is needed by the value;
- the kernel stays small enough to compile, and cheap where its work is done for each element of a
  tile of products;
- `KernelGroup.try_add` finds everything that it needs from the kernel at its own row.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

from lamina.core.shape import Shape, prod, squeezed
from lamina.fuse.costs import MAX_STATEMENTS, weight_of, widening, with_statements
from lamina.fuse.kernel_group import SERIAL, KernelGroup
from lamina.fuse.target import FusionTarget
from lamina.fuse.users import Users
from lamina.fuse.values import Region, Values, choose_values
from lamina.ir.build import component
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.products import reuses_both_factors

# In additions (`lamina.fuse.costs`): the work that a kernel of a product of matrices may do for
# each element of a tile; its text repeats that for every element that a thread holds. 64 is six
# exponentials: epilogues stay whole, the derivatives of several gates of a recurrent network do not
# join.
MAX_WORK_WITH_PRODUCTS = 64

# Elements of the largest table that joins others of its extent: a GPU stores 4 bytes of each of so
# many in the time in which a kernel starts and ends, 2 us at 4 TB/s.
MAX_TABLE = 1 << 21

GPU_WORD = 16  # bytes that a GPU reads at once
BUSY_BLOCKS = 128  # of threads, that keep a GPU busy

Readers = dict[object, list[KernelGroup]]  # by value, or by the storage of an input


class Relation(NamedTuple):
    """Why a value and a kernel are worth joining: the kernel has a member with an equal relation.

    extent: the loops that the value needs: its shape, or for a reduction the shape of its operand
        and the axes
    slices: the parts of arrays that it reads. Steps in time of a recurrent network each read
        another part: they stay apart, so that their kernels are equal and compiled once
    array: an array that both read, or a user of both; None for tables, which are made of indices
        and numbers, such as the places and the weights of an interpolation: nothing is read, and
        what they have in common is computed once
    """

    extent: object
    slices: frozenset[object]
    array: Node | None


def _loops_of_reduction(node: Node) -> tuple[tuple[int, bool], ...]:
    """The sizes of the axes of what it reduces, and which of these it reduces, but for those of
    size 1, which are no loops."""
    sizes = enumerate(node.src[0].shape)
    return tuple((size, axis in node.arg.axes) for axis, size in sizes if size != 1)


def _long_ranges(shrink: Node) -> tuple[range, ...]:
    """The ranges of a SHRINK, but for axes of size 1: it leaves all or nothing of these."""
    pairs = zip(shrink.arg, shrink.src[0].shape, strict=True)
    return tuple(kept for kept, size in pairs if size != 1)


@dataclass(frozen=True)
class _Candidate:
    """A value that is to join a kernel, and what computing it takes."""

    node: Node
    region: Region
    arrays: set[Node]  # values and inputs that the region reads
    recomputed: Set[Node]  # sums of products in the region that kernels compute again
    users: Sequence[Node]

    @cached_property
    def statements(self) -> frozenset[Node]:
        return with_statements(self.region)

    @property
    def is_serial(self) -> bool:
        return any(node.op in SERIAL for node in self.region)

    @property
    def is_again(self) -> bool:
        """Whether the value is computed apart from the first one that equals it."""
        return any(node.op is Op.AGAIN for node in self.region)

    def relations(self) -> list[Relation | Node]:
        """The keys by which `_Grouper.related` has the kernels that are worth joining: a `Relation`
        for each array that the value reads, and for each of its users; and each sum of products
        that it computes again. Kernels that compute the same sum again share that work, whatever
        their extents are. Components of one scan have the first one in common."""
        node = self.node
        extent = _loops_of_reduction(node) if node.op is Op.REDUCE else squeezed(node.shape)
        slices = frozenset(_long_ranges(inner) for inner in self.region if inner.op is Op.SHRINK)
        relations: list[Relation | Node] = list(self.recomputed)
        for array in self.arrays.union(self.users):
            relations.append(Relation(extent, slices, array))
        if not self.arrays and prod(node.shape) <= MAX_TABLE:
            relations.append(Relation(extent, slices, None))
        if node.op is Op.SCAN:
            relations.append(component(node, 0))
        return relations


class _Grouper:
    """Puts one value after the other into a kernel."""

    def __init__(self, values: Values, shapes: Mapping[Node, Shape], target: FusionTarget) -> None:
        self.values = values
        self.shapes = shapes  # of all values, in memory
        self.max_apart = target.max_apart
        self.max_row_work = target.max_row_work
        self.groups: list[KernelGroup] = []
        self.group_of: dict[Node, KernelGroup] = {}
        self.last_collective: KernelGroup | None = None
        # The kernels by what `_Candidate.relations` says of their members.
        self.related: defaultdict[Relation | Node, set[KernelGroup]] = defaultdict(set)

    def add(self, node: Node, region: Region) -> None:
        """Let the value `node`, which `region` computes, join a kernel, or begin one. That kernel
        runs after the kernels of all values that `region` reads. A collective runs after the one
        before it as well: every process runs them in the same order, or each would wait for another
        one."""
        candidate = self._candidate(node, region)
        relations = candidate.relations()
        needed = {self.group_of[array] for array in candidate.arrays if array in self.shapes}
        if node.op in Group.COLLECTIVE and self.last_collective:
            needed.add(self.last_collective)
        group = self._join(candidate, self._possible_groups(candidate, relations, needed))
        if node.op in Group.COLLECTIVE:
            self.last_collective = group
        self.group_of[node] = group
        group.add_statements(candidate.statements, candidate.recomputed)
        group.run_after({*group.src, *needed} - {group})
        for relation in relations:
            self.related[relation].add(group)

    def _candidate(self, node: Node, region: Region) -> _Candidate:
        operands = {operand for inner in region for operand in inner.src}
        return _Candidate(
            node=node,
            region=region,
            arrays={array for array in operands if array in self.shapes or array.op is Op.BUFFER},
            recomputed={
                inner for inner in self.values.recomputed & region if inner.op is Op.REDUCE
            },
            users=self.values.users[node],
        )

    def _possible_groups(
        self,
        candidate: _Candidate,
        relations: Iterable[Relation | Node],
        needed: Set[KernelGroup],
    ) -> list[KernelGroup]:
        """The kernels worth trying, youngest first: those `needed`, which make what the value
        reads, and those in one of `relations` with it. A value that runs in order joins none, but
        for another component of a scan.

        Not a kernel that runs before one that is needed: with the value as a member, it would need
        that kernel, and run after it too.
        """
        if candidate.is_again:
            return []
        if candidate.is_serial:
            node = candidate.node
            return list(self.related[component(node, 0)]) if node.op is Op.SCAN else []
        possible = set(needed).union(*(self.related[relation] for relation in relations))
        # A single kernel is the one needed, which does not run before itself, or none is needed.
        if len(possible) > 1:
            possible -= set(toposort(before for group in needed for before in group.src))
        return sorted(possible, key=_number, reverse=True)

    def _join(self, candidate: _Candidate, possible: Iterable[KernelGroup]) -> KernelGroup:
        """The first of the `possible` kernels that takes the value; a new one if none does."""
        for group in possible:
            if not self._may_join(candidate, group):
                continue
            if group.try_add(candidate.node, candidate.recomputed):
                return group
        group = KernelGroup(candidate.node, self.shapes, len(self.groups), self.max_apart)
        self.groups.append(group)
        return group

    def _may_join(self, candidate: _Candidate, group: KernelGroup) -> bool:
        """Whether the kernel `group` would stay small enough with the value.

        A kernel that computes a sum of `Values.stored_first` takes only values that read nothing
        but its members, such as a 16-bit copy of the sum. A value that reads other arrays waits
        until the sum is stored, for the reason that `FusionTarget.min_updating_results` gives.
        """
        has_stored_first = not self.values.stored_first.isdisjoint(group.statements)
        if has_stored_first and not candidate.arrays <= set(group.members):
            return False
        statements = group.statements | candidate.statements
        if len(statements) > MAX_STATEMENTS or self._has_long_rows(candidate, group, statements):
            return False
        return not group.contraction or weight_of(statements) <= MAX_WORK_WITH_PRODUCTS

    def _has_long_rows(
        self, candidate: _Candidate, group: KernelGroup, statements: Set[Node]
    ) -> bool:
        """Whether the kernel `group` would pass over few rows, with more work for each than
        `max_row_work` allows, if it had these statements. The work counts by the share of 128
        blocks that would have no row: a quarter of it with 96 rows."""
        node = candidate.node
        rows, elements = prod(group.rows), prod(node.shape)
        if node.op is Op.REDUCE:
            rows, elements = min(rows, elements), prod(node.src[0].shape)
        if not self.max_row_work or not 0 < rows < min(BUSY_BLOCKS, elements):
            return False
        work = elements // rows * weight_of(statements)
        return work * (BUSY_BLOCKS - rows) > self.max_row_work * BUSY_BLOCKS


_number = attrgetter("number")


def group_values(
    sinks: Sequence[Node], target: FusionTarget, never_recomputed: Set[Node]
) -> list[KernelGroup]:
    """Kernels for everything that `sinks` need, in an order in which they can run.

    `never_recomputed` are sums of products that kernels gain nothing by computing again.
    """
    values = choose_values(sinks, target, never_recomputed)
    grouper = _Grouper(values, _padded_shapes(sinks, values, target), target)
    for node, region in values.regions.items():
        grouper.add(node, region)
    return toposort(grouper.groups)


def readers_of(groups: Iterable[KernelGroup]) -> Readers:
    """The kernels that read each value of another, or the storage of each input, in memory."""
    readers: Readers = {}
    for group in groups:
        for array in group.arrays_read:
            readers.setdefault(array, []).append(group)
    return readers


def _padded_shapes(
    sinks: Sequence[Node], values: Values, target: FusionTarget
) -> dict[Node, Shape]:
    """The shape that each value has in memory, should it get a buffer: see `padded`.

    Not padded are results, as users see them; and what kernels of SERIAL operations read and write:
    a sort takes rows that lie one after the other, a scatter computes places from the shape of its
    result.
    """
    unpadded, pitch = set(sinks), target.row_pitch
    for node in values.users:
        if node.op in SERIAL:
            unpadded.update((node, *node.src))
    shapes: dict[Node, Shape] = {}
    for node in values.regions:
        shapes[node] = node.shape if node in unpadded else padded(node, pitch)
        if node.op is Op.CONTIGUOUS and node not in unpadded and _is_factor(node, values.users):
            shapes[node] = shape_of_factor(node, pitch)
    return shapes


def _is_factor(node: Node, users: Users) -> bool:
    """Do only products of tiles read `node`, through movement and casts to wider floats?"""

    def is_in_product(user: Node) -> bool:
        if user.op in Group.MOVEMENT or widening(user) > 0:
            return _is_factor(user, users)
        totals = users[user]
        return user.op is Op.MUL and bool(totals) and all(map(reuses_both_factors, totals))

    return bool(users[node]) and all(map(is_in_product, users[node]))


def padded(node: Node, pitch: int) -> Shape:
    """The shape of `node` in memory: its last axis, a row, may have elements more that nobody uses.

    Rows get a multiple of `pitch` bytes (0 for no padding) if there are several, each has at least
    `pitch` bytes, and some begin within a word of `GPU_WORD` bytes, which GPUs would read slowly.

    Rows of 50,257 float16 have 100,514 bytes, 2 more than 6,282 words. With a pitch of 128 bytes
    they get 786 * 128 = 100,608 bytes, or 50,304 elements.
    """
    row_bytes = node.shape[-1] * node.dtype.itemsize if node.shape else 0
    return shape_of_factor(node, pitch) if row_bytes >= pitch else node.shape


def shape_of_factor(node: Node, pitch: int) -> Shape:
    """The same of a copy that products of tiles alone read: shorter rows too begin at words, as the
    engine that copies arrays to tiles asks. Those of 31 float16 have 62 bytes, and get 64. Rows of
    less than a word stay, as they would be several times as long."""
    if not pitch or not node.shape:
        return node.shape
    *outer, row = node.shape
    item_bytes = node.dtype.itemsize
    row_bytes = row * item_bytes
    has_several_rows = prod(outer) != 1
    begins_within_a_word = row_bytes % GPU_WORD != 0  # the second row, at least
    if not has_several_rows or not begins_within_a_word or row_bytes < GPU_WORD:
        return node.shape
    multiple = pitch if row_bytes >= pitch else GPU_WORD
    padded_bytes = -(-row_bytes // multiple) * multiple  # rounded up
    return (*outer, padded_bytes // item_bytes)
