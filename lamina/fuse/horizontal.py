"""Horizontal fusion: short kernels that are independent run side by side in one launch.

A kernel of a few microseconds leaves most of a GPU idle while it begins and ends, and a launch
takes about one microsecond by itself. The products of a token by three weights, and what the
optimizer does to each of many small parameters, do not wait for each other:

    q = x @ wq | k = x @ wk | v = x @ wv        one launch
    turned(q)  | turned(k)                      one launch

Kernels in one step are launched as one if their schedules allow it
(`lamina.targets.horizontal`); otherwise one after the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lamina.fuse.launch import Launch, Memory
from lamina.ir.kernel import Kernel

# Bytes of all arrays of a kernel up to which it is short: 64 MiB pass through the memory of an H200
# in 14 us, and a launch less saves about a tenth of that. For longer kernels it is not worth the
# registers, of which every part has as many as the largest one.
SHORT_BYTES = 64 << 20
# Bytes of scratch arrays that a kernel may make to join others: arrays of one step are there at the
# same time, and those of a step that a kernel joins early are there for longer.
MAX_SCRATCH_BYTES = 1 << 20
# Steps that a kernel may run ahead of its place. It bounds the time that the pass takes: each
# kernel is compared with so many steps.
MAX_STEPS_AHEAD = 16


@dataclass
class _Step:
    """The launches of a step, the memory that these read or write, and what of it they write."""

    launches: list[Launch]
    touched: set[Memory] = field(default_factory=set)
    written: set[Memory] = field(default_factory=set)

    @classmethod
    def of(cls, launches: Iterable[Launch]) -> "_Step":
        step = cls([])
        for launch in launches:
            step.add(launch)
        return step

    def add(self, launch: Launch) -> None:
        self.launches.append(launch)
        self.touched.update(view.memory for view in launch.arguments)
        self.written.update(view.memory for view in launch.written)

    def is_independent_of(self, other: "_Step") -> bool:
        """Whether the steps compute the same in either order, and at the same time: neither writes
        memory that the other one reads or writes."""
        return self.written.isdisjoint(other.touched) and other.written.isdisjoint(self.touched)

    @property
    def may_join(self) -> bool:
        """Whether the step is one kernel of loops, which is short and makes small arrays."""
        if len(self.launches) != 1 or not isinstance(self.launches[0].kernel, Kernel):
            return False
        (launch,) = self.launches
        made = [view for view in launch.written if view.kind == "scratch"]
        is_short = sum(view.nbytes for view in launch.arguments) <= SHORT_BYTES
        return is_short and sum(view.nbytes for view in made) <= MAX_SCRATCH_BYTES


def fused_horizontally(
    steps: Sequence[Sequence[Launch]], max_kernels: int
) -> list[list[Launch]]:
    """The steps in an order that computes the same, short kernels that are independent of each
    other in one step, up to `max_kernels`: each kernel in the earliest step that has room for it,
    so that those which need it may join an early one too.

    With ``a = f(x); b = g(a); c = f(y); d = g(c)`` the steps are ``a, c`` and ``b, d``.
    """
    fused: list[_Step] = []
    is_open: list[bool] = []  # whether kernels may join a step
    for launches in steps:
        step = _Step.of(launches)
        may_join = step.may_join
        place = _earliest_place(step, fused, is_open, max_kernels) if may_join else None
        if place is not None:
            fused[place].add(step.launches[0])
            continue
        fused.append(step)
        is_open.append(may_join)
    return [step.launches for step in fused]


def _earliest_place(
    step: _Step, fused: Sequence[_Step], is_open: Sequence[bool], max_kernels: int
) -> int | None:
    """The number of the earliest of the steps so far that a kernel may join; None if there is none.
    All steps after it are independent of the kernel."""
    place: int | None = None
    first = max(len(fused) - MAX_STEPS_AHEAD, 0)
    for number in reversed(range(first, len(fused))):
        earlier = fused[number]
        if not step.is_independent_of(earlier):
            break
        if is_open[number] and len(earlier.launches) < max_kernels:
            place = number
    return place
