"""A bound on time that needs no schedule: a roofline with perfect reuse.

Each byte of an input is read once, each of a result written once, each value computed once on full
vectors by all workers, and everything overlaps. Where arrays are small enough to be in a cache when
they are used again, their bytes come from there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from lamina.core.dtypes import float32
from lamina.core.rates import Memory, Rates
from lamina.core.target import Target
from lamina.ir.kernel import all_axes, bound_axes, divisor_of, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.products import product_of, uncast_factors
from lamina.loops.nest import Nest, sums_bytes
from lamina.schedule.cost.body import SPEED_OF_TILES, Work, has_fused_steps, is_fused
from lamina.schedule.cost.operations import Demand, total
from lamina.schedule.cost.traffic import Lines
from lamina.schedule.gpu.atoms import ATOMS

# How much faster a CPU writes past its caches: a line that is written through them is read first.
STREAMED = 2


@dataclass(frozen=True)
class Need:
    """What has to be done: bytes read and written of each array, and operations.

    read, written: bytes by array; what names an array is up to the caller
    operations: of all workers
    """

    read: Mapping[object, float]
    written: Mapping[object, float]
    operations: Demand

    def seconds(self, rates: Rates, target: Target) -> float:
        """The largest of the times of memory and of each unit: all workers share all work evenly,
        and everything overlaps."""
        workers = target.multiprocessors
        units = (seconds / workers for seconds in self.operations.seconds(rates).values())
        return max(self.memory(rates, target), *units)

    def memory(self, rates: Rates, target: Target) -> float:
        """The seconds that all workers take to move all bytes, each once.

        Kernels run again and again, so each level keeps as many bytes as it holds until the next
        run, and each byte comes from the nearest level that has it. A level also holds what nearer
        ones do. Of 40 MB with shared caches of 10 and 30 MB, 10 come from the first, 20 from the
        second and 10 from memory.
        """
        read, written = sum(self.read.values()), sum(self.written.values())
        seconds = 0.0
        share_of_nearer = 0.0  # of all bytes, what the levels before have: 0, 0.25, 0.75
        for level in rates.levels:
            share_held = _share_held(level, read + written, target)
            # Below 0 where nearer caches, one for each worker, hold more than a shared one.
            share = max(share_held - share_of_nearer, 0.0)
            seconds += share * _moving(level, read, written, target)
            share_of_nearer = max(share_held, share_of_nearer)
        return seconds


def _share_held(level: Memory, nbytes: float, target: Target) -> float:
    """Of `nbytes` that all workers share evenly, the share that a level holds. The cache of one
    worker has only that worker's part to hold."""
    part = nbytes if level.shared else nbytes / target.multiprocessors
    return min(level.size / max(part, 1.0), 1.0)


def _moving(level: Memory, read: float, written: float, target: Target) -> float:
    """The seconds in which all workers read and write so many bytes of a level, as fast as a
    schedule may let them: a CPU past its caches. A GPU never reads what it overwrites, so that it
    writes no faster than by its rates."""
    workers, is_cpu = target.multiprocessors, target.warp == 1
    read_rate = min(level.all_read, level.read * workers)  # bytes a second
    write_rate = min(level.all_write, level.write * workers)
    if is_cpu:
        write_rate *= STREAMED
    return read / read_rate + written / write_rate


def need_of(nest: Nest, lines: Iterable[Lines], target: Target, rates: Rates) -> Need:
    """What a nest's kernel has to do with the arrays of the program, by parameter.

    lines: its traffic, of which the bytes that are used count, not whole lines

    Of references to one array the largest counts, as the others may touch the same elements. Reads
    of an array that the kernel writes are not counted: they may be of what it wrote. Arrays that a
    schedule or row blocks add are not counted: another schedule does without them.
    """
    read, written = dict[object, float](), dict[object, float]()
    for part in lines:
        number = part.reference.parameter
        array = nest.kernel.parameters[number]
        if array.memory != "device":
            continue
        if part.reference.is_store:
            written[number] = max(written.get(number, 0.0), part.used)
        elif not array.written:
            read[number] = max(read.get(number, 0.0), part.used)
    return Need(read, written, operations_of(nest, target, rates))


def operations_of(nest: Nest, target: Target, rates: Rates) -> Demand:
    """What a nest's kernel computes, however it is scheduled: each value once, on full vectors.

    Indices cost nothing, as loops may count them, nor does what is beneath sums of products on
    tensor cores, as that may be in their tiles. A product that is added to a sum is one instruction
    with the addition: ``sum(x * y)`` over 1024 of float32 is 128 instructions on vectors of 8. On a
    CPU four products of bytes are one with their addition: 1024 of them are 32 instructions, or as
    many of SPEED_OF_TILES times as fast a unit.
    """
    on_tensor_cores = _products_on_tensor_cores(nest, rates)
    without_instructions = set(on_tensor_cores)
    sums_of_words = _sums_of_words(nest, target)
    for node in sums_of_words:
        product = node.src[0]
        without_instructions.update({product, *product.src})  # the factors are casts of bytes
    for node in on_tensor_cores:
        # All arithmetic beneath it may be in the tiles, that beneath a reduction there too: in
        # attention the sum of a row and the product by v need the same exponentials. The steps of
        # such a reduction, of the maximum of a row, count: no tensor core does them.
        without_instructions.update(
            operand for operand in toposort(node.src) if not bound_axes(operand)
        )
    vector_bytes = instruction_bytes(target)
    speed_of_tiles = SPEED_OF_TILES if "byte_tiles" in target.engines else 1
    work = []
    for node in nest.kernel.nodes:
        if not _is_computed(node) or node in without_instructions:
            continue
        part = _work_of(node, nest, vector_bytes)
        if node in sums_of_words:
            part = replace(part, times=part.times / (4 * speed_of_tiles))
        work.append(part)
    return replace(total(work, vector_bytes, rates), tensor=sum(on_tensor_cores.values()))


def _products_on_tensor_cores(nest: Nest, rates: Rates) -> dict[Node, float]:
    """The sums of products that tensor cores compute, each with the products of 16 bits that it
    counts as: 512 * 512 * 64 for a product of 512 x 64 by 64 x 512, and twice as many in tf32.
    Factors of float32 are rounded to that only where the schedule says so. All other sums take
    instructions, as tiles have no other dtypes. What a sum is added to does not matter, nor the
    dtype of that: a bias of float32 leaves the products on tensor cores."""
    counts = dict[Node, float]()
    if not rates.tensor:
        return counts
    is_tf32 = bool(nest.atom) and ATOMS[nest.atom].kind == "tf32"
    for node in nest.kernel.of(Op.LOOP_REDUCE):
        factors = uncast_factors(node.src[0]) if product_of(node) else ()
        if not factors:
            continue
        products = extent_of(nest, all_axes(node))
        if factors[0].dtype is not float32:
            counts[node] = products
        elif is_tf32:
            counts[node] = 2 * products
    return counts


def _sums_of_words(nest: Nest, target: Target) -> set[Node]:
    """The sums of products of bytes that a CPU may add up by words of four: schedules for GPUs have
    no such instruction."""
    if target.warp > 1:
        return set()
    reductions = nest.kernel.of(Op.LOOP_REDUCE)
    return {node for node in reductions if sums_bytes(nest.kernel, node)}


def _is_computed(node: Node) -> bool:
    """Does `node` take instructions? Constants and loads do not, nor do divisions in indices."""
    return bool(node.op in Group.ELEMENTWISE or bound_axes(node)) and not divisor_of(node)


def _work_of(node: Node, nest: Nest, vector_bytes: int) -> Work:
    """The work of computing `node` everywhere, on full vectors: 1000 elements are 62.5 runs of 16
    lanes."""
    lanes = max(vector_bytes // node.dtype.itemsize, 1)
    vectors = extent_of(nest, all_axes(node)) / lanes
    if bound_axes(node):
        # Places may come in order, and need then not be compared.
        monoid = node.arg.monoid.in_order or node.arg.monoid
        op = monoid.op or monoid
        step = Work(op, node.dtype, vectors, lanes, copies=1)
        return replace(step, fused=has_fused_steps(node))
    operation = Work(node.op, node.dtype, vectors, lanes, copies=1)
    is_by_constant = node.src[-1].op is Op.CONST
    return replace(operation, fused=is_fused(node), by_constant=is_by_constant)


def instruction_bytes(target: Target) -> int:
    """The bytes that an instruction computes at most: a vector register of a CPU, or 4 bytes for
    each thread of a GPU's warp."""
    return target.vector_bytes if target.warp == 1 else 4 * target.warp


def extent_of(nest: Nest, axes: Iterable[Node]) -> float:
    """How many iterations loops over `axes` have together, without the points of uneven splits that
    never run. Of an axis of 10 that was split into 3 and 4 all sub-loops have 10, not 12; the outer
    one alone has 3, the inner one 4."""
    walking, count = set(axes), 1
    for split in nest.splits:
        sub_loops = walking.intersection(split.axes)
        count *= min(points(sub_loops), split.extent)
        walking -= sub_loops
    return float(count * points(walking))
