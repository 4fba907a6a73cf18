"""The verifier of kernels: tests, and ``LAMINA_CHECK=1``, run it after every pass that returns
kernels. Loop nests have a verifier of their own, `lamina.loops.verify`. The invariants, in the
order in which they are checked:

1.  A sort has three parameters: rows * length keys, the int64 places, rows * ranks of them, and
    int64 scratch of at least rows * length elements. A collective has two, its operand and its
    result, of the sizes and dtypes of the graph's.
2.  Parameters are marked written exactly if a store writes them.
3.  The stores begin with the kernel's row axes, in one order, none of them reduced; a store's axes
    are distinct. Axes of one number are one node.
4.  A node is a scalar: a CONST, elementwise operation or one of the kernel's own, but no HOLE
    outside a monoid's combine.
5.  An AFFINE is in normal form: of int64 operands, each once, none of them AFFINE or CONST, and
    none with a coefficient of zero.
6.  A LOAD names a parameter and has its dtype; its index is int64, its condition bool.
7.  A LOOP_REDUCE or LOOP_SCAN has components that its monoid combines, then axes: a LOOP_REDUCE
    reduced ones, a LOOP_SCAN the last ones of its store, in their order.
8.  A store's value has its parameter's dtype, its index is int64, its condition bool; they depend
    on no axis but the store's own. Its monoid has one component.
9.  Each row axis of more than one element occurs in a store's index, so that no two rows write one
    element. Not so: of memory of a thread; of an atomic store; of a store without elements; of an
    axis along which the condition lets the first row alone store (``axis < 1``) or the one that
    data say (``data == axis``); of the last block axis, of a store that combines.
10. A parameter that is written is loaded only at the index of its store: rows are independent.
11. An index of axes alone stays inside its parameter, unless a condition guards it.
"""

from __future__ import annotations

from collections.abc import Sequence

from lamina.core.dtypes import DType, bool_, float32, int32, int64
from lamina.core.shape import prod
from lamina.ir.invariants import check_monoid, located, names_of, require
from lamina.ir.kernel import (
    TRUE,
    AnyKernel,
    BinKernel,
    Collective,
    Kernel,
    SortKernel,
    Store,
    bound_axes,
    bounds,
    free_axes,
    free_axes_of,
    roots_of,
)  # fmt: skip
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import BufferRef, Group, Op

SCALAR = Group.ELEMENTWISE | Group.KERNEL - {Op.HOLE, Op.CALL} | {Op.CONST}
_INDEX = (Op.AXIS, Op.AFFINE, Op.CONST)


def verify_kernel(kernel: AnyKernel, *, exact: bool = True) -> None:
    """Raise VerifyError, naming the store, if an invariant fails; the last one only if `exact`:
    a nest whose axes are split covers more points than it runs."""
    if isinstance(kernel, SortKernel):
        keys, places = kernel.rows * kernel.length, kernel.rows * kernel.ranks
        sizes = [parameter.size for parameter in kernel.parameters]
        fits = sizes[:2] == [keys, places] and len(sizes) == 3 and sizes[2] >= keys
        orders = all(
            parameter.dtype is int64 and parameter.written for parameter in kernel.parameters[1:]
        )
        problem = f"the parameters are no {keys} keys, {places} places and scratch"
        require(fits and orders, f"verify: sort: {problem}")
        return
    if isinstance(kernel, BinKernel):
        _check_bins(kernel)
        return
    if isinstance(kernel, Collective):
        _check_collective(kernel)
        return
    with located("verify: kernel"):
        _check_kernel(kernel)
    for number, store in enumerate(kernel.stores):
        runs = exact and all(axis.arg.size for axis in store.axes)
        with located(f"verify: store {number} to parameter {store.parameter}"):
            nodes = toposort(roots_of(store))
            inner = runs and all(node.arg.size for node in nodes if node.op is Op.AXIS)
            for node in nodes:
                with located(node.op.name.lower()):
                    _check_node(kernel, store, node, inner)
            _check_store(kernel, store, runs)


def _check_bins(kernel: BinKernel) -> None:
    """A base, places and updates, a result of another array, and scratch memory."""
    base, places, updates = (kernel.parameters[number] for number in kernel.operands)
    result, scratch = kernel.parameters[-2:]
    are_typed = (places.dtype, scratch.dtype) == (int32, int64)
    are_sums = base.dtype is updates.dtype is result.dtype is float32
    sizes_fit = base.size == result.size and places.size == updates.size
    written = [number for number, one in enumerate(kernel.parameters) if one.written]
    fits = written == [kernel.result, kernel.result + 1] and max(kernel.operands) < kernel.result
    problem = f"the parameters are no base, places, updates, result and scratch: {kernel.operands}"
    require(are_typed and are_sums and sizes_fit and fits, f"verify: bin_sum: {problem}")


def _check_collective(collective: Collective) -> None:
    """An operand and a result of another array, of the sizes that the operation has."""
    hole = Node(Op.BUFFER, (), BufferRef(0, collective.shape, collective.parameters[0].dtype, ""))
    result = Node(collective.op, (hole,), collective.arg)
    fits = [(one.dtype, one.size, one.written) for one in collective.parameters] == [
        (hole.dtype, prod(hole.shape), False), (result.dtype, prod(result.shape), True)
    ]  # fmt: skip
    name = collective.op.name.lower()
    require(fits, f"verify: {name}: the parameters are no operand and result of {collective.shape}")


def _check_kernel(kernel: Kernel) -> None:
    require(kernel.stores, "no store")
    marked = [number for number, held in enumerate(kernel.parameters) if held.written]
    written = sorted({store.parameter for store in kernel.stores})
    require(marked == written, f"parameters {marked} are marked written, and it writes {written}")
    for store in kernel.stores:
        axes, rows = store.axes, store.axes[: kernel.rows]
        are_loops = all(axis.op is Op.AXIS for axis in axes)
        fits = are_loops and not any(axis.arg.reduce for axis in rows)
        require(fits, f"the axes of a store are {axes}, not loops, or its rows are reduced")
        require(len(set(axes)) == len(axes), "a store has an axis twice")
        require(len(rows) == kernel.rows, f"{kernel.rows} rows, a store of {len(axes)} axes")
        require(rows == kernel.row_axes, "the stores do not begin with the same rows")
    loops = {axis for store in kernel.stores for axis in store.axes}
    axes_used = [node for node in loops.union(kernel.nodes) if node.op is Op.AXIS]
    numbers = [axis.arg.number for axis in axes_used]
    require(len(set(numbers)) == len(numbers), f"two axes of one number in {sorted(numbers)}")


def _check_node(kernel: Kernel, store: Store, node: Node, runs: bool) -> None:
    src, arg = node.src, node.arg
    require(node.op in SCALAR, "it does not belong in a kernel")
    require(not node.shape, f"its shape is {node.shape}; a kernel computes scalars")
    if node.op is Op.AFFINE:
        terms = all(
            term.dtype is int64 and term.op not in (Op.AFFINE, Op.CONST) for term in src
        )
        once = 0 < len(src) == len(set(src)) == len(arg.coefficients) and all(arg.coefficients)
        require(terms and once, "its operands are no int64 terms, each once and with a coefficient")
    elif node.op is Op.LOAD:
        _check_access(kernel, arg.parameter, node.dtype, src[0], src[1:], runs)
        written_at = {other.index for other in kernel.stores if other.parameter == arg.parameter}
        problem = f"it reads parameter {arg.parameter} where another row may write it"
        require(written_at <= {src[0]}, problem)
    elif node.op in (Op.LOOP_REDUCE, Op.LOOP_SCAN):
        check_monoid(arg.monoid, src[: arg.monoid.arity], arg.component)
        axes = bound_axes(node)
        distinct = all(axis.op is Op.AXIS for axis in axes) and len(set(axes)) == len(axes)
        require(axes and distinct, "it runs over no axes, or one of them twice")
        reduced = node.op is Op.LOOP_SCAN or all(axis.arg.reduce for axis in axes)
        require(reduced, "it binds an axis that is not reduced")
        last = node.op is Op.LOOP_REDUCE or axes == store.axes[-len(axes) :]
        require(last, "it does not run along the last axes of its store")


def _check_store(kernel: Kernel, store: Store, runs: bool) -> None:
    number, condition = store.parameter, () if store.condition is TRUE else (store.condition,)
    _check_access(kernel, number, store.value.dtype, store.index, condition, runs)
    strange = free_axes_of(roots_of(store)) - set(store.axes)
    require(not strange, f"it depends on {names_of(strange)}, which it does not run over")
    combined = store.monoid is None or store.monoid.op
    require(combined, f"it combines with {store.monoid}, which is no operation")
    repeated = _rows_of_one_element(kernel, store)
    require(not repeated, f"rows along {names_of(repeated)} write one element")


def _rows_of_one_element(kernel: Kernel, store: Store) -> frozenset[Node]:
    """The row axes along which several rows store at one index; none where that is allowed."""
    of_thread = kernel.parameters[store.parameter].memory != "device"
    is_empty = any(axis.arg.size == 0 for axis in store.axes)
    if of_thread or is_empty or store.atomic:
        return frozenset()
    rows = frozenset(axis for axis in store.axes[: kernel.rows] if axis.arg.size > 1)
    combined = () if store.monoid is None else kernel.block_axes[-1:]
    return rows.difference(free_axes(store.index), combined, _rows_chosen(store))


def _rows_chosen(store: Store) -> set[Node]:
    """The axes along which the condition lets one row alone store: the first, or one by data."""
    if store.condition is TRUE:
        return set()
    chosen: set[Node] = set()
    for node in toposort([store.condition]):
        if node.op is Op.LT and node.src[1] is const(1, int64):
            chosen.update(free_axes(node.src[0]))
        elif node.op is Op.EQ:
            chosen.add(node.src[1])
    return chosen


def _check_access(
    kernel: Kernel, number: int, dtype: DType, index: Node, condition: Sequence[Node], runs: bool
) -> None:
    """What holds of a LOAD and of a store alike."""
    require(0 <= number < len(kernel.parameters), f"there is no parameter {number}")
    held, size = kernel.parameters[number].dtype, kernel.parameters[number].size
    require(held is dtype, f"parameter {number} holds {held.name}, not {dtype.name}")
    require(index.dtype is int64, f"its index is {index.dtype.name}")
    require([guard.dtype for guard in condition] in ([], [bool_]), "its condition is not bool")
    if runs and not condition and all(part.op in _INDEX for part in toposort([index])):
        low, high = bounds(index)
        problem = f"indices {low} to {high} of parameter {number}, which has {size} elements"
        require(low >= 0 and high < size, problem)
