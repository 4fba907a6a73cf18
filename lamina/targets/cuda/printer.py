"""CUDA C++: what the macros of its prelude do not say.

Products in tiles are printed from their tile programs. One object prints a kernel: `CudaPrinter`,
to which each class of a chain adds what one file is about, on top of those above it.

    GpuPrinter                ../gpu.py               kernels without products in tiles
    TilePrinter               tiles.py                results by whole rows, of any tiles
    TileFillPrinter           tile_fills.py           fills, by threads and by the copy engine
    EpiloguePrinter           epilogues.py            what becomes of the sums of a product
    ProgramPrinter            programs.py             the tile program of one product
    AttentionElementPrinter   attention_elements.py   arithmetic between products back to back
    AttentionProgramPrinter   attention_programs.py   their tile program
    CudaPrinter               here                    which of these it is; short forms

`print_kernel` of `CudaPrinter` chooses among them.
"""

from collections.abc import Set
from math import gcd

from lamina.core.dtypes import SHORT, DType, bfloat16, float16, float32, int8, uint8, uint16
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.graph.rewrite import commuted, hole, matches
from lamina.ir.kernel import Store, free_axes, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Kinds, Op
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch
from lamina.schedule.cost.products import is_in_chunks
from lamina.targets.cuda.attention_programs import AttentionProgramPrinter
from lamina.targets.language import Point, Value
from lamina.targets.names import monoid_name

# Operations with a shorter form, `short_exp` and so on, whose error is below that of float16. The
# error function has one too, whose error is below that of bfloat16 alone.
SHORTENED = {Op.DIV, Op.SQRT, Op.EXP, Op.EXP2, Op.LOG, Op.LOGISTIC}
# Operations whose results change as little as their operands: errors of these stay small. Those of
# an operand next to one do not in its logarithm.
SMOOTH = SHORTENED - {Op.LOG} | {Op.ERF, Op.NEG, Op.ADD, Op.MUL, Op.WHERE}
_X = hole("x", Kinds.FLOAT)
# A number times its normal distribution function, which prelude.cu has a short form of.
NORMAL_PRODUCT = commuted(_X * (Node(Op.ERF, (_X * 0.5**0.5,)) * 0.5 + 0.5))


class CudaPrinter(AttentionProgramPrinter):
    """One kernel."""

    preludes = ("cuda/prelude.cu",)
    has_collectives = True

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        super().__init__(nest, name, target)
        is_small = all(array.size < 1 << 31 for array in nest.kernel.parameters)
        # Masks compare indices, of 64 bits in two instructions. Threads that fill tiles divide
        # them: ``k % 7`` takes 5 instructions, and of 64 bits about 20.
        computes_indices = self.is_back_to_back or self._is_filled_by_threads()
        if computes_indices and is_small:
            self.index = "i32"
        self.exact = self._exact_nodes({bfloat16, float16})
        self.exact_in_bfloat16 = self._exact_nodes({bfloat16})

    def _is_filled_by_threads(self) -> bool:
        """Whether threads fill tiles that the copy engine cannot fill."""
        return not all(is_in_chunks(tile.value) for tile in self.nest.tiles)

    def _exact_nodes(self, rounding: Set[DType]) -> set[Node]:
        """The nodes whose errors would show: those that are stored as they are, and the operands of
        nodes that are exact or may change much. All others end, by smooth operations alone, in a
        number of one of the dtypes `rounding`, which its rounding gives a larger error."""
        kernel = self.nest.kernel
        exact = {root for store in kernel.stores for root in roots_of(store)}
        for node in reversed(kernel.nodes):  # users before operands
            passes_errors_on = node.op in SMOOTH and node not in exact
            if not (node.dtype in rounding or passes_errors_on):
                exact.update(node.src)
        return exact

    def tile_texts(self) -> tuple[str, ...]:
        """Instructions for products in tiles, and atomic operations."""
        if any(store.atomic for store in self.nest.kernel.stores):
            return ("cuda/atomics.cu",)
        return ("cuda/instructions.cu",) if self.nest.atom else ()

    def print_kernel(self) -> tuple[str, Launch]:
        """The kernel's function, and how to launch it but for its arguments: from its tile program,
        if it has one."""
        if self.program is None:
            return super().print_kernel()
        if self.is_back_to_back:
            return self.print_attention_program()
        return self.print_product_program()

    def operation(self, node: Node, operands: list[Value]) -> Value:
        """An operation in its short form, such as ``short_exp(x)``, where its error does not show.
        """
        texts = [operand.text for operand in operands]
        if self._takes_reciprocal(node):
            return Value(f"({texts[0]} * (1.0f / {texts[1]}))", float32)
        if node.dtype is float32 and node not in self.exact and node.op in SHORTENED:
            return Value(f"short_{node.op.name.lower()}({', '.join(texts)})", float32)
        if node.dtype is float32 and node not in self.exact_in_bfloat16:
            if node.op is Op.ERF:
                return Value(f"short_erf({texts[0]})", float32)
            for holes in matches(NORMAL_PRODUCT, node):
                number_of_x = node.src.index(holes["x"])
                return Value(f"short_normal_product({texts[number_of_x]})", float32)
        return super().operation(node, operands)

    def load_together(self, node: Node, point: Point) -> None:
        """Two bytes by one access, where a longer one is not aligned: NVCC joins 4 and more. Of a
        block of 18 bytes:

            const u16 pair_1 = *(const u16 *)(p1 + 18 * thread_in_row + 2);
            const u8 load_2 = (u8)pair_1;
            const u8 load_3 = (u8)(pair_1 >> 8);
        """
        axis = self._axis_of_pairs(node, point)
        if axis is None:
            return
        first = point | {axis: point[axis] & ~1}
        index, kind = node.src[0], SHORT[node.dtype]
        cache = self.scopes[self.home(node)].cache
        with self.at_depth(self.home(node)):
            place = f"p{node.arg.parameter} + {self.index_text(index, first)}"
            pair = self.declare(Value(f"*(const u16 *)({place})", uint16), "pair").text
            for text, at in ((pair, first), (f"({pair} >> 8)", first | {axis: first[axis] + 1})):
                byte = Value(f"({kind}){text}", node.dtype)
                cache[self.key(node, at)] = self.declare(byte, "load")

    def _axis_of_pairs(self, node: Node, point: Point) -> Node | None:
        """The unrolled axis along which bytes are neighbours that are aligned as pairs, and no
        better; None where there is none, and where the kernel writes to the array."""
        is_read_only = not self.nest.kernel.parameters[node.arg.parameter].written
        if node.dtype not in (uint8, int8) or len(node.src) > 1 or not is_read_only:
            return None
        terms, constant = ix.terms_of(node.src[0])
        near = [axis for axis in self.unrolled if terms.get(axis) == 1]
        if len(near) != 1:
            return None
        (axis,) = near
        others = [stride for term, stride in terms.items() if term is not axis]
        alignment = gcd(constant, *others)
        copies = self.unrolled[axis]
        is_even = copies.first % 2 == 0 and copies.copies % 2 == 0
        return axis if is_even and alignment % 4 == 2 else None

    def _takes_reciprocal(self, node: Node) -> bool:
        """Is `node` a quotient of products back to back whose divisor the kernel adds up itself,
        for all elements of a row? Compilers then divide once a row, for the reciprocal. The
        quotient has one more rounding. A divisor that is loaded may be so small that it has no
        reciprocal."""
        if not (self.is_back_to_back and node.op is Op.DIV and node.dtype is float32):
            return False
        divisor = node.src[1]
        is_added_up = any(part.op is Op.LOOP_REDUCE for part in toposort([divisor]))
        return is_added_up and free_axes(divisor) < free_axes(node)

    def atomic(self, store: Store, target: str, value: str) -> str:
        """``atomic_sum(&p2[load_1], 1);``, of `atomics.cu`."""
        assert store.monoid is not None
        return f"atomic_{monoid_name(store.monoid)}(&{target}, {value});"

    def type(self, value: Value) -> str:
        """The type of a variable; ``auto`` of what is computed: a function may return more than a
        float, `Rounded` and `Wide` of prelude.cu. That text is a call or other arithmetic, and ends
        in a bracket, unlike a load or a literal."""
        is_computed = value.dtype.is_float and value.text.endswith(")")
        return "auto" if is_computed else super().type(value)

    def index_text(self, index: Node, point: Point) -> str:
        """The common factor apart: compilers see the alignment of no long sum. ``8 * a + 16 * b +
        3`` is ``8 * (a + 2 * b) + 3``."""
        terms, constant = ix.terms_of(index)
        offset = constant + sum(terms[axis] * at for axis, at in point.items() if axis in terms)
        rest = {term: factor for term, factor in terms.items() if term not in point}
        common = gcd(*rest.values())
        if common < 2 or len(rest) < 2:  # there is no factor, or no sum
            return super().index_text(index, point)
        divided = {term: factor // common for term, factor in rest.items()}
        inner = super().index_text(ix.affine(divided, 0), point)
        return f"{common} * ({inner}) + {offset}"
