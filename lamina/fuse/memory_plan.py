"""Where the scratch arrays of a program lie in its arena: arrays that are never needed at one time
share memory."""

from bisect import insort
from collections.abc import Hashable, Mapping, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Array = TypeVar("Array", bound=Hashable)
Time = tuple[int, ...]  # times are compared; what they count is up to the caller


@dataclass
class Lifetime:
    """When an array is used, from the first time to the last one, both included; `nbytes` is its
    size."""

    nbytes: int
    first: Time
    last: Time

    def overlaps(self, other: "Lifetime") -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass
class MemoryPlan(Generic[Array]):
    """Where each array begins, in bytes, and how many bytes all take together."""

    offsets: dict[Array, int] = field(default_factory=dict)
    nbytes: int = 0


@dataclass(frozen=True)
class _Extent:
    """The bytes from `start` up to `end`, and the array that lies there."""

    start: int
    end: int
    lifetime: Lifetime

    @property
    def order(self) -> tuple[int, int]:
        return self.start, self.end


def plan_memory(
    lifetimes: Mapping[Array, Lifetime], alignment: int, before_others: Set[Array] = frozenset()
) -> MemoryPlan[Array]:
    """Place arrays at multiples of `alignment` bytes, the largest first, each at the lowest offset
    that is free throughout its lifetime (first fit). Three arrays of 64 bytes used at times 0 to 1,
    1 to 2 and 2 to 3 take 128 bytes: the last one lies where the first one was. Those
    `before_others` are placed before larger ones, and lie where they would without these."""
    plan = MemoryPlan[Array]()
    placed: list[_Extent] = []  # by where they start and end
    in_order = sorted(
        lifetimes.items(), key=lambda item: (item[0] not in before_others, -item[1].nbytes)
    )
    for array, lifetime in in_order:
        nbytes = -(-lifetime.nbytes // alignment) * alignment  # rounded up: 100 is 128 for 64
        offset = _first_fit(placed, lifetime, nbytes)
        insort(placed, _Extent(offset, offset + nbytes, lifetime), key=lambda extent: extent.order)
        plan.offsets[array] = offset
        plan.nbytes = max(plan.nbytes, offset + nbytes)
    return plan


def _first_fit(placed: list[_Extent], lifetime: Lifetime, nbytes: int) -> int:
    """The lowest offset from which on no array of the same time has one of `nbytes` bytes.

    One pass over the extents is enough, as they come by their start, and `offset` only grows. An
    extent that ends before `offset` is never in the way again. One that begins behind the bytes at
    `offset` is not in the way, and neither is any after it, so that `offset` stays where it is.
    """
    offset = 0
    for extent in placed:
        in_the_way = extent.start < offset + nbytes and offset < extent.end
        if in_the_way and lifetime.overlaps(extent.lifetime):
            offset = extent.end
    return offset
