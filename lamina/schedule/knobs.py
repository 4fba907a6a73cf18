"""The numbers that the heuristics choose by. `lamina/schedule/search.py` measures other values.

Each line says the unit and the effect. "Measured" numbers were the fastest of their neighbours on
two cores with vectors of 64 bytes and a second-level cache of 1 MiB, or on an H200. The others are
estimates, by the arithmetic beside them: no measurement of them is kept.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class CpuKnobs:
    """Numbers of the heuristics for CPUs."""

    # Vector instructions of a chunk that is worth handing to another thread. A kernel of twice as
    # many, 2**13, is shared by two threads; a shorter one stays with the calling thread. At 5
    # instructions a nanosecond 2**12 take 0.8 us; handing over a chunk takes 0.1 to 0.3 us. A call
    # of a mish of 2048 elements, 14,000 instructions, took 5.8 us in one chunk and 4.5 us in two,
    # of which 2.5 are the host's (measured).
    shared_instructions: int = 1 << 12
    # Instructions of each thread from which on it gets a second chunk: 2**15 take 6 us. A call of a
    # mish of 16,384 elements took 15.6 us in 2 chunks, 17.1 in 4 and 17.3 in 8: a thread that takes
    # another chunk in each call finds its elements in the other thread's cache (measured).
    chunk_instructions: int = 1 << 15
    # Largest number of chunks. Threads take chunk after chunk, so there are more than threads.
    max_chunks: int = 256
    # Largest height of a product's register tile, in rows; 0: as many as registers hold, such as 14
    # of 2 vectors in 32 registers. Only the search sets it.
    tile_rows: int = 0
    # An array stays in the second-level cache if it takes up to one part of so many: 2**17 elements
    # of float32, half of 1 MiB. A larger one is read in blocks, or its loop is the outer one.
    cache_parts: int = 2
    # Rows that are computed together where no register tile says how many: 8 rows are reduced at
    # once. A tile of fewer than 8 rows reads too much for each multiply-add, so heights that divide
    # the rows are looked for from 8 up.
    rows_at_once: int = 8
    # Independent sums of one reduction: an addition takes 4 cycles, so 4 sums hide its latency.
    # Also the largest body that is worth copying, in iterations or operations.
    unroll: int = 4
    # Vectors side by side where a reduction reads row after row, and strips of transposed blocks
    # that advance together: 8 vectors of 64 bytes are 512 bytes of each row.
    strip_vectors: int = 8
    # Steps of a block of a product's reduction, each of which reads a cache line far from the one
    # before; a reduction of 4096 such steps is 64 blocks of 64, and the result accumulates them.
    # Blocks that have `accumulated_columns`, too, have 1/8 to 1/2 as many steps: 8 to 32, or a
    # divisor of all steps up to twice that.
    block_lines: int = 64
    # Columns of a panel for which the result accumulates blocks of a reduction, divided by the rows
    # of the result: 8192 sums of float32 are 32 KiB. Two blocks of 8 rows, one that is read and one
    # that is asked for, fill half of a second-level cache of 1 MiB. One core of a Zen 4 read panels
    # of 4096, 8192 and 16,384 columns as fast as whole memory. A quarter of that where a cache
    # holds the array: 4 rows by 1024 rows of 3072 columns took 0.14 ms, and 0.18 in panels of 1536.
    accumulated_columns: int = 8192
    # Columns of a panel of a packed operand that holds all steps of a reduction, halved while there
    # are not two of them: 64 for 200 columns. That of a block of steps has up to 4 times as many.
    panel_columns: int = 128
    # Largest k-block of a packed product, that is a block of the steps of its reduction. A longer
    # reduction is cut into its largest divisor among 8/8, 7/8, ..., 1/8 of that: 2304 steps into 3
    # blocks of 768.
    panel_steps: int = 1024
    # Rows that are enough to share one packed panel. Row axes from the tile's on outwards are in
    # its loop until they have 512 points; axes outside of these pack it again.
    panel_rows: int = 512
    # Rows from which on packing an operand pays: each packed element is used so many times.
    min_packed_rows: int = 64
    # The same for an operand whose steps are neighbours in memory, where dot products would need no
    # packing: with 22 rows both take as long for 256 steps, with 40 packing is 1.1 times as fast
    # (measured).
    min_packed_rows_of_dots: int = 24
    # Elements between neighbours from which on their cache lines compete for one place in a cache:
    # 1024 of float32 are 4 KiB, the distance at which lines of a 32 KiB cache of 8 ways meet.
    far_elements: int = 1024
    # Rows and columns from which on blocks are transposed in registers: 16 of float32 are a vector.
    min_transposed: int = 16
    # Blocks by which each strip of transposed blocks is ahead of the one before, unless the result
    # is written past the caches: with 8 strips, a transpose of 512 x 512 took two cores of a Zen 4
    # 31 us with 4 blocks and 42 with none (measured).
    blocks_ahead: int = 4
    # Strips of transposed blocks that advance together where whole lines of the result are written
    # past the caches: with 2, which read 32 rows, a transpose of 4096 x 4096 took two cores of a
    # Zen 4 3.4 ms, with 4 or 8 3.7, and 4.5 with 8 that are 4 blocks apart; 1024 x 16384 took 3.3,
    # 3.6, 3.9 and 4.5 (measured). That the processor prefetches few rows at once is a guess.
    uncached_strips: int = 2


@dataclass(frozen=True)
class GpuKnobs:
    """Numbers of the heuristics for GPUs."""

    # Rows of a thread's register tile, halved while threads are too few.
    tile_rows: int = 8
    # Columns of a thread's register tile, and steps of its reduction that are read at once.
    unroll: int = 4
    # Threads side by side where memory continues with the next row: 8 of 16 bytes are a line of 128
    # bytes. A warp of 32 then has 4 rows of them. In a transpose, 4 are side by side in 8 rows.
    strip_threads: int = 8
    # Tiles along each side of a block of a transpose, so that whole lines are read and written.
    transposed_tiles: int = 16
    # Threads that keep a GPU busy; with fewer rows, a row is shared by a block, or a thread takes
    # fewer elements. An H200 has 132 multiprocessors of up to 2048 threads; 2**15 are 248 for each.
    enough_threads: int = 1 << 15
    # 32-bit registers of a thread for what several passes over a row need: of 255, a quarter, so
    # that 8 warps and more of 32 threads fit on each quarter of a multiprocessor.
    row_registers: int = 64
    # Which atom a product gets: 0 the fastest by the model, 1 the next one, ... Only the search
    # sets it.
    atom_rank: int = 0
    # How a product in tiles is divided among blocks, by the same rank; how many steps its buffers
    # hold; who fills them, 1 the threads that multiply and 2 a producer; and slices of results that
    # are stored beside steps, 17 for none of them. 0: as the facts of the GPU decide. Only the
    # search sets them.
    division_rank: int = 0
    buffered_steps: int = 0
    filler: int = 0
    stored_slices: int = 0
