"""Contractions by index notation, and small linear algebra."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

from lamina.dtypes import DType, bool_
from lamina.errors import DTypeError, ShapeError
from lamina.ir.build import cast, expand, permute, reduce, reshape
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.shape import Shape, broadcast_shapes, normalize_axis, prod
from lamina.tensor import reduction
from lamina.tensor.core import Tensor, common_device, common_dtype
from lamina.tensor.elementwise import SAME
from lamina.tensor.movement import diagonal, main_diagonal, roll
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
    rank = min(x1.ndim, x2.ndim)
    at = normalize_axis("cross", axis, rank) - rank
    if x1.shape[at] != 3 or x2.shape[at] != 3:
        raise ShapeError(f"cross: axis {axis} of {x1.shape} and {x2.shape} must have size 3")

    def rule(a: Node, b: Node) -> Node:
        a1, a2, b1, b2 = (
            roll(Tensor.of(one, x1.device), -by, axis=at).node for one in (a, b) for by in (1, 2)
        )
        return a1 * b2 - a2 * b1

    return SAME("cross", rule, x1, x2)


def trace(x: Tensor, /, *, offset: int = 0, dtype: DType | None = None) -> Tensor:
    """The sums of the diagonals of matrices (..., n, m), shape (...), with the dtypes of `sum`."""
    return reduction.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


# Index notation. Labels of axes are letters or negative numbers: the position of an axis under an
# ellipsis, counted from its end.


def einsum(equation: str, *tensors: Tensor) -> Tensor:
    """The sum of products that `equation` describes, as in NumPy and PyTorch.

    ``"ij,jk->ik"`` is a matrix product. A letter that is repeated within one operand takes a
    diagonal; ``...`` stands for axes that broadcast. Without ``->`` the result has the letters
    that occur once, in alphabetical order, after the broadcast axes. Three operands or more are
    contracted two at a time, the smallest intermediate result first. Raises ShapeError.
    """
    inputs, output = _parse(equation, tensors)
    device = common_device("einsum", *tensors)
    dtype = common_dtype("einsum", *tensors)
    if dtype is bool_:
        raise DTypeError("einsum: bool has no sum of products; cast it to a number")
    terms = [
        _diagonals(Term(cast(tensor.node, accumulator(dtype)), labels))
        for tensor, labels in zip(tensors, inputs, strict=True)
    ]
    _check_sizes(equation, terms)
    while len(terms) > 2:
        terms = _contract_best_pair(terms, output)
    return Tensor.of(cast(_contract(terms, output).node, dtype), device)


class Term(NamedTuple):
    """A node and the labels of its axes."""

    node: Node
    labels: list[Any]

    def size(self, label: Any) -> int:
        """The size of an axis, 1 where there is none."""
        return self.node.shape[self.labels.index(label)] if label in self.labels else 1

    def spread(self, labels: Sequence[Any], shape: Shape) -> Node:
        """The node with axes `labels`, repeated to `shape`."""
        node = permute(self.node, [self.labels.index(one) for one in labels if one in self.labels])
        return expand(reshape(node, tuple(self.size(one) for one in labels)), shape)


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
        once = {one for one in everything if isinstance(one, str) and everything.count(one) == 1}
        return inputs, broadcast + sorted(once)
    rank = len(right) if "..." not in right else len(right) - len("...") + len(broadcast)
    output = _labels(equation, right, rank)
    unknown = [label for label in output if label not in everything]
    if unknown:
        raise ShapeError(f"einsum: {equation!r}: no operand has the result's {unknown[0]!r}")
    if len(set(output)) != len(output):
        raise ShapeError(f"einsum: {equation!r}: the result has a letter twice")
    return inputs, output


def _labels(equation: str, text: str, rank: int) -> list[Any]:
    """The labels of an operand of `rank` axes."""
    before, dots, after = text.partition("...")
    if not all(letter.isalpha() for letter in before + after):
        raise ShapeError(f"einsum: {equation!r}: {text!r} is not letters and one '...'")
    hidden = rank - len(before + after)
    if hidden < 0 or (hidden and not dots):
        raise ShapeError(f"einsum: {equation!r}: {text!r} does not name {rank} axes")
    return [*before, *range(-hidden, 0), *after]


def _diagonals(term: Term) -> Term:
    """The same with every label once: a label that repeats takes a diagonal."""
    node, labels = term
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if node.shape[first] != node.shape[second]:
                raise ShapeError(f"einsum: {label!r} stands for two sizes of {node.shape}")
            rest = [axis for axis in range(len(labels)) if axis not in (first, second)]
            node = main_diagonal(permute(node, [*rest, first, second]))
            labels = [labels[axis] for axis in rest] + [label]
    return Term(node, labels)


def _check_sizes(equation: str, terms: Sequence[Term]) -> None:
    """Sizes of one label agree; under an ellipsis, and with PyTorch elsewhere, 1 broadcasts."""
    for label in dict.fromkeys(label for term in terms for label in term.labels):
        sizes = dict.fromkeys(term.size(label) for term in terms if term.size(label) != 1)
        if len(sizes) > 1:
            shapes = ", ".join(str(one.node.shape) for one in terms)
            found = " and ".join(map(str, sizes))
            raise ShapeError(f"einsum: {equation!r} of {shapes}: {label!r} stands for {found}")


def _contract_best_pair(terms: list[Term], output: Sequence[Any]) -> list[Term]:
    """The two terms whose contraction is smallest replaced by it."""
    choices = []
    for pair in combinations(range(len(terms)), 2):
        chosen = [terms[place] for place in pair]
        rest = [term for place, term in enumerate(terms) if place not in pair]
        needed = {*output, *(label for term in rest for label in term.labels)}
        together = dict.fromkeys(chosen[0].labels + chosen[1].labels)
        kept = [label for label in together if label in needed]
        choices.append([*rest, _contract(chosen, kept)])
    return min(choices, key=lambda choice: prod(choice[-1].node.shape))


def _contract(terms: Sequence[Term], output: Sequence[Any]) -> Term:
    """The product of one or two terms, summed over the labels that `output` lacks; before the
    product where only one term has them."""
    if len(terms) == 2:
        terms = [_summed(one, {*output, *other.labels}) for one, other in (terms, terms[::-1])]
    labels = list(dict.fromkeys([*output, *(label for term in terms for label in term.labels)]))
    shape = broadcast_shapes("einsum", *(tuple(map(term.size, labels)) for term in terms))
    product = terms[0].spread(labels, shape)
    for term in terms[1:]:
        product = product * term.spread(labels, shape)
    return _summed(Term(product, labels), set(output))


def _summed(term: Term, kept: set[Any]) -> Term:
    """Without the axes of other labels than `kept`."""
    axes = [axis for axis, label in enumerate(term.labels) if label not in kept]
    return Term(reduce(ADD, axes, term.node), [one for one in term.labels if one in kept])
