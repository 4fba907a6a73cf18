"""Sums of products: what they multiply, and how they use their factors.

A product of matrices is a sum of products, and so are convolutions and dot products: of arrays a
REDUCE, in a kernel a LOOP_REDUCE. Each function answers one question of such a node. The glossary
(`docs/glossary.md`) lists these, and those that are asked elsewhere.
"""

from collections.abc import Iterable, Iterator, Set

from lamina.core.dtypes import bfloat16, float16, float32
from lamina.core.shape import prod, squeezed
from lamina.ir.build import sliced
from lamina.ir.kernel import bound_axes, free_axes, loads_beneath
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Group, Op

# What is done to an array on its way into a product without a kernel of its own.
READ_THROUGH = Group.MOVEMENT | {Op.CAST}


def product_of(node: Node, through: Set[Op] = frozenset()) -> Node | None:
    """The multiplication whose results the sum `node` adds up, beneath operations `through`; None
    if `node` is no sum, or one of anything else."""
    if node.op not in (Op.REDUCE, Op.LOOP_REDUCE) or node.arg.monoid is not ADD:
        return None
    product = peel(node.src[0], through)
    return product if product.op is Op.MUL else None


def array_read(factor: Node) -> Node:
    """The array that a factor reads: x for ``cast(expand(x))``."""
    return peel(factor, READ_THROUGH)


def reuses_both_factors(node: Node) -> bool:
    """Does a REDUCE of products use both factors again: has each array fewer elements than there
    are products, as in a matrix product?"""
    products = node.src[0]
    if products.op is not Op.MUL:
        return False
    arrays = map(array_read, products.src)
    return all(prod(array.shape) < prod(products.shape) for array in arrays)


def has_windows(factor: Node, through: Set[Op]) -> bool:
    """Is a SHEAR, by which windows move, among the operations `through` that make a factor of an
    array?"""
    while factor.op in through:
        if factor.op is Op.SHEAR:
            return True
        factor = factor.src[0]
    return False


def varies(factor: Node, axis: int) -> bool:
    """Does an EXPAND have another element at each place of `axis`?"""
    array = factor.src[0]
    inner = axis - (len(factor.shape) - len(array.shape))  # negative: an axis that it adds
    return inner >= 0 and array.shape[inner] > 1


def is_fastest(factor: Node, row: int) -> bool:
    """Are neighbours along the axis `row` of an EXPAND neighbours in memory, as far as axes of size
    1 and permutations alone are between?"""
    node = factor.src[0]
    new = len(factor.shape) - len(node.shape)  # axes that the EXPAND adds, in front
    place = squeezed_place(node, row - new)
    while True:
        if node.op is Op.PERMUTE:
            rows = [axis for axis in node.arg if node.src[0].shape[axis] > 1]
            place = sorted(rows).index(rows[place])
        elif node.op is not Op.RESHAPE or squeezed(node.shape) != squeezed(node.src[0].shape):
            break
        node = node.src[0]
    return place == len(squeezed(node.shape)) - 1


def squeezed_place(node: Node, axis: int) -> int:
    """Which of the axes of more than one element `axis` is."""
    return len(squeezed(node.shape[:axis]))


def without_repeats(factor: Node) -> Node:
    """A factor with one element along each axis along which all are known to be the same, if the
    axis has any."""
    repeated = _repeated(factor)
    ranges = [
        range(min(size, 1)) if axis in repeated else range(size)
        for axis, size in enumerate(factor.shape)
    ]
    return sliced(factor, ranges)


def _repeated(x: Node) -> set[int]:
    """The axes along which movement is known to repeat one element."""
    if x.op is Op.EXPAND:
        array = x.src[0]
        new = len(x.shape) - len(array.shape)  # axes that it adds, in front
        inner = {new + axis for axis in _repeated(array)}
        single = {new + axis for axis, size in enumerate(array.shape) if size == 1}
        return {*range(new), *inner, *single}
    if x.op is Op.PERMUTE:
        inner = _repeated(x.src[0])
        return {axis for axis, source in enumerate(x.arg) if source in inner}
    if x.op is Op.SHRINK:
        return _repeated(x.src[0])
    if x.op is Op.SHEAR:
        return _repeated(x.src[0]) - {x.arg.axis, x.arg.by}
    if x.op is Op.PAD:
        inner = _repeated(x.src[0])
        return {axis for axis in inner if x.arg.before[axis] == 0 and x.arg.after[axis] == 0}
    return set()


def uncast_factors(product: Node) -> tuple[Node, ...]:
    """The two factors of a product, of one dtype that tiles have, without casts of 16 bits: their
    product is exact in float32. () for anything else."""
    if product.op is not Op.MUL:
        return ()
    factors = product.src
    if all(is_exact_cast(factor) for factor in factors):
        factors = tuple(factor.src[0] for factor in factors)
    dtypes = {factor.dtype for factor in factors}
    return factors if dtypes in ({bfloat16}, {float16}, {float32}) else ()


def is_exact_cast(node: Node) -> bool:
    """Is this a cast of a value of 16 bits to float32, which has all values of these?"""
    return node.op is Op.CAST and node.dtype is float32 and node.src[0].dtype.bits == 16


def contraction(values: Iterable[Node], rows: Iterable[Node]) -> Node | None:
    """The first of `contractions`. Register tiles are for it."""
    return next(contractions(values, rows), None)


def contractions(values: Iterable[Node], rows: Iterable[Node]) -> Iterator[Node]:
    """The reductions beneath `values` that are like matrix products, operands first: each has two
    arrays or factors, each of which is reused along an axis of `rows` that the other varies along.
    In ``sum_k a[i, k] * b[k, j]``, `a` varies along i and is reused along j; so is the one-hot
    factor of ``sum_k (place[k] == i) * b[k, j]``, which reads nothing along i."""
    row_axes = frozenset(rows)
    for reduction in toposort(values):
        if reduction.op is Op.LOOP_REDUCE:
            outer = row_axes.difference(bound_axes(reduction))
            operands = loads_beneath(reduction.src)
            if reduction.src[0].op is Op.MUL:
                operands += reduction.src[0].src
            varied = {free_axes(operand) & outer for operand in operands}
            if any(a - b and b - a for a in varied for b in varied):
                yield reduction
