"""How CUDA C++ spells values: as C does, with short forms of operations where no error shows."""

from collections.abc import Set
from math import inf

from lamina.core.dtypes import DType, bfloat16, float16, float32
from lamina.graph.rewrite import commuted, hole, matches
from lamina.ir.interpreter import fold_constant
from lamina.ir.kernel import Kernel, free_axes, roots_of
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Kinds, Op
from lamina.loops.nest import Nest
from lamina.schedule.cost.products import is_in_chunks
from lamina.schedule.gpu.pipelining import is_back_to_back
from lamina.targets.c.operations import CLanguage
from lamina.targets.language import Value

# Operations with a shorter form, `short_exp` and so on, whose error is below that of float16. The
# error function has one too, whose error is below that of bfloat16 alone.
SHORTENED = {Op.DIV, Op.SQRT, Op.EXP, Op.EXP2, Op.LOG, Op.LOGISTIC, Op.TANH}
# Operations whose results change as little as their operands: errors of these stay small. Those of
# an operand next to one do not in its logarithm.
SMOOTH = SHORTENED - {Op.LOG} | {Op.ERF, Op.NEG, Op.ADD, Op.MUL, Op.WHERE}
_X = hole("x", Kinds.FLOAT)
# A number times its normal distribution function, which prelude.cu has a short form of.
NORMAL_PRODUCT = commuted(_X * (Node(Op.ERF, (_X * 0.5**0.5,)) * 0.5 + 0.5))


class CudaLanguage(CLanguage):
    """How the values of one kernel are spelled.

    exact: the nodes whose errors would show beside roundings to 16 bits. exact_in_bfloat16: the
    same beside those to bfloat16 alone
    """

    def __init__(self, nest: Nest) -> None:
        super().__init__(max_inlined=inf, index_type=_index_type(nest))
        self.is_back_to_back = bool(nest.atom) and is_back_to_back(nest)
        self.exact = _exact_nodes(nest.kernel, {bfloat16, float16})
        self.exact_in_bfloat16 = _exact_nodes(nest.kernel, {bfloat16})

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
        if node.op is Op.DIV and node.dtype is float32:
            inverse = _inverse_of_constant(node.src[1])
            if inverse is not None:
                texts.append(self.literal(inverse).text)
                return Value(f"divided({', '.join(texts)})", float32)
        return super().operation(node, operands)

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

    def type(self, value: Value) -> str:
        """The type of a variable; ``auto`` of what is computed: a function may return more than a
        float, `Rounded` and `Wide` of prelude.cu. That text is a call or other arithmetic, and ends
        in a bracket, unlike a load or a literal."""
        is_computed = value.dtype.is_float and value.text.endswith(")")
        return "auto" if is_computed else super().type(value)


def _inverse_of_constant(divisor: Node) -> Node | None:
    """1 / `divisor` to the nearest float32, where the divisor is a constant from 2**-24 to 2**24 in
    size, so that quotients of most numbers are far from the smallest and the largest float."""
    if divisor.op is not Op.CONST or not 2.0**-24 <= abs(divisor.arg.value) <= 2.0**24:
        return None
    return fold_constant(Op.DIV, (const(1.0, float32), divisor), float32)


def _index_type(nest: Nest) -> str:
    """``i32`` where a kernel with products in tiles computes with many indices, and they fit.

    Masks compare indices, of 64 bits in two instructions. Threads that fill tiles, which the copy
    engine cannot fill, divide them: ``k % 7`` takes 5 instructions, and of 64 bits about 20.
    """
    is_filled_by_threads = not all(is_in_chunks(tile.value) for tile in nest.tiles)
    has_masks = bool(nest.atom) and is_back_to_back(nest)
    is_small = all(array.size < 1 << 31 for array in nest.kernel.parameters)
    return "i32" if is_small and (is_filled_by_threads or has_masks) else "i64"


def _exact_nodes(kernel: Kernel, rounding: Set[DType]) -> set[Node]:
    """The nodes whose errors would show: those that are stored as they are, and the operands of
    nodes that are exact or may change much. All others end, by smooth operations alone, in a
    number of one of the dtypes `rounding`, which its rounding gives a larger error."""
    exact = {root for store in kernel.stores for root in roots_of(store)}
    for node in reversed(kernel.nodes):  # users before operands
        passes_errors_on = node.op in SMOOTH and node not in exact
        if not (node.dtype in rounding or passes_errors_on):
            exact.update(node.src)
    return exact
