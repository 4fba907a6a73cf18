"""CUDA C++ of tile programs: what those of one product and of products back to back share.

Such a kernel begins with where its tiles lie in shared memory, and with its barriers:

    extern __shared__ __align__(1024) u8 shared[];
    const u32 left = shared_address(shared + 16384);
    const u32 right = shared_address(shared + 81920);
    FOLLOW;
    __shared__ u64 full[4], empty[4];
    if (THREAD == 0) { ... }
    BARRIER;
"""

from collections.abc import Mapping

from lamina.ir.kernel import Store
from lamina.runtime.buffer import Launch
from lamina.targets.cuda.multiplications import tile_bytes
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.cuda.results import RowLines
from lamina.targets.cuda.tile_fills import TileFills
from lamina.targets.gpu_printer import PrintedKernel
from lamina.tiles.decisions import RowLayout, name_of_lines
from lamina.tiles.program import TileProgram

WARP = 32
INSTRUCTIONS = ("cuda/instructions.cu",)  # the text that kernels with products in tiles need


class TileProgramPrinter:
    """Prints the function of a kernel that has a tile program, by the printer of its values.

    offset_of     of what lies in shared memory, by its name, in bytes
    shared_bytes  of shared memory that a block has, so far
    fills         prints what fills tiles
    """

    def __init__(self, printer: CudaPrinter, program: TileProgram) -> None:
        self.printer = printer
        self.line, self.lines, self.block = printer.line, printer.lines, printer.block
        self.program = program
        self.offset_of: dict[str, int] = {}
        self.shared_bytes = 0
        self.fills = TileFills(printer, self.offset_of)

    def print_memory(self) -> None:
        """Print where tiles and lines of results lie: lines first, as swizzles begin at whole KiB
        and all tiles are such."""
        self.line("extern __shared__ __align__(1024) u8 shared[];")
        shared = [alloc for alloc in self.program.allocs if alloc.memory == "shared"]
        for alloc in sorted(shared, key=lambda alloc: not alloc.name.startswith("lines")):
            offset = self.offset_of[alloc.name] = self.shared_bytes
            if not alloc.name.startswith("lines"):
                place = f"shared_address(shared + {offset})"
                self.line(f"const u32 {alloc.name} = {place};")
            self.shared_bytes += alloc.stages * tile_bytes(alloc)

    def print_barriers(self) -> None:
        """Print the barriers, which the first thread starts; no kernel before may run any more
        when arrays are read."""
        self.line("FOLLOW;")
        barriers = self.program.barriers
        if not barriers:
            return
        names = ", ".join(f"{barrier.name}[{barrier.stages}]" for barrier in barriers)
        self.line(f"__shared__ u64 {names};")
        with self.block("if (THREAD == 0) {"):
            for barrier in barriers:
                self.line(f"UNROLLED for (int slot = 0; slot < {barrier.stages}; slot++)")
                self.line(f"    start_barrier({barrier.name} + slot, {barrier.arrivals});")
            self.line("publish_barriers();")
        self.line("BARRIER;")

    def row_lines(self, layouts: Mapping[Store, RowLayout]) -> dict[Store, RowLines]:
        """The lines of the stores by whole rows that the program has room for."""
        kernel = self.printer.nest.kernel
        lines_of: dict[Store, RowLines] = {}
        for store, layout in layouts.items():
            name = name_of_lines(kernel, store)
            if name in self.offset_of:
                lines_of[store] = RowLines(
                    kernel.stores.index(store),
                    self.offset_of[name],
                    store.value.dtype,
                    layout.chunk_bytes,
                    layout.pitch,
                )
        return lines_of

    def function(
        self, pointers: list[str], blocks: int, threads: int, *, min_blocks: int | None
    ) -> PrintedKernel:
        """The function of all lines so far, with its launch but for its arguments. min_blocks: of
        a multiprocessor at least; with 1 threads may use all registers (`GpuPrinter.head`)."""
        printer, maps = self.printer, self.fills.maps
        head = printer.head(pointers, threads, maps, min_blocks=min_blocks)
        body = "".join(f"    {line}\n" for line in printer.scopes[0].lines)
        launch = Launch(
            printer.function, blocks, threads, (), self.shared_bytes, tuple(maps.values())
        )
        return PrintedKernel(f"{head} {{\n{body}}}", launch, INSTRUCTIONS)
