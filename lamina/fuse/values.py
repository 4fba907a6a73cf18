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
from lamina.core.shape import prod
from lamina.fuse.costs import MAX_STATEMENTS, element_costs, widening, with_statements
from lamina.fuse.epilogues import find_epilogues
from lamina.fuse.target import FusionTarget
from lamina.fuse.users import Users, users_of
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

Region = frozenset[Node]  # a value and all nodes that computing it takes, down to other values

# In additions: a value that an EXPAND would have computed once for each copy is stored from this
# cost on. A division costs as much; one addition to what is read is computed again.
MIN_REPEATED_COST = 3

# Copies of each element by an EXPAND, up to which padding beneath it is tested wherever it is read.
# With more a padded copy is cheaper. A depthwise convolution with windows of 3 x 3, 9 copies, takes
# half the time without the copy.
MAX_COPIES_OF_PADDED = 16

# Products in a sum, up to which kernels may compute it again instead of reading it: the width of an
# attention head, at most. The scheduler then says whether a kernel gains by it.
MAX_RECOMPUTED_PRODUCTS = 256

# Products in a sum, from which on GPUs may cut it into parts; see `min_updating_results`. Chosen
# with the training of GPT-2: gradients of its weights are such sums, over all tokens of a batch.
MIN_LONG_SUM = 4096

# What has a buffer whatever it costs. A SCAN is none of them, as no kernel makes one without its
# epilogue: the loop of a scan is that of its store. See `lamina.fuse.epilogues`.
ALWAYS_STORED = frozenset({Op.REDUCE, Op.SCATTER, Op.ARGSORT, Op.CONTIGUOUS, Op.COPY})
POINTWISE = Group.ELEMENTWISE | {Op.RESHAPE, Op.PERMUTE, Op.EXPAND}
# What sums of indices and comparisons of them consist of.
INDEX_OPERATIONS = frozenset({Op.ADD, Op.NEG, Op.CAST, Op.LT, Op.NOT}) | Group.MOVEMENT
# Operations that are never worth a buffer: a buffer, what needs no memory, and movement.
NEVER_STORED = frozenset({Op.BUFFER, Op.CONST, Op.IOTA}) | Group.MOVEMENT


@dataclass(frozen=True)
class Values:
    """The values of a graph.

    `regions` has each value that gets a buffer if anything outside its kernel reads it, in order,
    with its region. `recomputed` are sums of products, and arithmetic on such, that kernels compute
    again inside their own sums. `stored_first` are sums that are stored whole before
    anything uses them, but for values of their own kernel that read no other array. `users` are
    those of every node.
    """

    regions: Mapping[Node, Region]
    recomputed: Set[Node]
    stored_first: Set[Node]
    users: Users


def choose_values(
    sinks: Sequence[Node], target: FusionTarget, never_recomputed: Set[Node] = frozenset()
) -> Values:
    """The values of all that `sinks` need.

    `never_recomputed` are sums of products that kernels gain nothing by computing again.
    """
    users = users_of(sinks)
    recomputed: Set[Node] = frozenset()
    if target.gains_by_recomputing:
        recomputed = _recomputed(set(sinks), users, never_recomputed)
    stored_first = _updating_sums(users, target.min_updating_results)
    # Every step stores what the values so far leave too costly to compute again, so what is stored
    # whatever it costs comes first.
    values = _always_stored(sinks, users)
    epilogues = find_epilogues(users, values, stored_first, row_blocks=target.row_blocks)
    values |= epilogues.ends
    # An absorbed reduction is computed where its end is and has no buffer, unless it is a result.
    values -= epilogues.absorbed - set(sinks)
    values |= _repeated(users, values, target)
    values |= _shared(users, values, target)
    regions = _regions(users, values - recomputed)
    return Values(regions, recomputed, stored_first, users)


def _always_stored(sinks: Iterable[Node], users: Users) -> set[Node]:
    """What has a buffer whatever it costs: results, reductions, and what is sorted or copied."""
    values = {node for node in users if node.op in ALWAYS_STORED}.union(sinks)
    for node in users:
        if node.op in (Op.ARGSORT, Op.COPY):
            values.add(node.src[0])  # a sort, or a copy between devices, reads an array
    return values


def _regions(users: Users, values: set[Node]) -> dict[Node, Region]:
    """The region of each of `values`, and of the values that cut regions too large for a kernel.

    A BUFFER among them, as one that is sorted, is in memory already: no kernel computes it.
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
    """Whether `region` has more statements than a kernel may; the first test is a quick one."""
    return len(region) > MAX_STATEMENTS and len(with_statements(region)) > MAX_STATEMENTS


def _recomputed(sinks: Set[Node], users: Users, never_recomputed: Set[Node]) -> set[Node]:
    """What kernels compute again inside their sums and never read from memory.

    These are the scores of attention, ``q @ k.T``: sums of few products each, larger than their
    factors, that nothing but reductions need, through arithmetic; and that arithmetic.
    """
    needed = _needed_by_reductions_alone(sinks, users)
    recomputed: set[Node] = set()
    for node in users:
        if node not in needed:
            continue
        if _is_sum_of_products(node):
            if node not in never_recomputed and _is_larger_than_its_factors(node):
                recomputed.add(node)
        elif node.op in POINTWISE and not recomputed.isdisjoint(node.src):
            recomputed.add(node)
    return recomputed


def _needed_by_reductions_alone(sinks: Set[Node], users: Users) -> set[Node]:
    """The nodes that nothing but reductions use, through pointwise operations; no sinks."""
    needed: set[Node] = set()
    for node in reversed(users):  # users first
        if node not in sinks and all(
            user.op is Op.REDUCE or (user in needed and user.op in POINTWISE)
            for user in users[node]
        ):
            needed.add(node)
    return needed


def _is_sum_of_products(node: Node) -> bool:
    return node.op is Op.REDUCE and node.arg.monoid is ADD and node.src[0].op is Op.MUL


def _is_larger_than_its_factors(node: Node) -> bool:
    """Whether the elements of a sum of products have few products each, of two arrays that are
    repeated for it and that are smaller than the sum is.

    Scores of 1024 queries and keys of 64 columns: 1,048,576 sums of 64 products, from two arrays of
    65,536 elements.
    """
    product = node.src[0]
    size = prod(node.shape)
    factor_sizes = [
        prod(operand.src[0].shape) for operand in product.src if operand.op is Op.EXPAND
    ]
    is_short = prod(product.shape) <= MAX_RECOMPUTED_PRODUCTS * size
    return len(factor_sizes) == 2 and is_short and max(factor_sizes) < size


def _updating_sums(users: Users, min_results: int) -> set[Node]:
    """Long sums of products that update several arrays of their size, of fewer than `min_results`
    results: gradients that an optimizer applies to a weight and its moments."""
    sums: set[Node] = set()
    for node in users:
        if not _is_sum_of_products(node):
            continue
        size = prod(node.shape)
        is_long = prod(node.src[0].shape) >= MIN_LONG_SUM * size
        if size < min_results and is_long and _arrays_updated_by(node, users) > 1:
            sums.add(node)
    return sums


def _arrays_updated_by(total: Node, users: Users) -> int:
    """How many other arrays of the size of `total` arithmetic on `total` has as operands.

    For ``w - 0.1 * (0.9 * m + total)`` these are ``0.9 * m`` and w. Numbers and what is repeated
    are no arrays of that size, nor are the products that `total` sums up.
    """
    reached = dict.fromkeys([total])  # by arithmetic alone, in order
    queue = [total]
    for node in queue:  # which grows as nodes are reached
        for user in users[node]:
            if user.op in POINTWISE and user.op is not Op.EXPAND and user not in reached:
                reached[user] = None
                queue.append(user)
    others = {operand for user in reached for operand in user.src}.difference(reached)
    return sum(
        node.op not in (Op.CONST, Op.EXPAND) and prod(node.shape) == prod(total.shape)
        for node in others
    )


def _repeated(users: Users, values: Set[Node], target: FusionTarget) -> set[Node]:
    """Values that an EXPAND would have computed once for each copy. A single element depends on no
    axis: a kernel computes it outside of its loops, however many copies there are."""
    costs = element_costs(users, values)
    cheap = _made_of_indices(users)
    repeated: set[Node] = set()
    for node in users:
        if node.op is not Op.EXPAND or prod(node.src[0].shape) == 1:
            continue
        source = _computed_source(node, values, target)
        is_arithmetic = source.op in Group.ELEMENTWISE and source not in cheap
        is_costly = is_arithmetic and costs[source] >= MIN_REPEATED_COST
        # A cast to a narrower float is stored, as reading its operand reads twice as many bytes or
        # more.
        if is_costly or source.op is Op.PAD or widening(source) < 0:
            repeated.add(source)
    return repeated


def _made_of_indices(users: Users) -> set[Node]:
    """Sums of indices and comparisons of them, such as the mask ``row - column >= 0``: a kernel
    brings a comparison to one addition and one test, and reads no array for it."""
    made: set[Node] = set()
    for node in users:
        is_leaf = node.op in (Op.IOTA, Op.CONST)
        is_exact = node.dtype.is_int or node.dtype is bool_
        if is_exact and (is_leaf or (node.op in INDEX_OPERATIONS and made.issuperset(node.src))):
            made.add(node)
    return made


def _computed_source(expand: Node, values: Set[Node], target: FusionTarget) -> Node:
    """What an EXPAND copies, beneath movement and casts to wider floats, which are done again; a
    value, at most.

    A PAD ends this where each of many copies would be tested for being inside, or another number
    than 0 be chosen outside: an array with the padding costs less. It does not where tiles of
    factors are copied, as these copies fill in the padding.
    """
    tests_bounds = not target.tiled_products
    elements = prod(expand.shape)  # with all copies
    source = expand.src[0]
    while source not in values and (widening(source) > 0 or source.op in Group.MOVEMENT):
        if source.op is Op.PAD and tests_bounds:
            has_many_copies = elements > MAX_COPIES_OF_PADDED * prod(source.shape)
            if has_many_copies or source.arg.value != 0:
                break
        source = source.src[0]
    return source


def _shared(users: Users, values: Set[Node], target: FusionTarget) -> set[Node]:
    """Elementwise nodes that cost `target.min_shared_cost` or more an element and that would be
    computed for several values: those among `values`, and those that this function adds.

    Users come first: once e = exp(d) is stored for its two users, d is computed for e alone, and
    stays without memory.
    """
    costs = element_costs(users, values)
    stored = set(values)
    owners: dict[Node, frozenset[Node]] = {}  # by node, the values that it is computed for
    for node in reversed(users):
        parts = [{user} if user in stored else owners[user] for user in users[node]]
        owners[node] = frozenset[Node]().union(*parts)
        is_costly = node.op in Group.ELEMENTWISE and costs[node] >= target.min_shared_cost
        # A cast to a wider float is done where it is read: its operand may be stored.
        if len(owners[node]) > 1 and is_costly and widening(node) <= 0:
            stored.add(node)
    return stored - values
