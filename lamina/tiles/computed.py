"""From the nodes of a nest to statements that compute a value for each element of a tile."""

from collections.abc import Callable, Sequence

from lamina.graph import index as ix
from lamina.ir.kernel import terms_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.tiles.program import (
    Statement,
    TileStore,
)
from lamina.tiles.values import (
    Computed,
    Gather,
    Index,
    Map,
    Operand,
    Places,
    Position,
    View,
)


def axis_name(axis: Node) -> str:
    """The variable of an axis, as texts name it: a3, and r7 if it is reduced."""
    return f"{'r' if axis.arg.reduce else 'a'}{axis.arg.number}"


class Body:
    """The body of an epilogue or of a fill, statement by statement.

    view_of: the view that says what a load reads, if one does
    names: what has a name
    has_places: whether a statement needs the variables along the sides of the tile
    """

    def __init__(self, view_of: Callable[[Node], View | None]) -> None:
        self.view_of = view_of
        self.names: dict[Node, str] = {}
        self.statements: list[Statement] = []
        self.has_places = False

    @property
    def results(self) -> tuple[Computed | TileStore, ...]:
        """The statements that compute and store: all that an epilogue has."""
        kinds = (Map, Gather, Position, TileStore)
        return tuple(part for part in self.statements if isinstance(part, kinds))

    def compute(self, values: Sequence[Node]) -> None:
        """Append the arithmetic of `values` from what has names, and name it."""
        every = toposort(values, self._is_new)
        conditions = [_condition_of(node) for node in every]
        guards = [condition for condition in conditions if condition is not None]
        every = toposort((*guards, *values), self._is_new)
        operands = {
            operand for node in every if node.op in Group.ELEMENTWISE for operand in node.src
        }
        for node in every:
            if node in self.names:
                continue
            if node.op in Group.ELEMENTWISE:
                words = tuple(self.operand(operand) for operand in node.src)
                self._append(node, Map(self.new_name(), node.dtype, node.op, words))
            elif node.op is Op.LOAD and self.view_of(node) is None:
                self._append(node, self._gather(node))
            elif node.op is Op.AFFINE and node in operands:
                self._append(node, Position(self.new_name(), self.index(node)))

    def _is_new(self, node: Node) -> bool:
        """Is a node to be computed, and what is beneath it? A view says all of a load."""
        is_view = node.op is Op.LOAD and self.view_of(node) is not None
        return node not in self.names and not is_view

    def new_name(self) -> str:
        """Of the value that the next statement computes."""
        return f"v{len(self.statements)}"

    def _append(self, node: Node, statement: Computed) -> None:
        self.statements.append(statement)
        self.names[node] = statement.target
        self.has_places = self.has_places or not isinstance(statement, Map)

    def _gather(self, load: Node) -> Gather:
        condition = _condition_of(load)
        return Gather(
            self.new_name(),
            load.dtype,
            f"p{load.arg.parameter}",
            self.index(load.src[0]),
            self.names[condition] if condition else "",
        )

    def operand(self, node: Node) -> Operand:
        """What a statement has of a node that is computed, or is an operand by itself."""
        if node in self.names:
            return self.names[node]
        if node.op is Op.AXIS:
            self.has_places = True
            return axis_name(node) if node.arg.size > 1 else 0
        if node.op is Op.CONST:
            return _number(node)
        view = self.view_of(node)
        assert view is not None, node
        return view

    def index(self, node: Node) -> Index:
        """An index of axes and of values that are computed."""
        terms, constant = terms_of(node)
        named: list[tuple[str, int]] = []
        for term, factor in terms.items():
            if term.op is not Op.AXIS:
                named.append((self.names[term], factor))
            elif term.arg.size > 1:  # an axis of one point is always 0
                named.append((axis_name(term), factor))
        return Index(tuple(named), constant)

    def places(self, parameter: int, index: Node, condition: Node) -> Places:
        """Where a store writes; appends what computes it."""
        self.has_places = True
        guards = [] if condition is ix.TRUE else [condition]
        self.compute([index, *guards])
        guard = self.names[condition] if guards else ""
        return Places(f"p{parameter}", self.index(index), guard)


def _condition_of(node: Node) -> Node | None:
    """Under which a load reads; None for one that always does, and for other nodes."""
    if node.op is not Op.LOAD or len(node.src) == 1:
        return None
    condition = ix.both(*node.src[1:])
    return None if condition is ix.TRUE else condition


def _number(const: Node) -> float | int:
    """A constant; an integer that no float is stays one."""
    value = const.arg.value
    is_exact = value != value or float(value) == value  # a NaN is not equal to itself
    return float(value) if is_exact else int(value)
