"""Which lines of the user's program made which nodes, and so which kernels.

Notes are taken while a function is lowered, inside ``lamina explain --source`` and with
``LAMINA_DEBUG=4``; otherwise never while programs run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from lamina.core.options import Options, current
from lamina.errors import user_line
from lamina.ir.node import Node, toposort

if TYPE_CHECKING:
    from lamina.fuse.program import Program
    from lamina.ir.kernel import AnyKernel

LISTING = 4  # the level of the option `debug` that prints kernels


class Origins:
    """The notes that are being taken. `lines`: the user's line of each new tensor's node, such as
    ``train.py:12: logits = a @ b``; None while nobody takes any. A note keeps no node: which nodes
    there are decides what memory may be overwritten."""

    lines: MutableMapping[Node, str] | None = None

    def note(self, node: Node) -> None:
        """Note the line that is running for `node`; the first one counts."""
        line = user_line()
        if self.lines is not None and line is not None:
            self.lines.setdefault(node, line)

    def of(self, nodes: Iterable[Node]) -> dict[Node, str]:
        """The notes of these nodes."""
        notes = self.lines
        return {node: notes[node] for node in nodes if node in notes} if notes else {}

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Take notes inside the ``with`` block."""
        outside, self.lines = self.lines, WeakKeyDictionary()
        try:
            yield
        finally:
            self.lines = outside


ORIGINS = Origins()
if current().debug >= LISTING:
    ORIGINS.lines = WeakKeyDictionary()

_GRAPH_LINES: ContextVar[Mapping[Node, str] | None] = ContextVar("_GRAPH_LINES", default=None)


@contextmanager
def known(lines: Mapping[Node, str]) -> Iterator[None]:
    """Have what is compiled inside the ``with`` block know these lines of nodes of its graph."""
    token = _GRAPH_LINES.set(lines)
    try:
        yield
    finally:
        _GRAPH_LINES.reset(token)


def carried(
    before: Iterable[Node], after: Iterable[Node], lines: Mapping[Node, str]
) -> dict[Node, str]:
    """The `lines` of `before`, for the graph `after`, which differs from it in numbers that became
    inputs. Where more is different, as in a graph whose complex numbers became pairs, lines are
    lost."""
    if not lines:
        return {}
    moved: dict[Node, str] = {}
    pairs = list(zip(before, after, strict=True))
    seen = set(pairs)
    while pairs:
        old, new = pairs.pop()
        if old in lines:
            moved.setdefault(new, lines[old])
        if old.op is new.op and len(old.src) == len(new.src):
            below = set(zip(old.src, new.src, strict=True)) - seen
            seen |= below
            pairs += below
    return moved


def lines_of_kernels(
    program: Program, sinks: Sequence[Node],
    passes: Sequence[Callable[[Any, Options], Sequence[Node]]], options: Options,
) -> dict[AnyKernel, Sequence[str]]:  # fmt: skip
    """The user's lines of each kernel of `program`, as far as they are `known` of nodes below
    `sinks`, of which it was made. `passes`: those from graph to graph. They replace nodes; what a
    node with a line becomes is found by running them on it, as one more sink."""
    lines = _GRAPH_LINES.get()
    if not lines:
        return {}
    graph: Sequence[Node] = (*sinks, *lines)
    for run in passes:
        graph = run(graph, options)
    last = dict(zip(graph[len(sinks) :], lines.values(), strict=True))
    line_of = _spread(graph[: len(sinks)], last)
    found: dict[AnyKernel, dict[str, None]] = {}  # each line once, in order
    for launch in program.launches:
        of_kernel = found.setdefault(launch.kernel, {})
        of_kernel |= {line_of[node]: None for node in launch.values if node in line_of}
    return {kernel: list(of_kernel) for kernel, of_kernel in found.items()}


def _spread(sinks: Iterable[Node], lines: Mapping[Node, str]) -> dict[Node, str]:
    """`lines` for every node below `sinks`: what no line is noted for was made on the way to a node
    that uses it, and has the line of that."""
    every = dict(lines)
    for node in reversed(toposort(sinks)):
        if node in every:
            for operand in node.src:
                every.setdefault(operand, every[node])
    return every
