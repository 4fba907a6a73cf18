"""Printers: a loop nest becomes the text of a kernel.

For `silu(a @ b)` on a CPU, `print_program` of `c/program.py` makes a `ByteTilePrinter` for the one
nest, and its `print` returns the text of one C function. A printer prints one kernel. Each class is
derived from the one above it, or from the one that it is indented below:

    ScopePrinter             scopes.py        lines and variables, and loops as scopes
    ValuePrinter             values.py        each value once, in the outermost scope that can
    FillPrinter              fills.py         scratch memory, filled before loops that read it
    NestPrinter              reductions.py    the loops of reductions, scans and stores
    KernelPrinter            kernel.py        the function around these
        CPrinter             c/printer.py     vectors
            DotPrinter       c/dots.py        sums of products of bytes, in words of four
            ByteTilePrinter  c/byte_tiles.py  the same by instructions on tiles
        GpuPrinter           gpu_printer.py   loops that threads share
            CudaPrinter      cuda/printer.py
            MetalPrinter     metal/printer.py

Printers of C ask these:

    parts.py        into which parts the loops are divided, as 70 iterations into 2 * 32 and 6
    language.py     how values are spelled; `c/operations.py` is the spelling in C
    combiner.py     how accumulators of reductions begin, grow and are joined
    scans.py        steps of running sums
    blocks.py       where long sums are cut into blocks, so that they round less

A GPU's products in tiles are printed from tile programs, by `ProductPrinter` and `AttentionPrinter`
of `cuda/`; each has a `CudaPrinter` for the values in them. `gpu.py` prints the programs of GPUs.
`helpers.py` picks the fragments of hand-written texts that kernels use. Before all that, the pass
"legalize" (`legalize.py`) rewrites nests.
"""
