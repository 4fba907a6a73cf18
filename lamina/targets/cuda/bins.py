"""The two kernels of a BIN_SUM: calls of what `bins.cu` has."""

from lamina.core.dtypes import SHORT
from lamina.graph.exact_scatters import Scale, update_bits
from lamina.ir.kernel import BinKernel
from lamina.runtime.buffer import Launch
from lamina.targets.gpu import BINS
from lamina.targets.gpu_printer import PrintedKernel

THREADS = 1024
TEXTS = ("cuda/atomics.cu", BINS)


def print_bins(kernel: BinKernel, name: str) -> PrintedKernel:
    """The kernel that a bin kernel is: a block for each chunk of updates, or for each bin.

    ``bin_updates<90, 60, 4, 6144>(p1, p2, p4);`` of 90 places in 4 bins, and 60 updates.
    """
    base, places, updates = (f"p{number}" for number in kernel.operands)
    scratch = f"p{kernel.result + 1}"
    sizes = f"{kernel.places}, {kernel.updates}, {kernel.bins}, {kernel.chunk}"
    if kernel.left:
        call = f"bin_updates<{sizes}>({places}, {updates}, {scratch});"
        launch = Launch(name, kernel.chunks, THREADS, ())
    else:
        scale = Scale(update_bits(kernel.updates))
        call = f"add_bin<{sizes}, {scale.bits}>({base}, p{kernel.result}, {scratch});"
        # Of each chunk, 2 bytes say where the updates of the bin begin, and 2 where they end.
        shared = scale.nbytes(kernel.size) + 4 * kernel.chunks
        launch = Launch(name, kernel.bins, THREADS, (), shared)
    pointers = (
        f"POINTER({'' if one.written else 'const '}{SHORT[one.dtype]}, {number})"
        for number, one in enumerate(kernel.parameters)
    )
    head = f"KERNEL({THREADS}) {name}({', '.join(pointers)} PLACE) {{"
    return PrintedKernel(f"{head}\n    FOLLOW;\n    {call}\n}}", launch, TEXTS)
