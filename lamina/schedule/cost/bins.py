"""The cost of a sum at places by bins, and how many bins there are."""

from math import ceil

from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.ir.kernel import BinKernel, places_of_bin
from lamina.schedule.cost.bound import Need
from lamina.schedule.cost.operations import Demand
from lamina.schedule.cost.report import KernelCost
from lamina.schedule.gpu.atoms import RESERVED_BYTES

# Seconds of an update in both kernels, and of what a chunk has for a bin, with all multiprocessors
# at work: an H200 took 29 us for 1,487,554 updates of as many places, 132 bins of 243 chunks, and
# 140 for 6,428,751, 396 bins of 1047. The first kernel has a third of that of updates. With the
# kernel that writes the places, whole scatters take, in us:
#     updates and places           estimated   measured
#     100,003                           20.9       19.5
#     1,000,000                         27.9       26.8
#     1,048,576 in rows of 8192         28.8       27.3
#     1,487,554 in rows of 2            37.0       35.9
OF_UPDATE, OF_SEGMENT = 1.14e-11, 1.1e-10
FIRST = 1 / 3
OF_SUM = 12  # bytes of a sum of int64 with its exponent
MAX_BINS = 1023  # of 1024 threads one counts the updates of each bin, and one is for the end
OF_CHUNK = 4  # bytes in which a block keeps where a chunk's updates of its bin are


def bins_of(places: int, updates: int, target: Target) -> int:
    """How many bins there are: the smallest multiple of the multiprocessors whose sums fit in
    memory of blocks, up to MAX_BINS; 0 where none is enough. With more bins what a chunk has for
    one is less than a warp reads at a time: 8,216,240 places have 528, and a chunk 12 updates for
    each."""
    if places == 0:
        return 0
    of_chunks = ceil(updates / BinKernel.chunk) * OF_CHUNK
    room = target.shared_bytes - RESERVED_BYTES - of_chunks
    for bins in range(target.multiprocessors, MAX_BINS + 1, target.multiprocessors):
        if places_of_bin(places, bins) * OF_SUM <= room:
            return bins
    return 0


def bin_seconds(places: int, updates: int, bins: int, rates: Rates) -> tuple[float, float]:
    """Seconds of the kernel that puts updates into bins, and of the one that adds them."""
    memory = rates.levels[-1]
    moving = 4 * places * (1 / memory.all_read + 1 / memory.all_write)
    # It waits for updates, and then for where they go; and for where they are, for updates twice,
    # for the base and for the last one.
    first, last = (rates.launch + waits * rates.access for waits in (2, 5))
    # Fewer chunks than one for each bin are taken to last as long as that many. A block of the
    # first kernel goes through a chunk in 3 us, however many others there are. Warps of the
    # last one have 4 chunks at a time, 128 for a block: of 17, as 100,003 updates have, 5 warps of
    # 32 have any, and wait as long for these.
    chunks = max(ceil(updates / BinKernel.chunk), bins)
    of_updates = max(updates, bins * BinKernel.chunk) * OF_UPDATE
    segments = bins * chunks
    adding = (1 - FIRST) * of_updates + segments * OF_SEGMENT
    return first + FIRST * of_updates, last + adding + moving


def bin_cost(kernel: BinKernel, target: Target, rates: Rates) -> KernelCost:
    """The cost of one of the two kernels."""
    first, last = bin_seconds(kernel.places, kernel.updates, kernel.bins, rates)
    seconds = first if kernel.left else last
    demands = {"bins": seconds - rates.launch, "fork": 0.0, "launch": rates.launch}
    base, places, updates = kernel.operands
    read = (places, updates) if kernel.left else (base,)
    read_bytes: dict[object, float] = {number: kernel.parameters[number].nbytes for number in read}
    written: dict[object, float] = {}
    if not kernel.left:
        written[kernel.result] = kernel.parameters[kernel.result].nbytes
    need = Need(read_bytes, written, Demand())
    return KernelCost(seconds, demands, need.seconds(rates, target), need)
