"""A call of a program for the CPU, written out: the fewest steps of Python for its tensors.

A short kernel takes less time than a loop in Python over its arguments. So the call of each program
is text of its own, which tracebacks show. For one input, one result and no scratch memory it is::

    def run(inputs):
        a0, = inputs
        inputs.clear()
        if recorders:
            return watched([a0])
        r0 = empty((8,), (1,), float32)
        try:
            words = jobs.pop()
        except IndexError:
            words = new_job()
        words[5] = a0.data_ptr()
        words[4] = words[6] = r0.data_ptr()
        counter.kernels += 1
        call(words)
        jobs.append(words)
        return [r0]
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu  # type: ignore[attr-defined]

from lamina.runtime.buffer import Buffer
from lamina.runtime.profile import counter, runs

Run = Callable[[list[Any]], list[torch.Tensor]]

_numbers = count()  # of the texts, whose names tracebacks show


@dataclass(frozen=True)
class Made:
    """A result whose memory a call asks PyTorch for. strides: in elements."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Job:
    """words: the addresses that code reads, kept from call to call. arena: where that of scratch
    memory is. places: of each tensor, where its address is, once or more often."""

    words: Any
    arena: int
    places: list[tuple[int, ...]]


def direct(
    job: Job, scratch_bytes: int, inputs: int, results: Sequence[Made], kernels: int,
    names: dict[str, Any],
) -> Run:  # fmt: skip
    """The function that runs a program on a list of its input tensors, which it empties, and
    returns the results. inputs: how many there are. kernels: how many a call runs. `names`: what
    the text calls: `watched`, the call with records; `jobs`, a list of words that no call has;
    `new_job`, which makes such words; and `call`, which runs words."""
    read = [f"a{number}" for number in range(inputs)]
    written = [f"r{number}" for number in range(len(results))]
    lines = [
        f"{', '.join(read)}, = inputs" if read else "",
        "inputs.clear()",
        "if recorders:",
        f"    return watched([{', '.join(read)}])",
        *(_making(name, result) for name, result in zip(written, results, strict=True)),
        "try:",
        "    words = jobs.pop()",
        "except IndexError:",
        "    words = new_job()",
    ]
    if scratch_bytes:
        lines += [f"scratch = Buffer({scratch_bytes})", f"words[{job.arena}] = scratch.pointer"]
    for name, places in zip([*read, *written], job.places, strict=True):
        targets = "".join(f"words[{place}] = " for place in places)
        lines.append(f"{targets}{name}.data_ptr()" if places else "")
    lines += [
        f"counter.kernels += {kernels}", "call(words)", "jobs.append(words)",
        f"return [{', '.join(written)}]",
    ]  # fmt: skip
    body = "".join(f"    {line}\n" for line in lines if line)
    dtypes = {str(result.dtype).removeprefix("torch."): result.dtype for result in results}
    known = {
        "Buffer": Buffer, "counter": counter, "recorders": runs, "empty": _empty_strided_cpu,
        **dtypes, **names,
    }  # fmt: skip
    return _defined(f"def run(inputs):\n{body}", known)


def _making(name: str, result: Made) -> str:
    dtype = str(result.dtype).removeprefix("torch.")
    return f"{name} = empty({result.sizes}, {result.strides}, {dtype})"


def _defined(text: str, names: dict[str, Any]) -> Run:
    file = f"<call of lamina's program {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), names)
    run: Run = names["run"]
    return run
