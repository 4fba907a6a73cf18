"""Learning rates as functions of the number of steps taken so far.

A schedule is any ``function(step) -> rate``; give it to an optimiser in place of a number.
"""

import math
from collections.abc import Callable

from lamina.tensor.arguments import integer

__all__ = ["cosine", "exponential", "one_cycle", "step"]

Schedule = Callable[[int], float]


def step(rate: float, every: int, gamma: float = 0.1) -> Schedule:
    """`rate`, multiplied by `gamma` once every `every` steps."""
    integer("step: every", every, 1)
    return lambda count: rate * gamma ** (count // every)


def exponential(rate: float, gamma: float) -> Schedule:
    """`rate`, multiplied by `gamma` at every step."""
    return lambda count: rate * gamma**count


def cosine(rate: float, steps: int, warmup: int = 0, least: float = 0.0) -> Schedule:
    """A straight rise to `rate` over `warmup` steps, then half a cosine down to `least`.

    `steps` includes the warmup; afterwards the rate stays at `least`.
    Source: Loshchilov and Hutter 2017, "SGDR", equation 5, without restarts."""
    integer("cosine: steps - warmup", steps - warmup, 1)
    return lambda count: (
        rate * (count + 1) / warmup if count < warmup
        else _cosine(rate, least, (count - warmup) / (steps - warmup))
    )  # fmt: skip


def one_cycle(
    rate: float, steps: int, rise: float = 0.3, start: float = 25.0, end: float = 1e4
) -> Schedule:
    """From rate / start up to `rate` in the first `rise` of the steps, then down to
    rate / start / end, both along half a cosine.

    Source: Smith and Topin 2018, "Super-convergence"."""
    integer("one_cycle: steps", steps, 1)
    top = rise * steps - 1.0
    first, last = rate / start, rate / start / end
    return lambda count: (
        _cosine(first, rate, count / top if top > 0 else 1.0) if count <= top
        else _cosine(rate, last, (count - top) / max(steps - 1.0 - top, 1.0))
    )  # fmt: skip


def _cosine(begin: float, end: float, share: float) -> float:
    return end + (begin - end) * 0.5 * (1.0 + math.cos(math.pi * min(share, 1.0)))
