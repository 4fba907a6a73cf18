"""What is known of a mask that depends on places alone, such as ``i < 3`` of a concatenation."""


from lamina.core.shape import Shape, squeezed
from lamina.ir.node import Node, constant_of
from lamina.ir.ops import Op

Box = tuple[range, ...]  # the places along each axis


# Nodes of a mask that are looked at, after which it counts as not known: the masks of a long
# unrolled program have a part for each of its steps, and each mask is asked for.
MAX_NODES = 100


def is_true(mask: Node) -> bool:
    """Whether a mask of bools is known to be True everywhere."""
    return _Search().truth(mask, tuple(map(range, mask.shape))) is True


class _Search:
    """What is known of the nodes of one mask, of MAX_NODES at most."""

    def __init__(self) -> None:
        self._nodes_left = MAX_NODES

    def truth(self, mask: Node, box: Box) -> bool | None:
        """What a mask is in all of a box; None where that differs, or is not known."""
        if not self._nodes_left:
            return None
        self._nodes_left -= 1
        if (constant := constant_of(mask)) is not None:
            return bool(constant)
        if mask.op is Op.NOT:
            inner = self.truth(mask.src[0], box)
            return None if inner is None else not inner
        if mask.op in (Op.AND, Op.OR):
            return self._joined(mask, box)
        if mask.op is Op.LT:
            return _is_less(mask, box)
        moved = _below(mask, box)
        return None if moved is None else self.truth(mask.src[0], moved)

    def _joined(self, mask: Node, box: Box) -> bool | None:
        """One side that is False decides an AND, one that is True an OR."""
        decides = mask.op is Op.OR
        sides = [self.truth(side, box) for side in mask.src]
        if decides in sides:
            return decides
        return None if None in sides else not decides


def _is_less(comparison: Node, box: Box) -> bool | None:
    left, right = (_bounds(side, box) for side in comparison.src)
    if left is None or right is None:
        return None
    if left[1] < right[0]:
        return True
    return False if left[0] >= right[1] else None


def _bounds(number: Node, box: Box) -> tuple[float, float] | None:
    """The least and the largest of numbers in a box; None where they are not known."""
    if not all(box):
        return None
    while (constant := constant_of(number)) is None and number.op is not Op.IOTA:
        moved = _below(number, box)
        if moved is None:
            return None
        number, box = number.src[0], moved
    if number.op is Op.IOTA:
        return box[0][0], box[0][-1]
    return (constant, constant) if isinstance(constant, int | float) else None


def _below(node: Node, box: Box) -> Box | None:
    """The box of the operand of a movement from which a box of its result comes."""
    if not all(box):
        return None
    if node.op is Op.SHRINK:
        return tuple(taken[places.start : places.stop : places.step] for taken, places in
                     zip(node.arg, box, strict=True))  # fmt: skip
    if node.op is Op.EXPAND:
        below = node.src[0].shape
        inner = zip(below, box[len(box) - len(below) :], strict=True)
        return tuple(range(1) if size == 1 else places for size, places in inner)
    if node.op is Op.PERMUTE:
        return tuple(box[node.arg.index(axis)] for axis in range(len(box)))
    if node.op is Op.RESHAPE:
        return _reshaped(node.src[0].shape, node.shape, box)
    return None


def _reshaped(source: Shape, result: Shape, box: Box) -> Box | None:
    """The box below a reshape that adds or takes away axes of one element."""
    long = [places for size, places in zip(result, box, strict=True) if size != 1]
    if squeezed(source) != squeezed(result):
        return None
    following = iter(long)
    return tuple(range(1) if size == 1 else next(following) for size in source)
