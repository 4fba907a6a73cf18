"""The numbers by which `lamina.fuse.row_blocks` decides. Numbers without a measurement beside them
are estimates."""

# Bytes of the smallest array that is worth keeping out of memory: 1 MiB.
MIN_BYTES = 1 << 20

# Bytes of all values in one block that the cache of a core holds: 512 KiB.
CACHE_BYTES = 1 << 19
# Rows that a block may have even if they take more than CACHE_BYTES. Vectors run along the rows of
# a block: 16 float32 fill one of 64 bytes.
ENOUGH_ROWS = 16
# Bytes that no block exceeds, however few rows it has then: 3 MiB.
MAX_BLOCK_BYTES = 3 << 20
# Rows below which row blocks do not pay, unless the array has no more rows.
MIN_BLOCK_ROWS = 8

# Kernels with a contraction (a matrix product) below which row blocks gain nothing.
MIN_PRODUCTS = 2

# Where memory adds up a sum from block to block, only blocks of other rows, such as other heads,
# run in parallel: there must be at least so many of these rows.
MIN_PARALLEL = 4

# Kernels that read the large array with which row blocks begin, at most. Each step in time of a
# recurrent network reads a part of one array, and needs the step before, so that none can run with
# others. But row blocks that begin at one of them would grow over all of them to see that: for 256
# steps of an LSTM, that was 1.5 of 5.5 seconds of lowering. In the gradients of attention it is 3
# kernels.
MAX_READERS = 32

# Bytes that every block reads again, in multiples of the bytes that it holds: from so many on, row
# blocks do not pay. Gradients of attention with heads of 128 columns read 15.4 times as much again:
# they take as long in blocks as without, and no memory for scores, 64 MiB for 4 heads of 2048 rows.
# Two products of (512, 512) by (512, 2048), multiplied by each other, would read 16 times as much,
# and take 34 ms in place of 15 on one thread.
REREAD_LIMIT = 16

# Row blocks are formed if their predicted time is at most so many times that of whole arrays:
# predictions are 10 to 20 % wrong as a rule, and whole arrays take memory. Where the arrays that
# row blocks avoid have at least MUCH_MEMORY times the bytes of all others, as scores of attention
# do, which grow with the square of the length, the second number holds. Of 60 drawn programs, on
# one thread, the choice took 4 % longer than the faster of both on average, and at most 42 %; all
# row blocks took 8 %, and at most 75 %; none 9 %, and twice as long at most.
SLOWER_LIMIT = 1.1
SLOWER_LIMIT_FOR_MEMORY = 2.0
MUCH_MEMORY = 4

# Bytes of a piece of memory from which on blocks read it as fast as whole arrays are read. Of
# shorter ones the processor does not read the next in time: blocks of 8 of 192 channels took 18 ms
# where 7 were predicted, of 16 channels 15 where 4 were. They count as so many times as long.
MIN_PIECE = 256
PIECES = 2.0

# Row blocks with one kernel whose time is predicted, at most: kernels that do not pay together may
# pay without the last of them. A limit keeps the work linear in the number of kernels.
MAX_PREDICTIONS = 4
