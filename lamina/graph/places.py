"""What is known of a mask that depends on places alone, such as ``i < 3`` of a concatenation."""

from collections.abc import Sequence

from lamina.core.shape import Shape
from lamina.ir.node import Node, constant_of
from lamina.ir.ops import Op

Box = tuple[range, ...]  # the places along each axis


def is_true(mask: Node) -> bool:
    """Whether a mask of bools is known to be True everywhere."""
    return _truth(mask, tuple(map(range, mask.shape))) is True


def _truth(mask: Node, box: Box) -> bool | None:
    """What a mask is in all of a box; None where that differs, or is not known."""
    if (constant := constant_of(mask)) is not None:
        return bool(constant)
    if mask.op is Op.NOT:
        inner = _truth(mask.src[0], box)
        return None if inner is None else not inner
    if mask.op in (Op.AND, Op.OR):
        decides = mask.op is Op.OR
        sides = [_truth(side, box) for side in mask.src]
        return decides if decides in sides else None if None in sides else not decides
    if mask.op is Op.LT:
        left, right = (_bounds(side, box) for side in mask.src)
        if left is None or right is None:
            return None
        return True if left[1] < right[0] else False if left[0] >= right[1] else None
    moved = _below(mask, box)
    return None if moved is None else _truth(mask.src[0], moved)


def _bounds(number: Node, box: Box) -> tuple[float, float] | None:
    """The least and the largest of numbers in a box; None where they are not known."""
    constant = constant_of(number)
    if isinstance(constant, int | float):
        return constant, constant
    if number.op is Op.IOTA:
        return box[0][0], box[0][-1]
    moved = _below(number, box)
    return None if moved is None else _bounds(number.src[0], moved)


def _below(node: Node, box: Box) -> Box | None:
    """The box of the operand of a movement from which a box of its result comes."""
    if not all(box):
        return None
    if node.op is Op.SHRINK:
        return tuple(taken[one.start : one.stop : one.step] for taken, one in
                     zip(node.arg, box, strict=True))  # fmt: skip
    if node.op is Op.EXPAND:
        own = node.src[0].shape
        kept = box[len(box) - len(own) :]
        return tuple(range(1) if size == 1 else one for size, one in zip(own, kept, strict=True))
    if node.op is Op.PERMUTE:
        return tuple(box[node.arg.index(axis)] for axis in range(len(box)))
    if node.op is Op.RESHAPE:
        return _reshaped(node.src[0].shape, node.shape, box)
    return None


def _reshaped(source: Shape, result: Shape, box: Box) -> Box | None:
    """The box below a reshape that adds or takes away axes of one element."""
    long = [one for size, one in zip(result, box, strict=True) if size != 1]
    if _without_ones(source) != _without_ones(result):
        return None
    following = iter(long)
    return tuple(range(1) if size == 1 else next(following) for size in source)


def _without_ones(shape: Shape) -> Sequence[int]:
    return [size for size in shape if size != 1]
