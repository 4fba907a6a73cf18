"""How fast this machine's CPU is, measured once with micro-kernels and kept in the disk cache.

It takes about two seconds. What other work does to caches and to the clock makes a measurement
slower, never faster, so the fastest of several runs counts.
"""

import contextlib
import ctypes
import functools
import json
import mmap
import threading
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, replace
from math import gcd, inf
from pathlib import Path

from lamina.core.options import Options
from lamina.core.rates import Memory, Rates
from lamina.runtime import compiler as compilers
from lamina.runtime.cache import digest
from lamina.runtime.cpu import build, disk_cache, usable_cores

_SOURCE = Path(__file__).with_name("calibrate.c")
_POOL = Path(__file__).with_name("pool.c")
_VERSION = "5"  # of what is kept
# Of each measurement of memory; of caches, which take less time, 16 times as many, and of
# instructions 4 times.
_RUNS = 4
_SECONDS = 1e-3  # of one run, at least: long beside a reading of the clock
_MOVED = 1 << 24  # bytes that one run of a memory kernel moves, at least
# Bytes of the caches of a CPU that does not say: those of many cores since 2015.
_USUAL = {"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNCACHED = 256 << 20  # bytes of an array that is taken to leave all caches
_PAGE = 4096  # bytes
_LARGE = 16 << 20  # bytes from which on tensors have large pages
_LINE = 64  # bytes
_LAUNCH = 1e-7  # seconds of a kernel that does nothing: taken, not measured
# What the host takes for a call, and for each of its arrays, in the steps of `_host_step`: as
# measured of compiled functions with 1 to 8 arguments and results, which are linear in these.
_STEPS_OF_CALL, _STEPS_OF_ARRAY = 12.0, 2.4
_STEPS = 100  # that are measured together


@functools.cache
def cpu_rates(options: Options) -> Rates:
    """The rates of this machine for as many threads as `options` say. Raises as a program does
    that is compiled: CompilerNotFoundError without a C compiler, CompileError if that refuses the
    measuring program, OSError if the system does not load it or has too little memory."""
    threads = options.threads or usable_cores()
    machine = compilers.find(options).macros
    name = f"{digest('rates', _VERSION, _SOURCE.read_text(), machine, str(threads))}.json"
    disk = disk_cache(options)
    path = disk.load(name)
    if path is not None:
        return _from_json(path.read_text())
    rates = _Calibration(options, threads).rates()
    disk.store(name, json.dumps(asdict(rates)).encode())
    return rates


def _from_json(text: str) -> Rates:
    """The rates that `cpu_rates` has kept."""
    fields = json.loads(text)
    levels = tuple(Memory(**level) for level in fields.pop("levels"))
    return Rates(levels=levels, **fields)


def _cache_bytes() -> dict[str, int]:
    """The sizes of the data caches, by name: as the system reports them, or usual ones."""
    sizes = dict(_USUAL)
    for index in _CACHES.glob("index*"):
        with contextlib.suppress(OSError, ValueError, LookupError):
            if (index / "type").read_text().strip() != "Instruction":
                name = "L" + (index / "level").read_text().strip()
                text = (index / "size").read_text().strip()  # such as 2048K
                sizes[name] = int(text[:-1]) << {"K": 10, "M": 20}[text[-1]]
    return sizes


def _step(lines: int) -> int:
    """Lines from one access to the next, so that all of `lines` come in turn, far apart: about 5/8
    of them, so that neighbours come several accesses apart too, and without a common divisor."""
    return next(step for step in range(lines * 5 // 8, lines) if gcd(step, lines) == 1)


class _Held:
    """Holds something, as a tensor its memory."""

    __slots__ = ("storage",)

    def __init__(self, storage: object) -> None:
        self.storage = storage


def _host_step() -> float:
    """The seconds in which the interpreter does for one array about what a quick call does: it
    finds its memory, puts the address into a job, and makes an object for a result."""
    arrays = [_Held(_Held(address)) for address in range(_STEPS)]
    job = (ctypes.c_uint64 * _STEPS)()
    best = inf
    for _ in range(16 * _RUNS):
        started = time.perf_counter()
        for number, one in enumerate(arrays):
            held = getattr(one.storage, "storage", None)
            if type(held) is int:
                job[number] = held
        results = [*map(_Held, arrays)]
        best = min(best, (time.perf_counter() - started) / len(results))
    return best


class _Calibration:
    """Measures with the functions of `calibrate.c`, whose results are seconds."""

    def __init__(self, options: Options, threads: int) -> None:
        vector = compilers.find(options).vector_bytes
        # How inline assembly names a register: on x86 "x", of 64 bytes "v"; on Arm of a float
        # vector "w".
        register = '"x"' if "__x86_64__" in compilers.find(options).macros else '"w"'
        if vector == 64:
            register = '"v"'
        head = f"#define LANES {vector // 4}\n#define REGISTER {register}\n"
        self.library = build(head + _SOURCE.read_text(encoding="utf-8"), options)
        self.pool = build(_POOL.read_text(encoding="utf-8"), options)
        self.threads = threads
        self.caches = _cache_bytes()
        self.steps: list[float] = []  # what `_host_step` measured, between other measurements

    def rates(self) -> Rates:
        """All of them, measured now. What no function measures has the defaults of `Rates`."""
        *private, l3, dram = (self._level(name) for name in ("L1", "L2", "L3", "DRAM"))
        l3 = replace(l3, size=self._share_of_l3(l3.read, dram.read))
        step = min(self.steps)
        return Rates(
            device=f"this CPU, {self.threads} threads",
            line=_LINE,
            levels=(*private, l3, dram),
            issue=self._rate("multiply_adds", 12),
            simple=self._rate("mixed_operations", 4 * 7),
            latency=1 / self._rate("chained_additions", 1),
            divide=self._rate("divisions", 4),
            function=self._rate("functions", 1),
            integer_division=self._rate("integer_divisions", 4),
            fork=self._fork() if self.threads > 1 else 0.0,
            launch=_LAUNCH,
            call=_STEPS_OF_CALL * step,
            array=_STEPS_OF_ARRAY * step,
        )

    def _rate(self, function: str, each: int) -> float:
        """How many a second of what the C function does `each` times a turn."""
        call = self._function(function)
        turns = 1000
        while call(turns) < _SECONDS:
            turns *= 4
        return each * turns / min(call(turns) for _ in range(4 * _RUNS))

    def _function(self, name: str) -> Callable[..., float]:
        """A function of `calibrate.c` by its name, of integers and addresses."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_double
        return lambda *arguments: function(*map(ctypes.c_void_p, arguments))

    def _level(self, name: str) -> Memory:
        """A level of memory, measured on arrays that it holds and that the one before does not. All
        threads share an array of a level that they share, and have one each of another."""
        sizes = self.caches
        in_l3 = min(4 * sizes["L2"], sizes["L3"] // 2)
        tested = {
            "L1": sizes["L1"] // 2,
            "L2": min(4 * sizes["L1"], sizes["L2"] // 2),
            "L3": in_l3,
            "DRAM": _UNCACHED,
        }[name]
        shared = name in ("L3", "DRAM")
        each = tested // self.threads if shared else tested
        memory = [self._pages(each) for _ in range(self.threads)]
        first = memory[:1]
        return Memory(
            name=name,
            size=sizes.get(name, inf),
            shared=shared,
            read=self._moved("read_memory", first),
            write=self._moved("write_memory", first),
            all_read=self._moved("read_memory", memory),
            all_write=self._moved("write_memory", memory),
            scattered=self._moved("read_scattered", first, _step(each // _LINE)),
        )

    def _share_of_l3(self, in_cache: float, uncached: float) -> int:
        """The bytes of the third-level cache that this machine gets of it: up to the first array
        that is read at a rate nearer to that of memory."""
        nbytes = 2 * self.caches["L2"]
        while nbytes < min(_UNCACHED, self.caches["L3"]):
            nbytes *= 2
            if self._moved("read_memory", [self._pages(nbytes)]) < (in_cache * uncached) ** 0.5:
                break
        return min(nbytes, self.caches["L3"])

    def _pages(self, nbytes: int) -> mmap.mmap:
        """Memory whose pages are there, as fresh ones are slow, and large, as those of tensors."""
        pages = mmap.mmap(-1, nbytes // _PAGE * _PAGE)
        if nbytes >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        self._seconds("write_memory", [pages], 1)
        return pages

    def _moved(self, function: str, memory: list[mmap.mmap], *arguments: int) -> float:
        """Bytes a second that a function of memory, with further `arguments` before the repeats,
        moves in the fastest run, in as many threads as there are pieces of memory, one each. Other
        work may share the core for a while, so that runs in caches are many, and steps of the host
        are measured in between."""
        self.steps.append(_host_step())
        repeats = max(_MOVED // len(memory[0]), 1)
        runs = max(16 * _RUNS * _MOVED // (len(memory[0]) * repeats), _RUNS)
        best = min(self._seconds(function, memory, *arguments, repeats) for _ in range(runs))
        return sum(map(len, memory)) * repeats / best

    def _seconds(self, function: str, memory: list[mmap.mmap], *arguments: int) -> float:
        """The seconds of the slowest of as many threads as there are pieces of memory."""
        call = self._function(function)
        seconds = list[float]()

        def work(pages: mmap.mmap) -> None:
            start = ctypes.c_char.from_buffer(pages)
            seconds.append(call(ctypes.addressof(start), len(pages), *arguments))

        others = [threading.Thread(target=work, args=(pages,)) for pages in memory[1:]]
        for thread in others:
            thread.start()
        work(memory[0])
        for thread in others:
            thread.join()
        return max(seconds)

    def _fork(self) -> float:
        """The seconds that a parallel loop takes besides its work, as `forks` measures them: a
        program whose words are those that `lamina_call` of `pool.c` takes."""
        program = ctypes.cast(self.library.forks, ctypes.c_void_p).value or 0
        seconds = array("d", [0.0])
        words = array("Q", [program, self.threads, usable_cores(), seconds.buffer_info()[0]])
        words.append(self.threads)
        job = (ctypes.c_uint64 * len(words)).from_buffer_copy(words)
        self.pool.lamina_call(job)
        return seconds[0]
