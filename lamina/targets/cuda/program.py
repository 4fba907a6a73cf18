"""CUDA C++: what prints a kernel."""

from lamina.core.target import Target
from lamina.loops.nest import Nest
from lamina.targets.cuda.attention_programs import AttentionPrinter
from lamina.targets.cuda.bins import print_bins
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.cuda.product_programs import ProductPrinter
from lamina.targets.gpu import GpuPlatform
from lamina.targets.gpu_printer import PrintedKernel, PrintedPart
from lamina.tiles.program import TileProgram


def print_kernel(
    nest: Nest, name: str, target: Target, program: TileProgram | None
) -> PrintedKernel:
    """The kernel of a nest: by its loops, or by its tile program, if it has one."""
    printer = CudaPrinter(nest, name, target)
    if program is None:
        return printer.print_kernel()
    if printer.is_back_to_back:
        return AttentionPrinter(printer, program).print()
    return ProductPrinter(printer, program).print()


def print_block_function(nest: Nest, name: str, target: Target) -> PrintedPart:
    """The kernel of a nest without products in tiles, for some blocks of a launch."""
    return CudaPrinter(nest, name, target).print_block_function()


CUDA = GpuPlatform(
    ("cuda/prelude.cu",), print_kernel, print_block_function, print_bins, has_collectives=True
)
