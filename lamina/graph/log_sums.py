"""Running sums of exponentials as two scans of numbers, for CPUs.

A SCAN with LOG_SUM_EXP of the exponents x and the factors t has (m, s) at each place, which stand
for ``s e^m``, the sum of ``t e^x`` so far. The same by scans of numbers: m is the running maximum
of x, and s is the linear recurrence ``s[i] = e^(m[i - 1] - m[i]) s[i - 1] + e^(x[i] - m[i]) t[i]``.
A CPU computes these exponentials with vectors, which the loop of a scan has not.
"""

from lamina.graph.exponents import shares_of
from lamina.graph.rewrite import on
from lamina.ir.monoids import LINEAR_RECURRENCE, LOG_SUM_EXP, MAX, RECURRENCE, SCALE
from lamina.ir.node import Node
from lamina.ir.ops import Op, Reduce


@on(Op.SCAN)
def log_sums_as_recurrences(node: Node) -> Node | None:
    """Running sums of exponentials as a running maximum and a linear recurrence."""
    if node.arg.monoid is not LOG_SUM_EXP:
        return None
    x, factor = node.src
    (axis,) = node.arg.axes
    scale = Node(Op.SCAN, (x,), Reduce(MAX, (axis,)))
    if node.arg.component == SCALE:
        return scale
    shares = shares_of(x, scale, axis)
    addend = factor * shares.added
    return Node(Op.SCAN, (shares.before, addend), Reduce(LINEAR_RECURRENCE, (axis,), RECURRENCE))
