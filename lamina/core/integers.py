"""Powers of two and divisors, by which axes are cut and threads are counted."""

from collections.abc import Iterable


def power_of_two_up_to(limit: int) -> int:
    """The largest power of two that is not above `limit`: 8 for 13; 0 for 0."""
    return 1 << limit.bit_length() >> 1


def power_of_two_from(count: int) -> int:
    """The smallest power of two that is not below `count`, which is positive: 16 for 13."""
    return 1 << (count - 1).bit_length()


def first_divisor(size: int, candidates: Iterable[int], default: int) -> int:
    """The first of `candidates` that divides `size`; `default` if none does. Of 2304 by 1024, 896
    and 768 it is 768."""
    return next((number for number in candidates if size % number == 0), default)
