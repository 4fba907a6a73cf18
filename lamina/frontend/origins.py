"""Which lines of the user's program made which nodes: noted while a function is lowered, never
while programs run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lamina.errors import user_line
from lamina.ir.node import Node, toposort


class Origins:
    """The notes that are being taken. `lines`: the user's line of each new tensor's node, such as
    ``train.py:12: logits = a @ b``; None while nobody takes any."""

    lines: dict[Node, str] | None = None

    def note(self, node: Node) -> None:
        """Note the line that is running for `node`; the first one counts."""
        line = user_line()
        if self.lines is not None and line is not None:
            self.lines.setdefault(node, line)

    @contextmanager
    def noted(self) -> Iterator[dict[Node, str]]:
        """Take notes inside the ``with`` block."""
        outside, self.lines = self.lines, {}
        try:
            yield self.lines
        finally:
            self.lines = outside


ORIGINS = Origins()


def spread(sinks: Iterable[Node], lines: Mapping[Node, str]) -> dict[Node, str]:
    """`lines` for every node below `sinks`: what no line is noted for was made on the way to a node
    that uses it, and has the line of that."""
    every = dict(lines)
    for node in reversed(toposort(sinks)):
        if node in every:
            for operand in node.src:
                every.setdefault(operand, every[node])
    return every


def lines_of(nodes: Iterable[Node], lines: Mapping[Node, str]) -> Sequence[str]:
    """The lines of `nodes`, each once."""
    return list(dict.fromkeys(lines[node] for node in nodes if node in lines))
