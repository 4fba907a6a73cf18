"""Functions written out as text: a call whose steps are known beforehand needs no loops."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from itertools import count
from types import FunctionType
from typing import Any
from weakref import finalize

_numbers = count()  # of the texts, whose names tracebacks show


class Text:
    """The lines of a function, without their indentation, and the objects that they name."""

    def __init__(self, lines: Sequence[str] = (), names: Mapping[str, Any] | None = None) -> None:
        self.lines = list(lines)
        self.names = dict(names or {})

    def add(self, *lines: str) -> None:
        self.lines += lines

    def name(self, stem: str, value: Any) -> str:
        """A name for an object: the stem and a number."""
        name = f"{stem}{len(self.names)}"
        self.names[name] = value
        return name

    def constant(self, value: Any) -> str:
        """Text for `value`: a literal where Python reads the same value of it, else a name."""
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, (list, tuple)):
            parts = "".join(f"{self.constant(part)}, " for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        return self.name("constant", value)

    def function(self, parameter: str, title: str) -> FunctionType:
        """The function of these lines, of one parameter. title: what tracebacks call it."""
        body = "".join(f"    {line}\n" for line in self.lines)
        file = f"<{title} {next(_numbers)}>"
        source = f"def run({parameter}):\n{body}"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names = dict(self.names)
        exec(compile(source, file, "exec"), names)
        function: FunctionType = names.pop("run")  # no cycle: it goes with its last reference
        finalize(function, linecache.cache.pop, file, None).atexit = False
        return function
