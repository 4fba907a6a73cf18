"""Sums of products of bytes by tensor cores of 16-bit floats, to the same integers.

A bfloat16 has every integer up to 256, and so every byte. The product of two is exact in float32, a
sum of such products as long as none of its parts is above 2**24, up to which float32 has every
integer. Products of signed bytes are 2**14 at most, so that 1024 of them may be added up in any
order; a longer sum is taken in parts of as many, whose sums are added as int32:

    sum_k a[i, k] * b[k, j]  =  sum_p int32(sum_l float(a[i, p, l]) * float(b[p, l, j]))

A length that no few parts divide is padded with zeros: 9736 steps become 10 parts of 976.
"""

from collections.abc import Sequence
from math import ceil

from lamina.core.dtypes import bfloat16, float32, int8, int32, uint8
from lamina.core.integers import first_divisor
from lamina.core.shape import prod
from lamina.graph.flip_bytes import MOVED, bytes_of
from lamina.graph.rewrite import on
from lamina.graph.split_reductions import beneath_along, lengths, with_parts_in_front
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import product_of

EXACT = 1 << float32.precision  # up to which float32 has every integer
LARGEST = {int8: 128, uint8: 255}  # magnitude of a byte
# Of a sum. Shorter ones are those of blocks of quantised numbers, 32 as a rule, which the kernel
# that has them scales and adds up: in tiles all would go through memory. An estimate.
MIN_STEPS = 48
MIN_USES = 16  # of each byte of either factor, as many rows and columns as tiles need
# Uses from which on a copy of the bytes as floats, made once, takes less time than to make floats
# of a byte wherever a tile has it. An estimate.
MIN_COPIED_USES = 64
# Multiply-adds from which on tensor cores save more than two copies take, of 2 us each: 2**26 of
# integers take 6 us at the 11 * 10**12 a second that an H200 reached.
MIN_PRODUCTS = 1 << 26
MAX_UNEVEN = 2  # equal parts may be so many times smaller than they need to be: an estimate
ALIGNED = 8  # elements of bfloat16 of which a padded part has a multiple: 16 bytes, an access


@on(Op.REDUCE)
def bytes_as_floats(node: Node) -> Node | None:
    """The int32 sum of many products of two factors of bytes, of which each byte is used often, by
    sums of products of bfloat16; None for any other node, and for a sum that no few equal parts
    divide if its factors cannot be padded."""
    product = product_of(node)
    if product is None or node.dtype is not int32:
        return None
    arrays = [bytes_of(factor) for factor in product.src]
    left, right = arrays
    if left is None or right is None or prod(product.shape) < MIN_PRODUCTS:
        return None
    uses = [prod(product.shape) / prod(array.shape) for array in (left, right)]
    if min(uses) < MIN_USES or lengths(node).elements < MIN_STEPS:
        return None
    largest = LARGEST[left.dtype] * LARGEST[right.dtype]
    factors: Sequence[Node] = product.src
    parts = _parts(node, largest)
    if parts == 0:
        parts, factors = _in_padded_parts(product.src, node.arg.axes, largest)
    if parts == 0:
        return None
    # A tile that reads padding would test a condition for each element.
    is_padded = factors is not product.src
    part = factors[0].shape[node.arg.axes[0]] // parts
    floats = [
        _as_floats(factor, part, is_copied=is_padded or times >= MIN_COPIED_USES)
        for factor, times in zip(factors, uses, strict=True)
    ]
    total = build.reduce(ADD, node.arg.axes, Node(Op.MUL, tuple(floats)))
    if parts == 1:
        return build.cast(total, int32)
    (sums,) = with_parts_in_front(total, parts).src
    return build.reduce(ADD, (0,), build.cast(sums, int32))


def _parts(node: Node, largest: int) -> int:
    """Into how many equal parts of the first axis a sum is cut, so that the parts of products up to
    `largest` are exact: 1984 products of 2**14 into 2 parts of 992. 0 if there is no such number
    that is MAX_UNEVEN times the least one or less."""
    extent, elements = lengths(node)
    fewest = max(ceil(elements * largest / EXACT), 1)
    return first_divisor(extent, range(fewest, MAX_UNEVEN * fewest + 1), 0)


def _in_padded_parts(
    factors: Sequence[Node], axes: Sequence[int], largest: int
) -> tuple[int, Sequence[Node]]:
    """As few parts as are exact, and the factors, padded with zeros to whole parts, which are
    multiples of ALIGNED: 9736 steps, which 10 to 20 do not divide, are 9760, 10 parts of 976. No
    parts where there are several axes, or a factor cannot be padded along one."""
    if len(axes) > 1:
        return 0, factors
    (axis,) = axes
    steps = factors[0].shape[axis]
    parts = ceil(steps * largest / EXACT)
    part = ALIGNED * ceil(steps / (ALIGNED * parts))
    while part * largest > EXACT:
        parts += 1
        part = ALIGNED * ceil(steps / (ALIGNED * parts))
    padded = [_padded(factor, axis, parts * part) for factor in factors]
    whole = [factor for factor in padded if factor is not None]
    return (parts, whole) if len(whole) == len(factors) else (0, factors)


def _padded(factor: Node, axis: int, size: int) -> Node | None:
    """`factor` with `size` elements along `axis`: the bytes that it is made of are padded with
    zeros at the end of the axis that movement turns into `axis`. None where there is no such axis,
    or movement joins it with others."""
    shape = (*factor.shape[:axis], size, *factor.shape[axis + 1 :])
    if factor.op not in MOVED and factor.dtype in LARGEST:
        after = [new - old for new, old in zip(shape, factor.shape, strict=True)]
        return build.pad(factor, [0] * len(shape), after)
    beneath = beneath_along(factor, axis)
    if not beneath:
        return None
    ((source, place),) = beneath
    operand = _padded(source, place, size)
    if operand is None:
        return None
    if factor.op is Op.CAST:
        return build.cast(operand, factor.dtype)
    return Node(factor.op, (operand,), factor.arg if factor.op is Op.PERMUTE else shape)


def _as_floats(factor: Node, part: int, *, is_copied: bool) -> Node:
    """A factor that movement and a cast make of bytes, as float32 made of bfloat16.

    part: elements of a part of the sum. is_copied: the floats of 16 bits are stored
    """
    (operand,) = factor.src
    if factor.op in MOVED:
        return Node(factor.op, (_as_floats(operand, part, is_copied=is_copied),), factor.arg)
    return build.cast(_short_floats(operand, part, is_copied=is_copied), float32)


def _short_floats(array: Node, part: int, *, is_copied: bool) -> Node:
    """An array of bytes as bfloat16, copied as the bytes lie in memory: those of ``w.T`` are the
    transpose of the copy of w."""
    if array.op in MOVED:
        (operand,) = array.src
        return Node(array.op, (_short_floats(operand, part, is_copied=is_copied),), array.arg)
    floats = build.cast(array, bfloat16)
    return _copy(floats, part) if is_copied else floats


def _copy(array: Node, part: int) -> Node:
    """A copy whose parts of rows are rows in memory, which may begin at whole words: two parts of
    868 elements of 16 bits, of which the second begins within one, lie 896 apart."""
    *outer, row = array.shape
    if row % part != 0:
        return Node(Op.CONTIGUOUS, (array,))
    by_parts = build.reshape(array, (*outer, row // part, part))
    return build.reshape(Node(Op.CONTIGUOUS, (by_parts,)), array.shape)
