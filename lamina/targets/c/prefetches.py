"""Prefetches in C: of what a kernel reads some iterations later.

The hardware prefetcher finds most of it by itself; `AHEAD` in `prelude.c` says where it fails. Its
arguments are an address, how many elements behind that to ask for, and the caches.
"""

from math import prod

from lamina.core.dtypes import float32
from lamina.graph import index as ix
from lamina.ir.kernel import Parameter, free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import LINE, UNCACHED, is_far, is_of_constants
from lamina.targets.kernel import KernelPrinter
from lamina.targets.language import Point

PANEL_STEPS = 8  # of a reduction: how far ahead a product prefetches from a packed panel
# The same from rows of an array that lie so many bytes apart, or more: the hardware prefetcher does
# not leave the page that it is in, and finds few rows there. 8 and 32 steps were as fast. The
# transpose of 8192 x 512 times 8192 x 40, with rows of 2 KiB, took one core of a Xeon 18 ms, and 6.
FAR_STEPS, FAR_STRIDE = 16, 1024
PAGE = 4096  # bytes
SECOND_CACHE = 1 << 20  # bytes that stay in the second-level cache
NEAREST_CACHE = 1 << 15  # bytes that stay in the first-level cache, which has 32 KiB or more
# How often a product may read constants in one call for prefetches of them to pay. The first time
# they come from a distant cache, as those of other kernels have come after them; later they are
# near. Of products of (384, 384) constants with 32 columns, read once, with 24 MB of constants in
# all, one core of a Zen 4 did 71 GFLOP/s, and 102 with prefetches; of 256 columns, read 8 times,
# 99 and 104. That more often is not worth an instruction in each step is an estimate.
MAX_READS = 8
TWO_PAGES = 8192  # bytes: how far ahead arithmetic on a large array, and decoding, prefetch
# The caches that a prefetch reaches, `near` of AHEAD in `prelude.c`.
ALL_CACHES = 3
BUT_FIRST_LEVEL = 2


class Prefetches:
    """Prints the prefetches of one kernel. `place` is an address, ``p0 + 8 * i``."""

    def __init__(self, printer: KernelPrinter) -> None:
        self.printer = printer
        self.nest = printer.nest

    def _print(self, place: str, elements: int, caches: int) -> None:
        self.printer.line(f"AHEAD({place}, {elements}, {caches});")

    def _array(self, load: Node) -> Parameter:
        """What a load reads."""
        array: Parameter = self.nest.kernel.parameters[load.arg.parameter]
        return array

    def _address(self, load: Node, point: Point) -> str:
        """Where a load reads: ``p0 + 64 * i + k``."""
        return f"p{load.arg.parameter} + {self.printer.index_text(load.src[0], point)}"

    # Of vectors.

    def print_of_vector(self, load: Node, point: Point, place: str) -> None:
        """Print prefetches beside the load of a vector of neighbours at `place`.

        Numbers that are decoded before they are added up, each once, as of quantised weights, are
        asked for 8192 bytes ahead: ``AHEAD(p6 + 1024 * k_outer + 64 * k_inner, 8192, 3);``. So is
        what arithmetic on an array of 64 MiB reads: ``AHEAD(p0 + 16 * i, 2048, 3);``.
        """
        # Does a register tile use the load more than once, as in a product? It does if there are
        # unrolled axes, rows for a load of columns, that the load does not depend on.
        is_reused = not self.printer.unrolled.keys() <= free_axes(load)
        if is_reused:
            self._print_of_factor(load, point, place)
        self._print_of_sums_in_memory(load, place)
        is_decoded = self._is_decoded_in_order(load) and self._begins_line(load, point)
        if is_decoded or self._is_large_map(load):
            self._print(place, TWO_PAGES // load.dtype.itemsize, ALL_CACHES)

    def _print_of_sums_in_memory(self, load: Node, place: str) -> None:
        """Where sums are accumulated in memory, print prefetches of what the next iteration of the
        loop around the rows reads: ``AHEAD(p0 + 4096 * k + 16 * i, 4096, 2);``, 4096 elements
        ahead. All rows come before that, so the nearest cache is left to them. What the third-level
        cache holds is as fast without: 2048 x 1024 numbers took two cores of a Zen 4 70 us, and 92
        with prefetches."""
        if not is_far(self._array(load)):
            return
        terms, _ = ix.terms_of(load.src[0])
        for axis in self._accumulating_loops():
            if axis in terms:
                self._print(place, terms[axis], BUT_FIRST_LEVEL)

    def _print_of_factor(self, load: Node, point: Point, place: str) -> None:
        """Print prefetches of a factor of a product.

        - 16 columns of a panel at each step: 8 steps ahead, as in
          ``AHEAD(p3 + 128 * k_outer + 16 * k_inner, 128, 3);``, and see `_print_of_next_panel`.
        - The columns of a large array row after row, where a row has 256 elements or more: 16 rows
          ahead, ``AHEAD(p1 + 1384 * k + 32 * j, 22144, 3);``.
        """
        terms, _ = ix.terms_of(load.src[0])
        steps = [axis for axis in self.nest.order if axis.arg.reduce and axis in terms]
        if not steps:
            return
        innermost = steps[-1]
        stride = terms[innermost]
        if self._is_large_panel(load):
            self._print(place, PANEL_STEPS * stride, ALL_CACHES)
            self._print_of_next_panel(load, point, innermost)
        elif self._is_of_far_rows(load, stride):
            self._print(place, FAR_STEPS * stride, ALL_CACHES)

    def _print_of_next_panel(self, load: Node, point: Point, step: Node) -> None:
        """Print prefetches of the constants that the next panel is computed from, such as weights
        of 4 bits, where `load` reads the panel of a product: ``AHEAD(p4 + 48 * k + 27648 * j,
        27648, 2);`` in panel j. Memory gives them meanwhile; else the processor would wait for them
        as the panel is filled. Scales, one for a whole block, are few, and are not
        prefetched."""
        kernel = self.nest.kernel
        for fill in self.nest.fills:
            if fill.parameter != load.arg.parameter or fill.at is None:
                continue
            for read in toposort([fill.value]):
                if read.op is not Op.LOAD or not self._begins_line(read, point):
                    continue
                terms, _ = ix.terms_of(read.src[0])
                if is_of_constants(kernel, read) and fill.at in terms and step in terms:
                    self._print(self._address(read, point), terms[fill.at], BUT_FIRST_LEVEL)

    # Of scalars.

    def print_of_scalar(self, load: Node, point: Point) -> None:
        """Print prefetches of scalars that a register tile will read: those of later steps, where
        steps lie far apart, and else those of the next rows."""
        step = self._innermost_step()
        if step is None or not self._is_distant(load) or not self._is_shared_by_vectors(load):
            return
        terms, _ = ix.terms_of(load.src[0])
        unrolled = self.printer.unrolled
        rows = [axis for axis, part in unrolled.items() if axis in terms and part.copies > 1]
        if len(rows) != 1:
            return
        if self._is_of_far_rows(load, terms.get(step, 0)):
            self._print_of_far_step(load, point, rows[0], terms[step])
        elif terms.get(step) == 1 and point.get(rows[0], 0) == 0:
            self._print_of_next_rows(load, point, rows[0], step)

    def _print_of_next_rows(self, load: Node, point: Point, row: Node, step: Node) -> None:
        """Print a prefetch of what the next rows will read, one line in each step, those of a row
        after the other.

        A convolution of 64 channels reads ``p0[64 * i + k]`` for 14 rows i at each step k. Of the
        next 14 rows, step k asks for the line of row ``k & 15`` that has the channel k:
        ``AHEAD(p0 + 64 * i + k + 63 * (k & 15), 896, 3);``. After 16 steps, all rows have had a
        line, and a new one begins. Rows lie too far apart for the hardware prefetcher to see that
        they are read in turns: images of 17 MB take 10 % longer without (measured: a Zen 4).
        """
        terms, _ = ix.terms_of(load.src[0])
        in_line = LINE // load.dtype.itemsize
        count, stride = self.printer.unrolled[row].copies, terms[row]
        if stride < in_line or step.arg.size < in_line or count > in_line:
            return
        turn = f"{stride - 1} * ({self.printer.index_texts[step]} & {in_line - 1})"
        caches = ALL_CACHES if stride * load.dtype.itemsize < PAGE else BUT_FIRST_LEVEL
        self._print(f"{self._address(load, point)} + {turn}", count * stride, caches)

    def _print_of_far_step(self, load: Node, point: Point, row: Node, stride: int) -> None:
        """Print a prefetch of the scalars that a register tile reads 16 steps later, `stride`
        elements apart, as in the transposed factor of a weight's gradient. Rows that are neighbours
        are on one line, or on two: ``AHEAD(p0 + 2119 * k + 13 * i, 33904, 3);`` for the first of
        them and for the last."""
        terms, _ = ix.terms_of(load.src[0])
        ends = (0, self.printer.unrolled[row].copies - 1)
        if terms[row] > 1 or point.get(row, 0) in ends:
            self._print(self._address(load, point), FAR_STEPS * stride, ALL_CACHES)

    # Which arrays, and how they are read.

    def _innermost_step(self) -> Node | None:
        """The innermost of the open loops of a reduction; None where none is open."""
        loops = (axis for axis in reversed(self.nest.order) if axis in self.printer.index_texts)
        return next((axis for axis in loops if axis.arg.reduce), None)

    def _is_shared_by_vectors(self, load: Node) -> bool:
        """Is a scalar multiplied with vectors of a register tile?"""
        vectors = self.printer.vectors
        return bool(vectors) and vectors.keys().isdisjoint(free_axes(load))

    def _accumulating_loops(self) -> list[Node]:
        """The loops whose sums are accumulated in memory: row loops that the kernel's first store,
        which stores the identity, does not have."""
        first_store = self.nest.kernel.stores[0]
        return [axis for axis in self.nest.row_loops if axis not in first_store.axes]

    def _is_large_panel(self, load: Node) -> bool:
        """Is it the packed panel of a product, which is read from end to end, and larger than the
        nearest cache?"""
        array = self._array(load)
        return array.memory == "scratch" and array.nbytes > NEAREST_CACHE

    def _is_of_far_rows(self, load: Node, stride: int) -> bool:
        """Does each step of a reduction read an array that no near cache holds far from the one
        before, `stride` elements after it?"""
        steps = prod(axis.arg.size for axis in self.nest.order if axis.arg.reduce)
        is_long = steps >= 2 * FAR_STEPS
        is_apart = abs(stride) * load.dtype.itemsize >= FAR_STRIDE
        return is_long and is_apart and self._is_distant(load)

    def _is_distant(self, load: Node) -> bool:
        """Is what it reads in no near cache when the kernel begins: an array that is larger than
        the second-level cache, or constants that the kernel reads a few times?"""
        array = self._array(load)
        if array.nbytes > SECOND_CACHE:
            return True
        is_seldom_read = self._reads(load) <= MAX_READS
        return array.constant and array.nbytes > NEAREST_CACHE and is_seldom_read

    def _reads(self, load: Node) -> int:
        """How often the loops around a register tile come to each element of what it reads: the
        weights of 6 x 4 tiles of 384 rows and 256 columns are read 64 times as vectors, and 4 times
        as scalars."""
        terms, _ = ix.terms_of(load.src[0])
        in_tile = {*self.printer.unrolled, *self.printer.vectors}
        others = (axis for axis in self.nest.row_loops if axis not in terms)
        return prod(axis.arg.size for axis in others if axis not in in_tile)

    def _is_decoded_in_order(self, load: Node) -> bool:
        """Does a reduction read narrow numbers from end to end of an array that is larger than the
        nearest cache, each once, and make wider ones of them?

        ``w[1024 * b + 64 * k + 16 * v + i]`` with blocks b, 16 steps k, 4 unrolled vectors v and 16
        lanes i is such a load, in whichever loop the halves of a byte are unrolled."""
        sums = (axis for axis in self.nest.order if axis.arg.reduce)
        is_large = self._array(load).nbytes > NEAREST_CACHE
        is_narrow = load.dtype.itemsize < float32.itemsize
        if not (is_large and is_narrow) or load.src[1:] or next(sums, None) is None:
            return False
        terms, _ = ix.terms_of(load.src[0])
        lanes = [part.lanes for axis, part in self.printer.vectors.items() if terms.get(axis) == 1]
        if not lanes:
            return False
        following = lanes[0]  # elements that all loops inside of an axis read
        is_moved = False  # by a loop inside
        for axis in reversed(self.nest.order):
            if self.nest.bound(axis) in ("vector", "dot"):
                continue
            is_loop = axis not in self.printer.unrolled
            if axis in terms:
                if terms[axis] != following:
                    return False
                following *= axis.arg.size
                is_moved = is_moved or is_loop
            elif is_loop and is_moved:
                return False  # it reads all of them again
        return True

    def _begins_line(self, load: Node, point: Point) -> bool:
        """Is it the first of the unrolled loads of a cache line?"""
        terms, _ = ix.terms_of(load.src[0])
        unrolled = [axis for axis in self.printer.unrolled if axis in point]
        first = sum(terms.get(axis, 0) * point[axis] for axis in unrolled)
        return first * load.dtype.itemsize % LINE == 0

    def _is_large_map(self, load: Node) -> bool:
        """Does the kernel compute each element of an array that no cache holds from the element of
        `load` at the same index?"""
        kernel = self.nest.kernel
        store = kernel.stores[0]
        is_in_place = load.src[0] is store.index and store.axes == kernel.row_axes
        return is_in_place and kernel.parameters[store.parameter].nbytes >= UNCACHED
