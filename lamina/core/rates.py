"""How fast a device is, as data: what the cost model divides its counts by.

A worker is what runs by itself: a thread of a CPU, a multiprocessor of a GPU. Those of a CPU are
measured once (`lamina/runtime/calibrate.py`), those of a GPU that is not there are a table.
"""

from dataclasses import dataclass


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
    levels: of memory, the nearest first; the last one holds everything
    issue: instructions a second of one worker, each on a whole vector or, of a GPU, on a warp
    latency: seconds until the next of a chain of dependent additions begins
    divide: vectors of float32 a second of one worker
    function: calls a second of a scalar function of the C library
    integer_division: a second, of one worker
    fork: seconds to hand work to all workers and to wait for the last one
    launch: seconds of a kernel that does nothing
    hidden: of what is not the largest demand, the share that overlaps with that
    tensor: products of 16-bit floats a second of one worker's tensor cores; 0 without any
    """

    device: str
    line: int
    levels: tuple[Memory, ...]
    issue: float
    latency: float
    divide: float
    function: float
    integer_division: float
    fork: float
    launch: float
    hidden: float = 0.9
    tensor: float = 0.0
