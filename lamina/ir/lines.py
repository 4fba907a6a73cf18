"""Which line of the user's program made a node: a side table, filled only while debugging."""

from __future__ import annotations

import weakref

from lamina.errors import user_line
from lamina.ir.node import Node

_lines: weakref.WeakKeyDictionary[Node, str] = weakref.WeakKeyDictionary()


def record(node: Node) -> None:
    """Remember the user's line that is running now as the maker of `node`; the first one stays."""
    if node not in _lines:
        line = user_line(2)
        if line is not None:
            _lines[node] = line


def line_of(node: Node) -> str | None:
    """The line that made `node`, such as ``"train.py:12: logits = a @ b"``, if it is known."""
    return _lines.get(node)
