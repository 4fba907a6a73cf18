"""Heuristics for CPUs, one file a kind of kernel.

    heuristic       the order of decisions; where a kernel goes
    planner         what the others share: the nest so far, and its facts
    products        products of matrices, convolutions: a register tile; split, unroll, vector
    register_tiles  how large that is, and which reductions have one
    panels          which operands that lie badly are copied, and how much of them at a time
    packing         what is copied: stage, keep
    repacked        lanes of other kernels that lie apart, packed once: stage
    decoded         one vector times weights of few bits: rows as lanes, factor, keep
    reductions      sums along rows and down columns, dot products: vector, accumulate, dot
    maps            kernels without such reductions: vector, stage of what a row needs twice
    lanes           which axes get the vectors, by counting instructions
"""
