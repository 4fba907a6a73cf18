"""The movement of a product as a product of moved factors.

Windows that move by two elements have a product as their adjoint, of the adjoint of a convolution's
result and of its weights. Its axes along a window, say 5 x 5, are padded to 6 x 6, and split into
the 3 x 3 elements of each of 2 x 2 phases. Where that happens to products, a kernel asks for each
of them whether it is a zero of the padding. Only the weights vary along a window: padded and split
by themselves, they are few, and are stored once.
"""

from collections.abc import Iterator, Sequence, Set
from itertools import accumulate
from operator import mul

from lamina.core.shape import Shape, prod
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op

OF_ADJOINTS = frozenset({Op.RESHAPE, Op.PERMUTE, Op.PAD})


def product_of_moved(x: Node, through: Set[Op] = OF_ADJOINTS) -> Node | None:
    """`x`, which is products of arrays, or such products moved by operations `through`, with zeros
    as padding, as products of arrays that are moved by themselves: EXPANDs of these, where they are
    repeated. None where there is no such product.

    Zeros of the padding are those of a factor, and meet the other one: 0 * inf is NaN. A condition
    in place of that would be tested for each product."""
    moves: list[Node] = []  # the last one first
    product = x
    while product.op in through:
        moves.append(product)
        (product,) = product.src
    if product.op is not Op.MUL or 0 in product.shape:
        return None
    if not moves:
        return product
    factors: Sequence[Node] = [_once(factor) for factor in product.src]
    for move in reversed(moves):
        moved = _moved(factors, move)
        if moved is None:
            return None
        factors = moved
    left, right = (build.expand(factor, x.shape) for factor in factors)
    return left * right


def _once(factor: Node) -> Node:
    """What an EXPAND repeats, with as many axes as it has; another node as it is."""
    if factor.op is not Op.EXPAND:
        return factor
    source = factor.src[0]
    new_axes = (1,) * (len(factor.shape) - len(source.shape))
    return build.reshape(source, (*new_axes, *source.shape))


def _moved(factors: Sequence[Node], move: Node) -> Sequence[Node] | None:
    """What `move` makes of factors, each of which is repeated along axes of size 1 to the shape of
    the operand of `move`. None where no such factors have the products that it makes."""
    if move.op is Op.PERMUTE:
        return [build.permute(factor, move.arg) for factor in factors]
    if move.op is Op.PAD:
        return _padded(factors, move)
    if move.op is Op.SHEAR:
        return _sheared(factors, move)
    if move.op is Op.SHRINK:
        return [_shrunk(factor, move) for factor in factors]
    moved = [_reshaped(factor, move) for factor in factors]
    reshaped = [factor for factor in moved if factor is not None]
    return reshaped if len(reshaped) == len(moved) else None


def _padded(factors: Sequence[Node], move: Node) -> Sequence[Node] | None:
    """Pads, for each axis, the factors that vary along it. Along an axis of size 1 only the smaller
    factor. None where all are repeated, and where the padding is not 0."""
    before, after, value = move.arg
    smallest = min(factors, key=lambda factor: prod(factor.shape))
    margins = {factor: ([0] * len(before), [0] * len(after)) for factor in factors}
    for axis, size in enumerate(move.src[0].shape):
        if before[axis] == 0 and after[axis] == 0:
            continue
        varying = [factor for factor in factors if factor.shape[axis] == size]
        if not varying:
            return None
        for factor in [smallest] if size == 1 else varying:
            margins[factor][0][axis], margins[factor][1][axis] = before[axis], after[axis]
    return None if value != 0 else [build.pad(factor, *margins[factor]) for factor in factors]


def _sheared(factors: Sequence[Node], move: Node) -> Sequence[Node] | None:
    """Shears the factors that vary along the axis, each of which has a row of its own for each step
    then. None where all are repeated along it: zeros come in beside them."""
    axis, by, step = move.arg
    size, steps = move.src[0].shape[axis], move.src[0].shape[by]
    varying = [factor for factor in factors if factor.shape[axis] == size]
    if size == 1 or not varying:
        return None
    sheared: list[Node] = []
    for factor in factors:
        if factor in varying:
            rows = build.expand(factor, (*factor.shape[:by], steps, *factor.shape[by + 1 :]))
            factor = build.shear(rows, axis, by, step)
        sheared.append(factor)
    return sheared


def _shrunk(factor: Node, move: Node) -> Node:
    """`factor` without what is cut off along the axes where it is not repeated."""
    sizes = zip(factor.shape, move.src[0].shape, move.arg, strict=True)
    return build.sliced(factor, [kept if own == size else range(1) for own, size, kept in sizes])


def _reshaped(factor: Node, move: Node) -> Node | None:
    """`factor`, repeated along the axes that those along which it is repeated are split into or
    joined to. None where these are joined with axes along which it varies."""
    if not move.src[0].shape:
        return build.reshape(factor, move.shape)
    sizes: list[int] = []
    for old_axes, new_axes in _groups(move.src[0].shape, move.shape):
        old = [factor.shape[axis] for axis in old_axes]
        new = [move.shape[axis] for axis in new_axes]
        if prod(old) == prod(new):
            sizes += new
        elif prod(old) == 1:
            sizes += [1] * len(new)
        else:
            return None
    return build.reshape(factor, tuple(sizes))


def _groups(old: Shape, new: Shape) -> Iterator[tuple[range, range]]:
    """The axes of two shapes of as many elements, in the shortest pairs that have as many elements
    each: (6, 4, 1) and (2, 3, 4) are axis 0 and axes 0 and 1, then axes 1 and 2 and axis 2."""
    old_ends, new_ends = ([*accumulate(shape, mul)] for shape in (old, new))
    old_start = new_start = 0
    for end in sorted({*old_ends} & {*new_ends}):
        old_stop, new_stop = (len(ends) - ends[::-1].index(end) for ends in (old_ends, new_ends))
        yield range(old_start, old_stop), range(new_start, new_stop)
        old_start, new_start = old_stop, new_stop
