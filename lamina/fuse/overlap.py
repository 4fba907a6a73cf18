"""The order of steps on a device whose collectives run beside kernels.

Steps that need the result of a collective come as late as they can, so that others run meanwhile:

    sum of a's gradient, update of a, gradient of b, sum of b's gradient, update of b

becomes

    sum of a's gradient, gradient of b, sum of b's gradient, update of a, update of b

They come before a collective that needs them, and before more collectives than `MIN_RUNNING` have
brought more than `MAX_RUNNING_BYTES`: what these bring stays in memory until it is used. Of steps
that wait, those of earlier collectives come first. Collectives keep their order, which is that of
all processes, and begin as soon as their operands are there. Steps do not wait for those that could
run at any time, which come early enough in that order (`lamina.fuse.early`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING

from lamina.fuse.early import early_collectives
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group

if TYPE_CHECKING:
    from lamina.fuse.row_blocks import Step

MIN_RUNNING = 2  # collectives, whatever they bring
# Of results that no step has used. They take the place of what the backward pass has let go.
MAX_RUNNING_BYTES = 512 << 20


def ready_before_others(results: Sequence[Node]) -> list[Node]:
    """The collectives that `results` order last though they are ready first, the earliest first:
    the longest chain of operations before each is shorter than that before every collective ahead
    of it. One is the sum of the last layer's gradient, where its weight is the first layer's table.
    Left out are collectives that another one needs, and `early_collectives`."""
    order = toposort(results)
    early = early_collectives(results)
    depth: dict[Node, int] = {}
    for node in order:
        depth[node] = 1 + max((depth[operand] for operand in node.src), default=0)
    needed: set[Node] = set()  # by a collective
    for node in reversed(order):
        if node.op in Group.COLLECTIVE or node in needed:
            needed.update(node.src)
    ready: list[Node] = []
    shortest: int | None = None
    for node in order:
        if node.op not in Group.COLLECTIVE or node in needed or node in early:
            continue
        if shortest is not None and depth[node] < shortest:
            ready.insert(0, node)  # its chain is shorter than those of all found before
        shortest = depth[node] if shortest is None else min(shortest, depth[node])
    return ready


def overlapped(steps: Sequence[Step], early: Set[Node]) -> list[Step]:
    """`steps`, which are in an order in which they can run, in one in which collectives overlap.
    early: collectives before which nothing has to run."""
    order = _Order(early)
    for step in steps:
        order.add(step)
    order.flush(len(order.bytes_of))
    return order.steps


def collective_of(step: Step) -> Node | None:
    """The collective that `step` is, if it is one."""
    first = step.groups[0].first
    return first if first.op in Group.COLLECTIVE else None


class _Order:
    """Takes one step after the other."""

    def __init__(self, early: Set[Node]) -> None:
        self.steps: list[Step] = []
        self._early = early
        self.bytes_of: list[int] = []  # that each collective so far brings
        self._unused: deque[int] = deque()  # the numbers of those whose users have not come yet
        # The last collective that each waiting step, and each collective itself, needs, by number.
        self._needs: dict[Step, int] = {}
        self._waiting: dict[Step, None] = {}  # in order

    def add(self, step: Step) -> None:
        """Put `step` next, or let it wait."""
        needed = max((self._needs.get(before, -1) for before in step.src), default=-1)
        collective = collective_of(step)
        if collective is not None:
            self._begin(step, collective)
        elif needed in self._unused or any(before in self._waiting for before in step.src):
            self._needs[step] = needed
            self._waiting[step] = None
        else:
            self.steps.append(step)

    def _begin(self, step: Step, collective: Node) -> None:
        """Put a collective next, after what it needs."""
        operands = [before for before in step.src if before in self._waiting]
        self.flush(1 + max((self._needs[before] for before in operands), default=-1))
        while len(self._unused) >= MIN_RUNNING and self._unused_bytes() > MAX_RUNNING_BYTES:
            self.flush(self._unused[0] + 1)
        self.steps.append(step)
        if collective in self._early:
            return
        number = len(self.bytes_of)
        self.bytes_of.append(collective.nbytes)
        self._needs[step] = number
        self._unused.append(number)

    def flush(self, count: int) -> None:
        """Put the steps next that wait for the first `count` collectives alone: those first that
        wait for the first one, beside which later collectives run. A step needs no less than the
        steps do whose results it reads, so that it stays behind them."""
        ready = [step for step in self._waiting if self._needs[step] < count]
        ready.sort(key=self._needs.__getitem__)
        self.steps += ready
        for step in ready:
            del self._waiting[step]
        while self._unused and self._unused[0] < count:
            self._unused.popleft()

    def _unused_bytes(self) -> int:
        return sum(self.bytes_of[number] for number in self._unused)
