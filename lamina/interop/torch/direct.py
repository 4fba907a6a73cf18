"""A call of a graph, written out: the fewest steps of Python for its tensors.

A short kernel takes less time than a loop in Python over its arguments. So the call of each graph
is text of its own, which tracebacks show. For one program with one input, one result and no scratch
memory it is::

    def run(inputs):
        a0, = inputs
        inputs.clear()
        v0 = empty((8,), (1,), float32)
        if recorders:
            program0([a0, v0])
        else:
            try:
                words = program0.jobs.pop()
            except IndexError:
                words = program0.new_job()
            words[5] = a0.data_ptr()
            words[4] = words[6] = v0.data_ptr()
            counter.kernels += 1
            program0.call(words)
            program0.jobs.append(words)
        return [v0]
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter, runs

Run = Callable[[list[Any]], list[Any]]

_numbers = count()  # of the texts, whose names tracebacks show
# What every text may name.
_COMMON = {
    "Buffer": Buffer, "counter": counter, "recorders": runs, "empty": _empty_strided_cpu,
    "empty_strided": torch.empty_strided, "no_grad": torch.no_grad,
}  # fmt: skip


class Text:
    """The lines of a call, without their indentation, and the objects that they name."""

    def __init__(self, lines: Sequence[str] = (), names: dict[str, Any] | None = None) -> None:
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
        """An argument of a call: a literal where Python reads the same value of it."""
        if value is None or isinstance(value, (bool, int, str)):
            return repr(value)
        if isinstance(value, (list, tuple)):
            parts = "".join(f"{self.constant(part)}, " for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        return self.name("constant", value)

    def function(self) -> Run:
        """The function of these lines, whose parameter is `inputs`."""
        body = "".join(f"    {line}\n" for line in self.lines)
        file = f"<call of lamina's graph {next(_numbers)}>"
        source = f"def run(inputs):\n{body}"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names = {**_COMMON, **self.names}
        exec(compile(source, file, "exec"), names)
        run: Run = names["run"]
        return run


def unpacked(names: Sequence[str], value: str) -> str:
    """A line that gives names to the parts of a list."""
    return f"{', '.join(names)}, = {value}" if names else value
