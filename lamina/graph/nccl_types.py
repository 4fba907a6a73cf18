"""Collectives whose operands NCCL does not combine as lamina does, from those that it does.

Its maximum of floats leaves out NaN: so the operands of all ranks are gathered, and a kernel
reduces them. It rounds sums of 16-bit floats after each rank, which for two ranks is what a sum in
float32 gives, and for more is not: these go as float32. And it has neither floats of 8 bits nor
integers of 16 bits.
"""

from lamina.core.dtypes import DType, float32, int16, int32, uint16
from lamina.graph.rewrite import on
from lamina.ir import build
from lamina.ir.monoids import MAX, MIN
from lamina.ir.node import Node
from lamina.ir.ops import Op, Ranks

# How a rank gets what all have for it.
GATHERED_BY = {Op.ALL_REDUCE: Op.ALL_GATHER, Op.REDUCE_SCATTER: Op.ALL_TO_ALL}


@on(*GATHERED_BY)
def as_nccl_combines(node: Node) -> Node | None:
    """An equal node of collectives that NCCL has; None where `node` is one."""
    (operand,) = node.src
    monoid, ranks, stride = node.arg
    if monoid in (MAX, MIN) and operand.dtype.kind == "float":
        gathered = Node(GATHERED_BY[node.op], (operand,), Ranks(ranks, stride))
        return build.reduce(monoid, (0,), gathered)
    wide = _wide(operand.dtype, ranks)
    if wide is None:
        return None
    combined = Node(node.op, (Node(Op.CAST, (operand,), wide),), node.arg)
    return Node(Op.CAST, (combined,), node.dtype)


def _wide(dtype: DType, ranks: int) -> DType | None:
    """The dtype in which operands are combined; None for their own."""
    if dtype in (int16, uint16):
        return int32
    if dtype.is_small and (dtype.itemsize == 1 or ranks > 2):
        return float32
    return None
