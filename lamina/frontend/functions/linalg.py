"""Products of arrays: of expanded views, summed over the axes they share; index notation."""

import itertools
import math
from collections.abc import Iterable, Sequence
from string import ascii_letters
from typing import Any

from lamina.core.dtypes import DType, accumulator, bool_, default_int
from lamina.core.shape import Shape, prod
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.arguments import broadcast_shapes, integer, normalize_axes, normalize_axis
from lamina.frontend.functions import reduction
from lamina.frontend.functions.elementwise import conj
from lamina.frontend.functions.movement import diagonal, main_diagonal, moveaxis, squeeze
from lamina.frontend.tensor import Tensor, as_tensor, common_device, common_dtype, once
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node

__all__ = ["dot", "einsum", "matmul", "matrix_norm", "outer", "tensordot", "trace", "vecdot"]


def on_one_device(what: str, x1: Any, x2: Any) -> list[Tensor]:
    """Both operands as tensors on one device."""
    like = next((one for one in (x1, x2) if isinstance(one, Tensor)), None)
    pair = [as_tensor(one, like) for one in (x1, x2)]
    common_device(what, *pair)
    return pair


@once
def matmul(x1: Any, x2: Any, /) -> Tensor:
    """The matrix product over the last two axes; leading axes broadcast, vectors lose theirs. The
    16-bit floats are added up in float32; for bools see `einsum`."""
    a, b = on_one_device("matmul", x1, x2)
    shapes = f"{a.shape} @ {b.shape}"
    if not a.ndim or not b.ndim:
        raise ShapeError(f"{shapes}: both operands need an axis at least", operation="matmul")
    inner, other = a.shape[-1], b.shape[-2:][0]
    if inner != other:
        raise ShapeError(f"{shapes}: inner sizes {inner} and {other} differ", operation="matmul")
    broadcast_shapes("matmul", a.shape[:-2], b.shape[:-2], about=f"{shapes}: leading axes")
    row, column = "i" * (a.ndim > 1), "k" * (b.ndim > 1)
    return einsum(f"...{row}j,...j{column}->...{row}{column}", a, b)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    """The inner products of vectors along `axis`; the first operand is conjugated."""
    a, b = on_one_device("vecdot", x1, x2)
    normalize_axis("vecdot", axis, min(a.ndim, b.ndim))
    if a.shape[axis] != b.shape[axis]:
        raise ShapeError(
            f"{a.shape} and {b.shape} differ in size along axis {axis}", operation="vecdot"
        )
    return einsum("...i,...i->...", moveaxis(conj(a), axis, -1), moveaxis(b, axis, -1))


def tensordot(
    x1: Any, x2: Any, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Tensor:
    """Summed over pairs of axes: the last and first `axes`, or those listed for each operand."""
    a, b = on_one_device("tensordot", x1, x2)
    if not isinstance(axes, Sequence):
        axes = (range(-integer("tensordot", axes, 0), 0), range(axes))
    left = normalize_axes("tensordot", axes[0], a.ndim)
    right = normalize_axes("tensordot", axes[1], b.ndim)
    shared = [a.shape[axis] for axis in left]
    if shared != [b.shape[axis] for axis in right]:
        raise ShapeError(
            f"{a.shape} and {b.shape} do not fit along {left} and {right}", operation="tensordot"
        )
    names = sorted(ascii_letters)  # the order that the result's axes get
    first, second = names[: a.ndim], names[a.ndim : a.ndim + b.ndim]
    for from_a, from_b in zip(left, right, strict=True):
        second[from_b] = first[from_a]
    return einsum(f"{''.join(first)},{''.join(second)}", a, b)


def dot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The sum of products of two vectors (n,), shape ()."""
    if x1.ndim != 1 or x1.shape != x2.shape:
        raise ShapeError(
            f"{x1.shape} and {x2.shape}: two vectors of one size are needed", operation="dot"
        )
    return einsum("i,i->", x1, x2)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors, (n,) and (m,) to (n, m)."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"{x1.shape} and {x2.shape}: two vectors are needed", operation="outer")
    return einsum("i,j->ij", x1, x2)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of the diagonals of matrices (..., n, m), shape (...), with the dtypes of `sum`."""
    return reduction.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def matrix_norm(
    x: Tensor, /, ord: float | str = "fro", axis: tuple[int, int] = (-2, -1), keepdims: bool = False
) -> Tensor:
    """The norm of each matrix in two axes: 'fro', the root of the sum of squares; 1 or -1, the
    greatest or the least sum of absolute values of a column; inf or -inf, of a row. Norms that
    need singular values, 2, -2 and 'nuc', are not offered."""
    rows, columns = normalize_axes("matrix_norm", axis, x.ndim)
    if ord == "fro":
        return reduction.norm(x, 2, (rows, columns), keepdims)
    if ord not in (1, -1, math.inf, -math.inf):
        raise ArgumentError(
            f"ord={ord!r} is not 'fro', 1, -1, inf or -inf", operation="matrix_norm"
        )
    of_columns = ord in (1, -1)
    sums = reduction.norm(x, 1, rows if of_columns else columns, keepdims=True)
    extreme = reduction.max if ord in (1, math.inf) else reduction.min
    result = extreme(sums, axis=columns if of_columns else rows, keepdims=True)
    return result if keepdims else squeeze(result, (rows, columns))


# Index notation. Labels of axes are letters or negative numbers: the position of an axis under an
# ellipsis, counted from its end.


@once
def einsum(equation: str, *tensors: Tensor) -> Tensor:
    """The sum of products that `equation` describes, as in NumPy and PyTorch: ``"ij,jk->ik"`` is a
    matrix product. A letter that is repeated within one operand takes a diagonal; ``...`` stands
    for axes that broadcast. Without ``->`` the result has the letters that occur once, in
    alphabetical order, after the broadcast axes. Three operands or more are contracted two at a
    time, the smallest intermediate result first. Of bools, a result says whether any product is
    true, as in NumPy. Raises ShapeError."""
    inputs, output = _parse(equation, tuple(tensor.ndim for tensor in tensors))
    device = common_device("einsum", *tensors)
    dtype = common_dtype("einsum", *tensors)
    wide = default_int if dtype is bool_ else accumulator(dtype)  # bools are counted
    labels = list(dict.fromkeys([*output, *itertools.chain(*inputs)]))
    nodes = [
        _aligned(build.cast(tensor.node, wide), own, labels)
        for tensor, own in zip(tensors, inputs, strict=True)
    ]
    for label, *sizes in zip(labels, *(node.shape for node in nodes), strict=True):
        found = [str(size) for size in dict.fromkeys(sizes) if size != 1]
        if len(found) > 1:  # 1 broadcasts, as with PyTorch
            shapes = ", ".join(str(tensor.shape) for tensor in tensors)
            raise ShapeError(f"{equation!r} of {shapes}: {label!r} stands for "
                             f"{' and '.join(found)}", operation="einsum")  # fmt: skip
    while len(nodes) > 2:
        nodes = _contract_best_pair(nodes, len(output))
    summed = range(len(output), len(labels))
    total = build.reduce(ADD, summed, _product(nodes, summed))
    return Tensor.of(build.cast(total, dtype), device)


def _parse(equation: str, ranks: Shape) -> tuple[list[list[Any]], list[Any]]:
    """The labels of each operand, which has so many axes, and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if not ranks or len(texts) != len(ranks):
        raise ShapeError(
            f"{equation!r} is for {len(texts)} operands, not {len(ranks)}", operation="einsum"
        )
    inputs = [_labels(equation, *pair) for pair in zip(texts, ranks, strict=True)]
    everything = [label for labels in inputs for label in labels]
    broadcast = sorted({label for label in everything if isinstance(label, int)})
    if not arrow:
        once = {one for one in everything if isinstance(one, str) and everything.count(one) == 1}
        return inputs, broadcast + sorted(once)
    rank = len(right) if "..." not in right else len(right) - len("...") + len(broadcast)
    output = _labels(equation, right, rank)
    unknown = [label for label in output if label not in everything]
    if unknown:
        raise ShapeError(
            f"{equation!r}: no operand has the result's {unknown[0]!r}", operation="einsum"
        )
    if len(set(output)) != len(output):
        raise ShapeError(f"{equation!r}: the result has a letter twice", operation="einsum")
    return inputs, output


def _labels(equation: str, text: str, rank: int) -> list[Any]:
    """The labels of an operand of `rank` axes."""
    before, dots, after = text.partition("...")
    if not all(letter.isalpha() for letter in before + after):
        raise ShapeError(f"{equation!r}: {text!r} is not letters and one '...'", operation="einsum")
    hidden = rank - len(before + after)
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(f"{equation!r}: {text!r} does not name {rank} axes", operation="einsum")
    return [*before, *range(-hidden, 0), *after]


def _aligned(node: Node, own: list[Any], labels: list[Any]) -> Node:
    """The node, whose axes have the labels `own`, with one axis for each of `labels`, of size 1
    where it has none. A label that repeats takes a diagonal."""
    for label in dict.fromkeys(own):
        while own.count(label) > 1:
            first = own.index(label)
            second = own.index(label, first + 1)
            if node.shape[first] != node.shape[second]:
                raise ShapeError(
                    f"{label!r} stands for two sizes of {node.shape}", operation="einsum"
                )
            rest = [axis for axis in range(len(own)) if axis not in (first, second)]
            node = main_diagonal(build.permute(node, [*rest, first, second]))
            own = [own[axis] for axis in rest] + [label]
    node = build.permute(node, [own.index(label) for label in labels if label in own])
    sizes = iter(node.shape)
    return build.reshape(node, tuple(next(sizes) if one in own else 1 for one in labels))


def _product(nodes: Sequence[Node], summed: Iterable[int]) -> Node:
    """The product of one or two nodes, each summed first over the axes that it alone has."""
    if len(nodes) == 2:
        nodes = [
            _summed(one, [axis for axis in summed if other.shape[axis] == 1 != one.shape[axis]])
            for one, other in (nodes, nodes[::-1])
        ]
    shape = broadcast_shapes("einsum", *(one.shape for one in nodes))
    first, *others = (build.expand(one, shape) for one in nodes)
    return first * others[0] if others else first


def _summed(node: Node, axes: Sequence[int]) -> Node:
    return build.insert_axes(build.reduce(ADD, axes, node), axes)


def _contract_best_pair(nodes: list[Node], kept: int) -> list[Node]:
    """The two nodes whose contraction is smallest replaced by it; the first `kept` axes stay."""
    choices = []
    for pair in itertools.combinations(range(len(nodes)), 2):
        rest = [one for at, one in enumerate(nodes) if at not in pair]
        later = range(kept, len(nodes[0].shape))
        summed = [axis for axis in later if all(one.shape[axis] == 1 for one in rest)]
        product = _product([nodes[at] for at in pair], summed)
        choices.append([*rest, _summed(product, summed)])
    return min(choices, key=lambda choice: prod(choice[-1].shape))
