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

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

from lamina.core.text import Text
from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter, runs

Run = Callable[[list[Any]], list[Any]]

# What every text may name.
_COMMON = {
    "Buffer": Buffer, "counter": counter, "recorders": runs, "empty": _empty_strided_cpu,
    "empty_strided": torch.empty_strided, "no_grad": torch.no_grad,
}  # fmt: skip


def run_of(text: Text) -> Run:
    """The function of these lines, whose parameter is `inputs`."""
    named = Text(text.lines, {**_COMMON, **text.names})
    return named.function("inputs", "call of lamina's graph")


def unpacked(names: Sequence[str], value: str) -> str:
    """A line that gives names to the parts of a list."""
    return f"{', '.join(names)}, = {value}" if names else value
