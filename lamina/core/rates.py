"""How fast a device is, as data: what the cost model divides its counts by.

A worker is what runs by itself: a thread of a CPU, a multiprocessor of a GPU. Those of a CPU are
measured once (`lamina/calibrate.py`), those of GPUs are a table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf


@dataclass(frozen=True)
class Memory:
    """A level of memory.

    name: "L1", "L2", "L3" or "DRAM"
    size: bytes that it holds; of a level that is not shared, for each worker
    shared: do all workers use one?
    read, write: bytes a second that one worker reads from it and writes to it, whole lines
    all_read, all_write: the same of all workers together
    scattered: bytes a second of lines that one worker reads, each far from the one before
    """

    name: str
    size: float
    shared: bool
    read: float
    write: float
    all_read: float
    all_write: float
    scattered: float


@dataclass(frozen=True)
class Rates:
    """One device.

    device: what was measured, for reports
    line: bytes that memory moves at least: a line of a CPU's caches, a sector of a GPU's
    levels: of memory, the nearest first: three caches of a CPU, two of a GPU, and last the one that
        holds everything
    issue: multiplications of floats a second of one worker, each with an addition, and each on a
        whole vector or, of a GPU, on a warp
    simple: all other instructions a second of one worker, for which a CPU has more units: as
        `instructions_of` counts them
    scalar: those on single integers and truth values, for which a CPU has units of their own
    latency: seconds until the next of a chain of dependent additions begins
    divide: divisions of whole vectors of float32 a second, of one worker; of warps on a GPU
    shortest_division: bytes of a vector that takes as long to divide as any shorter one
    function: calls of a scalar function of the C library a second, of one worker
    integer_division: divisions of one integer by another a second, of one worker
    fork: seconds to hand work to all workers and to wait for the last one
    launch: seconds of a kernel that does nothing
    call, array: seconds that the host takes for a call of a program, and for each array that comes
        in or goes out
    enqueue: seconds that the host of a GPU takes for each kernel; no call takes less than its host
    start: seconds in which a GPU does nothing between two calls that the host has asked for
    access: seconds from the start of a GPU's thread to its end, where it only reads and writes,
        with all multiprocessors at work
    filling: seconds for an element of a tile that a GPU's threads copy, with all multiprocessors at
        work, as the engine that copies arrays cannot
    update: seconds of a GPU's thread for an update of a scatter that it goes through in order
    apart: seconds of such an update, with all threads at work, where neighbouring threads write
        different sectors
    atomic: seconds of an atomic operation, with all threads at work at places far apart
    same_place: seconds of one that waits for another at the same place
    private: seconds of one in memory that a block shares, with all multiprocessors at work
    hidden: of what is not the largest demand, the share that overlaps with that; chosen, so that
        predictions are near measured times
    tensor: products of 16-bit floats, each added to a sum, a second of one worker's tensor cores; 0
        without any
    elementary: instructions of an operation of several, in those that its record says: 0.4 of these
        on a GPU, which has units for some of them
    functions: of a CPU, in how many instructions' time a whole vector takes an exponential and the
        like, by `function_name`; what is not here takes what its record says
    narrow: the time of an instruction on half a vector or less, in that of one on a whole vector:
        0.5 on a CPU that computes whole ones by halves
    link: bytes a second that a GPU sends to another one in a collective; 0 where processes share
        the memory of a machine
    exchange: seconds of a collective that sends nothing
    rounding: instructions that round a float32 to 16 bits: 6 integer operations on a CPU
    """

    device: str
    line: int
    levels: tuple[Memory, ...]
    issue: float
    simple: float
    scalar: float
    latency: float
    divide: float
    function: float
    integer_division: float
    fork: float
    launch: float
    call: float = 0.0
    array: float = 0.0
    enqueue: float = 0.0
    start: float = 0.0
    access: float = 0.0
    filling: float = 0.0
    update: float = 0.0
    apart: float = 0.0
    atomic: float = 0.0
    same_place: float = 0.0
    private: float = 0.0
    hidden: float = 0.9
    tensor: float = 0.0
    shortest_division: float = 20.0
    elementary: float = 1.0
    functions: Mapping[str, float] = field(default_factory=dict, hash=False)
    narrow: float = 1.0
    rounding: float = 6.0
    link: float = 0.0
    exchange: float = 0.0


# A CPU for decisions of the compiler, which have to be the same on each machine and on each day:
# about what a core of a server of 2023 with AVX-512 does, measured by `lamina/calibrate.c`,
# with a third-level cache of the size that desktops have and memory that is not shared with others.
COMMON_CPU = Rates(
    device="a common CPU, of a table",
    line=64,
    levels=(
        Memory("L1", 48 << 10, False, 270e9, 92e9, inf, inf, 47e9),
        Memory("L2", 1 << 20, False, 110e9, 48e9, inf, inf, 47e9),
        Memory("L3", 32 << 20, True, 29e9, 29e9, 400e9, 400e9, 20e9),
        Memory("DRAM", inf, True, 12e9, 10e9, 60e9, 50e9, 4e9),
    ),
    issue=5.3e9,
    simple=5.3e9,
    scalar=5.3e9,
    latency=1.04e-9,
    divide=0.3e9,
    function=0.19e9,
    integer_division=0.3e9,
    fork=1.25e-6,
    launch=1e-7,
)

# The architecture by whose rates a program's text is decided for every GPU: texts are the same for
# all.
RATED_GPU = "sm_90a"

# By the architecture of CUDA: predictions for any other raise. The clock is 1.7 GHz, as under
# sustained load.
GPUS = {
    # An H200. L1: 128 bytes a clock for each of 132 multiprocessors, and half of its 256 KiB where
    # blocks share the rest (NVIDIA's white paper). L2: 6.65 TB/s, and 64 bytes a clock for one
    # (XLA's model of an H100). Memory: 4.48 TB/s of a sum, 4.23 of a copy (measured), 32 bytes a
    # clock for one (XLA), half of that where each lies apart. Products at 800 TFLOP/s, which is 132
    # times `tensor`, two operations each, and 1 us for a launch behind another (measured).
    # `call`, `array`, `enqueue` and `start` are fitted to drawn programs, of which most take as
    # long as their host, which differs: of 355 on a fast one 90 % are within a factor of 1.5, of
    # 289 and 214 on two others 86 and 87 %. `hidden` is fitted to 504,
    # `access` to two of their kernels, `filling` to (71, 687, 405) by (71, 687, 5), 88 us for 43
    # million elements, and to a convolution of 5 x 5, 1171 us for 350 million, `update`, `apart`,
    # `atomic`, `same_place` and `private` to scatters. `link`, four fifths of what NVLink 4 has in
    # one direction, and `exchange` are assumed. The other rates are estimates, of instructions a
    # clock: nobody has measured them by themselves.
    "sm_90a": Rates(
        device="an H200, of a table",
        line=32,
        levels=(
            Memory("L1", 128 << 10, False, 218e9, 218e9, 28.8e12, 28.8e12, 218e9),
            Memory("L2", 50 << 20, True, 109e9, 109e9, 6.65e12, 6.65e12, 109e9),
            Memory("DRAM", inf, True, 54e9, 54e9, 4.48e12, 4.0e12, 27e9),
        ),
        issue=6.8e9,  # warps of multiply-adds of float32: 4 a clock
        simple=6.8e9,
        scalar=6.8e9,  # each thread has its own
        latency=2.4e-9,  # 4 clocks
        divide=0.7e9,  # warps: one in 2.4 clocks
        shortest_division=128,  # a warp
        function=2.7e9,
        integer_division=3e9,
        fork=0.0,
        launch=1e-6,
        call=7e-6,
        array=7e-7,
        enqueue=2e-7,
        start=2.5e-6,
        access=7.5e-7,
        filling=2e-12,
        update=4e-7,
        apart=4e-11,  # 5 million updates of rows of 390 places took 200 us
        atomic=2e-11,
        same_place=5e-8,
        private=1e-12,
        hidden=0.7,
        tensor=3.03e12,
        elementary=0.4,
        rounding=1.0,
        link=360e9,
        exchange=1e-5,
    ),
}
