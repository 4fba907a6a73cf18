"""The time of a kernel that sorts rows, or selects some ranks of each: see
`lamina/targets/c/sorts.c` for CPUs."""

from collections.abc import Mapping
from math import ceil

from lamina.core.rates import Memory, Rates
from lamina.core.target import Target
from lamina.ir.kernel import SortKernel
from lamina.schedule.cost.bound import Need
from lamina.schedule.cost.operations import Demand
from lamina.schedule.cost.report import KernelCost

# Of a CPU, fitted to sorts of rows of 16 to 40,000 keys on a Zen 4 (`SORTING` for each byte of a
# key, which is counted and then moved: 2.1 ns). Instructions on single integers: for each byte of a
# key; for each of 256 counters of a byte, which are added up once a row; and for a key of a row of
# few, which is compared with all others. Those compare a vector of keys with one in VECTOR_OF_FEW
# instructions on vectors: a comparison, what makes its mask a number, and the sum.
SORTING, COUNTER, KEY_OF_FEW, VECTOR_OF_FEW = 20, 4, 34, 3
COUNTERS = 256
FEW_KEYS = 32  # for each byte of a key: rows of fewer, 128 of float32, are compared
PACKED_BYTES = 4  # of a key, up to which it moves with its number; longer ones stay where they are
ENTRY_BYTES = 8  # of what moves
# For each byte of a key on a GPU, fitted to 24 drawn sorts.
SORTING_ON_GPU = 8
# For each pair of keys of a short row on a GPU, of 32 threads together: to read one, to compare it,
# and to count. An estimate: 135,216 rows of 48 keys are predicted 45 us; with two other kernels,
# predicted 35, they took an H200 104.
PAIR_ON_GPU = 4
# For each key, whatever its width, where a CPU selects some ranks and few keys are left: an
# estimate.
SELECTING = 20
KERNELS_OF_A_BYTE = 3  # of a long row on a GPU: they count, add up the counts, and move the keys


def sort_cost(kernel: SortKernel, target: Target, rates: Rates) -> KernelCost:
    """The cost of sorting rows by the bytes of their keys, one after the other, or of selecting
    some: each row by one worker. Long rows of a GPU have three kernels for each byte, and all
    workers in each."""
    demands = _of_gpu(kernel, target, rates) if target.warp > 1 else _of_cpu(kernel, target, rates)
    demands = {**demands, "fork": 0.0, "launch": rates.launch}
    keys, places = kernel.parameters[:2]
    need = Need({0: keys.nbytes}, {1: places.nbytes}, Demand())
    return KernelCost(sum(demands.values()), demands, need.seconds(rates, target), need)


def _of_gpu(kernel: SortKernel, target: Target, rates: Rates) -> Mapping[str, float]:
    """The seconds of instructions alone, and of waiting."""
    count = kernel.rows * kernel.length
    if kernel.kernels > 1:
        instructions = SORTING_ON_GPU * count / KERNELS_OF_A_BYTE
        workers = target.multiprocessors
    else:
        instructions = float(SORTING_ON_GPU * kernel.parameters[0].dtype.itemsize * count)
        workers = min(kernel.rows, target.multiprocessors)
        if kernel.length <= kernel.short_row:
            instructions = float(PAIR_ON_GPU * count * kernel.length / target.warp)
        elif kernel.ranks < kernel.length:
            instructions = float(SELECTING * count)
    # A kernel of a GPU waits for its keys, and then for where they go: 12 kernels for 162,611 keys
    # took an H200 39 us, of which instructions are 6.
    waiting = (2 if kernel.kernels > 1 else 1) * rates.access
    return {"sort": instructions / rates.scalar / workers, "access": waiting}


def _of_cpu(kernel: SortKernel, target: Target, rates: Rates) -> Mapping[str, float]:
    """The seconds of the busiest worker."""
    workers = min(kernel.rows, target.multiprocessors)
    rows = ceil(kernel.rows / workers)
    length, nbytes = kernel.length, kernel.parameters[0].dtype.itemsize
    if length < FEW_KEYS * nbytes:
        lanes = target.vector_bytes // nbytes
        vectors = length * ceil(length / lanes) * VECTOR_OF_FEW / rates.simple
        return {"sort": rows * (length * KEY_OF_FEW / rates.scalar + vectors)}
    if kernel.ranks < length:
        return {"sort": rows * length * SELECTING / rates.scalar}
    instructions = nbytes * (length * SORTING + COUNTERS * COUNTER)
    return {
        "sort": rows * instructions / rates.scalar,
        "memory": rows * nbytes * _memory_of_byte(length, nbytes, rates),
    }


def _memory_of_byte(length: int, nbytes: int, rates: Rates) -> float:
    """The seconds in which the entries of a row are read, and written to other memory, for a byte
    of the keys; and in which keys that do not move with them are read, each far from the one
    before, from a level that takes longer than the instructions beside it.

    150,000 keys of float32 have entries of 1.2 MB, as long again where they go, which a cache of 2
    MB does not hold: the next one reads and writes them.
    """
    moved, kept = ENTRY_BYTES * length, nbytes * length
    level = _level_of(2 * moved, rates)
    seconds = moved / level.read + moved / level.write
    far = _level_of(kept + 2 * moved, rates)
    if nbytes > PACKED_BYTES and far.shared:  # nearer ones answer while other keys are counted
        seconds += length * rates.line / far.scattered
    return seconds


def _level_of(nbytes: float, rates: Rates) -> Memory:
    """The nearest level of memory that holds so many bytes; the last one holds everything."""
    return next(level for level in rates.levels if nbytes <= level.size)
