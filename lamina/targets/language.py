"""What the printers of loops and values ask of a language: the texts of types and expressions."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lamina.core.dtypes import DType
from lamina.ir.node import Node

Point = dict[Node, int]  # unrolled axis -> index


class Value(NamedTuple):
    """An expression of C for a value: a scalar, or a vector of more than one of `lanes`.

    A vector of bool is a mask: the elements are integers of `mask` bits, -1 where true. Any other
    value has 0 for `mask`.
    """

    text: str
    dtype: DType
    lanes: int = 1
    mask: int = 0


Values = tuple[Value, ...]  # the components of one reduction: of an argmax, the value and the index


class Language(Protocol):
    """How values are spelled. A printer has one."""

    index_type: str  # of indices and of the variables of loops

    def type(self, value: Value) -> str:
        """The type of a variable that holds `value`."""
        ...

    def literal(self, node: Node) -> Value:
        """A constant."""
        ...

    def operation(self, node: Node, operands: list[Value]) -> Value:
        """The elementwise operation of `node` on `operands`."""
        ...

    def widened(self, value: Value, to: Value) -> str:
        """The text of `value` with the lanes and the mask of `to`."""
        ...

    def lane(self, value: Value, number: int) -> Value:
        """One lane of a vector; a scalar as it is."""
        ...

    def half(self, vectors: Sequence[Value], side: int, run: int) -> Value:
        """Half of the lanes of one or two vectors: side 0 is the first half, 1 the second. Of two
        vectors a and b, the halves are in one vector, in which `run` lanes of each take turns: of 4
        lanes each, side 0 and run 1 are a[0], b[0], a[1], b[1]; run 2 is a[0], a[1], b[0], b[1].
        Of a alone, side 0 is a[0], a[1], whatever `run` is."""
        ...

    def moved_up(self, value: Value, by: int, fill: Value) -> Value:
        """The lanes of a vector at places that are `by` further, behind as many of the scalar
        `fill`: of a with 4 lanes, by 1, they are fill, a[0], a[1], a[2]."""
        ...

    def lane_numbers(self, lanes: int, dtype: DType) -> Value:
        """The vector 0, 1, ..., lanes - 1 of an integer dtype."""
        ...
