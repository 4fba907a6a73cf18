"""Exponentials under their running maximum, for sums that neither overflow nor vanish."""

import math
from typing import NamedTuple

from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op


class Shares(NamedTuple):
    """What the scale m makes of a sum of exponentials, both 1 or less: of what was added up before,
    ``e^(m[i - 1] - m[i])``, and of what is added, ``e^(x[i] - m[i])``."""

    before: Node
    added: Node


def shares_of(x: Node, scale: Node, axis: int) -> Shares:
    """The shares of x under its running maximum `scale`."""
    before = build.shifted(scale, axis, -math.inf)
    return Shares(_share(before, scale), _share(x, scale))


def _share(exponent: Node, scale: Node) -> Node:
    """e^(exponent - scale). The difference of equal infinities is 0, as that of equal numbers."""
    is_infinite = scale.eq(math.inf) | scale.eq(-math.inf)
    gap = build.select(is_infinite & exponent.eq(scale), scale.lift(0.0), exponent - scale)
    return build.unary(Op.EXP, gap)
