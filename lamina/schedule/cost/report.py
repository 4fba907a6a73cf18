"""What a prediction says: seconds, a bound, and what they are made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lamina.schedule.cost.bound import Need
from lamina.schedule.cost.traffic import Lines

SHOWN = 5  # demands of a kernel that are printed


@dataclass(frozen=True)
class KernelTime:
    """How long a kernel is predicted to take.

    seconds: of one run
    demands: seconds of each resource alone, by name, of the busiest worker
    """

    seconds: float
    demands: Mapping[str, float]


@dataclass(frozen=True)
class KernelCost(KernelTime):
    """How long a kernel is predicted to take, and how long it would at the best.

    bound: seconds with perfect reuse, where everything overlaps
    need: what the bound is made of
    lines: the traffic of each reference to an array, for reports
    """

    bound: float
    need: Need
    lines: tuple[Lines, ...] = field(default=(), repr=False)

    @property
    def dominant(self) -> str:
        """The resource that takes longest."""
        return max(self.demands, key=self.demands.__getitem__, default="")

    @property
    def times(self) -> str:
        """``1.8 us, bound 0.431 us``."""
        return f"{in_us(self.seconds)}, bound {in_us(self.bound)}"

    @property
    def largest_demands(self) -> str:
        """``fork 1 us, ...``, the largest first."""
        ordered = sorted(self.demands.items(), key=lambda item: -item[1])
        parts = [f"{name} {in_us(seconds)}" for name, seconds in ordered[:SHOWN] if seconds]
        return ", ".join(parts)

    def __str__(self) -> str:
        return f"{self.times}: {self.largest_demands}"


def in_us(seconds: float) -> str:
    """Microseconds to read."""
    return f"{seconds * 1e6:.3g} us"


def overlapped(memory: Mapping[str, float], units: Mapping[str, float], hidden: float) -> float:
    """The seconds of demands that overlap in part: the largest, and of the others the share that is
    not `hidden` behind it. Levels of memory take turns, so that their times add up to one demand:
    of 3 us and 1 us in memory and 2 us of instructions, with 0.9 hidden, 4 + 0.1 * 2 us."""
    together = [sum(memory.values()), *units.values()]
    longest = max(together)
    return longest + (1 - hidden) * (sum(together) - longest)
