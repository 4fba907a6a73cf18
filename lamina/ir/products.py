"""Sums of products: what they multiply, and how they use their factors.

Matrix products, convolutions and dot products are sums of products. In a graph of arrays the sum is
a REDUCE, in a kernel it is a LOOP_REDUCE. The matrix product of a, (n, k), and b, (k, m), is

    factors    EXPAND of a to (n, m, k), EXPAND of the transposed b to (n, m, k)
    products   MUL of both factors
    sum        REDUCE of the products by ADD along the last axis

Each function answers one question about such nodes. The glossary (`docs/glossary.md`) lists the
questions, and those that functions elsewhere answer.
"""

from collections.abc import Iterable, Iterator, Set

from lamina.core.dtypes import bfloat16, float16, float32
from lamina.core.shape import prod, squeezed
from lamina.ir.build import sliced
from lamina.ir.kernel import bound_axes, free_axes, loads_beneath
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel, toposort
from lamina.ir.ops import Group, Op

# Operations between an array and a product that its kernel does as it reads the array.
READ_THROUGH = Group.MOVEMENT | {Op.CAST}


def product_of(node: Node, through: Set[Op] = frozenset()) -> Node | None:
    """The MUL whose results the sum `node` adds up; between both may be operations `through`. None
    if `node` is no sum, or a sum of anything else."""
    if node.op not in (Op.REDUCE, Op.LOOP_REDUCE) or node.arg.monoid is not ADD:
        return None
    product = peel(node.src[0], through)
    return product if product.op is Op.MUL else None


def array_read(factor: Node) -> Node:
    """The array that a factor reads: x for ``cast(expand(x))``."""
    return peel(factor, READ_THROUGH)


def reuses_both_factors(node: Node) -> bool:
    """Does a REDUCE of products use each element of both arrays more than once: has each array
    fewer elements than there are products? In a product of (64, 128) by (128, 32) these are 8192
    and 4096 elements, and 262,144 products. In a dot product no element is used again."""
    products = node.src[0]
    if products.op is not Op.MUL:
        return False
    arrays = map(array_read, products.src)
    return all(prod(array.shape) < prod(products.shape) for array in arrays)


def has_windows(factor: Node, through: Set[Op]) -> bool:
    """Is a factor made of windows, as in a convolution? A SHEAR moves the windows; it is searched
    beneath `factor`, down to the first operation that is not in `through`."""
    while factor.op in through:
        if factor.op is Op.SHEAR:
            return True
        factor = factor.src[0]
    return False


def varies(factor: Node, axis: int) -> bool:
    """Does the EXPAND `factor` read another element at each index along `axis`, and not one element
    again and again?"""
    array = factor.src[0]
    inner = axis - (len(factor.shape) - len(array.shape))  # negative: an axis that it adds
    return inner >= 0 and array.shape[inner] > 1


def is_fastest(factor: Node, row: int) -> bool:
    """Are neighbours along the axis `row` of the EXPAND `factor` neighbours in memory? The search
    goes down through permutations, and reshapes that add or drop axes of size 1. The array below
    these is taken to be in row-major order."""
    node = factor.src[0]
    new = len(factor.shape) - len(node.shape)  # axes that the EXPAND adds, in front
    place = squeezed_place(node, row - new)  # of `row`, among the axes of more than one element
    while True:
        if node.op is Op.PERMUTE:
            rows = [axis for axis in node.arg if node.src[0].shape[axis] > 1]
            place = sorted(rows).index(rows[place])
        elif node.op is not Op.RESHAPE or squeezed(node.shape) != squeezed(node.src[0].shape):
            break
        node = node.src[0]
    return place == len(squeezed(node.shape)) - 1


def squeezed_place(node: Node, axis: int) -> int:
    """The number of `axis` among the axes of more than one element: 1 for axis 2 of (8, 1, 5)."""
    return len(squeezed(node.shape[:axis]))


def without_repeats(factor: Node) -> Node:
    """`factor`, cut to one element along each axis along which it is known to repeat one: (1, 32,
    128) for an EXPAND of (1, 32, 128) to (64, 32, 128). An axis of size 0 stays."""
    repeated = _repeated(factor)
    ranges = [
        range(min(size, 1)) if axis in repeated else range(size)
        for axis, size in enumerate(factor.shape)
    ]
    return sliced(factor, ranges)


def _repeated(x: Node) -> set[int]:
    """The axes along which the movement operations that make x are known to repeat one element."""
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
    """The two factors of `product` as a GPU's tiles multiply them: both bfloat16, both float16, or
    both float32; () for anything else.

    A product of two 16-bit floats that were cast to float32 has the 16-bit operands of the casts as
    its factors: tiles multiply these exactly, as float32 holds each product of two of them."""
    if product.op is not Op.MUL:
        return ()
    factors = product.src
    if all(is_exact_cast(factor) for factor in factors):
        factors = tuple(factor.src[0] for factor in factors)
    dtypes = {factor.dtype for factor in factors}
    return factors if dtypes in ({bfloat16}, {float16}, {float32}) else ()


def is_exact_cast(node: Node) -> bool:
    """Is `node` a cast from 16 bits to float32, which represents every such value exactly?"""
    return node.op is Op.CAST and node.dtype is float32 and node.src[0].dtype.bits == 16


def contraction(values: Iterable[Node], rows: Iterable[Node]) -> Node | None:
    """The first of `contractions`, or None: the reduction that gets a register tile on a CPU."""
    return next(contractions(values, rows), None)


def contractions(values: Iterable[Node], rows: Iterable[Node]) -> Iterator[Node]:
    """The LOOP_REDUCEs beneath `values` that use operands again as a matrix product does, operands
    first. Any monoid counts: ``max_k(a[i, k] + b[k, j])`` is a contraction, too.

    Each has two operands, loads or factors of its MUL, of which each varies along an axis of `rows`
    that the other does not vary along. In ``sum_k a[i, k] * b[k, j]`` only `a` varies along i, and
    is used again for each j; only `b` varies along j. Factors count beside loads for the sake of
    ``sum_k (place[k] == i) * b[k, j]``: its first factor varies along i, though no load does. At
    least one operand that varies along the steps must be read for several rows: in
    ``sum_k a[i, j, k] * s[i] * t[j]`` none is."""
    row_axes = frozenset(rows)
    for reduction in toposort(values):
        if reduction.op is not Op.LOOP_REDUCE:
            continue
        steps = frozenset(bound_axes(reduction))
        outer = row_axes - steps
        operands = loads_beneath(reduction.src)
        if reduction.src[0].op is Op.MUL:
            operands += reduction.src[0].src
        axes_of = {free_axes(operand) for operand in operands}
        is_used_again = any(axes & steps and outer - axes for axes in axes_of)
        varied = {axes & outer for axes in axes_of}
        differ = any(left - right and right - left for left in varied for right in varied)
        if is_used_again and differ:
            yield reduction
