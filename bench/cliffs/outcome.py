"""What became of one drawn program, and how it is kept in a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import ml_dtypes
import numpy as np

from bench.cases import Array
from bench.cliffs.program import Program
from bench.report import LAMINA, Row

# The largest errors that are no mistake, as shares of the largest value; also right is what is no
# more than `_AS_TORCH` times as far off as PyTorch.
_TOLERANCE = {"float64": 1e-9, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
_AS_TORCH = 8.0
# Results whose values are all smaller are compared as if they were that large, and as if they were
# that share of the largest value of any result: a derivative that is 0 is a difference of others.
_SMALL, _SMALL_SHARE = 1e-2, 1e-2


@dataclass(frozen=True)
class Failure:
    """Why a framework has no figure: the kind of error, and its first line."""

    kind: str
    text: str


@dataclass(frozen=True)
class KernelTime:
    """One kernel of one run: seconds, bytes of its buffers, arithmetic operations."""

    name: str
    seconds: float
    bytes: int
    flops: int


@dataclass
class Outcome:
    """What was measured of a program.

    samples: seconds of a call by column, in each round. itself: those of the best peer, twice in
    each round. first: seconds from the function to its first result. kernels: how many lamina
    launched. failures: by column. distances: of results from the reference, by column. wrong:
    lamina's results are, on several data. compared: there was a finite reference. busy: the GPU had
    other work, so that nothing was measured. slow: lamina's kernels, where it is behind. bound,
    predicted: seconds of a call by lamina's cost model, where it has not failed.
    """

    program: Program
    samples: dict[str, list[float]] = field(default_factory=dict)
    itself: tuple[list[float], list[float]] | None = None
    first: dict[str, float] = field(default_factory=dict)
    kernels: int = 0
    failures: dict[str, Failure] = field(default_factory=dict)
    distances: dict[str, float] = field(default_factory=dict)
    wrong: bool = False
    compared: bool = False
    busy: bool = False
    slow: list[KernelTime] = field(default_factory=list)
    bound: float = math.nan
    predicted: float = math.nan
    cost_failure: Failure | None = None
    regret: float = math.nan

    @property
    def row(self) -> Row:
        """A line of a table, in milliseconds."""
        samples = {name: [1e3 * one for one in times] for name, times in self.samples.items()}
        return Row(self.program.name, samples, "ms", (), self.itself)

    @property
    def ratio(self) -> float | None:
        """The best peer's time divided by lamina's; None where either is missing or lamina is
        wrong."""
        ratios = self.row.ratios()
        return None if self.wrong or not ratios else next(iter(ratios.values()))

    @property
    def peer(self) -> str:
        """The best peer."""
        return next(iter(self.row.ratios()), "")

    @property
    def seconds(self) -> float:
        """Of a call of lamina; NaN where that is not known."""
        ours = self.samples.get(LAMINA)
        return median(ours) if ours else math.nan

    @property
    def failed(self) -> bool:
        """Whether lamina has no right result."""
        return self.wrong or LAMINA in self.failures

    def raw(self) -> dict[str, Any]:
        """What `kept` reads."""
        numbers = asdict(self)
        del numbers["program"]
        facts = {"index": self.program.index, "family": self.program.family}
        known = {name: None if value is math.nan else value for name, value in numbers.items()}
        return facts | {"text": self.program.text(), "ratio": self.ratio} | known


def kept(raw: Mapping[str, Any], program: Program) -> Outcome | None:
    """The outcome that `Outcome.raw` has described; None where `program` is another one by now."""
    if raw["text"] != program.text():
        return None
    return Outcome(
        program,
        raw["samples"],
        tuple(raw["itself"]) if raw["itself"] else None,
        raw["first"],
        raw["kernels"],
        {column: Failure(**one) for column, one in raw["failures"].items()},
        raw["distances"],
        raw["wrong"],
        raw["compared"],
        raw["busy"],
        [KernelTime(**one) for one in raw["slow"]],
        math.nan if raw["bound"] is None else raw["bound"],
        math.nan if raw["predicted"] is None else raw["predicted"],
        Failure(**raw["cost_failure"]) if raw["cost_failure"] else None,
        math.nan if raw.get("regret") is None else raw["regret"],
    )


def only(arrays: Sequence[Array], places: Sequence[Array]) -> list[Array]:
    """The arrays with zeros but at `places`; as they are where these have other shapes."""
    if [one.shape for one in arrays] != [one.shape for one in places]:
        return list(arrays)
    pairs = zip(arrays, places, strict=True)
    return [np.where(place, array, 0).astype(array.dtype) for array, place in pairs]


def distance(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest error of several results, each as a share of its largest value; infinite for
    another number of results, other shapes, or values that are no numbers."""
    if [one.shape for one in got] != [one.shape for one in want]:
        return math.inf
    sizes = [_largest(one) for one in want]
    small = max(_SMALL, _SMALL_SHARE * max(sizes, default=0.0))
    errors = [
        _largest(_difference(a, b)) / max(size, small)
        for a, b, size in zip(got, want, sizes, strict=True)
    ]
    return max((one if math.isfinite(one) else math.inf for one in errors), default=0.0)


def _difference(got: Array, want: Array) -> Array:
    """The error of each element, in float64; 0 where `want` is beyond the range of `got`'s dtype
    and `got` is infinite, as a sum of 100,000 in float16 is. So it is where `want` is at the end of
    the range: 65,519.9 rounds to 65,504 in float16, and a sum that is 0.2 greater to infinity."""
    with np.errstate(over="ignore", invalid="ignore"):
        exact = want.astype(np.float64)
        rounded = (exact * (1.0 + _half_epsilon(got.dtype))).astype(got.dtype).astype(np.float64)
        difference = got.astype(np.float64) - exact
    is_overflow = np.isinf(rounded) & (got.astype(np.float64) == rounded)
    return np.where(is_overflow, 0.0, difference)


def _half_epsilon(dtype: np.dtype[Any]) -> float:
    """The relative error of rounding to a dtype, at most: 2**-11 of float16; 0 of integers."""
    return 0.0 if dtype.kind in "biu" else float(ml_dtypes.finfo(dtype).eps) / 2


def _largest(values: Array) -> float:
    return float(np.abs(values.astype(np.float64)).max()) if values.size else 0.0


def is_right(program: Program, ours: float, theirs: float) -> bool:
    """Whether lamina's distance from the reference is that of a right result, beside PyTorch's."""
    allowed = max(_TOLERANCE[program.dtype], _AS_TORCH * theirs if math.isfinite(theirs) else 0.0)
    return ours <= allowed
