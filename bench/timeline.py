"""What runs when on a GPU: kernels and collectives of a few steps, as CUPTI records them.

    lamina launch -n 2 --device cuda -m bench.ranks data --timeline

PyTorch's profiler is what asks CUPTI, for all work of a process, whoever launches it. Recording
takes time on the host, so a step that is recorded may be longer than one that is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

STEPS = 2  # that are recorded; the table is of the last one


@dataclass(frozen=True)
class Interval:
    """A kernel, or a copy, from `begin` to `end` in microseconds."""

    name: str
    begin: float
    end: float

    @property
    def is_collective(self) -> bool:
        return "nccl" in self.name.lower()


def prepare(local_rank: int) -> None:
    """Let CUPTI watch the process from its beginning: it does not see graphs that are older."""
    import torch

    torch.cuda.set_device(local_rank)
    recorded(lambda: torch.zeros(1, device="cuda").add_(1.0))


def recorded(run: Callable[[], object]) -> list[Interval]:
    """What the GPU does in `run`, in the order in which it begins."""
    import torch
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    found: list[Interval] = []
    events: Any = profiler.profiler
    for event in events.kineto_results.events():
        if event.device_type() == DeviceType.CUDA and event.duration_ns() > 0:
            begin = event.start_ns() / 1e3
            found.append(Interval(event.name(), begin, begin + event.duration_ns() / 1e3))
    return sorted(found, key=lambda one: one.begin)


def covered(intervals: Sequence[Interval]) -> float:
    """Microseconds in which one of the intervals, ordered by their begin, or several run."""
    total, end = 0.0, float("-inf")
    for one in intervals:
        total += max(0.0, one.end - max(one.begin, end))
        end = max(end, one.end)
    return total


def table(intervals: Sequence[Interval]) -> Iterator[str]:
    """Lines of Markdown: each collective, and for how long kernels run beside it."""
    start = intervals[0].begin
    kernels = [one for one in intervals if not one.is_collective]
    collectives = [one for one in intervals if one.is_collective]
    beside = covered(kernels) + covered(collectives) - covered(intervals)
    yield (
        f"{max(one.end for one in intervals) - start:,.0f} us: kernels in {covered(kernels):,.0f}, "
        f"{len(collectives)} collectives in {covered(collectives):,.0f}, both in {beside:,.0f}"
    )
    yield ""
    yield "| collective | begins, us | takes, us | of that beside kernels | kernels beside it |"
    yield "|---|---|---|---|---|"
    for one in collectives:
        meanwhile = [
            Interval(kernel.name, max(kernel.begin, one.begin), min(kernel.end, one.end))
            for kernel in kernels
            if kernel.begin < one.end and one.begin < kernel.end
        ]
        taken = one.end - one.begin
        name = one.name.partition("(")[0].removeprefix("ncclDevKernel_")
        names = ", ".join(dict.fromkeys(kernel.name for kernel in meanwhile[:3]))
        yield (
            f"| {name} | {one.begin - start:,.1f} | {taken:.1f} | "
            f"{covered(meanwhile) / taken:.0%} | {len(meanwhile)}: {names} |"
        )
