"""Every program that a test runs in the interpreter, run again as compiled C.

The interpreter starts at once, so the front's many small examples use it. A sample of what each
test ran is kept, merged into a few large programs a module, compiled, and compared with what the
interpreter gave: every function and every derivative also on the CPU, at a tenth of the cost of
compiling each example for itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from lamina.core.dtypes import complex64, complex128, float32, float64
from lamina.core.options import current
from lamina.frontend import execution
from lamina.frontend.execution import compile_sinks
from lamina.graph.split_complex import split_complex
from lamina.ir.interpreter import evaluate
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.runtime.buffer import Buffer
from tests.msl import emulator, fake

DEVICE = os.environ.get("LAMINA_DEVICE", "cpu")  # what the interpreter is compared with
EACH_TEST = 4  # programs kept of one test
LARGEST = 400  # nodes of one program that is worth compiling
BATCH = 40  # programs merged into one translation unit

NARROW = {float64: float32, complex128: complex64}
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


@dataclass
class Sample:
    """One program: its test, its graph over copies of its inputs, and what it gave."""

    test: str
    sinks: list[Node]
    inputs: dict[Node, bytes]
    results: list[np.ndarray]


class Recorder:
    """Stands in for `execution.execute` and keeps samples of what the interpreter runs."""

    def __init__(self) -> None:
        self.execute = execution.execute
        self.test = ""
        self.kept = 0
        self.samples: list[Sample] = []

    def __call__(
        self, sinks: Sequence[Node], inputs: Sequence[Buffer], device: str
    ) -> list[Buffer]:
        order = toposort(sinks)
        wanted = device == "interp" and self.kept < EACH_TEST and len(order) < LARGEST
        effects = any(sink.op is Op.ASSIGN for sink in sinks)
        leaves = [node for node in order if node.op is Op.BUFFER] if wanted else []
        contents = {leaf: bytes(inputs[leaf.arg.storage].view()) for leaf in leaves}
        buffers = self.execute(sinks, inputs, device)
        if wanted and not effects:
            self.kept += 1
            results = [array_of(sink, one) for sink, one in zip(sinks, buffers, strict=True)]
            self.samples.append(Sample(self.test, list(sinks), contents, results))
        return buffers


def array_of(node: Node, buffer: Buffer) -> np.ndarray:
    """A copy of what `buffer` holds."""
    return np.frombuffer(buffer.on_host().view(), node.dtype.numpy).reshape(node.shape).copy()


def renamed(sample: Sample, inputs: list[Buffer], device: str) -> list[Node]:
    """The sample's sinks over inputs numbered after those of the samples before it."""
    memo: dict[Node, Node] = {}
    for node in toposort(sample.sinks):
        if node.op is Op.BUFFER:
            buffer = Buffer(len(sample.inputs[node]))
            buffer.view()[:] = sample.inputs[node]
            memo[node] = Node(Op.BUFFER, (), node.arg._replace(storage=len(inputs), device=device))
            inputs.append(buffer.to(device))
        else:
            memo[node] = Node(node.op, tuple(memo[one] for one in node.src), node.arg)
    return [memo[sink] for sink in sample.sinks]


def run_compiled(samples: Sequence[Sample], device: str) -> list[list[np.ndarray]]:
    """The results of all samples from one compiled program."""
    inputs: list[Buffer] = []
    sinks = [sink for sample in samples for sink in renamed(sample, inputs, device)]
    settings = replace(current(), device=device)
    compiled = compile_sinks(split_complex(tuple(sinks)), settings)
    results = iter(execution.run_compiled(compiled, inputs, settings))
    return [[array_of(sink, next(results)) for sink in sample.sinks] for sample in samples]


def difference(expected: np.ndarray, got: np.ndarray) -> str | None:
    """What differs beyond the dtype's tolerance, or None."""
    if expected.dtype.kind in "biu":
        same = expected == got
    else:
        name = expected.dtype.name.replace("complex128", "float64").replace("complex64", "float32")
        allowed = TOLERANCE.get(name, 0.2)
        wide: Any = np.complex128 if expected.dtype.kind == "c" else np.float64
        same = np.isclose(got.astype(wide), expected.astype(wide), allowed, allowed, True)
    if same.all():
        return None
    at = tuple(int(one[0]) for one in np.nonzero(~same)) if expected.ndim else ()
    return f"{expected.dtype} {expected.shape} at {at}: {expected[at]} expected, {got[at]} found"


def compare(samples: Sequence[Sample], device: str = DEVICE) -> list[str]:
    """One line for each sample whose compiled results differ."""
    problems = []
    for start in range(0, len(samples), BATCH):
        batch = samples[start : start + BATCH]
        for sample, results in zip(batch, run_compiled(batch, device), strict=True):
            for expected, got in zip(sample.results, results, strict=True):
                if problem := difference(expected, got):
                    problems.append(f"{sample.test}: {problem}")
    return problems


def narrowed(sample: Sample) -> Sample | None:
    """`sample` in float32 and complex64, which Metal has, where it is in float64 or complex128;
    None if it looks at the bits of such a number, or draws them."""
    memo: dict[Node, Node] = {}
    order = toposort(sample.sinks)
    wide = {one for one in order if one.dtype in NARROW}
    if not wide:
        return sample
    if any(one.op is Op.BITCAST for one in order):
        return None
    inputs = {}
    for node in order:
        arg = node.arg
        if node.op in (Op.CAST, Op.BITCAST):
            arg = NARROW.get(arg, arg)
        elif hasattr(arg, "dtype"):
            arg = arg._replace(dtype=NARROW.get(arg.dtype, arg.dtype))
        memo[node] = Node(node.op, tuple(memo[one] for one in node.src), arg)
        if node in sample.inputs:
            array = np.frombuffer(sample.inputs[node], node.dtype.numpy)
            with np.errstate(over="ignore"):
                inputs[memo[node]] = array.astype(memo[node].dtype.numpy).tobytes()
    sinks = [memo[one] for one in sample.sinks]
    leaves = {leaf: np.frombuffer(inputs[leaf], leaf.dtype.numpy).reshape(leaf.shape)
              for leaf in inputs}  # fmt: skip
    return Sample(sample.test, sinks, inputs, evaluate(sinks, leaves))


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """Record the module's programs, then compile and compare them."""
    with pytest.MonkeyPatch.context() as patch:
        one = Recorder()
        patch.setattr(execution, "execute", one)
        yield one
    problems = compare(one.samples)
    assert not problems, "compiled programs disagree with the interpreter:\n" + "\n".join(problems)
    if emulator.available() and DEVICE == "cpu":
        narrow = [found for sample in one.samples if (found := narrowed(sample))]
        with fake.installed():
            problems = compare(narrow, "metal")
        assert not problems, "emulated Metal disagrees:\n" + "\n".join(problems)


@pytest.fixture(autouse=True)
def also_compiled(recorder: Recorder, request: pytest.FixtureRequest) -> None:
    """Name the running test to the recorder."""
    recorder.test, recorder.kept = request.node.name, 0
