"""Printing a kernel function: what is around its rows, and its loads and stores of scalars.

Of the softmax of 64 rows of 100 elements in C, where the launch gives the index of a row:

    POINTER(const f32, 0);                                 `arrays`
    POINTER(f32, 1);
    const i64 row = chunk % 64;                            `indices`
    {                                                      `body`: each part of the rows
        ...
            const f32 load_1 = p0[100 * row + column];     `load`
        ...
            p1[100 * row + column] = mul_9;                `print_store`
    }
"""

from collections.abc import Iterator, Sequence

from lamina.errors import FormatError
from lamina.graph import index as ix
from lamina.ir.kernel import Store, points
from lamina.ir.node import Node
from lamina.targets.c.operations import ELEMENTS, CLanguage
from lamina.targets.language import Point, Value
from lamina.targets.parts import Condition, Fixed, NestPart, Partitioner
from lamina.targets.reductions import NestPrinter
from lamina.targets.scopes import Scope


class KernelPrinter(NestPrinter):
    """One kernel function, in C or a language like it."""

    language: CLanguage

    def __init__(self, partitioner: Partitioner, name: str, language: CLanguage) -> None:
        super().__init__(partitioner, language)
        self.function = name

    def arrays(self) -> tuple[list[str], list[str]]:
        """What macros take of each array in device memory, and the definitions of other arrays."""
        pointers, scratch = list[str](), list[str]()
        for number, parameter in enumerate(self.nest.kernel.parameters):
            kind = ELEMENTS[parameter.dtype]
            if parameter.memory == "scratch":
                scratch.append(f"{kind} p{number}[{parameter.size}] SCRATCH;")
            else:
                qualifier = "" if parameter.written else "const "
                pointers.append(f"{qualifier}{kind}, {number}")
        return pointers, scratch

    def indices(self, axes: Sequence[Node], chunk: str) -> Iterator[str]:
        """Definitions of the indices of `axes`, the last the fastest, that `chunk` stands for. Axes
        of 3 and 8: ``chunk % 8`` for the second and ``(chunk / 8) % 3`` for the first; one of 1 has
        the index 0."""
        rest = chunk
        for place, axis in reversed(list(enumerate(axes))):
            index = f"{rest} % {axis.arg.size}" if axis.arg.size > 1 else "0"
            yield f"const {self.language.index_type} {self.axis_name(axis)} = {index};"
            faster = points(axes[place:])
            rest = f"({chunk} / {faster})" if faster > 1 else chunk

    def body(self, lines: list[str]) -> str:
        """The text of `lines` and of every row."""
        return "".join(f"    {text}\n" for text in (*lines, *self.blocks()))

    def blocks(self) -> list[str]:
        """The lines of every row: each group of parts of the rows is a block of text of its own,
        under the conditions on the index of a chunk by which it runs."""
        lines: list[str] = []
        parts = self.partitioner.nest_parts(self.nest.kernel.row_axes)
        for group in self.sharing_loops(parts):
            self.scopes = [Scope()]
            self.print_rows(group)
            # The parts of a group are alike in the axes of the launch, which have the conditions.
            conditions = [condition.text for condition in _conditions(group[0])]
            head = f"if ({' && '.join(conditions)}) {{" if conditions else "{"
            lines += [head, *("    " + text for text in self.scopes[0].lines), "}"]
        return lines

    # Loads and stores of scalars.

    def load(self, node: Node, point: Point) -> Value:
        """``p0[row + 1]``; under a condition, where that does not hold nothing is read:
        ``(lt_3 ? p0[row + 1] : 0)``."""
        index, condition = index_and_condition(node)
        text = f"p{node.arg.parameter}[{self.index_text(index, point)}]"
        if condition is not ix.TRUE:
            text = f"({self.value(condition, point).text} ? {text} : 0)"
        return Value(text, node.dtype)

    def print_store(self, store: Store, value: Value, point: Point) -> None:
        """Print ``p1[row] = sum_3;``, or the line of an `atomic` store."""
        if store.atomic:
            line = self.atomic(store, value.text, point)
        else:
            line = self.assignment(store, value, point)
        self.print_under_condition(store, line, point)

    def assignment(self, store: Store, value: Value, point: Point) -> str:
        """``p1[row] = sum_3;``, or ``p1[row] = (p1[row] + sum_3);`` of a store that combines."""
        target = self.place(store, point)
        old = Value(target, store.value.dtype)
        return f"{target} = {self.updated(store, old, value).text};"

    def place(self, store: Store, point: Point) -> str:
        """Where a store writes: ``p1[row]``."""
        return f"p{store.parameter}[{self.index_text(store.index, point)}]"

    def updated(self, store: Store, old: Value, value: Value) -> Value:
        """What is stored where memory holds `old`: `value`, combined with it by the monoid of the
        store, if that has one."""
        if store.monoid is None:
            return value
        (updated,) = self.combiner.combined(store.monoid, (old,), (value,))
        return updated

    def atomic(self, store: Store, value: str, point: Point) -> str:
        """The line that combines `value` with what other threads may combine at the same time.
        Raises FormatError where the target has no such operation."""
        raise FormatError(f"atomic: this target has no such operation by {store.monoid}")

    def print_under_condition(self, store: Store, line: str, point: Point) -> None:
        """Print the `line` of a store, under its condition if that is not always true."""
        if store.condition is not ix.TRUE:
            condition = self.value(store.condition, point)
            line = f"{self.condition_head(condition.text)} {{ {line} }}"
        self.print_store_line(store, line)

    def print_store_line(self, store: Store, line: str) -> None:
        """Print the `line` of a store, with its condition."""
        self.line(line)

    def condition_head(self, condition: str) -> str:
        """The head of a store that happens only under a condition."""
        return f"if ({condition})"


def index_and_condition(load: Node) -> tuple[Node, Node]:
    """The operands of a LOAD: the index that it reads, and where it does so, TRUE if always."""
    index, *guard = load.src
    return index, guard[0] if guard else ix.TRUE


def _conditions(nest_part: NestPart) -> list[Condition]:
    """The conditions by which a part runs."""
    fixed = [loop_part for loop_part in nest_part.values() if isinstance(loop_part, Fixed)]
    return [loop_part.condition for loop_part in fixed if loop_part.condition]
