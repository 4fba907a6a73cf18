"""The numbers of a graph that memory can hold: one program serves graphs that differ in them alone.

A number is a constant, or an offset: where a SHRINK begins, or where a PAD puts its operand. Static
offsets make the best kernels, but ``x[0]``, ``x[1]``, ... would each be a program. In place of such
a node, a GATHER along the axis reads the same elements, at ``index * step + start``, where `start`
is an operand. It is limited to the starts at which all elements are inside, which it always is: so
compilers know its bounds, and test none.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from lamina.core.dtypes import bool_, int64
from lamina.ir import build
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import BufferRef, Group, Op


@dataclass(frozen=True)
class Constant:
    """A CONST of the graph."""

    value: Node


@dataclass(frozen=True)
class Offset:
    """Along `axis`, element i of `node` is element ``i * step + sign * value`` of its operand. With
    other values, from `low` to `high`, shapes stay as they are."""

    node: Node
    axis: int
    value: Node  # an int64 constant: what a store pads by is where a read begins
    low: int
    high: int
    step: int = 1
    sign: int = 1


Number = Constant | Offset


@dataclass(frozen=True, slots=True)
class Seen:
    """A number in all graphs so far that differ in numbers alone."""

    value: Node | None  # None since it was another
    alike: int  # the place of the first number that equalled it each time


def note(before: Sequence[Seen], numbers: Sequence[Number]) -> list[Seen]:
    """What is known of numbers after one more graph, which has `numbers`."""
    firsts: dict[tuple[int, Node], int] = {}
    seen: list[Seen] = []
    for place, number in enumerate(numbers):
        old = before[place] if before else Seen(number.value, 0)
        alike = firsts.setdefault((old.alike, number.value), place)
        seen.append(Seen(number.value if old.value is number.value else None, alike))
    return seen


def numbers_of(sinks: Sequence[Node]) -> list[Number]:
    """The numbers of a graph that memory may hold as well, in an order that depends on none."""
    order = toposort(sinks)
    exponents = {*toposort(node.src[1] for node in order if node.op is Op.POW)}  # 2 makes a product
    places = _of_indices(order)
    numbers: list[Number] = []
    for node in order:
        if node.op is Op.CONST:
            fixed = node.dtype is bool_ or node in exponents or node in places
            if not fixed and abs(node.arg.value) < inf:
                numbers.append(Constant(node))
        elif node.op is Op.SHRINK:
            numbers += _starts(node)
        elif node.op is Op.PAD and const(node.arg.value, node.dtype) is const(0, node.dtype):
            numbers += _margins(node)
    return numbers


def _of_indices(order: Sequence[Node]) -> set[Node]:
    """The int64 operands of arithmetic in a graph that has indices: constants among these decide
    where a kernel reads, such as 3 in ``x[3 * i]``. Those that it only compares with do not."""
    if not any(node.op is Op.IOTA for node in order):
        return set()
    used: set[Node] = set()
    for node in reversed(order):
        if node in used or node.op not in (Op.LT, Op.EQ, *Group.MOVEMENT):
            used.update(operand for operand in node.src if operand.dtype is int64)
    return used


def _starts(node: Node) -> Iterator[Offset]:
    """``x[3:7]`` of 10 elements could also be ``x[0:4]`` to ``x[6:10]``."""
    for axis, (size, elements) in enumerate(zip(node.src[0].shape, node.arg, strict=True)):
        if elements:
            step = elements.step if len(elements) > 1 else 1
            reach = (len(elements) - 1) * step  # from the first element to the last
            low, high = max(0, -reach), size - 1 - max(0, reach)
            if low < high:
                yield Offset(node, axis, const(elements.start, int64), low, high, step)


def _margins(node: Node) -> Iterator[Offset]:
    """3 zeros before and 4 after could also be 0 and 7, or 7 and 0."""
    before, after, _ = node.arg
    for axis, (ahead, behind) in enumerate(zip(before, after, strict=True)):
        if ahead or behind:
            yield Offset(node, axis, const(ahead, int64), 0, ahead + behind, sign=-1)


def with_inputs(sinks: Sequence[Node], inputs: Mapping[Number, int], device: str) -> list[Node]:
    """`sinks` with holes of these numbers for `inputs` in place of constants and offsets."""
    done: dict[Node, Node] = {}
    starts: dict[Node, dict[Offset, Node]] = {}
    for number, at in inputs.items():
        place = hole(at, number.value, device)
        if isinstance(number, Offset):
            starts.setdefault(number.node, {})[number] = place
        else:
            done[number.value] = place
    for node in toposort(sinks, lambda node: node not in done):
        src = tuple([done[operand] for operand in node.src])
        if node in starts:
            done[node] = _moved(node, src[0], starts[node])
        else:
            done[node] = node if src == node.src else Node(node.op, src, node.arg)
    return [done[sink] for sink in sinks]


def hole(number: int, like: Node, device: str = "") -> Node:
    """A leaf like `like` that has a number in place of storage, such as those of a CALL's graph."""
    return Node(Op.BUFFER, (), BufferRef(number, like.shape, like.dtype, device))


def _moved(node: Node, operand: Node, starts: Mapping[Offset, Node]) -> Node:
    """`node` over `operand` with `starts`, int64 scalars, in place of the values of offsets."""
    axes = {offset.axis for offset in starts}
    if node.op is Op.SHRINK:
        ranges = list(node.arg)
        for axis in axes:
            ranges[axis] = range(operand.shape[axis])
        result = build.sliced(operand, ranges)
    else:
        before, after = (_without(axes, margins) for margins in node.arg[:2])
        result = build.pad(operand, before, after)
    for offset, start in starts.items():
        shape = list(result.shape)
        shape[offset.axis] = node.shape[offset.axis]
        index = _index(offset, start, tuple(shape))
        result = Node(Op.GATHER, (result, index), offset.axis)
    return result


def _without(axes: set[int], margins: Sequence[int]) -> list[int]:
    return [0 if axis in axes else margin for axis, margin in enumerate(margins)]


def _index(offset: Offset, start: Node, shape: tuple[int, ...]) -> Node:
    """Where in the operand each element of `shape` is, along the axis of `offset`."""
    places = build.broadcasted_iota(shape, offset.axis)
    if offset.step != 1:
        places = places * offset.step
    at_least = Node(Op.MAX, (start, start.lift(offset.low)))
    limited = Node(Op.MIN, (at_least, start.lift(offset.high)))
    if offset.sign < 0:
        limited = limited * -1
    return places + build.expand(limited, shape)
