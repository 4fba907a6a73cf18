"""Compiled programs: what they consist of, and how a process finds them on disk and loads them.

A process that finds its programs on disk (`lamina.stored`) imports this module, and not the passes
(`lamina.pipeline`). `RUNNERS` has a row for each kind of device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from lamina import stored
from lamina.core.options import Options
from lamina.core.recent import CACHES, Cache, cached
from lamina.fuse.launch import Program
from lamina.runtime.buffer import Launch as GpuLaunch
from lamina.runtime.cpu import CpuProgram
from lamina.runtime.cuda import CudaProgram
from lamina.runtime.devices import target_of
from lamina.runtime.metal import MetalProgram
from lamina.runtime.profile import passes
from lamina.runtime.source import Source

if TYPE_CHECKING:
    from lamina.ir.kernel import AnyKernel
    from lamina.ir.node import Node
    from lamina.loops.moves import Plan
    from lamina.schedule.cost import ProgramCost
    from lamina.tiles.stage import TilePrograms

__all__ = [
    "RUNNERS", "Code", "Planned", "QuickCalls", "Runner", "find", "find_closed", "key_of",
    "planned_of", "runner", "share", "store_closed", "stored_of", "with_code",
]  # fmt: skip

Code = CpuProgram | CudaProgram | MetalProgram


@dataclass(frozen=True)
class QuickCalls:
    """Which calls of functions are quick (`lamina/frontend/quick.py`).

    max_kept_bytes: the most bytes of results and scratch memory that stay for the next call
    with_captured: whether programs that read captured tensors have quick calls
    """

    max_kept_bytes: int
    with_captured: bool = False


@dataclass(frozen=True)
class Runner:
    """What differs from one kind of device to another once a program is printed.

    load: compiles and loads a program: from its source, its launches and the options to the object
        that runs on a table of buffers
    quick: which calls are quick; None for none
    skips_masked_tiles: whether attention of 16-bit floats skips each tile of scores that a mask
        leaves out
    keeps_constants: whether arrays that depend on constant inputs alone are computed once, and kept
        from call to call
    """

    load: Callable[[Source, Sequence[GpuLaunch], Options], Code]
    quick: QuickCalls | None = None
    skips_masked_tiles: bool = False
    keeps_constants: bool = False


# Bytes that a program on a GPU keeps for its next call, and as many again for a caller who still
# has the last results (`_MAX_IDLE` of quick.py). A call of log_softmax of (2647, 528), 2.8 MB,
# took an H200's machine 10.5 us with a result that was allocated anew, 1.5 of PyTorch's time in the
# same turns, and 9.4 with one that was kept, 0.98 of it.
_KEPT_ON_GPU = 8 << 20

_CPU = Runner(
    lambda source, launches, options: CpuProgram(
        source.text, options, source.units, source.exchanges
    ),
    quick=QuickCalls(max_kept_bytes=1 << 18, with_captured=True),
    keeps_constants=True,
)
RUNNERS = {
    "cpu": _CPU,
    "interp": _CPU,  # the interpreter's programs are the CPU's
    "cuda": Runner(
        CudaProgram, quick=QuickCalls(max_kept_bytes=_KEPT_ON_GPU), skips_masked_tiles=True
    ),
    "metal": Runner(MetalProgram),
}


def runner(options: Options) -> Runner:
    """The row of `RUNNERS` for the device of `options`."""
    return RUNNERS[options.kind]


@dataclass(frozen=True)
class Planned:
    """A program on its way from the pass "schedule" to code that runs. Each pass fills in a field.

    A program that was read from disk has no kernels and no plans, but the `graph` that it was
    compiled from: `lamina.pipeline.with_steps` compiles that again for reports.
    """

    program: Program
    plans: dict[AnyKernel, Plan]  # equal kernels are one key
    tiles: TilePrograms = field(default_factory=dict)  # of products in tiles, on a GPU
    source: Source | None = None  # once it is printed
    launches: tuple[GpuLaunch, ...] = ()  # () for a CPU, whose source calls its kernels
    code: Code | None = None  # once it is loaded: what runs on a table of buffers
    # The program that fills the arrays which this one keeps from call to call, if it keeps any.
    once: Planned | None = None
    graph: tuple[Node, ...] | None = None  # of a program that was read from disk
    key: str | None = None  # of its file on disk, if it has one: see `lamina.stored`
    # The lines of the user's program that each kernel computes, where they are known.
    lines: Mapping[AnyKernel, Sequence[str]] = field(default_factory=dict, compare=False)
    # What `lamina.pipeline.cost_of` has predicted, by options.
    costs: dict[Options, ProgramCost] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The whole translation unit; "" before it is printed."""
        return "" if self.source is None else self.source.text

    @property
    def listing(self) -> str:
        """The kernels to read, each below what it computes; "" before they are printed."""
        from lamina.targets.formulas import listing  # it loads when it is first needed

        kernels = {plan.name: kernel for kernel, plan in self.plans.items()}
        return "" if self.source is None else listing(self.source, kernels, self.lines)


# Finding.

# The programs that this process uses, by their keys on disk: functions with equal graphs share one.
_SHARED: WeakValueDictionary[str, Planned] = WeakValueDictionary()
CACHES.append(Cache("lamina.compiled.shared", _SHARED.__len__, _SHARED.clear))


def key_of(sinks: Sequence[Node], options: Options) -> str | None:
    """The key of a program on disk; None if it is not to be stored (`lamina.stored.key_of`), or
    while somebody records what the passes do, so that they have to run."""
    return None if passes else stored.key_of(sinks, options, target_of(options))


def find(key: str, sinks: tuple[Node, ...], options: Options) -> Planned | None:
    """The program of key `key`, loaded: one that this process uses, or else one from disk; None if
    there is neither. sinks: the graph that it was compiled from, opened or with CALLs."""
    shared = _SHARED.get(key)
    if shared is not None:
        return shared
    found = stored.load(key, options)
    if found is None:
        return None
    return share(with_code(replace(planned_of(found, sinks), key=key), options))


def share(planned: Planned) -> Planned:
    """Let `find` find a program that has a key. Returns the program to use: another one of the same
    key, if another thread has compiled that in the meantime."""
    return planned if planned.key is None else _SHARED.setdefault(planned.key, planned)


@cached(1024)
def find_closed(sinks: tuple[Node, ...], options: Options) -> Planned | None:
    """The program of a graph with CALLs, found without opening them, if `store_closed` stored its
    key, in this process or in an earlier one."""
    key = key_of(sinks, options)
    name = stored.find_name(key, options) if key else None
    return None if name is None else find(name, sinks, options)


def store_closed(sinks: tuple[Node, ...], planned: Planned, options: Options) -> None:
    """Let `find_closed` find `planned` for `sinks`, a graph with CALLs: `planned` was compiled from
    the same graph with its CALLs opened."""
    key = key_of(sinks, options) if planned.key else None
    if key is not None and planned.key is not None:
        stored.store_name(key, planned.key, options)


def stored_of(planned: Planned) -> stored.StoredProgram:
    """A printed program in the form that is written to disk."""
    assert planned.source is not None
    once = None if planned.once is None else stored_of(planned.once)
    return stored.StoredProgram(planned.program, planned.source, planned.launches, once)


def planned_of(found: stored.StoredProgram, graph: tuple[Node, ...] | None) -> Planned:
    """A program that was read from disk; `graph` is what it was compiled from."""
    once = None if found.once is None else planned_of(found.once, None)
    return Planned(
        found.program, {}, source=found.source, launches=found.launches, once=once, graph=graph
    )


def with_code(planned: Planned, options: Options) -> Planned:
    """A printed program and its `once` with their code, compiled at the same time."""
    once = planned.once
    if once is None:
        return replace(planned, code=_code_of(planned, options))
    with ThreadPoolExecutor(1) as worker:
        future_once = worker.submit(with_code, once, options)
        code = _code_of(planned, options)
        return replace(planned, code=code, once=future_once.result())


def _code_of(planned: Planned, options: Options) -> Code:
    assert planned.source is not None
    return runner(options).load(planned.source, planned.launches, options)
