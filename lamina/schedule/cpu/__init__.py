"""Heuristics for CPUs, one file for each kind of kernel. Begin with `schedule_for_cpu` of
`heuristic.py`, which chooses among the others. After the colon are the moves that a file makes.

    heuristic       the order of decisions, and which file a kernel goes to: parallel, stage
    planner         what the others share: the schedule so far, and questions about its nest
    products        matrix products, convolutions: a register tile by split, unroll and vector
    register_tiles  the sizes of register tiles, and which reductions have one
    panels          whether an operand is packed, and how many columns and steps at a time
    packing         which expressions are packed: stage, keep
    repacked        in other kernels, operands whose lanes lie apart in memory: stage
    decoded         one vector times weights of few bits: rows as lanes, factor, keep
    reductions      sums along rows and down columns, dot products: vector, accumulate, dot
    squares         results whose lanes lie apart, transposed in registers: vector, unroll
    maps            kernels without such reductions, transposes: vector, rotate, reorder
    lanes           which axes get the vectors, by counting instructions
"""
