"""Collective operations on tensors. Every process calls them, on operands of one shape and dtype.

Each is an operation of the graph, with a derivative, and runs when its result is asked for; inside
of `lm.jit` it is a step of the compiled program. `over` is an axis of a `Mesh`, all processes by
default; over one process an operand stays as it is. Derivatives are those of the sum of what all
processes differentiate: where each has its own part of a loss, gradients are right as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from lamina.core.dtypes import DType
from lamina.core.shape import Shape
from lamina.distributed.mesh import Axis, axis_of
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.arguments import normalize_axis
from lamina.frontend.functions.movement import moveaxis, reshape
from lamina.frontend.tensor import Tensor
from lamina.ir.monoids import ADD, MAX, MIN, MUL, Monoid
from lamina.ir.node import Node
from lamina.ir.ops import Broadcast, Combine, Op, Ranks, SendTo

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"]

COMBINES = {"sum": ADD, "product": MUL, "max": MAX, "min": MIN}


def all_reduce(x: Tensor, combine: str = "sum", over: Axis | None = None) -> Tensor:
    """The operands of all processes combined: "sum", "product", "max" or "min" (of bools "max" is
    any, and "min" is all). Shape and dtype are those of x. Derivative: all_reduce of the adjoint
    for a sum; for others through the gathered operands.

    Raises ArgumentError for another `combine`, and DTypeError for complex numbers and for the sum
    of bools."""
    axis = axis_of(over)
    monoid = _monoid("all_reduce", combine, x.dtype)
    if axis.ranks == 1:
        return x
    return _collective(Op.ALL_REDUCE, x, Combine(monoid, axis.ranks, axis.stride))


def all_gather(x: Tensor, axis: int = 0, over: Axis | None = None) -> Tensor:
    """The operands of all processes, one after the other along `axis`: (2, 3) of 4 processes is
    (8, 3), or along axis 1 (2, 12). Derivative: reduce_scatter. Raises AxisError."""
    ranks = axis_of(over)
    position = normalize_axis("all_gather", axis, len(x.shape))
    if ranks.ranks == 1:
        return x
    gathered = _collective(Op.ALL_GATHER, x, Ranks(ranks.ranks, ranks.stride))
    return _joined(gathered, position)


def reduce_scatter(
    x: Tensor, combine: str = "sum", axis: int = 0, over: Axis | None = None
) -> Tensor:
    """The operands of all processes combined, of which each keeps its part along `axis`: (8, 3) of
    4 processes is (2, 3), the first two rows on the first of them. Derivative: all_gather.

    Raises AxisError, ShapeError where the axis does not divide, and as `all_reduce`."""
    ranks = axis_of(over)
    monoid = _monoid("reduce_scatter", combine, x.dtype)
    position = normalize_axis("reduce_scatter", axis, len(x.shape))
    parts = _parts("reduce_scatter", x, position, ranks)
    if ranks.ranks == 1:
        return x
    return _collective(Op.REDUCE_SCATTER, parts, Combine(monoid, ranks.ranks, ranks.stride))


def broadcast(x: Tensor, root: int = 0, over: Axis | None = None) -> Tensor:
    """The operand of the process at place `root` of the axis. Derivative: the sum of all adjoints
    on the root, 0 on others. Raises ArgumentError for no such place."""
    axis = axis_of(over)
    if not 0 <= root < axis.ranks:
        raise ArgumentError(f"no root {root} among {axis.ranks} processes", operation="broadcast")
    if axis.ranks == 1:
        return x
    return _collective(Op.BROADCAST, x, Broadcast(root, axis.ranks, axis.stride))


def all_to_all(x: Tensor, split: int = 0, concat: int = 0, over: Axis | None = None) -> Tensor:
    """Each process cuts its operand along axis `split` into a part for each, and joins what it gets
    along axis `concat`: (8, 3) of 4 processes, split along 0 and joined along 1, is (2, 12).
    Derivative: the same with the axes changed over. Raises AxisError and ShapeError."""
    ranks = axis_of(over)
    cut = normalize_axis("all_to_all", split, len(x.shape))
    position = normalize_axis("all_to_all", concat, len(x.shape))
    parts = _parts("all_to_all", x, cut, ranks)
    if ranks.ranks == 1:
        return x
    return _joined(_collective(Op.ALL_TO_ALL, parts, Ranks(ranks.ranks, ranks.stride)), position)


def permute(x: Tensor, moves: Iterable[tuple[int, int]], over: Axis | None = None) -> Tensor:
    """The operand of the process that sends its own here; zeros where none does. `moves` has pairs
    (from, to) of places along the axis, each place at most once on each side. A ring of 4 is
    ``[(0, 1), (1, 2), (2, 3), (3, 0)]``. Derivative: the moves backwards. Raises ArgumentError."""
    axis = axis_of(over)
    targets = _targets(list(moves), axis.ranks)
    if axis.ranks == 1:
        return x if targets == (0,) else x * 0
    return _collective(Op.COLLECTIVE_PERMUTE, x, SendTo(targets, axis.ranks, axis.stride))


def _collective(op: Op, x: Tensor, arg: Ranks | Combine | Broadcast | SendTo) -> Tensor:
    if x.dtype.is_complex:
        name = op.name.lower()
        raise DTypeError(
            f"{x.dtype.name} {x.shape}: take the real and imaginary parts", operation=name
        )
    return Tensor.of(Node(op, (x.node,), arg), x.device)


def _monoid(what: str, combine: str, dtype: DType) -> Monoid:
    if combine not in COMBINES:
        raise ArgumentError(f"combine={combine!r} is none of {', '.join(COMBINES)}", operation=what)
    if dtype.kind == "bool" and combine in ("sum", "product"):
        raise DTypeError(
            f"a {combine} of bools: use max for any, min for all, or cast", operation=what
        )
    return COMBINES[combine]


def _parts(what: str, x: Tensor, axis: int, over: Axis) -> Tensor:
    """`x` cut along `axis` into a part for each process, along a new first axis."""
    length = x.shape[axis]
    if length % over.ranks:
        raise ShapeError(
            f"axis {axis} of {x.shape} has {length} elements, no multiple of {over.ranks}",
            operation=what,
        )
    part = length // over.ranks
    shape: Shape = (*x.shape[:axis], over.ranks, part, *x.shape[axis + 1 :])
    return moveaxis(reshape(x, shape), axis, 0)


def _joined(x: Tensor, axis: int) -> Tensor:
    """The elements along the first axis of `x`, one after the other along `axis` of the rest."""
    moved = moveaxis(x, 0, axis)
    shape = moved.shape
    joined = shape[axis] * shape[axis + 1]
    return reshape(moved, (*shape[:axis], joined, *shape[axis + 2 :]))


def _targets(moves: list[tuple[int, int]], ranks: int) -> tuple[int, ...]:
    """For each place the one that it sends to, -1 for none."""
    places = range(ranks)
    sources, targets = [source for source, _ in moves], [target for _, target in moves]
    inside = all(place in places for place in (*sources, *targets))
    if not inside or len(set(sources)) < len(moves) or len(set(targets)) < len(moves):
        raise ArgumentError(
            f"moves {moves} are no pairs of places below {ranks}, each once on each side",
            operation="permute",
        )
    to = dict(moves)
    return tuple(to.get(place, -1) for place in places)
