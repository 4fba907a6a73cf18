"""What kernels take: records for whoever asks, and lines on standard error for `LAMINA_DEBUG`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lamina.core.options import Options
from lamina.explain.overlap import has_collectives, parts_of, timeline
from lamina.runtime.profile import runs

if TYPE_CHECKING:
    from lamina.compiled import Planned
    from lamina.ir.kernel import AnyKernel
    from lamina.pipeline import PassRecord
    from lamina.schedule.cost import ProgramCost


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
    """A list that at the end of the ``with`` block has a record of each step of a program,
    that ran in it."""
    found: list[KernelRecord] = []
    with runs() as records:
        yield found
    found += [record for planned, seconds, _ in records for record, _ in _records(planned, seconds)]


def _records(planned: Planned, seconds: list[float]) -> Iterator[tuple[KernelRecord, list[Any]]]:
    """What each step of a run took, and the plans of its kernels."""
    for step, taken in zip(planned.program.steps, seconds, strict=True):
        plans = [planned.plans[launch.kernel] for launch in step]
        parameters = (one for launch in step for one in launch.kernel.parameters)
        nbytes = sum(one.nbytes for one in parameters if one.memory == "device")
        name, flops = "+".join(one.name for one in plans), sum(_flops(one.kernel) for one in step)
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


def pass_lines(
    record: PassRecord, text_of: Callable[[str, Any], str], with_source: bool
) -> Iterator[str]:
    """What a pass and its subpasses do, how many milliseconds that took, and what the pass made, by
    `text_of`, unless it is what was there before."""
    pass_ = record.pass_
    unchanged = record.after == record.before
    note = " (unchanged)" if unchanged else ""
    yield f"-- {pass_.name}{note}: {pass_.does} ({1e3 * record.seconds:.1f} ms)"
    for subpass in pass_.subpasses:
        yield f"--   {subpass.name}: {subpass.line}"
    if not unchanged and (with_source or pass_.writes not in ("source", "code")):
        yield text_of(pass_.writes, record.after)


def print_run(
    planned: Planned, seconds: list[float], cost: ProgramCost | None, options: Options
) -> None:
    """With ``LAMINA_DEBUG=1`` a line for each step of a run, on standard error, with the time that
    `cost` predicts, which demand takes longest, and the bound; with 2 the schedules as well. Where
    GPUs exchange arrays, what kernels and collectives then wait for on streams of their own."""
    for number, (record, plans) in enumerate(_records(planned, seconds)):
        line = str(record)
        if cost is not None:
            step = cost.steps[number]
            predicted, bound = step.seconds * 1e6, step.bound * 1e6
            line += f" predicted {predicted:.1f} us by {step.dominant}, bound {bound:.1f} us"
        print(line, file=sys.stderr)
        for plan in plans if options.debug >= 2 else ():
            if len(plans) > 1:  # the record is of all of them
                print(f"  {plan.name}", file=sys.stderr)
            if plan.moves:
                print("    " + str(plan).replace("\n", "\n    "), file=sys.stderr)
    if has_collectives(planned.launches):
        print(timeline(list(parts_of(planned, seconds))), file=sys.stderr)
