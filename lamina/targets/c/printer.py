"""C for the CPU: the function of one kernel.

The launch hands a kernel its arrays and a chunk, a number that stands for the indices of all axes
that threads share. Of a product of (64, 128) and (128, 32) in 8 chunks:

    KERNEL(reduce0_64x32) {
        POINTER(const f32, 0);                         each array in device memory, by its number
        POINTER(const f32, 1);
        POINTER(f32, 2);
        const i64 row_outer = chunk % 8;               the indices of the launch
        const i64 column_outer = (chunk / 8) % 1;
        {                                              each part of the rows
            ...
        }
    }
"""

from collections.abc import Iterator, Sequence

from lamina.core.dtypes import float32, int32
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import points
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.targets.c.memory import MemoryPrinter
from lamina.targets.c.operations import ELEMENTS, CLanguage
from lamina.targets.language import Point, Value
from lamina.targets.parts import Condition, Fixed, NestPart
from lamina.targets.printer import LOOKUP_LANES, digit_of
from lamina.targets.scopes import Scope


class CPrinter(MemoryPrinter):
    """One kernel function."""

    def __init__(self, nest: Nest, name: str, language: CLanguage) -> None:
        super().__init__(nest, language)
        self.function = name

    def print(self) -> tuple[str, int]:
        """The kernel's function, and the number of chunks it runs in."""
        pointers, scratch = self.arrays()
        parallel = [axis for axis in self.nest.order if axis in self.launch_axes]
        lines = [f"POINTER({pointer});" for pointer in pointers]
        body = self.body([*lines, *scratch, *self.indices(parallel, "chunk")])
        if self.streamed:
            addresses = " | ".join(f"(u64)b[{number}]" for number in self.streamed)
            body = f"    const _Bool lines = ({addresses}) % 64 == 0;\n{body}"
        return f"KERNEL({self.function}) {{\n{body}}}", points(parallel)

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
            yield f"const {self.index} {self.axis_name(axis)} = {index};"
            faster = points(axes[place:])
            rest = f"({chunk} / {faster})" if faster > 1 else chunk

    def body(self, lines: list[str]) -> str:
        """The text of `lines` and of every row: each group of parts of the rows is a block of text
        of its own, under the conditions on the index of a chunk by which it runs."""
        for group in self.sharing_fills(self.nest_parts(self.nest.kernel.row_axes)):
            self.scopes = [Scope()]
            self.rows(group)
            # The parts of a group are alike in the axes of the launch, which have the conditions.
            conditions = [condition.text for condition in _conditions(group[0])]
            head = f"if ({' && '.join(conditions)}) {{" if conditions else "{"
            lines += [head, *("    " + text for text in self.scopes[0].lines), "}"]
        return "".join(f"    {text}\n" for text in lines)

    def elementwise(self, node: Node, point: Point) -> Value:
        """A float32 that four bits decide, such as a number of 4 bits with its scale, is looked up
        in a register, if that has as many lanes.

        ``cast(x & 15) * 0.5 + 1`` with 16 lanes: `_lookup_table` has 1.0, 1.5, ..., 8.5, and the
        text is ``lookup_f32x16((f32x16){1.0f, 1.5f, ..., 8.5f}, cast_2)``.
        """
        digit = digit_of(node)
        lanes = self.lanes_of(node)
        if digit is None or (node.dtype, lanes) != (float32, LOOKUP_LANES):
            return super().elementwise(node, point)
        constants = map(self.language.literal, _lookup_table(node, digit))
        table = ", ".join(constant.text for constant in constants)
        bits = digit.src[0]  # before the ``& 15``: a lookup takes the last four bits itself
        if bits.op is Op.SHR and bits.dtype.bits < 32:  # as int32: processors do not shift bytes
            bits = Node(Op.SHR, tuple(cast(operand, int32) for operand in bits.src))
        kind = self.language.vector_type("f32", lanes)
        places = self.value(cast(bits, int32), point)
        return Value(f"lookup_{kind}(({kind}){{{table}}}, {places.text})", float32, lanes)


def _conditions(nest_part: NestPart) -> list[Condition]:
    """The conditions by which a part runs."""
    fixed = [loop_part for loop_part in nest_part.values() if isinstance(loop_part, Fixed)]
    return [loop_part.condition for loop_part in fixed if loop_part.condition]


def _lookup_table(node: Node, digit: Node) -> list[Node]:
    """The constants that `node` is for each value of `digit`, 0 to 15."""
    cases = [ix.replaced(node, {digit: const(i, digit.dtype)}) for i in range(LOOKUP_LANES)]
    return [const(result.item(), float32) for result in evaluate(cases)]
