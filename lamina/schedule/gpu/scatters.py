"""Whether a GPU adds the updates of a scatter in their order, or sums of integers in any order.

In their order every thread goes through all updates of its rows, and adds those that it owns; the
time grows with the number of updates, which wait one after the other. Sums of integers are several
kernels, and move 24 bytes more for each result.
"""

from math import prod

from lamina.core.rates import GPUS
from lamina.graph.exact_scatters import scatter_of_integers
from lamina.graph.rewrite import Rule
from lamina.ir.node import Node
from lamina.ir.ops import Op

RATES = GPUS["sm_90a"]  # by which it is decided for all GPUs, as texts are the same for all
LANES = 32  # that ask for an update each, where all have an index in common (EACH_HIT)
MIN_COLUMNS = 4 * LANES  # results side by side from which on they have, 4 of each lane
# Kernels of sums of integers that a scatter in order has not, of 2 us each: the fill of both
# arrays, the exponents, the result. Bytes of a result: int32 and int64, written and read once.
MORE_KERNELS = 6e-6
RESULT_BYTES, BYTES_A_SECOND = 24, 4e12


def scatters_of_integers(node: Node) -> Node | None:
    """A scatter of float32 by sums of integers, where that takes less time by the estimate."""
    if node.op is not Op.SCATTER or _in_order(node) < _in_any_order(node):
        return None
    return scatter_of_integers(node)


def _in_order(node: Node) -> float:
    """Seconds of the updates in their order, one after the other."""
    _, index, updates = node.src
    count: float = updates.shape[node.arg.axis]
    steps = count / LANES + _hits(node) if _have_one_index(index) else count
    return steps * RATES.update


def _hits(node: Node) -> float:
    """Updates of one place, with all places as likely."""
    axis: int = node.arg.axis
    return node.src[-1].shape[axis] / max(node.shape[axis], 1)


def _have_one_index(index: Node) -> bool:
    """Whether neighbouring results have one index, so that lanes of a warp ask for many at once."""
    if index.op is not Op.EXPAND or index.shape[-1] % MIN_COLUMNS != 0:
        return False
    return index.src[0].shape[-1:] in ((), (1,))


def _in_any_order(node: Node) -> float:
    """Seconds that sums of integers take more than a scatter with no updates."""
    results, updates = prod(node.shape), prod(node.src[-1].shape)
    adding = max(updates * RATES.atomic, _hits(node) * RATES.same_place)
    return MORE_KERNELS + results * RESULT_BYTES / BYTES_A_SECOND + 2 * adding


SCATTERS_OF_INTEGERS = Rule("scatters_of_integers", (Op.SCATTER,), scatters_of_integers)
