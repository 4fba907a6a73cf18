"""Powers of two and divisors, beside plain searches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamina.core.integers import divisors, first_divisor, power_of_two_from, power_of_two_up_to

POWERS = [2**exponent for exponent in range(40)]


@given(st.integers(0, 2**38))
def test_the_power_of_two_up_to_a_number_is_the_largest(limit: int) -> None:
    expected = max((power for power in POWERS if power <= limit), default=0)
    assert power_of_two_up_to(limit) == expected


@given(st.integers(1, 2**38))
def test_the_power_of_two_from_a_number_is_the_smallest(count: int) -> None:
    assert power_of_two_from(count) == min(power for power in POWERS if power >= count)


@given(st.integers(1, 10_000), st.lists(st.integers(1, 200)))
def test_the_first_divisor_is_the_first_of_those_that_divide(
    size: int, candidates: list[int]
) -> None:
    remaining = [number for number in candidates if size // number * number == size]
    assert first_divisor(size, candidates, -1) == (remaining[0] if remaining else -1)


@given(st.integers(1, 5000))
def test_divisors_are_all_that_leave_no_remainder(size: int) -> None:
    assert divisors(size) == [number for number in range(1, size + 1) if size % number == 0]


def test_divisors_of_a_long_axis_take_no_search_up_to_it() -> None:
    assert divisors(2**60) == [2**exponent for exponent in range(61)]
