"""The time of products in tiles that the threads of a GPU's block share."""

from dataclasses import replace
from math import ceil

from lamina.core.dtypes import float32
from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import all_axes, bound_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.products import product_of
from lamina.loops.nest import Nest
from lamina.schedule.cost.bound import Need, extent_of, operations_of
from lamina.schedule.cost.report import KernelCost, KernelTime, overlapped
from lamina.schedule.gpu.atoms import (
    ATOMS,
    CHUNK_BYTES,
    FMA_CHUNK,
    FMA_COLUMNS_APART,
    FMA_ROWS,
    FMA_ROWS_APART,
    LINE_BYTES,
    Atom,
    multiplied_k,
    multiplied_results,
)
from lamina.schedule.gpu.stream_k import (
    STEP_WAIT,
    SUMS_WAIT,
    TILE_WAIT,
    StreamK,
    blocks_at_once,
    division_of,
)

# Seconds until the first tiles are there, and from the last step to the last store: an estimate.
LATENCY = 1.5e-6
# Multiprocessors that read one tile of the second-level cache at a time, as neighbours do, share
# its bytes. Fitted to times of an H200 in `bench/results/h200.md`, by which 4096 x 4096 in bfloat16
# is bound by tensor cores.
SHARED_TILES = 2
# How near to the rate of tensor cores products back to back come, with the exponentials between
# them: fitted to one time of an H200, that of attention.
BACK_TO_BACK = 0.8


# How much longer sectors that are stored in parts take than whole ones: 34 million took an H200 211
# us (see `PARTIAL_SECTOR`), and 163 at the rate of the second level.
PARTS_OF_SECTORS = 1.3


def product_cost(nest: Nest, target: Target, rates: Rates) -> KernelCost:
    """The cost of a nest that `tensorize` made, from formulas."""
    need = _need_of(nest, target, rates)
    has_tensor_cores = ATOMS[nest.atom].instruction == "mma"
    if has_tensor_cores:
        time = _time_on_tensor_cores(nest, need, target, rates)
    else:
        time = _fused_time(nest, need, target, rates)
    of_results = need.operations.times(_share_of_results(nest))  # without what pads tiles
    bound = replace(need, operations=of_results).seconds(rates, target)
    return KernelCost(time.seconds, time.demands, bound, need)


def _time_on_tensor_cores(nest: Nest, need: Need, target: Target, rates: Rates) -> KernelTime:
    """The seconds of the busiest multiprocessor, of the bytes of tiles from the second-level cache,
    and of each array once from memory."""
    units = {
        "tensor cores": _multiplying(nest, target, rates),
        "filling": _filling(nest, target, rates),
        "instructions": _computing(nest, need, target, rates),
    }
    l2, memory = rates.levels[-2:]
    moved = {
        l2.name: _tile_bytes(nest) / (SHARED_TILES * l2.all_read),
        memory.name: need.memory(rates, target),
    }
    latency = {"launch": rates.launch + LATENCY}
    seconds = overlapped(moved, units, rates.hidden) + sum(latency.values())
    return KernelTime(seconds, {**units, **moved, **latency})


def _fused_time(nest: Nest, need: Need, target: Target, rates: Rates) -> KernelTime:
    """The seconds of a nest whose atom has no tensor cores: what the busiest multiprocessor
    multiplies; what its blocks wait for at steps and tiles, fill, and store in parts of sectors,
    which blocks side by side do at the same time; and each array once from memory. None of these
    overlaps, but all else does with them. Of the times that STEP_WAIT is fitted to, five in six are
    within a fifth of it, and all within a half."""
    atom, division = ATOMS[nest.atom], _division(nest, target)
    steps = steps_of(nest)
    at_once = blocks_at_once(atom, division, steps, target.multiprocessors)
    steps_of_busiest = _steps_of_busiest(nest, target)
    line = LINE_BYTES // atom.dtype.itemsize
    products = steps_of_busiest * atom.m * atom.n * line * _multiplied_share(nest, division)
    tiles_of_busiest = ceil(steps_of_busiest / steps)
    waiting = steps_of_busiest * STEP_WAIT + tiles_of_busiest * TILE_WAIT
    l2, memory = rates.levels[-2:]
    demands = {
        "instructions": products / (rates.issue * target.warp * atom.fma_rate),
        "waiting": waiting / at_once,
        "joining": _joining(atom, division, rates),
        "filling": _filling(nest, target, rates) / at_once,
        l2.name: PARTS_OF_SECTORS * _bytes_of_parts(nest) / l2.all_write / at_once,
        memory.name: need.memory(rates, target),
        "launch": rates.launch + LATENCY,
    }
    return KernelTime(sum(demands.values()), demands)


def _joining(atom: Atom, division: StreamK, rates: Rates) -> float:
    """The seconds in which blocks add up the partial sums of tiles that they share: the last one
    waits for others, one after the other, and those of all blocks pass through the second level,
    there and back."""
    if division.partial_sums == 0:
        return 0.0
    l2 = rates.levels[-2]
    nbytes = division.blocks * atom.m * atom.n * float32.itemsize
    passing = nbytes / l2.all_write + nbytes / l2.all_read
    return division.partial_sums * SUMS_WAIT + passing


def _bytes_of_parts(nest: Nest) -> float:
    """The bytes of the second level that stores of parts of sectors take beyond what they store.

    Threads of fused multiply-adds have four neighbours of a row where columns are neighbours in
    the right factor, and neighbouring threads the next four: where rows begin within four elements,
    each is stored by itself, in a sector that three more stores come to.
    """
    right = nest.tiles[1]
    if not right.axes[0].arg.reduce:
        return 0.0
    unrolled = frozenset(axis for axis in nest.order if nest.bound(axis) == "unroll")
    nbytes = 0.0
    for store in nest.kernel.stores:
        joined = ix.neighbours_of_access(store.index, unrolled, FMA_CHUNK)
        array = nest.kernel.parameters[store.parameter]
        nbytes += (FMA_CHUNK / joined - 1) * array.nbytes
    return nbytes


def _need_of(nest: Nest, target: Target, rates: Rates) -> Need:
    """All arrays of the program once, as factors and results are used from end to end, and all
    operations. Scratch memory of the kernel is not "device" memory: no other kernel sees it."""
    read, written = dict[object, float](), dict[object, float]()
    for number, array in enumerate(nest.kernel.parameters):
        if array.memory == "device":
            bytes_of = written if array.written else read
            bytes_of[number] = array.nbytes
    return Need(read, written, operations_of(nest, target, rates))


def _share_of_results(nest: Nest) -> float:
    """The share of the rows and columns of all tiles that there are: of 300 x 300 results in tiles
    of 128 x 256 about 0.46. Products back to back count as whole tiles."""
    if len(nest.tiles) > 2:
        return 1.0
    atom = ATOMS[nest.atom]
    share = 1.0
    for tile, size in zip(nest.tiles, (atom.m, atom.n), strict=True):
        extent = points(axis for axis in tile.axes if not axis.arg.reduce)
        share *= extent / (ceil(extent / size) * size)
    return share


def tiles_of(nest: Nest) -> int:
    """How many tiles of results there are."""
    return points(axis for axis in nest.order if nest.bound(axis) == "grid")


def steps_of(nest: Nest) -> int:
    """Steps of a tile of results, of LINE_BYTES of a row of each factor: 100 numbers of 2 bytes are
    2 steps, of 128 bytes each. Axes that the tiles of factors do not walk repeat these. Of products
    back to back these are the steps of the first one."""
    reduction = nest.kernel.of(Op.LOOP_REDUCE)[0]
    itemsize = ATOMS[nest.atom].dtype.itemsize
    within = set(nest.tiles[0].axes)
    lines = [axis for axis in bound_axes(reduction) if axis in within]
    others = [axis for axis in bound_axes(reduction) if axis not in within]
    return ceil(points(lines) * itemsize / LINE_BYTES) * points(others)


def _division(nest: Nest, target: Target) -> StreamK:
    """How blocks divide the steps of one product."""
    atom, tiles, steps = ATOMS[nest.atom], tiles_of(nest), steps_of(nest)
    return division_of(nest.pipelining, atom, tiles, steps, target.multiprocessors)


def _multiplying(nest: Nest, target: Target, rates: Rates) -> float:
    """The seconds of the multiprocessor that multiplies most on tensor cores."""
    itemsize = ATOMS[nest.atom].dtype.itemsize
    rate = rates.tensor * 2 / itemsize  # products a second of one multiprocessor
    if len(nest.tiles) > 2:  # one product has two factors, more are back to back
        return _multiplying_back_to_back(nest, target, BACK_TO_BACK * rate)
    division = _division(nest, target)
    # `StreamK.time` counts products of lines, of 64 numbers each for 2 bytes.
    return division.time * (LINE_BYTES // itemsize) / rate


def _multiplied_share(nest: Nest, division: StreamK) -> float:
    """The share of all lines of tiles that fused multiply-adds multiply: of 48 k, which are two
    lines of 32, 48, and of 48 rows of a tile of 64 three quarters. Blocks that share a tile hand
    over the sums of all its rows and columns."""
    atom = ATOMS[nest.atom]
    count = points(axis for axis in nest.tiles[0].axes if axis.arg.reduce)
    line = LINE_BYTES // atom.dtype.itemsize
    of_line = multiplied_k(count) / (ceil(count / line) * line)
    if not division.is_whole(steps_of(nest)):
        return of_line
    rows, columns = _multiplied_of_thread(nest)
    return of_line * (rows * columns) / (FMA_ROWS * atom.n // FMA_COLUMNS_APART)


def _multiplied_of_thread(nest: Nest) -> tuple[int, int]:
    """How many rows and columns a thread multiplies by fused multiply-adds."""
    atom = ATOMS[nest.atom]
    sizes = (64, FMA_ROWS_APART), (atom.n, FMA_COLUMNS_APART)
    rows, columns = (
        multiplied_results(
            points(axis for axis in tile.axes if not axis.arg.reduce),
            size,
            apart,
            is_transposed=bool(tile.axes[0].arg.reduce),
        )
        for tile, (size, apart) in zip(nest.tiles, sizes, strict=True)
    )
    return rows, columns


def _multiplying_back_to_back(nest: Nest, target: Target, rate: float) -> float:
    """The same of products back to back, which have no stream-K division: a block does all products
    of its tile of results, and each multiprocessor has one block at a time.

    rate: products a second of one multiprocessor

    4 equal blocks on 3 multiprocessors take 2 turns, as long as 6 blocks would.
    """
    sums = [node for node in nest.kernel.of(Op.LOOP_REDUCE) if product_of(node)]
    products = sum(extent_of(nest, all_axes(node)) for node in sums)
    blocks = tiles_of(nest)
    workers = min(blocks, target.multiprocessors)
    turns = ceil(blocks / workers)
    return turns * (products / blocks) / rate


def _computing(nest: Nest, need: Need, target: Target, rates: Rates) -> float:
    """The seconds of a multiprocessor in which its threads compute what is no product, results from
    sums: as if tiles were shared evenly, by the blocks that have whole ones."""
    blocks = min(tiles_of(nest), target.multiprocessors)
    seconds = need.operations.seconds(rates)
    return sum(seconds[unit] for unit in ("instructions", "division", "functions")) / blocks


def _steps_of_busiest(nest: Nest, target: Target) -> int:
    """The steps of tiles that the multiprocessor with the most of them does, in its blocks one
    after the other or side by side: 3 of 396 blocks that share 84 tiles of 164 steps, 35 each, are
    105."""
    multiprocessors = target.multiprocessors
    if len(nest.tiles) > 2:
        return ceil(tiles_of(nest) / multiprocessors) * steps_of(nest)
    division = _division(nest, target)
    return ceil(division.blocks / multiprocessors) * division.steps


def _filling(nest: Nest, target: Target, rates: Rates) -> float:
    """The seconds in which the threads of a multiprocessor fill tiles that the copy engine cannot
    fill: those of factors that are computed, and of arrays whose rows begin within a chunk.

    `rates.filling` is of all multiprocessors together, so that one takes as many times as long for
    an element. Two tiles of 117 steps, in each of which 64 rows of 64 elements are filled, run side
    by side, and take as long as 132 would: 117 * 64 * 64 * 132 * 2e-12 s, which is 126 us. An H200
    took 130 (measured).
    """
    atom = ATOMS[nest.atom]
    lines = 0
    for tile, lines_of_tile in zip(nest.tiles, (atom.m, atom.n), strict=False):
        if not is_in_chunks(tile.value):
            lines += lines_of_tile
    elements = _steps_of_busiest(nest, target) * lines * (LINE_BYTES // atom.dtype.itemsize)
    return elements * rates.filling * target.multiprocessors


def is_in_chunks(factor: Node) -> bool:
    """Is a factor an array, all of whose rows begin at whole chunks of 16 bytes? What else keeps
    the copy engine from an array (`lamina/tiles/copies.py`) is rare, and left out."""
    if factor.op is not Op.LOAD:
        return False
    strides, constant = ix.terms_of(factor.src[0])
    apart = [stride for stride in (constant, *strides.values()) if stride != 1]
    return all(stride * factor.dtype.itemsize % CHUNK_BYTES == 0 for stride in apart)


def _tile_bytes(nest: Nest) -> float:
    """The bytes of all tiles of factors that blocks read.

    A tile of results of 128 x 256 reads 128 + 256 rows of LINE_BYTES at each step. Products back to
    back count as one product with the steps of the first of them: an approximation, since products
    and not bytes bound attention.
    """
    atom = ATOMS[nest.atom]
    return float(tiles_of(nest) * steps_of(nest) * (atom.m + atom.n) * LINE_BYTES)
