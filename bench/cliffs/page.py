"""The page of drawn programs: what is wrong first, then how far lamina is from its peers, and the
programs where it is furthest behind."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.cliffs.outcome import KernelTime, Outcome, kept
from bench.cliffs.program import MissingOperationError, Program
from bench.cliffs.run import CANDIDATES
from bench.report import LAMINA, digits, table

WORST = 20
_SHOWN = 4  # kernels of a program
_OUTSIDE = 0.6  # of a call: where its kernels take less, that is told
_DURATIONS = (  # of a call of lamina, in seconds
    ("calls below 30 us", 0.0, 3e-5),
    ("calls of 30 us to 1 ms", 3e-5, 1e-3),
    ("calls of 1 ms and more", 1e-3, math.inf),
)
INTRODUCTION = (
    "Programs are drawn from grammars of what networks are made of, with sizes from a distribution "
    "that nobody chose; each one follows from the seed and its index. The ratio of a program is "
    "the best peer's time divided by lamina's, the median over the rounds of turns: **above 1 "
    "lamina is faster**. Beside NVIDIA's GPUs all columns of a round run on one core, the next one "
    "in the next round. Programs where lamina fails or is wrong have no ratio, and count as below "
    "every share. Results are compared with PyTorch's in float64; one is wrong that is further off "
    "than the tolerance of its dtype and than 8 times PyTorch's own error, on three sets of data. "
    "The bound is by lamina's cost model: each input read once, each result written once, at full "
    "rate. "
    "Written by `python -m bench cliffs`; the numbers are in the JSON file beside this page."
)


@dataclass(frozen=True)
class Summary:
    """The figures of several outcomes.

    count: of programs; failed: of those without a right result; alone: of those that no peer ran.
    mean: the geometric mean of the ratios, NaN where there is none. near, half: the shares of the
    programs that are failed or have a ratio whose ratio is at least 0.9, or 0.5.
    """

    count: int
    failed: int
    alone: int
    mean: float
    near: float
    half: float

    def cells(self) -> list[str]:
        """As a line of the table."""
        shares = ["-" if math.isnan(one) else f"{one:.0%}" for one in (self.near, self.half)]
        mean = "-" if math.isnan(self.mean) else f"{self.mean:.2f}"
        return [str(self.count), str(self.failed or "-"), str(self.alone or "-"), mean, *shares]


def geometric_mean(values: Iterable[float]) -> float:
    """NaN where there are no values."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def summary(outcomes: Sequence[Outcome]) -> Summary:
    """The figures of `outcomes`."""
    failed = sum(one.failed for one in outcomes)
    ratios = [one.ratio for one in outcomes if one.ratio is not None and not one.failed]
    counted = failed + len(ratios)

    def share(limit: float) -> float:
        return sum(ratio >= limit for ratio in ratios) / counted if counted else math.nan

    mean = geometric_mean(ratios)
    return Summary(len(outcomes), failed, len(outcomes) - counted, mean, share(0.9), share(0.5))


@dataclass
class Page:
    """Everything that was measured with one seed on one device."""

    title: str
    facts: Mapping[str, str]
    device: str
    outcomes: list[Outcome]

    def put(self, outcome: Outcome) -> None:
        """Add an outcome, in the place of an earlier one of that program."""
        index = outcome.program.index
        others = [one for one in self.outcomes if one.program.index != index]
        self.outcomes = sorted([*others, outcome], key=lambda one: one.program.index)

    def markdown(self) -> str:
        """The whole page."""
        facts = table(["", ""], [[name, text] for name, text in self.facts.items()])
        parts = [f"# {self.title}", INTRODUCTION, "\n".join(facts)]
        parts += self._wrong() + self._failed() + self._shares() + self._worst()
        parts += self._compilers() + self._peers()
        return "\n\n".join(parts) + "\n"

    def worst(self) -> list[Outcome]:
        """Those with the smallest ratios, below 1."""
        measured = [(one.ratio, one) for one in self.outcomes if one.ratio is not None]
        behind = sorted((pair for pair in measured if pair[0] < 1.0), key=lambda pair: pair[0])
        return [outcome for _, outcome in behind[:WORST]]

    def command(self, program: Program) -> str:
        """What examines one program again."""
        place = "" if self.device == "cpu" else f" --device {self.device}"
        return f"python -m bench cliffs --seed {program.seed} --case {program.index}{place}"

    def _text(self, program: Program) -> str:
        return f"`{self.command(program)}`\n\n```python\n{program.text()}```"

    def _wrong(self) -> list[str]:
        wrong = [one for one in self.outcomes if one.wrong]
        if not wrong:
            return []
        parts = [f"## WRONG RESULTS: {len(wrong)}"]
        for one in wrong:
            told = ", ".join(f"{share:.1g} {name}" for name, share in one.distances.items())
            parts += [f"### {one.program.name}: wrong by {told}", self._text(one.program)]
        return parts

    def _failed(self) -> list[str]:
        failed = [one for one in self.outcomes if LAMINA in one.failures]
        if not failed:
            return []
        parts = [f"## No result of lamina: {len(failed)}"]
        for one in failed:
            failure = one.failures[LAMINA]
            parts += [f"### {one.program.name}: {failure.kind}", failure.text]
            parts.append(self._text(one.program))
        return parts

    def _shares(self) -> list[str]:
        families = list(dict.fromkeys(one.program.family for one in self.outcomes))
        lines = [["**all**", *summary(self.outcomes).cells()]]
        for chosen in (False, True):
            some = [one for one in self.outcomes if bool(one.program.gradients) is chosen]
            name = "with derivatives" if chosen else "without derivatives"
            lines.append([name, *summary(some).cells()])
        for name, low, high in _DURATIONS:
            some = [one for one in self.outcomes if low <= one.seconds < high]
            lines.append([name, *summary(some).cells()])
        for family in families:
            own = [one for one in self.outcomes if one.program.family == family]
            lines.append([family, *summary(own).cells()])
        head = ["programs", "count", "failed", "no peer", "geometric mean", ">= 0.9", ">= 0.5"]
        unseen = sum(not (one.compared or one.failed) for one in self.outcomes)
        note = f"Not compared, as there is no finite reference: {unseen}."
        if busy := [one.program.name for one in self.outcomes if one.busy]:
            note += f" Not measured, as the GPU had other work: {', '.join(busy)}."
        return ["## Ratios", "\n".join(table(head, lines)), note, *self._model()]

    def _model(self) -> list[str]:
        """How far calls are from the bounds and the predictions of the cost model, and where it
        fails."""
        known = [one for one in self.outcomes if one.bound > 0 and one.seconds > 0]
        if not known:
            return []
        below = ", ".join(one.program.name for one in known if one.seconds < one.bound)
        shares = geometric_mean(one.bound / one.seconds for one in known)
        predicted = geometric_mean(one.predicted / one.seconds for one in known)
        near, far = (_share_within(known, factor) for factor in (1.5, 3.0))
        lines = [
            f"Geometric means of {len(known)} programs: the bound is {shares:.0%} of a call, the "
            f"prediction {predicted:.0%}. Faster than their bounds: {below or 'none'}. Within a "
            f"factor of 1.5 are {near:.0%} of the predictions, within 3 {far:.0%}."
        ]
        if regrets := sorted(one.regret for one in known if not math.isnan(one.regret)):
            most = regrets[math.ceil(0.95 * len(regrets)) - 1]
            lines.append(
                f"The first choice of schedules takes {median(regrets):.2f} times as long as the "
                f"best of {CANDIDATES} in the median of {len(regrets)} programs, and at most "
                f"{most:.2f} times as long in 95% of them."
            )
        failures = [(one, one.cost_failure) for one in self.outcomes if one.cost_failure]
        for outcome, failure in failures:
            lines.append(f"- {outcome.program.name}: no bound: {failure.kind}: {failure.text}")
        return ["\n".join(lines)]

    def _worst(self) -> list[str]:
        worst = self.worst()
        if not worst:
            return []
        lines = [
            [str(place), one.program.name, f"{one.ratio:.2f} {one.peer}", _times(one),
             _bound(one), _noise(one), str(one.kernels), cause(one)]
            for place, one in enumerate(worst, 1)
        ]  # fmt: skip
        head = ["", "program", "ratio", "ms", "bound", "noise", "kernels", "slowest kernels"]
        parts = [f"## The worst {len(worst)}", "\n".join(table(head, lines))]
        return [*parts, *(f"{one.program.name}: {self._text(one.program)}" for one in worst)]

    def _compilers(self) -> list[str]:
        """Seconds to the first result, of everybody who has one."""
        columns = list(dict.fromkeys(name for one in self.outcomes for name in one.first))
        lines = []
        for column in columns:
            taken = sorted(one.first[column] for one in self.outcomes if column in one.first)
            quantities = (median(taken), taken[int(0.9 * len(taken))], taken[-1])
            lines.append([column, str(len(taken)), *(f"{one:.2f} s" for one in quantities)])
        head = ["", "programs", "median", "9 of 10 within", "longest"]
        return ["## From the function to its first result", "\n".join(table(head, lines))]

    def _peers(self) -> list[str]:
        """Lamina beside each peer alone, and what the peers could not run."""
        columns = [name for one in self.outcomes for name in one.samples if name != LAMINA]
        lines = []
        for column in dict.fromkeys(columns):
            ratios = [one.row.ratios().get(column) for one in self.outcomes if not one.failed]
            known = [one for one in ratios if one is not None]
            near = sum(one >= 0.9 for one in known) / max(len(known), 1)
            mean = geometric_mean(known)
            lines.append([column, str(len(known)), f"{mean:.2f}", f"{near:.0%}"])
        parts = ["## Beside each peer"]
        parts.append("\n".join(table(["", "programs", "geometric mean", ">= 0.9"], lines)))
        notes = [
            f"- {one.program.name}: {column}: {failure.kind}: {failure.text}"
            for one in self.outcomes
            for column, failure in one.failures.items()
            if column != LAMINA and failure.kind != MissingOperationError.__name__
        ]
        return [*parts, "\n".join(["What peers could not run:", "", *notes])] if notes else parts

    def write(self, folder: Path, name: str) -> None:
        """Write ``name.md``, and ``name.json`` with every sample."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(self.markdown(), encoding="utf-8")
        outcomes = [one.raw() for one in self.outcomes]
        raw = {"facts": dict(self.facts), "device": self.device, "outcomes": outcomes}
        (folder / f"{name}.json").write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")


def earlier(
    folder: Path, name: str, seed: int, drawn: Callable[[int], Program]
) -> list[Outcome]:
    """The outcomes that `Page.write` has written there with that seed; those of programs that are
    drawn otherwise by now are left out."""
    path = folder / f"{name}.json"
    if not path.exists():
        return []
    raw = json.loads(path.read_text(encoding="utf-8"))
    if raw["facts"]["seed"] != str(seed):
        return []
    found = (kept(one, drawn(one["index"])) for one in raw["outcomes"])
    return [one for one in found if one is not None]


def _share_within(outcomes: Sequence[Outcome], factor: float) -> float:
    """The share of the outcomes whose predictions are within a factor of what was measured."""
    ratios = [one.predicted / one.seconds for one in outcomes]
    return sum(1 / factor <= ratio <= factor for ratio in ratios) / len(ratios)


def cause(outcome: Outcome) -> str:
    """Where the time goes: what kernels take of a call, where much of it is spent outside of them,
    and each of the slowest with its share and its rates."""
    whole = sum(one.seconds for one in outcome.slow)
    if not whole:
        return "-"
    told = [_rates(one, whole) for one in outcome.slow[:_SHOWN] if one.seconds > 0.05 * whole]
    if whole < _OUTSIDE * outcome.seconds:
        told.insert(0, f"kernels take {whole / outcome.seconds:.0%} of the call")
    return "; ".join(told)


def _rates(kernel: KernelTime, whole: float) -> str:
    rate = 1e-9 / max(kernel.seconds, 1e-9)
    rates = f"{digits(kernel.bytes * rate)} GB/s, {digits(kernel.flops * rate)} GFLOP/s"
    return f"{kernel.name} {kernel.seconds / whole:.0%} ({rates})"


def _times(outcome: Outcome) -> str:
    """Medians, lamina's first."""
    row = outcome.row
    told = [digits(median(row.ours()))]
    told += [f"{digits(median(row.samples[name]))} {name}" for name in row.ratios()]
    return ", ".join(told)


def _bound(outcome: Outcome) -> str:
    """In milliseconds, and what is predicted."""
    if math.isnan(outcome.bound):
        return "-"
    return f"{digits(1e3 * outcome.bound)}, predicted {digits(1e3 * outcome.predicted)}"


def _noise(outcome: Outcome) -> str:
    noise = outcome.row.noise()
    return "-" if noise is None else f"{noise:.0%}"
