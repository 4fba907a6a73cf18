"""Programs that are compiled: what they are, and how they are found on disk and loaded.

A process that finds its programs on disk (`lamina.stored`) needs no other part of the compiler.
`RUNNERS` is the table of what differs from one kind of device to another.
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

    max_kept_bytes: results and scratch memory of so many bytes are kept for the next call
    with_captured: whether programs that read captured tensors have quick calls
    """

    max_kept_bytes: int
    with_captured: bool = False


@dataclass(frozen=True)
class Runner:
    """What differs from one kind of device to another once a program is printed.

    load: what runs on a table of buffers, from the source, the launches and the options. quick:
    which calls are quick, if any. skips_masked_tiles: whether attention of 16-bit floats computes
    no tile of scores that a mask leaves out. keeps_constants: whether arrays that depend on
    constant inputs alone are kept from call to call.
    """

    load: Callable[[Source, Sequence[GpuLaunch], Options], Code]
    quick: QuickCalls | None = None
    skips_masked_tiles: bool = False
    keeps_constants: bool = False


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
        CudaProgram, quick=QuickCalls(max_kept_bytes=1 << 20), skips_masked_tiles=True
    ),
    "metal": Runner(MetalProgram),
}


def runner(options: Options) -> Runner:
    """That of the device of `options`."""
    return RUNNERS[options.kind]


@dataclass(frozen=True)
class Planned:
    """A program, one plan for equal kernels, the tile programs of products on a GPU, and once it is
    printed the source, with the launches where the source itself does not hold them; once it is
    loaded, what runs on a table of memory.
    """

    program: Program
    plans: dict[AnyKernel, Plan]
    tiles: TilePrograms = field(default_factory=dict)
    source: Source | None = None
    launches: tuple[GpuLaunch, ...] = ()
    code: Code | None = None
    # The same of the program that makes the arrays which this one keeps from call to call.
    once: Planned | None = None
    # Of a program that was read from disk, without its kernels and plans: what it was made of.
    graph: tuple[Node, ...] | None = None
    key: str | None = None  # the name of its file, if it has one
    # The user's lines of each kernel, where they are known.
    lines: Mapping[AnyKernel, Sequence[str]] = field(default_factory=dict, compare=False)
    # What `lamina.pipeline.cost_of` has predicted.
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

# The programs that somebody has, by the names of their files: equal graphs share one.
_SHARED: WeakValueDictionary[str, Planned] = WeakValueDictionary()
CACHES.append(Cache("lamina.compiled.shared", _SHARED.__len__, _SHARED.clear))


def key_of(sinks: Sequence[Node], options: Options) -> str | None:
    """The name of a program on disk; None where it is not stored, or its passes are recorded."""
    return None if passes else stored.key_of(sinks, options, target_of(options))


def find(key: str, sinks: tuple[Node, ...], options: Options) -> Planned | None:
    """The program of that name, loaded: one that this process has, else one that an earlier one
    stored. sinks: a graph that it is made of, whose CALLs may be closed."""
    shared = _SHARED.get(key)
    if shared is not None:
        return shared
    found = stored.load(key, options)
    if found is None:
        return None
    return share(with_code(replace(planned_of(found, sinks), key=key), options))


def share(planned: Planned) -> Planned:
    """Let `find` find a program that has a name; the one that is to be used for it: another thread
    may have compiled it meanwhile."""
    return planned if planned.key is None else _SHARED.setdefault(planned.key, planned)


@cached(1024)
def find_closed(sinks: tuple[Node, ...], options: Options) -> Planned | None:
    """The program of a graph whose CALLs are not opened yet, where `store_closed` noted it, maybe
    in an earlier process: then they need not be."""
    key = key_of(sinks, options)
    name = stored.find_name(key, options) if key else None
    return None if name is None else find(name, sinks, options)


def store_closed(sinks: tuple[Node, ...], planned: Planned, options: Options) -> None:
    """Let `find_closed` find `planned`, the program of what `sinks` are when opened."""
    key = key_of(sinks, options) if planned.key else None
    if key is not None and planned.key is not None:
        stored.store_name(key, planned.key, options)


def stored_of(planned: Planned) -> stored.StoredProgram:
    """A printed program as it is written to disk."""
    assert planned.source is not None
    once = None if planned.once is None else stored_of(planned.once)
    return stored.StoredProgram(planned.program, planned.source, planned.launches, once)


def planned_of(found: stored.StoredProgram, graph: tuple[Node, ...] | None) -> Planned:
    """A program that was read from disk, without its kernels and plans."""
    once = None if found.once is None else planned_of(found.once, None)
    return Planned(
        found.program, {}, source=found.source, launches=found.launches, once=once, graph=graph
    )


def with_code(planned: Planned, options: Options) -> Planned:
    """A printed program, and its `once`, with code that runs; both are compiled at one time."""
    once = planned.once
    if once is None:
        return replace(planned, code=_code_of(planned, options))
    with ThreadPoolExecutor(1) as worker:
        coming = worker.submit(with_code, once, options)
        code = _code_of(planned, options)
        return replace(planned, code=code, once=coming.result())


def _code_of(planned: Planned, options: Options) -> Code:
    assert planned.source is not None
    return runner(options).load(planned.source, planned.launches, options)
