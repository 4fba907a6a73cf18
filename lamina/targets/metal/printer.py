"""Metal: kernels for Apple's GPUs."""

from math import inf

from lamina.core.dtypes import float64
from lamina.core.target import Target
from lamina.errors import DTypeError
from lamina.graph import index as ix
from lamina.ir.kernel import bounds
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.runtime.metal import TABLE
from lamina.targets.c.operations import CLanguage
from lamina.targets.gpu import GpuPlatform
from lamina.targets.gpu_printer import GpuPrinter, PrintedKernel
from lamina.targets.threads import MAX_SHARED_THREADS
from lamina.tiles.program import TileProgram

# By how much the index of a loop passes its end, at most. That of a loop over blocks goes on by a
# whole block: 1024 iterations (`blocks.py`) of each of the threads that share the loop.
PAST_THE_END = MAX_SHARED_THREADS << 10


class MetalPrinter(GpuPrinter):
    """One kernel for Apple's GPUs, which have no 64-bit floats. Arithmetic on 64-bit integers takes
    them many instructions: an index has 32 bits wherever all that it is computed from fits."""

    direct = TABLE

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        index_type = "i32" if all(map(_fits_int32, nest.kernel.nodes)) else "i64"
        language = CLanguage(max_inlined=inf, index_type=index_type)
        super().__init__(nest, name, target, language)
        if any(node.dtype is float64 for node in nest.kernel.nodes):
            raise DTypeError(f"kernel {name}: Metal has no float64; cast to float32 or complex64")


def print_kernel(
    nest: Nest, name: str, target: Target, program: TileProgram | None
) -> PrintedKernel:
    """The kernel of a nest, which has no tile program."""
    assert program is None
    return MetalPrinter(nest, name, target).print_kernel()


METAL = GpuPlatform(("metal/prelude.metal",), print_kernel)


def _fits_int32(node: Node) -> bool:
    """Do 32 bits hold each sum that `node`, if it is an index, is computed by? A term that is data
    or a quotient is a value of its own, and counts elsewhere.

    ``60000 * i + j`` with i below 60000 and j below 10 is up to 3,599,940,009: that takes 64 bits.
    """
    if node.op not in (Op.AXIS, Op.AFFINE):
        return True
    terms, constant = ix.terms_of(node)
    largest = abs(constant)  # of a sum of some of the terms, whatever their signs
    for term, factor in terms.items():
        if term.op is Op.AXIS:
            _, last = bounds(term)
            largest += abs(factor) * last
    return largest < (1 << 31) - PAST_THE_END
