"""How fast a device is: a GPU by a table, this machine's CPU as measured once.

Micro-kernels measure it, and the disk cache keeps what they find. It takes about four seconds.
What other work does to caches and to the clock makes a measurement slower, never faster, and lasts
for milliseconds to seconds: so all measurements take turns for the whole time, and of each the
fastest run counts. Processes that share the disk cache measure one after the other, the later ones
only to find what the first has kept.
"""

import contextlib
import ctypes
import fcntl
import functools
import json
import mmap
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import gcd, inf
from pathlib import Path

from lamina.core.dtypes import float32, float64
from lamina.core.options import GPU_KINDS, Options
from lamina.core.rates import GPUS, Memory, Rates
from lamina.errors import ArgumentError
from lamina.runtime import compiler as compilers
from lamina.runtime.cache import DiskCache, digest
from lamina.runtime.cpu import POOL, build, disk_cache, usable_cores
from lamina.runtime.devices import target_of
from lamina.schedule.cost.operations import INSTRUCTIONS_OF_FLOAT64, function_name
from lamina.schedule.cost.traffic import size_of
from lamina.targets.helpers import HelperText, used_fragments
from lamina.targets.texts import helper_text

_SOURCE = Path(__file__).with_name("calibrate.c")
_VERSION = "10"  # of what is kept
_ROUNDS = 8  # in which all measurements take turns
# Runs of a measurement in each round: of an array that leaves all caches, of one in a cache, of
# instructions, and of steps of the host, which take 20 to 40, 1, 1 to 4 and 0.05 ms.
_UNCACHED_RUNS, _CACHED_RUNS, _INSTRUCTION_RUNS, _HOST_RUNS = 1, 8, 2, 128
_SECONDS = 1e-3  # of one run, at least: long beside a reading of the clock
_MOVED = 1 << 24  # bytes that one run of a memory kernel moves, at least
# Bytes of the caches of a CPU that does not say: those of many cores since 2015.
_USUAL = {"L1": 32 << 10, "L2": 1 << 20, "L3": 16 << 20}
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_MISSING = 0.25  # of an array that is longer than a cache, the share that tells how long that is
_UNCACHED = 256 << 20  # bytes of an array that is taken to leave all caches
_PAGE = 4096  # bytes
_LARGE = 16 << 20  # bytes from which on tensors have large pages
_LINE = 64  # bytes
_LAUNCH = 1e-7  # seconds of a kernel that does nothing: taken, not measured
# What the host takes for a call, and for each of its arrays, in the steps of `_host_step`: as
# measured of compiled functions with 1 to 8 arguments and results, which are linear in these.
_STEPS_OF_CALL, _STEPS_OF_ARRAY = 6.5, 2.5
_STEPS = 100  # that are measured together
# Of what is not the largest demand, the share that overlaps with that: fitted to 481 drawn programs
# on two threads of a Zen 4.
_HIDDEN = 0.75
_COPIES = 6  # of a turn of mixed operations, as `calibrate.c` says


def rates_of(options: Options) -> Rates:
    """How fast the device of `options` is: a CPU as measured, once on each machine, a GPU as a row
    of `lamina/core/rates.py` says. Raises ArgumentError for a GPU without a row,
    CompilerNotFoundError for a CPU without a C compiler, and CompileError, or OSError as the
    library is loaded, where that cannot build the measuring program."""
    if options.kind not in GPU_KINDS:
        return cpu_rates(options)
    arch = target_of(options).arch
    if arch not in GPUS:
        known = ", ".join(GPUS)
        raise ArgumentError(
            f"cost: nobody has measured how fast {arch or options.device} is; of GPUs there are "
            f"the rates of {known}"
        )
    return GPUS[arch]


@functools.cache
def cpu_rates(options: Options) -> Rates:
    """The rates of this machine for as many threads as `options` say. Raises as a program does
    that is compiled: CompilerNotFoundError without a C compiler, CompileError if that refuses the
    measuring program, OSError if the system does not load it or has too little memory."""
    threads = options.threads or usable_cores()
    machine = compilers.find(options).macros
    name = f"{digest('rates', _VERSION, _measuring_text(options), machine, str(threads))}.json"
    disk = disk_cache(options)
    rates = _kept(disk, name)
    if rates is None:
        with _turn(disk.folder):
            rates = _kept(disk, name)  # another process may have measured meanwhile
            if rates is None:
                rates = _Calibration(options, threads).rates()
                disk.store(name, json.dumps(asdict(rates)).encode())
    return rates


def _measuring_text(options: Options) -> str:
    """The program that measures: `calibrate.c`, after what depends on the machine."""
    compiler = compilers.find(options)
    lanes = compiler.vector_bytes // float32.itemsize
    # How inline assembly names a register: on x86 "x", of 64 bytes "v"; on Arm of a float vector
    # "w".
    register = '"x"' if "__x86_64__" in compiler.macros else '"w"'
    if compiler.vector_bytes == 64:
        register = '"v"'
    macros = f"#define LANES {lanes}\n#define REGISTER {register}\n"
    timed = [
        f"TIME_FUNCTION({function}, {function.rpartition('_')[2]})\n"
        for function in _functions(compiler.vector_bytes).values()
    ]
    source = _SOURCE.read_text(encoding="utf-8")
    return "".join([_functions_text(compiler.vector_bytes), macros, source, *timed])


def _functions(vector_bytes: int) -> dict[str, str]:
    """The elementary functions of generated programs for whole vectors, by `function_name`:
    exp_f32x16 of "EXP float32"."""
    return {
        function_name(op, dtype): f"{op.name.lower()}_f{8 * dtype.itemsize}x{lanes}"
        for dtype in (float32, float64)
        for lanes in (vector_bytes // dtype.itemsize,)
        for op in INSTRUCTIONS_OF_FLOAT64
    }


def _functions_text(vector_bytes: int) -> str:
    """These functions, and what they use."""
    floats, doubles = vector_bytes // float32.itemsize, vector_bytes // float64.itemsize
    texts = [
        HelperText(helper_text("c/prelude.c")),
        HelperText(helper_text("c/arithmetic.c")),
        HelperText(helper_text("c/vectors.c"), floats),
        HelperText(helper_text("c/math.c"), floats),
        HelperText(helper_text("c/vectors.c"), doubles),
        HelperText(helper_text("c/doubles.c"), doubles),
    ]
    return used_fragments(texts, _functions(vector_bytes).values())


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Within, no other process or thread that keeps its rates in `folder` measures. The lock is on
    a file: on a private folder this process holds one already (`lamina/runtime/temporary.py`)."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no file can be made, or files have no locks
            lock = stack.enter_context(open(folder / "rates.lock", "ab"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _kept(disk: DiskCache, name: str) -> Rates | None:
    """The rates that `cpu_rates` has kept; None where it has not."""
    path = disk.load(name)
    if path is None:
        return None
    fields = json.loads(path.read_text())
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


def _doubled(first: int, last: int) -> Iterator[int]:
    """`first`, twice that and so on, up to `last`."""
    while first <= last:
        yield first
        first *= 2


def _share_from(rate: float, near: float, far: float) -> float:
    """The share of bytes that come at the rate `far`, and the others at `near`, where all of them
    together come at `rate`: of 100 and 25 GB/s at 50, a third."""
    if far >= near:
        return 0.0
    return (1 / rate - 1 / near) / (1 / far - 1 / near)


def _step(lines: int) -> int:
    """Lines from one access to the next, so that all of `lines` come in turn, far apart: about 5/8
    of them, so that neighbours come several accesses apart too, and without a common divisor."""
    return next(step for step in range(lines * 5 // 8, lines) if gcd(step, lines) == 1)


def _is_shared(level: str) -> bool:
    """Do all cores use one memory of that name?"""
    return level in ("L3", "DRAM")


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
    started = time.perf_counter()
    for number, one in enumerate(arrays):
        held = getattr(one.storage, "storage", None)
        if type(held) is int:
            job[number] = held
    results = [*map(_Held, arrays)]
    return (time.perf_counter() - started) / len(results)


@dataclass
class _Measurement:
    """A measurement that takes turns with others.

    seconds: runs once, and tells how long that took
    amount: bytes that a run moves, or operations that it does
    runs: in each round
    fastest: seconds of the fastest run so far
    """

    seconds: Callable[[], float]
    amount: float
    runs: int
    fastest: float = inf

    def take_turn(self) -> None:
        """The runs of a round."""
        self.fastest = min(self.fastest, *(self.seconds() for _ in range(self.runs)))

    @property
    def rate(self) -> float:
        """Of bytes or operations, a second."""
        return self.amount / self.fastest


@dataclass(frozen=True)
class _Piece:
    """A piece of memory.

    memory: which holds it
    offset, nbytes: where it begins in that, and how long it is
    """

    memory: mmap.mmap
    offset: int
    nbytes: int

    @property
    def address(self) -> int:
        """Of its first byte."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self.memory, self.offset))

    def parts(self, count: int) -> list["_Piece"]:
        """So many pieces of equal length, of whole pages."""
        nbytes = self.nbytes // count // _PAGE * _PAGE
        return [_Piece(self.memory, self.offset + at * nbytes, nbytes) for at in range(count)]


class _Calibration:
    """Measures with the functions of `calibrate.c`, whose results are seconds."""

    def __init__(self, options: Options, threads: int) -> None:
        self.library = build(_measuring_text(options), options)
        self.pool = build(POOL.read_text(encoding="utf-8"), options)
        self.vector_bytes = compilers.find(options).vector_bytes
        self.threads = threads
        self.caches = _cache_bytes()
        self.measurements: list[_Measurement] = []

    def rates(self) -> Rates:
        """All of them, measured now. What no function measures has the defaults of `Rates`."""
        levels = {name: self._level(name) for name in ("L1", "L2", "L3", "DRAM")}
        shares = self._shares_of_l3()
        issue = self._operations("multiply_adds", 12)
        simple = self._operations("mixed_operations", _COPIES * 7)
        scalar = self._operations("scalar_operations", 4 * 7)
        narrow = self._operations("narrow_operations", _COPIES * 7)
        functions = {
            name: self._operations(f"time_{function}", 4)
            for name, function in _functions(self.vector_bytes).items()
        }
        chain = self._operations("chained_additions", 1)
        divide = self._operations("divisions", 4)
        function = self._operations("functions", 1)
        integer_division = self._operations("integer_divisions", 4)
        host = self._measurement(_host_step, 1.0, _HOST_RUNS)
        # The seconds in one round may be those of the caller alone, where other programs have all
        # other cores: the fastest of all rounds are not.
        fork = self._measurement(self._fork, 1.0, 1) if self.threads > 1 else None
        for _ in range(_ROUNDS):
            for measurement in self.measurements:
                measurement.take_turn()
        return Rates(
            device=f"this CPU, {self.threads} threads",
            line=_LINE,
            levels=self._memories(levels, shares),
            issue=issue.rate,
            simple=simple.rate,
            scalar=scalar.rate,
            latency=chain.fastest / chain.amount,
            divide=divide.rate,
            function=function.rate,
            integer_division=integer_division.rate,
            fork=fork.fastest if fork else 0.0,
            hidden=_HIDDEN,
            launch=_LAUNCH,
            call=_STEPS_OF_CALL * host.fastest,
            array=_STEPS_OF_ARRAY * host.fastest,
            functions={name: simple.rate / each.rate for name, each in functions.items()},
            # No less than a half: two narrow ones do not compute more than a whole one.
            narrow=min(max(simple.rate / narrow.rate, 0.5), 1.0),
        )

    def _measurement(self, seconds: Callable[[], float], amount: float, runs: int) -> _Measurement:
        """One that takes part in all rounds."""
        self.measurements.append(_Measurement(seconds, amount, runs))
        return self.measurements[-1]

    def _operations(self, function: str, each: int) -> _Measurement:
        """What the C function does `each` times a turn, in as many turns as take _SECONDS."""
        call = self._function(function)
        turns = 1000
        while call(turns) < _SECONDS:
            turns *= 4
        return self._measurement(lambda: call(turns), each * turns, _INSTRUCTION_RUNS)

    def _function(self, name: str) -> Callable[..., float]:
        """A function of `calibrate.c` by its name, of integers and addresses."""
        function = getattr(self.library, name)
        function.restype = ctypes.c_double
        return lambda *arguments: function(*map(ctypes.c_void_p, arguments))

    def _level(self, name: str) -> dict[str, _Measurement]:
        """The measurements of a level of memory, by their fields of `Memory`: on an array that the
        level holds and that the one before does not. All threads together share the array of a
        level that they share, and have one each of another."""
        sizes = self.caches
        nbytes = {
            "L1": sizes["L1"] // 2,
            "L2": min(4 * sizes["L1"], sizes["L2"] // 2),
            "L3": min(4 * sizes["L2"], sizes["L3"] // 2),
            "DRAM": _UNCACHED,
        }[name]
        whole = self._piece(nbytes)
        if self.threads == 1:
            pieces = [whole]
        elif _is_shared(name):
            pieces = whole.parts(self.threads)
        else:
            pieces = [whole, *(self._piece(nbytes) for _ in range(self.threads - 1))]
        read, write = self._moving("read_memory", [whole]), self._moving("write_memory", [whole])
        several = len(pieces) > 1
        return {
            "read": read,
            "write": write,
            "all_read": self._moving("read_memory", pieces) if several else read,
            "all_write": self._moving("write_memory", pieces) if several else write,
            "scattered": self._moving("read_scattered", [whole], _step(whole.nbytes // _LINE)),
        }

    def _shares_of_l3(self) -> dict[int, _Measurement]:
        """Reads of arrays, by their bytes, of which some may be longer than what this machine gets
        of a third-level cache: 8, 12, 16, 24 and 32 MB of one of 32."""
        largest = min(_UNCACHED, self.caches["L3"])
        memory = self._piece(largest).memory
        shortest = 8 * self.caches["L2"]
        return {
            nbytes: self._moving("read_memory", [_Piece(memory, 0, nbytes)])
            for doubled in _doubled(shortest, largest)
            for nbytes in (doubled, doubled * 3 // 2)
            if nbytes <= largest
        }

    def _memories(
        self, levels: dict[str, dict[str, _Measurement]], shares: dict[int, _Measurement]
    ) -> tuple[Memory, ...]:
        """The levels of memory, as measured. This machine may get a part of the third-level cache:
        as much as explains the first array of which a quarter comes from memory."""
        sizes = self.caches | {"DRAM": inf}
        near, far = levels["L3"]["read"].rate, levels["DRAM"]["read"].rate
        for nbytes, read in shares.items():
            missing = _share_from(read.rate, near, far)
            if missing > _MISSING:
                sizes["L3"] = min(size_of(nbytes, missing), self.caches["L3"])
                break
        return tuple(
            Memory(
                name,
                sizes[name],
                _is_shared(name),
                **{field: measurement.rate for field, measurement in measurements.items()},
            )
            for name, measurements in levels.items()
        )

    def _piece(self, nbytes: int) -> _Piece:
        """Memory whose pages are there, as fresh ones are slow, and large, as those of tensors."""
        nbytes = nbytes // _PAGE * _PAGE
        pages = mmap.mmap(-1, nbytes)
        if nbytes >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            pages.madvise(mmap.MADV_HUGEPAGE)
        piece = _Piece(pages, 0, nbytes)
        self._seconds("write_memory", [piece], 1)
        return piece

    def _moving(self, function: str, pieces: Sequence[_Piece], *arguments: int) -> _Measurement:
        """A function of memory, with further `arguments` before the repeats, in as many threads as
        there are pieces, one each."""
        nbytes = pieces[0].nbytes
        repeats = max(_MOVED // nbytes, 1)
        runs = _CACHED_RUNS if nbytes * repeats <= 2 * _MOVED else _UNCACHED_RUNS
        amount = nbytes * repeats * len(pieces)
        return self._measurement(
            lambda: self._seconds(function, pieces, *arguments, repeats), amount, runs
        )

    def _seconds(self, function: str, pieces: Sequence[_Piece], *arguments: int) -> float:
        """The seconds of the slowest of as many threads as there are pieces of memory."""
        call = self._function(function)
        seconds = list[float]()

        def work(piece: _Piece) -> None:
            seconds.append(call(piece.address, piece.nbytes, *arguments))

        others = [threading.Thread(target=work, args=(piece,)) for piece in pieces[1:]]
        for thread in others:
            thread.start()
        work(pieces[0])
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
