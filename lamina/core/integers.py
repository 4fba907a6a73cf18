"""Powers of two and divisors, by which axes are cut and threads are counted."""

from collections.abc import Iterable
from math import isqrt


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


def divisors(size: int) -> list[int]:
    """All divisors of a positive `size`, in ascending order: 1, 2, 3, 4, 6 and 12 of 12. Each up to
    the square root has a partner above it, so that 2**30 takes 2**15 divisions."""
    up_to_root = [number for number in range(1, isqrt(size) + 1) if size % number == 0]
    partners = [size // number for number in reversed(up_to_root)]
    return sorted({*up_to_root, *partners})
