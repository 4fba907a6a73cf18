"""What passes make and what kernels take: records for whoever asks, lines on standard error with
``LAMINA_DEBUG``, and with ``LAMINA_CHECK`` the checks of `lamina.explain.check`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamina.core.options import Options
from lamina.runtime.profile import checker, passes, runs

if TYPE_CHECKING:
    from lamina.ir.kernel import AnyKernel
    from lamina.pipeline import Pass, Planned


@dataclass(frozen=True)
class KernelRecord:
    """One run of one kernel: its name, seconds, bytes of its buffers, arithmetic operations."""

    name: str
    seconds: float
    bytes: int
    flops: int

    def __str__(self) -> str:
        rate = 1e-9 / max(self.seconds, 1e-9)
        rates = f"{self.bytes * rate:8.2f} GB/s {self.flops * rate:8.2f} GFLOP/s"
        return f"{self.name:<28} {self.seconds * 1e6:10.1f} us {rates}"


@contextmanager
def profile() -> Iterator[list[KernelRecord]]:
    """A list that at the end of the ``with`` block has a record of each kernel, or chain of such,
    that ran in it."""
    found: list[KernelRecord] = []
    with runs() as records:
        yield found
    found += [record for planned, seconds, _ in records for record, _ in _records(planned, seconds)]


def _records(planned: Planned, seconds: list[float]) -> Iterator[tuple[KernelRecord, list[Any]]]:
    """What each chain of a run took, and the plans of its kernels."""
    for chain, taken in zip(planned.program.chains, seconds, strict=True):
        plans = [planned.plans[launch.kernel] for launch in chain]
        parameters = (one for launch in chain for one in launch.kernel.parameters)
        nbytes = sum(one.nbytes for one in parameters if one.memory == "device")
        name, flops = "+".join(one.name for one in plans), sum(_flops(one.kernel) for one in chain)
        yield KernelRecord(name, taken, nbytes, flops), plans


def _flops(kernel: AnyKernel) -> int:
    """Arithmetic of one run, each operation counted where its axes put it."""
    from lamina.ir.kernel import bound_axes, free_axes, points
    from lamina.ir.ops import Group, Op

    return sum(
        points(free_axes(node).union(bound_axes(node)))
        for node in kernel.nodes
        if node.op is Op.LOOP_REDUCE
        or (node.dtype.is_float and node.op in Group.ELEMENTWISE - {Op.CAST, Op.BITCAST})
    )


def _watch_run(run: tuple[Planned, list[float], Options]) -> None:
    planned, seconds, options = run
    for record, plans in _records(planned, seconds) if options.debug else ():
        print(record, file=sys.stderr)
        for plan in plans if options.debug >= 2 else ():
            if plan.moves:
                print("    " + str(plan).replace("\n", "\n    "), file=sys.stderr)


def _watch_pass(done: tuple[Pass, float, Any, Any, Options]) -> None:
    step, _, before, after, options = done
    if options.check:
        from lamina.explain.check import run_checked

        checker.run = run_checked
    if options.debug < 3:
        return
    print(f"-- {step.name}{' (unchanged)' if after == before else ''}", file=sys.stderr)
    if after != before and (step.writes != "source" or options.debug >= 4):
        from lamina.pipeline import text_of

        print(text_of(after), file=sys.stderr)


passes.watch, runs.watch = _watch_pass, _watch_run
