"""Which values of a graph get memory; everything else is computed where it is used.

Take ``softmax(x @ w)`` on a CPU, for x of (64, 32) and w of (32, 100):

    product = sum(x[:, :, None] * w[None], axis=1)    (64, 100)
    top = max(product, axis=1)                        (64,)
    e = exp(product - top[:, None])                   (64, 100)
    total = sum(e, axis=1)                            (64,)
    result = e / total[:, None]                       (64, 100)

`choose_values` chooses these five. Three are reductions: without memory, every use would run the
loop again. The result is what was asked for. `e` has two users and costs 14 additions an element
(an exponential 10, a difference 2, two reads), more than the 12 of `FusionTarget.min_shared_cost`;
on a GPU, where the limit is 32, both users compute it again. The 204,800 products of the matrix
product, the difference and the broadcast maximum are computed where they are used.

A value need not end up in memory. `lamina.fuse.groups` decides which values share a kernel; one
that only its own kernel reads, here all but `product` and the result, gets no buffer.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from lamina.core.dtypes import bool_
from lamina.core.shape import prod, squeezed
from lamina.fuse.constants import constants_of
from lamina.fuse.costs import MAX_STATEMENTS, element_costs, widening, with_statements
from lamina.fuse.early import in_order_of_use
from lamina.fuse.epilogues import find_epilogues
from lamina.fuse.gathered_values import gathered_values
from lamina.fuse.target import FusionTarget
from lamina.fuse.users import Users, users_of
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.products import product_of, reuses_both_factors, varies

Region = frozenset[Node]  # a value and all nodes that computing it takes, down to other values

# In additions for each element: a value that an EXPAND would have computed once for each copy is
# stored from this cost on. A division costs as much. ``x + 1``, which costs an addition and perhaps
# a read, is computed again for each copy.
MIN_REPEATED_COST = 3

# A node of at most so many elements is not stored because one value computes elements of it at
# several places, as hashing computes both halves of a random key: a kernel of its own would take
# longer. An estimate.
FEW_ELEMENTS = 64

# In ``(x * s) @ w`` the elements of ``x * s`` are scalars for vectors along the columns of w, and
# each tile of columns would compute them again, one by one. So a CPU stores ``x * s`` if w has so
# many columns, 3 vectors of 16 lanes, however cheap the factor is. Measured with one thread, first
# without and then with the store: (192, 1568) times a scale, by (1568, 48), took 0.38 and 0.28 ms;
# by 73 columns 0.77 and 0.47 ms; by 877 columns 5.6 and 4.5 ms. With 16 and 24 columns the store
# made it 0.45 to 1.5 times as fast.
MIN_COLUMNS_OF_STORED = 48

# Copies of each element of a factor of 16 bits from which on a GPU stores it, however cheap it is
# to compute from arrays in memory: threads would compute it for each tile of 128 columns or so,
# while tensor cores wait. Five products of (160, 7768) elements, gradients of a softmax times a
# vector, by factors of 1280 to 4200 columns are predicted to take 118 us, and 310 without. An
# estimate.
MIN_FILLED_COPIES = 256

# In additions for each element: the update of a scatter is stored from this cost on. That takes a
# store and a load; an exponential costs 10, and with vectors of 8 lanes an eighth of it. A choice
# by a number in memory, as of the place of a maximum, costs 4: with 688,128 of these a scatter took
# 1076 us, and 287 with 189 for a kernel that stores them (one core of a Zen 4).
MIN_SCATTERED_COST = 4
# Elements that go to one place together, as the columns of an embedding do, from which on the loop
# of a scatter has vectors along them. An estimate: fewer leave half of 16 lanes of float32 empty.
MIN_SCATTERED_COLUMNS = 8

# The most products in a sum that kernels may compute again instead of reading it: the width of the
# widest attention heads. The scheduler then says whether a kernel gains by it.
MAX_RECOMPUTED_PRODUCTS = 256

# The fewest products in a long sum, which devices cut into parts; see `min_updating_results`.
# Chosen with the training of GPT-2: gradients of its weights are such sums, over all tokens of a
# batch.
MIN_LONG_SUM = 4096

# Operations whose results have a buffer whatever they cost. A SCAN is none of them, as its kernel
# stores the end of its epilogue: the loop of a scan is that of its store. `find_epilogues` adds
# that end to the values.
ALWAYS_STORED = Group.COLLECTIVE | {
    Op.REDUCE, Op.SCATTER, Op.ARGSORT, Op.BIN_SUM, Op.CONTIGUOUS, Op.COPY,
}  # fmt: skip
# Operations that are not part of a kernel of scalars: they read a whole array in memory.
READS_AN_ARRAY = Group.COLLECTIVE | {Op.ARGSORT, Op.BIN_SUM, Op.COPY}
POINTWISE = Group.ELEMENTWISE | {Op.RESHAPE, Op.PERMUTE, Op.EXPAND}
# What sums of indices and comparisons of them consist of.
INDEX_OPERATIONS = frozenset({Op.ADD, Op.NEG, Op.CAST, Op.LT, Op.NOT}) | Group.MOVEMENT
# What indices consist of as well, if the second operand is a number.
BY_NUMBERS = frozenset({Op.MUL, Op.IDIV, Op.MOD})
# Operations by which one result may read an element at another place than the next operand does, so
# that a value reads an element more than once: `e[1:] - e[:-1]` by two SHRINKs. Reshapes and
# permutes are taken to read each element once; EXPAND is `_repeated`'s.
MOVES = frozenset({Op.SHRINK, Op.PAD, Op.SHEAR, Op.GATHER})
# Operations that are never worth a buffer: a buffer, what needs no memory, and movement.
NEVER_STORED = frozenset({Op.BUFFER, Op.CONST, Op.IOTA}) | Group.MOVEMENT


@dataclass(frozen=True)
class Values:
    """The values of a graph.

    regions: the region of each value, values of operands first. A value gets a buffer only if a
        kernel reads it that does not compute it, or if it is a result
    recomputed: sums of products, and arithmetic on them, that are no values, though they are large:
        kernels compute them again inside their own sums. See `_recomputed`
    stored_first: sums of products that have to be in memory before other kernels use them. Their
        own kernel takes in only values that read nothing else. See `_updating_sums`
    users: the users of every node
    """

    regions: Mapping[Node, Region]
    recomputed: Set[Node]
    stored_first: Set[Node]
    users: Users


def choose_values(
    sinks: Sequence[Node], target: FusionTarget, never_recomputed: Set[Node] = frozenset()
) -> Values:
    """The values that computing `sinks` takes.

    never_recomputed: sums of products that are to be values, as an earlier attempt has shown that
        no kernel gains by computing them again

    Each step below adds nodes that are too costly to compute again. That depends on the values so
    far, as an expression costs less if its operands are in memory. So the first values are those
    that are stored whatever they cost.
    """
    users = _users_in_order(sinks, ahead=target.overlaps_collectives)
    recomputed: Set[Node] = frozenset()
    if target.gains_by_recomputing:
        recomputed = _recomputed(set(sinks), users, never_recomputed)
    stored_first = _updating_sums(users, target)
    values = _always_stored(sinks, users)
    epilogues = find_epilogues(
        users, values, stored_first, scans_lack_vectors=target.scans_lack_vectors,
        tiled_products=target.tiled_products,
    )  # fmt: skip
    values |= epilogues.ends
    # An absorbed reduction is computed where its end is and has no buffer, unless it is a result.
    values -= epilogues.absorbed - set(sinks)
    repeated = _repeated(users, values, target)
    # Once these are in memory, expressions above them cost less: some need not be stored after all.
    repeated &= _repeated(users, values | repeated, target)
    if target.stores_read_slices:
        repeated = _sliced(users, repeated, set(sinks))
    values |= repeated
    values |= gathered_values(users, values, _made_of_indices(users))
    if target.stores_scattered_updates:
        values |= _scattered(users, values)
    values |= _shared(users, values, target)
    regions = _regions(users, values - recomputed)
    return Values(regions, recomputed, stored_first, users)


def _users_in_order(sinks: Sequence[Node], *, ahead: bool) -> Users:
    """The users of every node that `sinks` need, in the order in which values are computed."""
    users = users_of(sinks)
    return {node: users[node] for node in in_order_of_use(list(users), ahead=ahead)}


def _always_stored(sinks: Iterable[Node], users: Users) -> set[Node]:
    """What has a buffer whatever it costs: results, reductions, what is sorted or copied, and what
    goes to other processes or comes from them."""
    values = {node for node in users if node.op in ALWAYS_STORED}.union(sinks)
    for node in users:
        if node.op in READS_AN_ARRAY:
            values.update(node.src)
    return values


def _regions(users: Users, values: set[Node]) -> dict[Node, Region]:
    """The region of each of `values`, and of further values that are chosen here: each node whose
    region is the first to be too long for one kernel. A chain of 1000 additions has three such
    nodes, additions 257, 514 and 771.

    A BUFFER may be among `values`, if it is sorted, copied or sent. It is in memory already, and so
    no kernel computes it.
    """
    values = set(values)
    chosen: dict[Node, Region] = {}
    regions: dict[Node, Region] = {}  # of every node, as if it were a value
    for node in users:
        parts = [regions[operand] for operand in node.src if operand not in values]
        region = regions[node] = frozenset((node,)).union(*parts)
        if node.op not in NEVER_STORED and _is_too_long(region):
            values.add(node)
        if node in values and node.op is not Op.BUFFER:
            chosen[node] = region
    return chosen


def _is_too_long(region: Region) -> bool:
    """Whether `region` has more statements than a kernel may have. A region of few nodes has few
    statements: that is decided without counting them."""
    if len(region) <= MAX_STATEMENTS:
        return False
    return len(with_statements(region)) > MAX_STATEMENTS


def _recomputed(sinks: Set[Node], users: Users, never_recomputed: Set[Node]) -> set[Node]:
    """The nodes that kernels compute again inside their sums and never read from memory.

    They are sums of products such as the scores of attention, ``q @ k.T``, which are larger than
    their factors and which only reductions use, directly or through arithmetic; and this
    arithmetic, such as the exponentials of the scores.
    """
    needed = _needed_by_reductions_alone(sinks, users)
    recomputed: set[Node] = set()
    for node in users:
        if node not in needed:
            continue
        if product_of(node) is not None:
            is_recomputed = node not in never_recomputed and _is_larger_than_its_factors(node)
        else:
            is_recomputed = node.op in POINTWISE and not recomputed.isdisjoint(node.src)
        if is_recomputed:
            recomputed.add(node)
    return recomputed


def _needed_by_reductions_alone(sinks: Set[Node], users: Users) -> set[Node]:
    """The nodes that only reductions use, directly or through pointwise operations. No sink is one
    of them. In ``sum(exp(x))`` they are x and ``exp(x)``."""
    needed: set[Node] = set()

    def leads_to_reductions(user: Node) -> bool:
        return user.op is Op.REDUCE or (user.op in POINTWISE and user in needed)

    for node in reversed(users):  # users first
        if node not in sinks and all(map(leads_to_reductions, users[node])):
            needed.add(node)
    return needed


def _is_larger_than_its_factors(node: Node) -> bool:
    """Whether a sum of products is cheap to compute again and large in memory: each element adds up
    few products, and both factors are EXPANDs of arrays with fewer elements than the sum has.

    Scores of 1024 queries and keys of 64 columns: 1,048,576 sums of 64 products each, from two
    arrays of 65,536 elements.
    """
    product = node.src[0]
    size = prod(node.shape)
    products_of_each = prod(product.shape) // max(size, 1)  # 0 // 1 for a sum without elements
    factor_sizes = [
        prod(operand.src[0].shape) for operand in product.src if operand.op is Op.EXPAND
    ]
    if len(factor_sizes) != 2 or products_of_each > MAX_RECOMPUTED_PRODUCTS:
        return False
    return max(factor_sizes) < size


def _updating_sums(users: Users, target: FusionTarget) -> set[Node]:
    """The sums of products that are stored before other arrays are updated by them.

    1. Long sums (MIN_LONG_SUM) that update several arrays of their size, such as the gradient that
       an optimizer applies to a weight and its moments; not sums of `target.min_updating_results`
       results or more, where the reason is.
    2. On a CPU, sums over the first axis, images, and at least two more axes, however short, that
       update one array or more: the gradient of a convolution's filter. Its results lie apart along
       its vectors, and so would the lanes of each updated array, if one kernel did both. That of a
       filter of (512, 512, 3, 3), updated by momentum, took 32 ms as one kernel, and 21 ms with a
       kernel of its own (one core of a Xeon, 8 images of 7 x 7).
    """
    sums: set[Node] = set()
    for node in users:
        if product_of(node) is None:
            continue
        if not (reuses_both_factors(node) or target.lanes_are_neighbours):
            continue  # the product of a matrix and one vector: no tiles, whose blocks are few
        size = prod(node.shape)
        if size >= target.min_updating_results:
            continue
        updated = _arrays_updated_by(node, users)
        is_long = prod(node.src[0].shape) >= MIN_LONG_SUM * size
        axes = node.arg.axes
        has_lanes_apart = target.lanes_are_neighbours and len(axes) > 2 and axes[0] == 0
        if (is_long and updated > 1) or (has_lanes_apart and updated > 0):
            sums.add(node)
    return sums


def _arrays_updated_by(total: Node, users: Users) -> int:
    """The number of other arrays of the size of `total` with which arithmetic combines it.

    For ``w - 0.1 * (0.9 * m + total)`` there are two, ``0.9 * m`` and w. Constants do not count,
    nor does an EXPAND, which repeats a smaller array. The products that `total` adds up are found
    too, but have another size.
    """
    reached = {total}  # by arithmetic alone
    queue = [total]
    for node in queue:  # which grows as nodes are reached
        for user in users[node]:
            is_arithmetic = user.op in POINTWISE and user.op is not Op.EXPAND
            if is_arithmetic and user not in reached:
                reached.add(user)
                queue.append(user)
    others = {operand for user in reached for operand in user.src} - reached
    return sum(
        node.op not in (Op.CONST, Op.EXPAND) and prod(node.shape) == prod(total.shape)
        for node in others
    )


def _repeated(users: Users, values: Set[Node], target: FusionTarget) -> set[Node]:
    """The nodes to store because an EXPAND repeats them: without memory, each copy of an element
    would be computed by itself. These are

    - arithmetic that costs MIN_REPEATED_COST or more; but not masks of indices, which are cheap,
      and not quantised weights and the like, which products decode in panels
      (`FusionTarget.packs_constants`);
    - arithmetic on two arrays or more, of any cost, that gives scalars to multiply with many
      vectors of a product (`FusionTarget.stores_scalars_of_vectors`);
    - a PAD, whose bounds would be tested for each copy;
    - a cast to a narrower float: every copy would read the wider one, twice as many bytes.

    An EXPAND of a single element does not count: its operand depends on no axis, so that a kernel
    computes it once, outside of its loops.
    """
    costs = element_costs(users, values)
    cheap = _made_of_indices(users)
    constants = constants_of(users)
    repeated: set[Node] = set()
    for node in users:
        if node.op is not Op.EXPAND or prod(node.src[0].shape) == 1:
            continue
        source = _computed_source(node, values, target)
        if target.packs_constants and source in constants and _multiplies_alone(node, users):
            continue
        is_arithmetic = source.op in Group.ELEMENTWISE and source not in cheap
        is_costly = is_arithmetic and costs[source] >= MIN_REPEATED_COST
        if target.stores_scalars_of_vectors and is_arithmetic and not is_costly:
            is_costly = _are_scalars_of_vectors(node, users) and _combines_arrays(source, values)
        if target.tiled_products and is_arithmetic and not is_costly:
            is_costly = _fills_tiles(node, source, users) and _combines_arrays(source, values)
        is_narrowed = widening(source) < 0
        if is_costly or source.op is Op.PAD or is_narrowed:
            repeated.add(source)  # it may be among `values` already
    return repeated


def _sliced(users: Users, repeated: Set[Node], sinks: Set[Node]) -> set[Node]:
    """`repeated`, but where only a slice of a node is read, the slice in place of the node. A roll
    is a slice of two copies of an array: half of these would be stored for nothing."""
    return {_read_part(node, users, sinks) for node in repeated}


def _read_part(node: Node, users: Users, sinks: Set[Node]) -> Node:
    """The smallest part of `node` that has all elements that are read: follows movement for as long
    as it is the only user."""
    smallest = node
    while node not in sinks and len(users[node]) == 1:
        (node,) = users[node]
        if node.op not in Group.MOVEMENT:
            break
        if prod(node.shape) < prod(smallest.shape):
            smallest = node
    return smallest


def _multiplies_alone(node: Node, users: Users) -> bool:
    """Whether sums of products of floats are all that reads `node`, through movement."""

    def is_product(reader: Node) -> bool:
        if reader.op in Group.MOVEMENT:
            return _multiplies_alone(reader, users)
        totals = users[reader]
        multiplies_floats = reader.op is Op.MUL and reader.dtype.is_float
        return multiplies_floats and bool(totals) and all(map(product_of, totals))

    return bool(users[node]) and all(map(is_product, users[node]))


def _combines_arrays(node: Node, values: Set[Node]) -> bool:
    """Whether `node` is computed from several arrays in memory. Arithmetic on one array and
    constants, such as ``0.125 * q``, stays in the product, so that attention with scaled queries
    has the same kernels as attention with scaled scores."""
    in_memory = values - {node}
    computed = toposort([node], lambda each: each not in in_memory and each.op is not Op.BUFFER)
    operands = {operand for each in computed for operand in each.src}
    return len(operands.difference(computed)) > 1


def _fills_tiles(copies: Node, source: Node, users: Users) -> bool:
    """Whether the EXPAND `copies` makes MIN_FILLED_COPIES or more of `source`, of 16 bits, for sums
    of products of floats, a long one among them, and nothing else reads it."""
    if source.dtype.bits != 16 or prod(copies.shape) < MIN_FILLED_COPIES * prod(source.shape):
        return False
    totals = [total for product in users[copies] for total in users[product]]
    fewest = MAX_RECOMPUTED_PRODUCTS + 1
    is_long = any(prod(total.src[0].shape) >= fewest * prod(total.shape) for total in totals)
    return is_long and _multiplies_alone(copies, users)


def _are_scalars_of_vectors(copies: Node, users: Users) -> bool:
    """Whether the elements of the EXPAND `copies` are scalars that many vectors of products read:
    only sums of products of floats read it, and along the last axis of their results, where vectors
    run, it repeats one element MIN_COLUMNS_OF_STORED times or more."""
    products = users[copies]
    totals = [total for product in products for total in users[product]]
    if not _multiplies_alone(copies.src[0], users) or not totals:
        return False
    for total in totals:
        if product_of(total) is None:
            return False
        kept = [axis for axis in range(len(copies.shape)) if axis not in total.arg.axes]
        if not kept or varies(copies, kept[-1]):
            return False
        if copies.shape[kept[-1]] < MIN_COLUMNS_OF_STORED:
            return False
    return True


def _scattered(users: Users, values: Set[Node]) -> set[Node]:
    """The updates of scatters along the last axis, or with few columns behind it, that cost
    MIN_SCATTERED_COST or more: they are computed in a kernel of their own, which has vectors. A
    scatter has none along its axis, as data say where its lanes go."""
    costs = element_costs(users, values)
    stored: set[Node] = set()
    for node in users:
        if node.op is not Op.SCATTER:
            continue
        columns = prod(node.shape[node.arg.axis + 1 :])  # 1 along the last axis
        if columns >= MIN_SCATTERED_COLUMNS:
            continue
        update = node.src[2]
        while update.op in POINTWISE - Group.ELEMENTWISE and update not in values:
            update = update.src[0]
        if update.op in Group.ELEMENTWISE and costs[update] >= MIN_SCATTERED_COST:
            stored.add(update)
    return stored


def _made_of_indices(users: Users) -> set[Node]:
    """The nodes that are sums of indices, these by numbers, or comparisons of them, such as the
    mask ``row - column >= 0``. They are cheap: lowering brings a comparison of indices to one
    addition and one test, and the kernel reads no array for it."""
    made: set[Node] = set()
    for node in users:
        is_leaf = node.op in (Op.IOTA, Op.CONST)
        is_by_number = node.op in BY_NUMBERS and peel(node.src[1], Group.MOVEMENT).op is Op.CONST
        is_operation = node.op in INDEX_OPERATIONS or is_by_number
        is_exact = node.dtype.is_int or node.dtype is bool_
        if is_exact and (is_leaf or (is_operation and made.issuperset(node.src))):
            made.add(node)
    return made


def _same_for_all_lanes(indices: Set[Node], users: Users) -> set[Node]:
    """Those of `indices` that are the same along their last axis, where lanes are as a rule: a
    kernel computes them outside of its innermost loop. ``row % 7 < 3`` for all columns of a row."""
    varying: dict[Node, frozenset[int]] = {}
    for node in users:
        if node in indices:
            varying[node] = _varying_axes(node, varying)
    return {node for node, axes in varying.items() if len(node.shape) - 1 not in axes}


def _varying_axes(node: Node, varying: Mapping[Node, frozenset[int]]) -> frozenset[int]:
    """The axes along which what is made of indices differs; perhaps some along which it does not.
    varying: the same of its operands"""
    rank = len(node.shape)
    if node.op in Group.ELEMENTWISE:
        return frozenset[int]().union(*(varying[operand] for operand in node.src))
    if node.op is Op.CONST:
        return frozenset()
    if node.op is Op.EXPAND:
        (source,) = node.src
        added = rank - len(source.shape)
        return frozenset(axis + added for axis in varying[source] if source.shape[axis] > 1)
    if node.op is Op.PERMUTE:
        return frozenset(node.arg.index(axis) for axis in varying[node.src[0]])
    if node.op is Op.RESHAPE and squeezed(node.shape) == squeezed(node.src[0].shape):
        before, after = (_long_axes(each) for each in (node.src[0], node))
        pairs = zip(before, after, strict=True)
        return frozenset(new for old, new in pairs if old in varying[node.src[0]])
    return frozenset(range(rank))


def _long_axes(node: Node) -> list[int]:
    return [axis for axis, size in enumerate(node.shape) if size > 1]


def _computed_source(expand: Node, values: Set[Node], target: FusionTarget) -> Node:
    """The node that is computed once for each copy that `expand` makes. It lies beneath movement
    and casts to wider floats, which are done again for each copy in any case. The search ends at a
    value, which is read."""
    source = expand.src[0]
    while source not in values and (widening(source) > 0 or source.op in Group.MOVEMENT):
        if source.op is Op.PAD and _is_padding_stored(source, expand, target):
            break
        source = source.src[0]
    return source


def _is_padding_stored(pad: Node, expand: Node, target: FusionTarget) -> bool:
    """Whether an array with the padding costs less than to test for each copy that `expand` makes
    of it whether it is inside: if there are many copies, or if another number than 0, which a
    guarded load gives by itself, has to be chosen outside.

    Not on devices that copy tiles of factors to fast memory, as these copies fill in the padding.
    """
    if target.tiled_products:
        return False
    has_many_copies = prod(expand.shape) > target.max_padded_copies * prod(pad.shape)
    return has_many_copies or pad.arg.value != 0


@dataclass(frozen=True)
class _Use:
    """One way in which a value reads a node.

    moves: the `MOVES` on the way from the value down to the node. Two different ways compute an
        element twice
    elements: how many of the node's elements this way reads, at most all
    """

    value: Node
    moves: tuple[Node, ...]
    elements: int


def _shared(users: Users, values: Set[Node], target: FusionTarget) -> set[Node]:
    """Elementwise nodes that would be computed again, at a cost of `target.min_shared_cost` or more
    an element: by several values, of `values` or those that this function adds, or by one value at
    several places.

    Take ``d = x - m``, ``e = exp(d)``, and the values ``sum(e)`` and ``e / total``. Users come
    first: e is computed for two values, and is stored. Then d is computed for e alone, and is not.

    The value ``e[1:] - e[:-1]`` of n elements computes 2n of them, one e more for each. A bicubic
    interpolation along rows is a sum of four elements, 15 additions with their reads; that along
    columns gathers four of these sums for each result, which would be 60.
    """
    cheap = _made_of_indices(users)
    costs = element_costs(users, values, _same_for_all_lanes(cheap, users))
    stored = set(values)
    uses: dict[Node, frozenset[_Use]] = {}
    for node in reversed(users):
        uses[node] = _uses_of(node, users[node], stored, uses)
        # A cast to a wider float is done where it is read: its operand may be stored.
        if node.op not in Group.ELEMENTWISE or widening(node) > 0 or node in cheap:
            continue
        times = _times_again(prod(node.shape), uses[node])
        if times * costs[node] >= target.min_shared_cost:
            stored.add(node)
    return stored - values


def _times_again(size: int, uses: Set[_Use]) -> float:
    """How many computations of an element storing the node would save, on average over its `size`
    elements. One value that reads each element twice computes it once too often. Several values,
    however many, count as one more; a node of FEW_ELEMENTS has nothing but that."""
    values = {use.value for use in uses}
    if size <= FEW_ELEMENTS:
        return float(len(values) > 1)
    computed = sum(use.elements for use in uses) / max(size, 1)
    return max(computed - len(values), 0) + (len(values) > 1)


def _uses_of(
    node: Node, users: Iterable[Node], stored: Set[Node], uses: Mapping[Node, frozenset[_Use]]
) -> frozenset[_Use]:
    """The ways in which values read `node`, from those (`uses`) of its users. A GATHER, and a
    stored user that moves nothing, are taken to read all elements once."""
    size = prod(node.shape)
    uses_of_node: set[_Use] = set()
    for user in users:
        reads_all = user.op is Op.GATHER or (user in stored and user.op not in MOVES)
        moves = (user,) if user.op in MOVES and user.src[0] is node else ()
        uses_of_user = {_Use(user, (), prod(user.shape))} if user in stored else uses[user]
        for use in uses_of_user:
            elements = size if reads_all else min(use.elements, size)
            uses_of_node.add(_Use(use.value, (*use.moves, *moves), elements))
    return frozenset(uses_of_node)
