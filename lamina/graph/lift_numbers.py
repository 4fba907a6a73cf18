"""The numbers of a graph that memory can hold: one program serves graphs that differ in them alone.

A number is a constant, or an offset: where a SHRINK begins, or where a PAD puts its operand. Static
offsets make the best kernels, but ``x[0]``, ``x[1]``, ... would each be a program. In place of such
a node, a GATHER along the axis reads the same elements, at ``index * step + start``, where `start`
is an operand. It is limited to the starts at which all elements are inside, which it always is: so
compilers know its bounds, and test none.

A number becomes an input once it has differed between two graphs, and not before. Numbers that were
always equal become one input. ``a[k] + b[k] * s`` is compiled three times in these calls:

    k = 0, s = 0.5      0 and 0.5 are part of the program
    k = 1, s = 0.5      k has differed: a program with one input for both offsets, and with 0.5
    k = 2, s = 0.5      the same program
    k = 3, s = 0.7      s has differed as well: a program with an input for k and one for s
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from lamina.core.dtypes import bool_, int64
from lamina.ir import build
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import BufferRef, Group, Op
from lamina.ir.substitute import substitute, with_operands


@dataclass(frozen=True)
class Constant:
    """A CONST of the graph."""

    value: Node


@dataclass(frozen=True)
class Offset:
    """Along `axis`, element i of `node`, a SHRINK or PAD, is element ``i * step + sign * value`` of
    its operand. With other values, from `low` to `high`, shapes stay as they are."""

    node: Node
    axis: int
    value: Node  # an int64 constant; a PAD that stores a part and the SHRINK of it have the same
    low: int
    high: int
    step: int = 1
    sign: int = 1


Number = Constant | Offset


@dataclass(frozen=True, slots=True)
class History:
    """What the graphs so far, which differ in numbers alone, had as the number at one place.

    `value` is the constant that all of them had, None if they differed. `twin` is the place of the
    first number that equalled this one in each of them, its own if there is none before: numbers
    that have differed and have one twin share an input."""

    value: Node | None
    twin: int


def update_histories(histories: Sequence[History], numbers: Sequence[Number]) -> list[History]:
    """`histories`, none before the first graph, after one more graph with `numbers`. After 1, 1, 1
    and then 2, 2, 1 the first two differed and have twin 0; the third is still 1, its own twin."""
    if not histories:
        histories = [History(number.value, 0) for number in numbers]
    first_place: dict[tuple[int, Node], int] = {}  # of numbers alike before, and alike now
    updated: list[History] = []
    for place, (history, number) in enumerate(zip(histories, numbers, strict=True)):
        twin = first_place.setdefault((history.twin, number.value), place)
        value = number.value if history.value is number.value else None
        updated.append(History(value, twin))
    return updated


def numbers_of(sinks: Sequence[Node]) -> list[Number]:
    """The numbers of a graph that memory may hold as well, in an order that does not depend on
    their values: graphs that differ in numbers alone have them at the same places."""
    order = toposort(sinks)
    fixed = _exponents(order) | _of_indices(order)
    numbers: list[Number] = []
    for node in order:
        if node.op is Op.CONST:
            if node.dtype is not bool_ and node not in fixed and abs(node.arg.value) < inf:
                numbers.append(Constant(node))
        elif node.op is Op.SHRINK:
            numbers += _starts(node)
        elif node.op is Op.PAD and const(node.arg.value, node.dtype) is const(0, node.dtype):
            numbers += _margins(node)
    return numbers


def _exponents(order: Sequence[Node]) -> set[Node]:
    """All nodes beneath exponents: rules make products of ``x ** 2`` if the 2 is a constant."""
    return set(toposort(node.src[1] for node in order if node.op is Op.POW))


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
    """The offsets of a SHRINK: ``x[3:7]`` of 10 elements could also be ``x[0:4]`` to
    ``x[6:10]``."""
    for axis, (size, elements) in enumerate(zip(node.src[0].shape, node.arg, strict=True)):
        if elements:
            step = elements.step if len(elements) > 1 else 1
            reach = (len(elements) - 1) * step  # from the first element to the last
            low, high = max(0, -reach), size - 1 - max(0, reach)
            if low < high:
                yield Offset(node, axis, const(elements.start, int64), low, high, step)


def _margins(node: Node) -> Iterator[Offset]:
    """The offsets of a PAD: 3 zeros before and 4 after could also be 0 and 7, or 7 and 0."""
    for axis, (before, after) in enumerate(zip(node.arg.before, node.arg.after, strict=True)):
        if before or after:
            yield Offset(node, axis, const(before, int64), 0, before + after, sign=-1)


Skeleton = tuple[tuple[object, ...], ...]


def skeleton_of(sinks: Sequence[Node], numbers: Sequence[Number]) -> Skeleton:
    """What is the same in all graphs that differ from `sinks` in `numbers`, which it has, alone:
    of each node, operands first, what it computes and the places of its operands."""
    constants: dict[Node, int] = {}  # the place among `numbers` of each that is one
    axes: dict[Node, set[int]] = {}  # of each SHRINK and PAD, those with offsets
    for place, number in enumerate(numbers):
        if isinstance(number, Constant):
            constants[number.value] = place
        else:
            axes.setdefault(number.node, set()).add(number.axis)
    places: dict[Node, int] = {}
    rows: list[tuple[object, ...]] = []
    for node in toposort(sinks):
        places[node] = len(places)
        if node in constants:
            rows.append((constants[node], node.dtype))
        elif not node.src:
            rows.append((node,))
        else:
            said = _said(node, axes.get(node, set()))
            rows.append((node.op, said, *[places[operand] for operand in node.src]))
    return (*rows, tuple([places[sink] for sink in sinks]))


def _said(node: Node, axes: set[int]) -> object:
    """The argument of `node`; of a SHRINK or PAD without the offsets along `axes`: how many
    elements it takes and their step, or how many zeros it adds."""
    if node.op is Op.SHRINK:
        return tuple(
            (len(elements), elements.step) if axis in axes else elements
            for axis, elements in enumerate(node.arg)
        )
    if node.op is not Op.PAD:
        return node.arg
    margins = list(zip(node.arg.before, node.arg.after, strict=True))
    totals = tuple(sum(margin) if axis in axes else margin for axis, margin in enumerate(margins))
    return totals, repr(node.arg.value)  # the text tells 0.0 from -0.0


def with_inputs(sinks: Sequence[Node], inputs: Mapping[Number, int], device: str) -> list[Node]:
    """`sinks` with inputs of the program in place of numbers: `inputs` holds their parameters."""
    constants: dict[Node, Node] = {}
    starts: dict[Node, dict[Offset, Node]] = {}  # of each SHRINK and PAD, the inputs of its offsets
    for number, parameter in inputs.items():
        scalar = input_leaf(parameter, number.value, device)
        if isinstance(number, Offset):
            starts.setdefault(number.node, {})[number] = scalar
        else:
            constants[number.value] = scalar

    def rebuild(node: Node, src: tuple[Node, ...]) -> Node:
        if node in starts:
            return _moved(node, src[0], starts[node])
        return with_operands(node, src)

    return substitute(sinks, constants, rebuild)


def input_leaf(number: int, like: Node, device: str = "") -> Node:
    """A leaf like `like` that has a number in place of storage, such as those of a CALL's graph."""
    return Node(Op.BUFFER, (), BufferRef(number, like.shape, like.dtype, device))


def _moved(node: Node, operand: Node, starts: Mapping[Offset, Node]) -> Node:
    """The SHRINK or PAD `node` over `operand`, with `starts`, int64 scalars, in place of the values
    of its offsets: a GATHER along each axis that has an offset, after `node` along the others."""
    axes = {offset.axis for offset in starts}
    if node.op is Op.SHRINK:
        ranges = list(node.arg)
        for axis in axes:
            ranges[axis] = range(operand.shape[axis])
        result = build.sliced(operand, ranges)
    else:
        before, after = (_zeroed(margins, axes) for margins in (node.arg.before, node.arg.after))
        result = build.pad(operand, before, after)
    for offset, start in starts.items():
        shape = list(result.shape)
        shape[offset.axis] = node.shape[offset.axis]
        index = _index(offset, start, tuple(shape))
        result = Node(Op.GATHER, (result, index), offset.axis)
    return result


def _zeroed(margins: Sequence[int], axes: set[int]) -> list[int]:
    """`margins` of a PAD, none along `axes`."""
    return [0 if axis in axes else margin for axis, margin in enumerate(margins)]


def _index(offset: Offset, start: Node, shape: tuple[int, ...]) -> Node:
    """Where in the operand each element of `shape` is, along the axis of `offset`:
    ``i * step + sign * start``. A GATHER reads 0 outside the operand, as a PAD does."""
    index = build.broadcasted_iota(shape, offset.axis)
    if offset.step != 1:
        index = index * offset.step
    at_least = Node(Op.MAX, (start, start.lift(offset.low)))
    limited = Node(Op.MIN, (at_least, start.lift(offset.high)))
    if offset.sign < 0:
        limited = limited * -1
    return index + build.expand(limited, shape)
