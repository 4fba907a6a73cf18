"""``python -m tests.interop.opinfo [NAME ...]``: PyTorch's database of operations (OpInfo) through
``torch.compile(..., backend="lamina")``, values and derivatives beside PyTorch's.

Programs run in the reference interpreter, unless LAMINA_DEVICE says otherwise. A line for each
operation that is not wholly lamina's says why; the last one counts. With ``--results`` each outcome
becomes a line of a JSON Lines file; the last line of an operation and a dtype counts. ``--resume``
passes over operations that have a line, so that a run that was stopped goes on where it was.
``--markdown`` writes a page of all outcomes in the file.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

import lamina as lm
from lamina.interop.torch.compiled import Compiled, Fallback
from lamina.interop.torch.dynamo import Function, compile_with

# What they return nobody has written; jiterator is for GPUs.
LEFT_OUT = frozenset({
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "jiterator_unary", "jiterator_binary", "jiterator_binary_return_by_ref",
    "jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args",
})  # fmt: skip
# Which of equal elements these name is not determined. Samples of these dtypes have equal ones.
# The value: how many results are compared.
FREE_INDICES = {"argsort": 0, "kthvalue": 1, "mode": 1, "msort": 1, "sort": 1, "topk": 1}
WITH_EQUALS = (torch.bfloat16, torch.int64, torch.bool)
OK, LEFT, REFUSED, WRONG = "ok", "left to PyTorch", "refused by Dynamo", "wrong"
SLOW, CRASHED = "out of time", "crashed"
STATUSES = (OK, LEFT, REFUSED, WRONG, SLOW, CRASHED)
DTYPES = ("float32", "float64", "bfloat16", "int64", "bool")


@dataclass(frozen=True)
class Tolerance:
    """Of values, relative and absolute. Derivatives have five times as much."""

    relative: float
    absolute: float


# Of results with these dtypes; others are compared exactly. bfloat16 has 8 bits: 0.4 % a rounding.
_TOLERANCES = {
    torch.float64: Tolerance(1e-7, 1e-9), torch.complex128: Tolerance(1e-7, 1e-9),
    torch.float32: Tolerance(2e-4, 2e-5), torch.complex64: Tolerance(2e-4, 2e-5),
    torch.float16: Tolerance(5e-3, 5e-3), torch.bfloat16: Tolerance(3e-2, 3e-2),
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What became of an operation's samples: the worst of OK, LEFT, REFUSED and WRONG; or SLOW, if
    the time limit passed before the last sample, or CRASHED, if the process ended meanwhile."""

    name: str
    dtype: str
    status: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.dtype}: {self.status}; {self.reason}"


def _database() -> Any:
    """PyTorch's module, which freezes flags of its process: only a run imports it."""
    from torch.testing._internal import common_methods_invocations

    return common_methods_invocations


def entries(names: Sequence[str], dtype: torch.dtype = torch.float32) -> Iterator[Any]:
    """The entries of the database that take a dtype, all or those of `names`."""
    for entry in _database().op_db:
        is_wanted = entry.name in names if names else entry.name not in LEFT_OUT
        if is_wanted and dtype in entry.dtypes:
            yield entry


class _Recorder:
    """A backend that keeps what it compiled."""

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def __call__(self, graph: fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return compile_with(graph, inputs, self._compile)

    def _compile(self, module: fx.GraphModule) -> Compiled:
        compiled = Compiled(module, Fallback.ALLOWED)
        self.compiled.append(compiled)
        return compiled

    @property
    def left(self) -> list[str]:
        """The operations left to PyTorch, with the reasons."""
        operations = [left for compiled in self.compiled for left in compiled.left]
        return list(dict.fromkeys(f"{one.operation}: {one.reason}" for one in operations))


class _OutOfTimeError(BaseException):
    """Not an Exception, which PyTorch's tracer would catch."""


@contextmanager
def _at_most(seconds: int) -> Iterator[None]:
    """Raise _OutOfTimeError in the block when the process computed that long; 0: never."""
    def stop(*_: Any) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def name_of(entry: Any) -> str:
    """``norm.nuc``: the operation's name, and that of the variant if there is one."""
    return ".".join(filter(None, (entry.name, entry.variant_test_name)))


def spread(samples: Sequence[Any], count: int) -> list[Any]:
    """`count` of the samples, from the first to the last in even steps; all if there are fewer."""
    if len(samples) <= count:
        return list(samples)
    if count == 1:
        return [samples[0]]
    # 10 samples, 4 of them: places 0, 3, 6, 9.
    return [samples[round(step * (len(samples) - 1) / (count - 1))] for step in range(count)]


def run(
    entry: Any, limit: int, dtype: torch.dtype = torch.float32, seconds: int = 0
) -> Outcome:
    """Compare `limit` samples of an entry, in at most `seconds` if that is not 0."""
    name = name_of(entry)
    dtype_name = str(dtype).removeprefix("torch.")
    is_differentiable = entry.supports_autograd and dtype in entry.supported_backward_dtypes("cpu")
    recorder = _Recorder()
    try:
        samples = list(entry.sample_inputs("cpu", dtype, requires_grad=is_differentiable))
        with _at_most(seconds):
            for sample in spread(samples, limit):
                torch._dynamo.reset()
                _compare(entry, sample, recorder)
    except _OutOfTimeError:
        return Outcome(name, dtype_name, SLOW, f"{seconds} seconds")
    except AssertionError as error:
        return Outcome(name, dtype_name, WRONG, _sentence(error))
    except Exception as error:  # PyTorch's tracer raises errors of many types
        inner = getattr(error, "inner_exception", error)
        return Outcome(name, dtype_name, REFUSED, f"{type(inner).__name__}: {_sentence(inner)}")
    left = recorder.left
    return Outcome(name, dtype_name, LEFT if left else OK, "; ".join(left))


def _sentence(error: BaseException) -> str:
    """What an error says, on one line, without Dynamo's hints and the user's code."""
    text = " ".join(str(error).split())
    for mark in (" Hint: ", " Developer debug context: ", " from user code: ", " Caused by: "):
        text = text.partition(mark)[0]
    return text[:300]


@dataclass(frozen=True)
class _Results:
    values: list[Any]
    slopes: list[Any]


def _compare(entry: Any, sample: Any, recorder: _Recorder) -> None:
    """Raise AssertionError where a value or a derivative differs from PyTorch's, and what has 8
    bits is not as near as PyTorch's to what float64 gives."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return entry.op(*args, **kwargs)

    leaves = [x for x in _tensors((sample.input, sample.args, sample.kwargs)) if x.requires_grad]
    expected = _values(call, sample)
    results = _values(torch.compile(call, backend=recorder, fullgraph=True), sample)
    if entry.name in FREE_INDICES and any(one.dtype in WITH_EQUALS for one in expected):
        count = FREE_INDICES[entry.name]
        _assert_close(results[:count], expected[:count])
        return
    places = [place for place, value in enumerate(expected) if value.requires_grad]
    weights = [torch.randn_like(expected[place]) for place in places]
    theirs = _Results(expected, _slopes([expected[place] for place in places], leaves, weights))
    ours = _Results(results, _slopes([results[place] for place in places], leaves, weights))
    try:
        _assert_close(ours.values, theirs.values)
        _assert_close(ours.slopes, theirs.slopes, 5)
    except AssertionError:
        if all(one.dtype is not torch.bfloat16 for one in expected):
            raise
        widened = sample.transform(_widened)
        exact = _values(call, widened)
        inner = (widened.input, widened.args, widened.kwargs)
        wide_leaves = [x for x in _tensors(inner) if x.requires_grad]
        slopes = _slopes(
            [exact[place] for place in places], wide_leaves, [_widened(one) for one in weights]
        )
        if not _are_as_near(ours, theirs, _Results(exact, slopes)):
            raise


def _values(call: Any, sample: Any) -> list[Any]:
    torch.manual_seed(0)
    args, kwargs = _arguments(sample)
    return _tensors(call(*args, **kwargs))


def _slopes(values: list[Any], leaves: list[Any], weights: list[Any]) -> list[Any]:
    """The derivatives of the sum of the weighted values for each leaf."""
    if not leaves or not values:
        return []
    return list(torch.autograd.grad(
        values, leaves, weights, materialize_grads=True, allow_unused=True
    ))  # fmt: skip


def _widened(value: Any) -> Any:
    """A tensor of floating-point numbers in float64, as a leaf if it is one."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    return value.detach().double().requires_grad_(value.requires_grad)


def _are_as_near(ours: _Results, theirs: _Results, exact: _Results) -> bool:
    """Whether the greatest error of each tensor is at most PyTorch's, and a rounding."""
    for our_tensor, their_tensor, right in zip(
        (*ours.values, *ours.slopes), (*theirs.values, *theirs.slopes),
        (*exact.values, *exact.slopes), strict=True,
    ):  # fmt: skip
        our_error = (our_tensor - right).abs().max()
        their_error = (their_tensor - right).abs().max()
        if not our_error <= their_error + 2**-8 * right.abs().max():
            return False
    return True


def _assert_close(ours: Sequence[Any], theirs: Sequence[Any], times: int = 1) -> None:
    """times: how much of the tolerance is allowed."""
    for our_tensor, their_tensor in zip(ours, theirs, strict=True):
        tolerance = _TOLERANCES.get(their_tensor.dtype, Tolerance(0, 0))
        torch.testing.assert_close(
            our_tensor, their_tensor, rtol=times * tolerance.relative,
            atol=times * tolerance.absolute, equal_nan=True,
        )  # fmt: skip


def _arguments(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With copies of what an operation may change in place."""
    def fresh(value: Any) -> Any:
        is_changeable = isinstance(value, torch.Tensor) and not value.requires_grad
        return value.detach().clone() if is_changeable else value

    values = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = torch.utils._pytree.tree_map(fresh, values)
    return (first, *args), kwargs


def _tensors(tree: Any) -> list[Any]:
    return [
        one for one in torch.utils._pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)
    ]


def draw_in_place() -> None:
    """Let random operations draw from the seed that is set, as Inductor's tests do: Dynamo cannot
    trace the forks of the generator that the database wraps them in."""
    _database().wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


def page(outcomes: Sequence[Outcome]) -> str:
    """A Markdown page: counts of each dtype, what is not wholly lamina's and why, and the rest."""
    lines = [
        "# Operations of PyTorch through `torch.compile(f, backend=\"lamina\")`", "",
        "The entries of PyTorch's database of operations (OpInfo) with `fullgraph=True`: values "
        "and, of floats, derivatives beside PyTorch's, of the first and the last sample. Made by "
        "`python -m tests.interop.opinfo`, whose docstrings say what the words mean, in the "
        "reference interpreter.", "",
        f"| dtype | {' | '.join(STATUSES)} | whole outside `linalg`, `fft` and `special` |",
        f"|---|{'---|' * len(STATUSES)}---|",
    ]  # fmt: skip
    dtypes = [dtype for dtype in DTYPES if any(one.dtype == dtype for one in outcomes)]
    for dtype in dtypes:
        count = Counter(one.status for one in outcomes if one.dtype == dtype)
        numbers = " | ".join(str(count[status]) for status in STATUSES)
        common = [
            one.status for one in outcomes
            if one.dtype == dtype and not one.name.startswith(("linalg.", "fft.", "special."))
        ]  # fmt: skip
        whole = common.count(OK)
        share = f"{whole} of {len(common)}, {whole / len(common):.1%}" if common else ""
        lines.append(f"| {dtype} | {numbers} | {share} |")
    lines += ["", "## Not wholly lamina's", "", "| operation | outcome | dtypes | reason |",
              "|---|---|---|---|"]  # fmt: skip
    others: dict[tuple[str, str, str], list[str]] = {}
    for one in outcomes:
        if one.status != OK:
            reason = one.reason.replace("|", "/")[:160]
            others.setdefault((one.name, one.status, reason), []).append(one.dtype)
    for (name, status, reason), of_dtypes in sorted(others.items()):
        lines.append(f"| {name} | {status} | {', '.join(of_dtypes)} | {reason} |")
    partial = {one.name for one in outcomes if one.status != OK}
    always = sorted({one.name for one in outcomes} - partial)
    return "\n".join([*lines, "", "## Whole in every dtype", "", ", ".join(always), ""])


class Record:
    """Outcomes in a JSON Lines file. The last line of an operation and a dtype counts."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path is not None and path.exists() else []
        outcomes = [Outcome(**json.loads(line)) for line in lines]
        self._outcomes = {(one.name, one.dtype): one for one in outcomes}

    @property
    def outcomes(self) -> list[Outcome]:
        return list(self._outcomes.values())

    def has(self, name: str, dtype: str) -> bool:
        return (name, dtype) in self._outcomes

    def add(self, outcome: Outcome) -> None:
        self._outcomes[outcome.name, outcome.dtype] = outcome
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")


def _run_dtype(options: argparse.Namespace, dtype: str, record: Record) -> None:
    count: Counter[str] = Counter()
    for entry in entries(options.names, getattr(torch, dtype)):
        name = name_of(entry)
        if options.resume and record.has(name, dtype):
            continue
        record.add(Outcome(name, dtype, CRASHED))  # stays if the process ends before the next line
        outcome = run(entry, options.limit, getattr(torch, dtype), options.seconds)
        record.add(outcome)
        count[outcome.status] += 1
        if outcome.status != OK:
            print(outcome, flush=True)
    numbers = ", ".join(f"{number} {status}" for status, number in count.most_common())
    print(f"{dtype}: {numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operations; all by default")
    parser.add_argument("--limit", type=int, default=2, help="samples of each entry")
    parser.add_argument(
        "--seconds", type=int, default=60, help="of processor time for an entry; 0: no limit"
    )
    parser.add_argument("--dtypes", nargs="*", default=["float32"], choices=DTYPES)
    parser.add_argument("--results", type=Path, help="JSON Lines of the outcomes, appended to")
    parser.add_argument("--resume", action="store_true", help="pass over what has an outcome")
    parser.add_argument("--markdown", type=Path, help="write the page of all outcomes there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    draw_in_place()
    record = Record(options.results)
    with lm.using(device=os.environ.get("LAMINA_DEVICE", "interp")):
        for dtype in options.dtypes:
            _run_dtype(options, dtype, record)
    if options.markdown:
        options.markdown.write_text(page(record.outcomes))


if __name__ == "__main__":
    main()
