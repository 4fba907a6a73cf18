"""The page: a table of each figure, with a line of each model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from bench.cases.modules import COMPILED, DRAWN, EAGER
from bench.door.measure import EMPTY, KEPT, Measured
from bench.report import LAMINA, Report, Row, Section, digits, sections_of

_LEAST_MEAN = {"cpu": 1.1, "cuda": 1.0}  # of Inductor's times of calls to lamina's
_FAILURES = "Failures"
_CALLS = "A turn counts its fastest call. "
_MACHINES = {
    "cpu": "1T is one thread, in processor time, 2T two, in wall-clock time. ",
    "cuda": "Models have the sizes `LARGE` of `tests/interop/zoo/table.py`, with float32 products "
    "in full precision. Calls are followed by a wait for the GPU, once for those of 5 ms. ",
}
_INTRODUCTION = (
    "Modules with random weights through `torch.compile`, with lamina as its backend and with "
    "Inductor (`torch.compile`), and eager (`torch`). A forward call is without derivatives, in "
    "evaluation mode; a training step is a loss and the derivatives of all parameters, in "
    "training mode. Each column is a process of its own; all take turns, for several rounds in a "
    "random order, and are stopped in the turns of the others. {machine}The first result of the "
    "forward call is counted from the start of its process, without the making of the model, and "
    "that of the training step from there on; the processors' time is of all threads and "
    "compilers. Results on new data are compared with eager PyTorch's in the same run, as "
    "`tests/interop/zoo/check.py` says; in training only lamina's are where random numbers are "
    "drawn, as only these are eager PyTorch's. Ratios are of another's time to lamina's: **above "
    "1 lamina is faster**. Written by `python -m bench.door`."
)


class Page:
    """A report on models. name: of its file in the folder `output`, whose models are kept."""

    def __init__(self, name: str, device: str, facts: dict[str, str], output: Path | None) -> None:
        kind = device.partition(":")[0]
        self._name, self._output, self._facts = name, output, facts
        self._least_mean = _LEAST_MEAN[kind]
        introduction = _INTRODUCTION.format(machine=_CALLS + _MACHINES[kind])
        self.report = Report("PyTorch programs through `torch.compile`", introduction)
        self.report.sections = sections_of(output, name) if output is not None else []

    def models(self) -> set[str]:
        """Those that the page has."""
        return {row.figure for section in self.report.sections for row in section.rows}

    def put(self, measured: Measured) -> None:
        """Add a model, in the place of what there was of it, and write the page."""
        for title, row in measured.rows.items():
            section = self._section(title)
            section.rows = [one for one in section.rows if one.figure != row.figure] + [row]
            section.notes = [self._mean(section.rows)]
        failures = self._section(_FAILURES)
        others = [note for note in failures.notes if not note.startswith(f"{measured.name}: ")]
        failures.notes = others + [f"{measured.name}: {note}" for note in measured.notes]
        self.report.sections.sort(key=_place)
        if self._output is not None:
            self.report.write(self._output, self._name)

    def _section(self, title: str) -> Section:
        """The section of that title, with the machine of this run."""
        for section in self.report.sections:
            if section.title == title:
                section.facts = section.facts | self._facts
                return section
        peers = () if title == _FAILURES else (EAGER, COMPILED)
        section = Section(title, peers, facts=self._facts)
        self.report.sections.append(section)
        return section

    def _mean(self, rows: Sequence[Row]) -> str:
        """A sentence about the ratios of Inductor's figures to lamina's, of the drawn models."""
        drawn = [row for row in rows if row.figure in DRAWN]
        ratios = [row.ratios()[COMPILED] for row in drawn if COMPILED in row.ratios()]
        failed = [row.figure for row in drawn if not row.ours()]
        without = f" Not measured of {LAMINA}: {', '.join(failed)}." if failed else ""
        if not ratios:
            return f"No ratios.{without}"
        mean = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
        least = self._least_mean if rows[0].unit == "ms" else 1
        return (
            f"Geometric mean of Inductor's by {LAMINA}'s: {digits(mean)} of {len(ratios)} (target "
            f"{least:g}), least {digits(min(ratios))}, most {digits(max(ratios))}.{without}"
        )


def _place(section: Section) -> tuple[bool, bool]:
    """Calls come first, then first results, then failures."""
    return section.title == _FAILURES, EMPTY in section.title or KEPT in section.title
