"""Contractions by index notation, and small linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.dtypes import DType, as_dtype, bool_, default_int, promote, uint64
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import cast, expand, insert_axes, permute, reduce, reshape, shrink
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.shape import Shape, broadcast_shapes, normalize_axis, prod
from lamina.tensor.core import Tensor, common_device, common_dtype
from lamina.tensor.movement import diagonal
from lamina.tensor.windows import accumulator

__all__ = ["cross", "dot", "einsum", "outer", "trace"]


def dot(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The sum of products of two vectors (n,), shape ()."""
    if x1.ndim != 1 or x1.shape != x2.shape:
        raise ShapeError(f"dot: {x1.shape} and {x2.shape}: two vectors of one size are needed")
    return einsum("i,i->", x1, x2)


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """All products of two vectors, (n,) and (m,) to (n, m)."""
    if x1.ndim != 1 or x2.ndim != 1:
        raise ShapeError(f"outer: {x1.shape} and {x2.shape}: two vectors are needed")
    return einsum("i,j->ij", x1, x2)


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector product along `axis`, whose size is 3; the rest broadcasts."""
    shape = broadcast_shapes("cross", x1.shape, x2.shape)
    place = normalize_axis("cross", axis, min(x1.ndim, x2.ndim)) - min(x1.ndim, x2.ndim)
    if x1.shape[place] != 3 or x2.shape[place] != 3:
        raise ShapeError(f"cross: axis {axis} of {x1.shape} and {x2.shape} must have size 3")
    device = common_device("cross", x1, x2)
    dtype = common_dtype("cross", x1, x2)
    a, b = (expand(cast(one.node, dtype), shape) for one in (x1, x2))
    at = len(shape) + place
    return Tensor.of(_rolled(a, at, 1) * _rolled(b, at, 2) - _rolled(a, at, 2) * _rolled(b, at, 1),
                     device)  # fmt: skip


def _rolled(x: Node, axis: int, by: int) -> Node:
    """Element i is element (i + by) mod 3 of `x` along `axis`: a slice of two copies."""
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    twice = reshape(expand(insert_axes(x, (axis,)), (*before, 2, 3, *after)), (*before, 6, *after))
    start = [by if one == axis else 0 for one in range(len(x.shape))]
    stop = [by + 3 if one == axis else size for one, size in enumerate(x.shape)]
    return shrink(twice, start, stop)


def _main_diagonal(x: Node) -> Node:
    """(..., n, n) to (..., n): every (n + 1)-th element of a flat matrix."""
    *outer_sizes, n, _ = x.shape
    flat = reshape(x, (*outer_sizes, n * n))
    step = [1] * len(outer_sizes) + [n + 1]
    return shrink(flat, [0] * len(flat.shape), flat.shape, step)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of the diagonals of matrices (..., n, m), shape (...).

    Small integers are summed in the default integer dtype unless `dtype` says otherwise.
    """
    node = diagonal(x, offset=offset).node
    target = _sum_dtype(x.dtype) if dtype is None else as_dtype(dtype)
    total = reduce(ADD, (x.ndim - 2,), cast(cast(node, target), accumulator(target)))
    return Tensor.of(cast(total, target), x.device)


def _sum_dtype(dtype: DType) -> DType:
    if dtype.kind == "uint":
        return uint64
    return default_int if dtype.kind in ("bool", "int") else dtype


# Index notation.


def einsum(equation: str, *tensors: Tensor) -> Tensor:
    """The sum of products that `equation` describes, as in NumPy and PyTorch.

    ``"ij,jk->ik"`` is a matrix product. A letter that is repeated within one operand takes a
    diagonal; ``...`` stands for axes that broadcast. Without ``->`` the result has the letters
    that occur once, in alphabetical order, after the broadcast axes. Three operands or more are
    contracted two at a time, the smallest intermediate result first. Raises ShapeError.
    """
    inputs, output = _parse(equation, tensors)
    device = common_device("einsum", *tensors)
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = promote("einsum", dtype, tensor.dtype)
    if dtype is bool_:
        raise DTypeError("einsum: bool has no sum of products; cast it to a number")
    exact = accumulator(dtype)
    terms = [
        _Term.read(cast(tensor.node, exact), labels)
        for tensor, labels in zip(tensors, inputs, strict=True)
    ]
    _check_sizes(equation, terms)
    while len(terms) > 2:
        terms = _contract_best_pair(terms, output)
    result = _contract(terms, output)
    return Tensor.of(cast(result.node, dtype), device)


class _Term:
    """A node whose axes have labels, each once; labels are letters or negative numbers, the
    position of an axis under an ellipsis counted from its end."""

    def __init__(self, node: Node, labels: list[Any]) -> None:
        self.node = node
        self.labels = labels
        self.size = dict(zip(labels, node.shape, strict=True))

    @classmethod
    def read(cls, node: Node, labels: list[Any]) -> _Term:
        """A term from an operand whose labels may repeat: it becomes its diagonal."""
        labels = list(labels)
        for label in dict.fromkeys(labels):
            while labels.count(label) > 1:
                first = labels.index(label)
                second = labels.index(label, first + 1)
                if node.shape[first] != node.shape[second]:
                    raise ShapeError(
                        f"einsum: {label!r} stands for sizes {node.shape[first]} and "
                        f"{node.shape[second]} of {node.shape}"
                    )
                rest = [one for one in range(len(labels)) if one not in (first, second)]
                node = _main_diagonal(permute(node, [*rest, first, second]))
                labels = [labels[one] for one in rest] + [label]
        return cls(node, labels)

    def spread(self, labels: Sequence[Any], shape: Shape) -> Node:
        """The node with axes `labels`, repeated to `shape`."""
        here = [label for label in labels if label in self.size]
        node = permute(self.node, [self.labels.index(label) for label in here])
        return expand(reshape(node, tuple(self.size.get(one, 1) for one in labels)), shape)


def _parse(equation: str, tensors: Sequence[Tensor]) -> tuple[list[list[Any]], list[Any]]:
    """The labels of each operand and of the result."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    texts = left.split(",")
    if not tensors or len(texts) != len(tensors):
        raise ShapeError(f"einsum: {equation!r} is for {len(texts)} operands, not {len(tensors)}")
    inputs = [
        _labels(equation, text, tensor.ndim) for text, tensor in zip(texts, tensors, strict=True)
    ]
    everything = [label for labels in inputs for label in labels]
    broadcast = sorted({label for label in everything if isinstance(label, int)})
    if not arrow:
        letters = {label for label in everything if isinstance(label, str)}
        return inputs, broadcast + sorted(one for one in letters if everything.count(one) == 1)
    output = _labels(equation, right, None, broadcast)
    unknown = [label for label in output if label not in everything]
    if unknown:
        raise ShapeError(f"einsum: {equation!r}: no operand has the result's {unknown[0]!r}")
    if len(set(output)) != len(output):
        raise ShapeError(f"einsum: {equation!r}: the result has a letter twice")
    return inputs, output


def _labels(
    equation: str, text: str, rank: int | None, broadcast: Sequence[int] = ()
) -> list[Any]:
    """The labels of one operand of `rank` axes; of the result when that is None."""
    before, dots, after = text.partition("...")
    letters = before + after
    if not all(letter.isalpha() for letter in letters):
        raise ShapeError(f"einsum: {equation!r}: {text!r} is not letters and one '...'")
    if rank is None:
        return [*before, *(broadcast if dots else ()), *after]
    hidden = rank - len(letters)
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(f"einsum: {equation!r}: {text!r} does not name {rank} axes")
    return [*before, *range(-hidden, 0), *after]


def _check_sizes(equation: str, terms: Sequence[_Term]) -> None:
    """Sizes of one label agree; under an ellipsis, and with PyTorch elsewhere, 1 broadcasts."""
    seen: dict[Any, int] = {}
    for term in terms:
        for label, size in term.size.items():
            known = seen.setdefault(label, size)
            if size != known and 1 not in (size, known):
                shapes = ", ".join(str(one.node.shape) for one in terms)
                raise ShapeError(
                    f"einsum: {equation!r} of {shapes}: {label!r} stands for {known} and {size}"
                )
            if known == 1:
                seen[label] = size


def _contract_best_pair(terms: list[_Term], output: Sequence[Any]) -> list[_Term]:
    """Replace the two terms whose contraction is smallest by it."""
    best: tuple[int, list[_Term], _Term] | None = None
    for i in range(len(terms)):
        for j in range(i + 1, len(terms)):
            rest = [term for at, term in enumerate(terms) if at not in (i, j)]
            needed = {*output, *(label for term in rest for label in term.labels)}
            together = dict.fromkeys(terms[i].labels + terms[j].labels)
            kept = [label for label in together if label in needed]
            result = _contract([terms[i], terms[j]], kept)
            cost = prod(result.node.shape)
            if best is None or cost < best[0]:
                best = cost, rest, result
    assert best is not None
    return [*best[1], best[2]]


def _contract(terms: Sequence[_Term], output: Sequence[Any]) -> _Term:
    """The product of one or two terms, summed over the labels that `output` lacks.

    Labels that only one term has are summed before the product.
    """
    kept = set(output)
    if len(terms) == 2:
        terms = [
            _summed(term, [one for one in term.labels if one in kept or one in other.size])
            for term, other in (terms, terms[::-1])
        ]
    summed = [
        one for one in dict.fromkeys(label for term in terms for label in term.labels)
        if one not in kept
    ]  # fmt: skip
    labels = [*output, *summed]
    shape = tuple(_common_size(terms, label) for label in labels)
    product = terms[0].spread(labels, shape)
    for term in terms[1:]:
        product = product * term.spread(labels, shape)
    node = reduce(ADD, range(len(output), len(labels)), product)
    return _Term(node, list(output))


def _summed(term: _Term, labels: list[Any]) -> _Term:
    axes = [axis for axis, label in enumerate(term.labels) if label not in labels]
    return _Term(reduce(ADD, axes, term.node), labels) if axes else term


def _common_size(terms: Sequence[_Term], label: Any) -> int:
    """The size of `label`, which is 1 in the terms that broadcast."""
    sizes = [term.size[label] for term in terms if label in term.size]
    return next((size for size in sizes if size != 1), 1)
