"""What passes make and what kernels take: records for whoever asks, and with ``LAMINA_DEBUG``
lines on standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamina.runtime.profile import passes, runs

if TYPE_CHECKING:
    from lamina.ir.kernel import AnyKernel
    from lamina.pipeline import Passed, Ran


@dataclass(frozen=True)
class KernelRecord:
    """One run of one kernel: its name, seconds, bytes of its buffers, arithmetic operations."""

    name: str
    seconds: float
    bytes: int
    flops: int

    def __str__(self) -> str:
        rate = 1e-9 / max(self.seconds, 1e-9)
        return (
            f"{self.name:<28} {self.seconds * 1e6:10.1f} us {self.bytes * rate:8.2f} GB/s "
            f"{self.flops * rate:8.2f} GFLOP/s"
        )


@contextmanager
def profile() -> Iterator[list[KernelRecord]]:
    """A list that at the end of the ``with`` block has a record of each kernel, or chain of such,
    that ran in it."""
    found: list[KernelRecord] = []
    with runs() as records:
        yield found
    found += [record for run in records for record, _ in _records(run)]


def _records(run: Ran) -> Iterator[tuple[KernelRecord, list[Any]]]:
    """What each chain of a run took, and the plans of its kernels."""
    for chain, taken in zip(run.planned.program.chains, run.seconds, strict=True):
        plans = [run.planned.plans[launch.kernel] for launch in chain]
        parameters = (one for launch in chain for one in launch.kernel.parameters)
        nbytes = sum(one.nbytes for one in parameters if one.memory == "device")
        name, flops = "+".join(one.name for one in plans), sum(_flops(one.kernel) for one in chain)
        yield KernelRecord(name, taken, nbytes, flops), plans


def _flops(kernel: AnyKernel) -> int:
    """Arithmetic of one run, each operation counted where its axes put it."""
    from lamina.ir.kernel import SortKernel, bound_axes, free_axes, points
    from lamina.ir.ops import Group, Op

    if isinstance(kernel, SortKernel):
        return 0
    return sum(
        points(free_axes(node).union(bound_axes(node)))
        for node in kernel.nodes
        if node.op is Op.FOLD
        or (node.dtype.is_float and node.op in Group.ELEMENTWISE - {Op.CAST, Op.BITCAST})
    )


def _print_run(run: Ran) -> None:
    if not run.debug:
        return
    for record, plans in _records(run):
        print(record, file=sys.stderr)
        for plan in plans if run.debug >= 2 else ():
            if plan.moves:
                print("    " + str(plan).replace("\n", "\n    "), file=sys.stderr)


def _print_pass(done: Passed) -> None:
    if done.debug < 3:
        return
    changed = done.after != done.before
    print(f"-- {done.name}{'' if changed else ' (unchanged)'}", file=sys.stderr)
    if changed and (done.writes != "source" or done.debug >= 4):
        print(_text(done.after), file=sys.stderr)


def _text(value: Any) -> str:
    """What a pass returned, to read."""
    from lamina.explain import text
    from lamina.fuse.program import Program

    if isinstance(value, list):
        return text.to_text(value)
    if isinstance(value, Program):
        return "\n".join(text.kernel_text(launch.kernel) for launch in value.launches)
    return value.text or "\n".join(
        f"{plan}\n{text.kernel_text(getattr(plan.nest, 'kernel', kernel))}"
        for kernel, plan in value.plans.items()
    )


passes.watch, runs.watch = _print_pass, _print_run
