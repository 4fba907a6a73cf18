"""Kernels with vectors along a row axis and no reduction beside them that shares operands."""

from lamina.graph import index as ix
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.loops.moves import Rotate
from lamina.loops.nest import LINE, UNCACHED_STORES, bypasses_caches
from lamina.schedule.cpu.planner import CpuPlanner


def schedule_map(plan: CpuPlanner, row: Node) -> None:
    """Vectors along `row`. Where one array is read and the result is too large for the caches,
    loops are in the order of that array: reads wait for memory, and writes do not.

    For ``y[4096 * i + j] = x[i + 4096 * j]`` the loop over j becomes the outer one.
    """
    plan.vectorize(row)
    loads = plan.kernel.of(Op.LOAD)
    result = plan.kernel.parameters[plan.kernel.stores[0].parameter]
    is_large = result.nbytes >= UNCACHED_STORES
    if not is_large or len(loads) != 1:
        return
    strides, _ = ix.terms_of(loads[0].src[0])
    has_all_rows = set(plan.rows) <= set(strides)  # else no order of the array is one of all loops
    if has_all_rows:
        plan.reorder(sorted(plan.rows, key=lambda axis: -abs(strides[axis])))


def schedule_transpose(plan: CpuPlanner, row: Node, across: Node) -> None:
    """Read square blocks along `across`, where an operand is contiguous, and write whole cache
    lines along `row`; blocks are transposed in registers where there is little to compute.

    For ``y[i, j] = x[j, i]`` of 512 x 512 float32, where `row` is j and `across` i::

        4 groups of 8 strips of j
          32 blocks of i
            8 strips                  each of them 4 blocks of i ahead of the strip before
              16 i                    unrolled
                16 j                  a vector: a cache line of y

    Strips are not at the same blocks of i, as rows of x lie 2 KiB apart: cache lines below each
    other compete for the same few places of a cache. Where whole lines are written past the
    caches, 2 strips are at the same blocks of i (`knobs.uncached_strips`).
    """
    store = plan.kernel.stores[0]
    itemsize = store.value.dtype.itemsize
    # Elements of a line that is written: with vectors of 64 bytes a cache line, 16 of float32.
    line = plan.target.vector_bytes // itemsize
    # Stores of half a line, as of 16 float16, go through the caches.
    has_whole_lines = plan.width * itemsize == LINE
    is_uncached = has_whole_lines and bypasses_caches(plan.kernel, store.parameter)
    strips_at_once = plan.knobs.uncached_strips if is_uncached else plan.knobs.strip_vectors
    has_whole_groups = row.arg.size % (strips_at_once * line) == 0
    has_whole_blocks = across.arg.size % plan.width == 0
    strips, inner_row = plan.split(row, line)
    blocks, inner = plan.split(across, plan.width)
    if has_whole_groups and has_whole_blocks:
        groups, strip = plan.split(strips, strips_at_once)
        if not is_uncached:  # `Rotate` needs rows that are split evenly
            plan.do(Rotate(blocks.arg.number, strip.arg.number, plan.knobs.blocks_ahead))
        plan.reorder([groups, blocks, strip, inner, inner_row])
    else:
        plan.reorder([strips, blocks, inner, inner_row])
    plan.vectorize(inner_row)
    if _has_little_to_compute(plan):
        # A whole block is in the text once, and there the printer transposes it in registers.
        plan.bind(inner, "unroll")


def _has_little_to_compute(plan: CpuPlanner) -> bool:
    """Are there few enough operations for each element that a body may be copied for each of the
    16 rows of a block? `knobs.unroll` of them, 4, make 64 in the text."""
    operations = sum(node.op in Group.ELEMENTWISE for node in plan.kernel.nodes)
    return operations <= plan.knobs.unroll
