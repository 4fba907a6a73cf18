"""Memory plans: arrays of one time never share bytes, and those of different times do."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from lamina.fuse.memory_plan import Lifetime, plan_memory


def lifetime(nbytes: int, first: int, last: int) -> Lifetime:
    return Lifetime(nbytes, (first,), (last,))


def test_arrays_share_memory_when_their_times_do_not_overlap() -> None:
    lifetimes = {"a": lifetime(64, 0, 1), "b": lifetime(64, 1, 2), "c": lifetime(64, 2, 3)}
    plan = plan_memory(lifetimes, 64)
    assert plan.offsets == {"a": 0, "b": 64, "c": 0}
    assert plan.nbytes == 128


def test_offsets_are_aligned() -> None:
    plan = plan_memory({"a": lifetime(65, 0, 0), "b": lifetime(1, 0, 0)}, 64)
    assert plan.offsets == {"a": 0, "b": 128}
    assert plan.nbytes == 192


def test_a_small_array_fills_a_gap() -> None:
    lifetimes = {
        "a": lifetime(256, 0, 0),
        "b": lifetime(192, 0, 1),
        "c": lifetime(128, 1, 1),
        "d": lifetime(64, 1, 1),
    }
    plan = plan_memory(lifetimes, 64)
    assert plan.offsets == {"a": 0, "b": 256, "c": 0, "d": 128}
    assert plan.nbytes == 448


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 4)), max_size=12))
def test_arrays_of_one_time_are_apart(arrays: list[tuple[int, int, int]]) -> None:
    lifetimes = {
        number: lifetime(nbytes, first, first + length)
        for number, (nbytes, first, length) in enumerate(arrays)
    }
    plan = plan_memory(lifetimes, 64)
    ends = {number: plan.offsets[number] + lifetimes[number].nbytes for number in lifetimes}
    assert max(ends.values(), default=0) <= plan.nbytes
    for left, right in combinations(lifetimes, 2):
        if lifetimes[left].overlaps(lifetimes[right]):
            apart = ends[left] <= plan.offsets[right] or ends[right] <= plan.offsets[left]
            empty = 0 in (lifetimes[left].nbytes, lifetimes[right].nbytes)
            assert apart or empty
    for time in range(14):
        alive = [one.nbytes for one in lifetimes.values() if one.first <= (time,) <= one.last]
        assert plan.nbytes >= sum(alive)
