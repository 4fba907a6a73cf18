"""What fusion needs to know of a device: plain data, and one question to the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from lamina.ir.kernel import Kernel


class GainsByRecomputing(Protocol):
    """The question whether a kernel runs faster for computing products again inside its sums."""

    def __call__(self, kernel: Kernel, /) -> object:
        """Anything true if the scheduler has fast code for `kernel`, which computes sums of
        products inside other sums, as attention in one kernel does. Otherwise the products go to
        memory, and fusion starts over."""


class Cost(Protocol):
    """A prediction of how long kernels take."""

    def __call__(self, kernels: Sequence[Kernel], around: int, /) -> float:
        """Seconds of one run of `kernels`, one after the other; for one block of rows after the
        other if they run in blocks. `around` says how far apart in memory traffic two runs of the
        program are: bytes of all arrays that it touches. With many, caches have lost the inputs."""


@dataclass(frozen=True, kw_only=True)
class FusionTarget:
    """The facts of a device that fusion depends on. The defaults are those of a CPU."""

    forms_row_blocks: bool = True
    """Whether several kernels run in row blocks (`lamina.fuse.row_blocks`)."""

    lanes_are_neighbours: bool = True
    """Whether vectors are loaded and stored whole where their lanes are neighbours in memory, and
    lane by lane elsewhere."""

    scans_lack_vectors: bool = True
    """Whether the loop of a scan has no vectors, which arithmetic has in a kernel of its own: only
    little of it joins the kernel of a scan then (`lamina.fuse.epilogues`)."""

    stores_scattered_updates: bool = True
    """Whether costly updates of a scatter whose loop has no vectors are stored, so that a kernel of
    their own computes them in vectors."""

    stores_scalars_of_vectors: bool = True
    """Whether a factor of a product that is computed from several arrays, such as ``x * s`` in
    ``(x * s) @ w``, is stored if its elements are scalars for many vectors
    (`values.MIN_COLUMNS_OF_STORED`). Measured on CPUs alone."""

    stores_read_slices: bool = True
    """Whether a slice of a repeated value is stored in place of the value, if only the slice is
    read. Measured on CPUs alone."""

    overlaps_collectives: bool = False
    """Whether a collective runs beside the kernels after it, up to the first that reads its result:
    its operand then stays in memory for as long."""

    max_horizontal: int = 1
    """Short kernels, independent of each other, that one launch may run side by side
    (`lamina.fuse.horizontal`)."""

    cost: Cost | None = None
    """Predicts times, by which row blocks are compared with kernels on whole arrays; None forms all
    row blocks that fit."""

    tiled_products: bool = False
    """Whether sums of products copy tiles of their factors to fast memory. Such copies fill in
    padding themselves, so that a padded factor need not be stored; and they want one axis of a
    factor to be contiguous, which `lamina.fuse.layout` arranges."""

    max_padded_copies: int = 16
    """Copies of each element by an EXPAND, up to which padding beneath it is tested wherever it is
    read; with more a padded copy is cheaper. A depthwise convolution with windows of 3 x 3, 9
    copies, takes half the time without the padded copy where one instruction loads the lanes of a
    mask, and twice as long where none does (measured)."""

    packs_constants: bool = False
    """Whether products pack constants in panels, which hold what is computed from them: floats that
    are made of bytes then need no memory of their own."""

    flips_bytes: bool = False
    """Whether sums of products of bytes are to have factors of both signs
    (`lamina.graph.flip_bytes`)."""

    has_byte_tiles: bool = False
    """Whether instructions multiply tiles of bytes of any signs."""

    min_shared_cost: int = 12
    """In additions (`lamina.fuse.costs`): a value with several users is stored, not computed again
    by each of them, from this cost an element on. 12 stores an exponential of a difference on a
    CPU. GPUs, whose arithmetic is cheap beside their memory, have 32: the derivative of a gelu then
    reads one array of 16-bit floats in place of three of float32."""

    min_updating_results: int = 0
    """In results: a long sum of products with fewer results is stored before it updates several
    arrays (`values._updating_sums`). 0 stores none, for devices that do not cut sums into parts.

    GPUs cut long sums of few results into parts for different blocks of threads, and only the block
    that ends a tile could update anything. With so many results that every multiprocessor has a
    tile, nothing is cut: that is the number. CPUs add up blocks of steps in memory, which no update
    can be part of, so that no number is too large for them: 256 x 1024 sums of 4096 products, and
    the update of a weight, took 73 ms as one kernel and 40 ms with the sums stored; 1024 x 256 of
    them 113 and 40 ms (one core of a Zen 3, with factors as `lamina.graph.steps_in_rows` stores
    them)."""

    max_apart: int = 0
    """In elements: rows of up to so many that lie apart in memory, with neighbouring rows beside
    them, are passed over several times by one kernel, whose threads hold them in registers. 0 if
    each pass over such rows is a kernel of its own."""

    max_row_work: int = 0
    """In additions (`lamina.fuse.costs`): what a kernel of few rows, each passed over by a block of
    threads, does for a row at most: arithmetic beyond that is for a kernel that has all elements in
    parallel. 0 sets no limit."""

    sort_run: int = 0
    """In keys: rows of up to so many are sorted by one block of threads at once; longer ones byte
    by byte, in several kernels. 0 if rows of any length are sorted at once."""

    row_pitch: int = 0
    """In bytes: rows of large arrays that kernels pass on begin at multiples of it (128 on GPUs, a
    line of their cache) where they would begin within a word. 0 packs all rows."""

    gains_by_recomputing: GainsByRecomputing | None = None
    """Asked of each kernel that would compute sums of products inside its own sums; None if no
    kernel of the device gains by that."""
