"""Printers: a loop nest becomes the text of a kernel.

`c/program.py` and `gpu.py` print programs. A printer prints one kernel; each class builds on those
to its left:

    ScopePrinter  ValuePrinter  FillPrinter  NestPrinter  KernelPrinter      every target
        CPrinter  DotPrinter  ByteTilePrinter                                c/
        GpuPrinter  CudaPrinter                                              gpu_printer.py, cuda/
        GpuPrinter  MetalPrinter                                             gpu_printer.py, metal/

The programs of products in tiles have printers of their own, `ProductPrinter` and
`AttentionPrinter`, each of which has a `CudaPrinter`. `helpers.py` picks what kernels use of the
hand-written texts. Before all that, `legalize.py` rewrites nests.
"""
