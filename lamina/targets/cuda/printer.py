"""CUDA C++: what the macros of its prelude do not say.

Products in tiles are printed from their tile programs. One object prints a kernel: `CudaPrinter`,
to which each class of a chain adds what one file is about, on top of those above it.

    GpuPrinter                ../gpu.py               kernels without products in tiles
    TilePrinter               tiles.py                results by whole rows, of any tiles
    TileFillPrinter           tile_fills.py           fills, by threads and by the copy engine
    EpiloguePrinter           epilogues.py            what becomes of the sums of a product
    ProgramPrinter            programs.py             the tile program of one product
    AttentionElementPrinter   attention_elements.py   arithmetic between products back to back
    AttentionProgramPrinter   attention_programs.py   their tile program
    CudaPrinter               here                    which of these it is; short forms

`print_kernel` of `CudaPrinter` chooses among them.
"""

from math import gcd

from lamina.core.dtypes import SHORT, int8, uint8, uint16
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Store
from lamina.ir.node import Node
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch
from lamina.schedule.cost.products import is_in_chunks
from lamina.targets.cuda.attention_programs import AttentionProgramPrinter
from lamina.targets.cuda.language import CudaLanguage
from lamina.targets.language import Point, Value
from lamina.targets.names import monoid_name


class CudaPrinter(AttentionProgramPrinter):
    """One kernel."""

    preludes = ("cuda/prelude.cu",)
    has_collectives = True

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        super().__init__(nest, name, target, CudaLanguage(nest))
        is_small = all(array.size < 1 << 31 for array in nest.kernel.parameters)
        # Masks compare indices, of 64 bits in two instructions. Threads that fill tiles divide
        # them: ``k % 7`` takes 5 instructions, and of 64 bits about 20.
        computes_indices = self.is_back_to_back or self._is_filled_by_threads()
        if computes_indices and is_small:
            self.index = "i32"

    def _is_filled_by_threads(self) -> bool:
        """Whether threads fill tiles that the copy engine cannot fill."""
        return not all(is_in_chunks(tile.value) for tile in self.nest.tiles)

    def tile_texts(self) -> tuple[str, ...]:
        """Instructions for products in tiles, and atomic operations."""
        if any(store.atomic for store in self.nest.kernel.stores):
            return ("cuda/atomics.cu",)
        return ("cuda/instructions.cu",) if self.nest.atom else ()

    def print_kernel(self) -> tuple[str, Launch]:
        """The kernel's function, and how to launch it but for its arguments: from its tile program,
        if it has one."""
        if self.program is None:
            return super().print_kernel()
        if self.is_back_to_back:
            return self.print_attention_program()
        return self.print_product_program()

    def load_together(self, node: Node, point: Point) -> None:
        """Two bytes by one access, where a longer one is not aligned: NVCC joins 4 and more. Of a
        block of 18 bytes:

            const u16 pair_1 = *(const u16 *)(p1 + 18 * thread_in_row + 2);
            const u8 load_2 = (u8)pair_1;
            const u8 load_3 = (u8)(pair_1 >> 8);
        """
        axis = self._axis_of_pairs(node, point)
        if axis is None:
            return
        first = point | {axis: point[axis] & ~1}
        index, kind = node.src[0], SHORT[node.dtype]
        cache = self.scopes[self.home(node)].cache
        with self.at_depth(self.home(node)):
            place = f"p{node.arg.parameter} + {self.index_text(index, first)}"
            pair = self.declare(Value(f"*(const u16 *)({place})", uint16), "pair").text
            for text, at in ((pair, first), (f"({pair} >> 8)", first | {axis: first[axis] + 1})):
                byte = Value(f"({kind}){text}", node.dtype)
                cache[self.key(node, at)] = self.declare(byte, "load")

    def _axis_of_pairs(self, node: Node, point: Point) -> Node | None:
        """The unrolled axis along which bytes are neighbours that are aligned as pairs, and no
        better; None where there is none, and where the kernel writes to the array."""
        is_read_only = not self.nest.kernel.parameters[node.arg.parameter].written
        if node.dtype not in (uint8, int8) or len(node.src) > 1 or not is_read_only:
            return None
        terms, constant = ix.terms_of(node.src[0])
        near = [axis for axis in self.unrolled if terms.get(axis) == 1]
        if len(near) != 1:
            return None
        (axis,) = near
        others = [stride for term, stride in terms.items() if term is not axis]
        alignment = gcd(constant, *others)
        copies = self.unrolled[axis]
        is_even = copies.first % 2 == 0 and copies.copies % 2 == 0
        return axis if is_even and alignment % 4 == 2 else None

    def atomic(self, store: Store, target: str, value: str) -> str:
        """``atomic_sum(&p2[load_1], 1);``, of `atomics.cu`."""
        assert store.monoid is not None
        return f"atomic_{monoid_name(store.monoid)}(&{target}, {value});"

    def index_text(self, index: Node, point: Point) -> str:
        """The common factor apart: compilers see the alignment of no long sum. ``8 * a + 16 * b +
        3`` is ``8 * (a + 2 * b) + 3``."""
        terms, constant = ix.terms_of(index)
        offset = constant + sum(terms[axis] * at for axis, at in point.items() if axis in terms)
        rest = {term: factor for term, factor in terms.items() if term not in point}
        common = gcd(*rest.values())
        if common < 2 or len(rest) < 2:  # there is no factor, or no sum
            return super().index_text(index, point)
        divided = {term: factor // common for term, factor in rest.items()}
        inner = super().index_text(ix.affine(divided, 0), point)
        return f"{common} * ({inner}) + {offset}"
