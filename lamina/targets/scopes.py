"""Printing lines into scopes, and opening the loops of a nest as scopes.

A scope is the body of a loop. The open scopes are numbered from the outside: 0 is the body of the
kernel, 1 that of its outermost loop. Each remembers the values that are computed in it, so that the
scope where a value is computed decides how often: once for each iteration of the loops around it.

An unrolled axis and the lanes of a vector open no scope. What depends on an unrolled axis is
printed once for each of its indices; a *point* gives an index to every unrolled axis.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from lamina.ir.build import component
from lamina.ir.kernel import free_axes
from lamina.ir.node import Node
from lamina.targets.language import Language, Point, Value, Values
from lamina.targets.parts import (
    Fixed,
    InRegisters,
    Loop,
    LoopPart,
    NestPart,
    Partitioner,
    Unrolled,
    Vector,
    Word,
)


class Lanes(NamedTuple):
    """The indices of an axis in registers that a value is computed for: so many, from `first` on.
    Of an unrolled axis it is one index."""

    axis: Node
    first: int
    lanes: int


# What tells values of one scope apart: `ScopePrinter.key`.
Key = tuple[Node, tuple[Hashable, ...]]


@dataclass
class Scope:
    """The body of one loop: the loop's first line, such as ``for (...) {``, the lines of the body,
    and the values already computed in it."""

    head: str = ""  # of the outermost scope and of functions, which are printed elsewhere, ""
    lines: list[str] = field(default_factory=list)
    cache: dict[Key, Value] = field(default_factory=dict)
    # What all lanes, or all threads of a row, have come to at the end of the step before: by the
    # scan (component 0 of it) and by the indices of the unrolled rows.
    scan_totals: dict[tuple[Node, tuple[int, ...]], Values] = field(default_factory=dict)


class ScopePrinter:
    """Prints lines, variables and loops.

    Each open axis is in one of three tables, by how it runs. `index_texts` has the index of a loop,
    its variable ``row_inner``, and of a fixed axis, a number or a text. `unrolled` and `vectors`
    have the indices of an axis in registers.
    """

    def __init__(self, partitioner: Partitioner, language: Language) -> None:
        self.nest = partitioner.nest
        self.partitioner = partitioner  # divides axes into parts, which are opened here
        self.language = language  # how values are spelled
        self.scopes = [Scope()]
        self.depth_of: dict[Node, int] = {}  # open axis -> number of the scope that it is open in
        self.index_texts: dict[Node, int | str] = {}
        self.unrolled: dict[Node, Unrolled] = {}
        self.vectors: dict[Node, Vector] = {}
        # An ``if`` before whatever the open loops add up and store, such as ``if (thread_in_row <
        # 100) `` where 128 threads share a loop of 100 iterations; "" if they do all of it.
        self.guard = ""
        self._variables = 0  # declared so far in the kernel

    def axis_name(self, axis: Node) -> str:
        """The variable that holds the index of `axis`."""
        return self.partitioner.names[axis]

    # Lines and variables.

    def line(self, text: str) -> None:
        """Print a line into the innermost scope."""
        self.scopes[-1].lines.append(text)

    def lines(self, texts: Iterable[str]) -> None:
        """Print lines into the innermost scope."""
        self.scopes[-1].lines += texts

    def fresh_name(self, what: str) -> str:
        """A variable that is new in the kernel: ``load_1``, ``sum_2``, numbered all alike."""
        self._variables += 1
        return f"{what}_{self._variables}"

    def declare(self, value: Value, what: str, mutable: bool = False) -> Value:
        """Print a definition of `value`, whose name says `what` it is, and return the variable: for
        the expression ``(a + b)`` and "add" the line ``const f32 add_3 = (a + b);``."""
        name = self.fresh_name(what)
        qualifier = "" if mutable else "const "
        self.line(f"{qualifier}{self.language.type(value)} {name} = {value.text};")
        return value._replace(text=name)

    @contextmanager
    def at_depth(self, depth: int) -> Iterator[None]:
        """Print into the open scope of number `depth`, not into the innermost one."""
        all_scopes = self.scopes
        self.scopes = all_scopes[: depth + 1]
        yield
        self.scopes = all_scopes

    def declared_at(self, depth: int, value: Value, what: str) -> Value:
        """Declare a variable that begins at `value` in the open scope of number `depth`."""
        with self.at_depth(depth):
            return self.declare(value, what, mutable=True)

    # Opening axes.

    @contextmanager
    def opened_in_order(self, nest_part: NestPart, order: Sequence[Node]) -> Iterator[None]:
        """Open the axes of `nest_part` in this order, those in registers last; what the ``with``
        prints is in their bodies.

        Of {i: a loop of 8, j: a vector of 16 lanes} only i has a line of its own,
        ``for (i64 i = 0; i < 8; i++) {``; j makes the values inside into vectors.
        """
        with ExitStack() as open_axes:
            for axis in registers_last(nest_part, order):
                open_axes.enter_context(self.opened_axis(axis, nest_part[axis]))
            yield

    @contextmanager
    def opened_axis(self, axis: Node, loop_part: LoopPart) -> Iterator[None]:
        """Open one axis: begin its loop, if it has one, and make its index known; end the loop and
        forget the index after the ``with``."""
        guard_outside = self.guard
        # Conditions on launch axes stand around the whole part instead: `KernelPrinter.body`.
        is_launched = axis in self.partitioner.launch_axes
        if isinstance(loop_part, Fixed) and loop_part.condition and not is_launched:
            self.guard = f"if ({loop_part.condition.text}) "
        if isinstance(loop_part, Loop):
            head = self.loop_head(axis, self.axis_name(axis), loop_part.first, loop_part.end)
            self.scopes.append(Scope(head))
        self._bind(axis, loop_part)
        yield
        self._unbind(axis)
        if isinstance(loop_part, Loop):
            self.close_loop()
        self.guard = guard_outside

    def _bind(self, axis: Node, loop_part: LoopPart) -> None:
        """Make `axis` known in the innermost scope, or everywhere if it is in registers: what
        depends on it and on no loop inside another is computed outside of that."""
        self.depth_of[axis] = 0 if isinstance(loop_part, InRegisters) else len(self.scopes) - 1
        match loop_part:
            case Loop():
                self.index_texts[axis] = self.axis_name(axis)
            case Fixed(index):
                self.index_texts[axis] = index
            case Word():
                self.index_texts[axis] = 0  # a word has one index, that of its first byte
            case Unrolled():
                self.unrolled[axis] = loop_part
            case Vector():
                self.vectors[axis] = loop_part

    def _unbind(self, axis: Node) -> None:
        """Forget `axis`, which is in one of the three tables."""
        del self.depth_of[axis]
        self.index_texts.pop(axis, None)
        self.unrolled.pop(axis, None)
        self.vectors.pop(axis, None)

    def close_loop(self) -> None:
        """Close the innermost scope, and print it as the body of a loop unless it is empty."""
        scope = self.scopes.pop()
        if scope.lines:
            self.braced(scope.head, scope.lines)

    def braced(self, head: str, lines: Sequence[str], tail: str = "}") -> None:
        """Print `lines` as the body of a loop or a function: after `head`, which ends in a brace,
        indented, and before `tail`."""
        self.scopes[-1].lines += [head, *("    " + text for text in lines), tail]

    def loop_head(self, axis: Node, name: str, first: int | str, end: int | str) -> str:
        """The head of the loop over `axis`, whose index is `name`: 8 iterations from 2 on are
        ``for (i64 i = 2; i < 10; i++) {``."""
        return f"for ({self.language.index_type} {name} = {first}; {name} < {end}; {name}++) {{"

    def stride(self, axis: Node) -> int:
        """By how much the index of the loop over `axis` grows from one iteration to the next."""
        return 1

    # Where values are computed, and for which indices.

    def points(self, axes: Collection[Node]) -> Iterator[Point]:
        """Every point of the unrolled ones among `axes`, the last the fastest. If none is unrolled,
        that is the one point {}. Of i with 2 indices from 0 on and j with 2 from 8 on, it is
        {i: 0, j: 8}, {i: 0, j: 9}, {i: 1, j: 8} and {i: 1, j: 9}.
        """
        tile = {axis: copies for axis, copies in self.unrolled.items() if axis in axes}
        indices = [range(part.first, part.first + part.copies) for part in tile.values()]
        for values in product(*indices):
            yield dict(zip(tile, values, strict=True))

    def lanes_of(self, node: Node) -> int:
        """1, or the lanes of the vector axis that `node` depends on: nests have no value
        that depends on two (`lamina/loops/verify.py`)."""
        free = free_axes(node)
        return next((vector.lanes for axis, vector in self.vectors.items() if axis in free), 1)

    def home(self, node: Node) -> int:
        """The number of the outermost scope where `node` can be computed: of the scopes that bind
        its axes, the innermost; 0 if it has none."""
        return max(map(self.depth_of.__getitem__, free_axes(node)), default=0)

    def key(self, node: Node, point: Point) -> Key:
        """What tells values of one scope apart: the node, and its indices along the axes in
        registers. Axes that the node does not depend on are left out, so that all of their points
        share its value.

        With i unrolled, at the point {i: 3}, and j in a vector of 16 lanes from 32 on, the key of
        ``x[i]`` has (i, 3, 1) alone, and that of ``x[i] + y[j]`` has (j, 32, 16) too.
        """
        return key_of(node, point, self.unrolled, self.vectors)

    def remember(self, node: Node, point: Point, values: Values) -> None:
        """Remember in the innermost scope every component of a reduction or scan at `point`."""
        for part, value in enumerate(values):
            self.scopes[-1].cache[self.key(component(node, part), point)] = value


def key_of(
    node: Node, point: Point, unrolled: Mapping[Node, Unrolled], vectors: Mapping[Node, Vector]
) -> Key:
    """`ScopePrinter.key`, with these axes in registers."""
    free = free_axes(node)
    at = [Lanes(axis, point[axis], 1) for axis in unrolled if axis in free]
    for axis, vector in vectors.items():
        if axis in free:
            at.append(Lanes(axis, vector.first, vector.lanes))
    return node, tuple(at)


def registers_last(nest_part: NestPart, order: Sequence[Node]) -> list[Node]:
    """The axes of `nest_part` in this order, first its loops and fixed axes, then those in
    registers."""
    axes = [axis for axis in order if axis in nest_part]
    in_registers = [axis for axis in axes if isinstance(nest_part[axis], InRegisters)]
    return [axis for axis in axes if axis not in in_registers] + in_registers
