"""Heuristics for GPUs, one file a kind of kernel, and rules for graphs that only GPUs need.

    loops             the order of decisions; where a kernel goes
    planner           what the others share: the nest so far, and its facts
    threads           a thread for each row, or for a register tile of rows: grid, thread
    blocks            a block for each row, or for a few
    decoded           numbers that are bytes in blocks, a block for a thread: factor
    row_tiles         tiles of rows that read elements in common
    narrow            tiles of one column, or of all, of a product that has few
    short_axes        tiles of all points of short axes
    rows_apart        rows that several passes read, whose elements lie apart: registers hold them
    flat_rows         rows of short lines as one loop: flatten
    shifted           accesses that store what is loaded from within accesses
    private_scatters  a block for some places of a scatter, in memory that its threads share
    sent_scatters     a thread for a row of a scatter, which reads many updates at a time
    windows           tiles of windows that slide along an array
    products          which kernels have a product that tiles can compute
    attention         which have products back to back
    atoms             what the threads of a block multiply at once, a table
    tensorize         the move that gives a product tiles
    pipelining        the moves that say how blocks compute them: order, depth, roles, overlap
    stream_k          how blocks share the steps of all tiles

    gathered_windows, parts, scatters   rules of the pass suit_device
"""
