"""The results as a page of tables, and as raw numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.statistics import noise, ratio

LAMINA = "lamina"
BEST, VALUE, SHARE = "best peer", "value", "share"
_MOST_NOISE = 0.05  # more of it excuses nothing


def quantity(value: float, unit: str) -> str:
    """A number with three digits that mean something: ``4.31 ms``."""
    digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{digits} {unit}".rstrip()


@dataclass(frozen=True)
class Target:
    """What a figure is held to.

    of: BEST or the name of a peer: its time is at least `limit` times lamina's. VALUE: lamina's
    figure is at most `limit`. SHARE: lamina reaches at least that share of the machine's limit.
    most: the peer takes at most, not at least, `limit` times as long as lamina.
    """

    limit: float
    of: str = BEST
    most: bool = False

    def text(self, unit: str) -> str:
        """The target as the table says it."""
        if self.of == VALUE:
            return f"<= {quantity(self.limit, unit)}"
        if self.of == SHARE:
            return f"{self.limit:.0%} of limit"
        return f"{'<= ' if self.most else ''}{self.limit:g}x {self.of}"


@dataclass
class Row:
    """One line of a table: samples of every framework, in the order of the rounds.

    itself: a peer's samples, measured twice in each round. bound: what the machine's limit would
    allow in each round, in the same unit.
    """

    figure: str
    samples: Mapping[str, Sequence[float]]
    unit: str
    targets: tuple[Target, ...] = ()
    itself: tuple[Sequence[float], Sequence[float]] | None = None
    bound: Sequence[float] = ()

    def ratios(self) -> dict[str, float]:
        """Each peer's figure divided by lamina's, the best peer first: above 1 lamina is better."""
        ours = self.samples.get(LAMINA, ())
        found = {
            peer: ratio(theirs, ours)
            for peer, theirs in self.samples.items()
            if peer != LAMINA and ours and theirs and min(ours) > 0
        }
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def noise(self) -> float | None:
        """How far from 1 a ratio may be for no reason; see `bench.statistics.noise`."""
        return noise(*self.itself) if self.itself else None

    def share(self) -> float | None:
        """The share of the machine's limit that lamina reaches."""
        ours = self.samples.get(LAMINA, ())
        return ratio(self.bound, ours) if self.bound and ours else None

    def reached(self, target: Target) -> bool | None:
        """Whether a target is reached; None when it was not measured. A ratio that differs from 1
        by no more than the noise, or 5 % where that is more, counts as 1."""
        ours = self.samples.get(LAMINA, ())
        if target.of == VALUE:
            return median(ours) <= target.limit if ours else None
        if target.of == SHARE:
            share = self.share()
            return None if share is None else share >= target.limit
        ratios = self.ratios()
        found = next(iter(ratios.values()), None) if target.of == BEST else ratios.get(target.of)
        if found is not None and abs(found - 1.0) <= min(self.noise() or 0.0, _MOST_NOISE):
            found = 1.0
        if found is None:
            return None
        return found <= target.limit if target.most else found >= target.limit

    def cells(self, peers: Sequence[str]) -> list[str]:
        """The line, with a column for every peer."""

        def shown(name: str) -> str:
            values = self.samples.get(name)
            return quantity(median(values), self.unit) if values else "-"

        ratios = ", ".join(f"{value:.3g} {peer}" for peer, value in self.ratios().items())
        deviation, share = self.noise(), self.share()
        verdict = {None: "-", True: "yes", False: "**no**"}
        return [
            self.figure, shown(LAMINA), *map(shown, peers), ratios or "-",
            "-" if deviation is None else f"{deviation:.1%}",
            "-" if share is None else f"{share:.0%}",
            "; ".join(one.text(self.unit) for one in self.targets) or "-",
            "; ".join(verdict[self.reached(one)] for one in self.targets) or "-",
        ]  # fmt: skip


@dataclass
class Section:
    """A heading, one table, and sentences below it."""

    title: str
    peers: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The section as text; columns that say nothing are left out."""
        lines = [f"## {self.title}", ""]
        if self.rows:
            head = ["figure", LAMINA, *self.peers, "ratio", "noise", "share", "target", "met"]
            cells = [row.cells(self.peers) for row in self.rows]
            told = [i for i in range(len(head)) if any(line[i] != "-" for line in cells)]
            cells = [[line[i] for i in told] for line in cells]
            lines += [*table([head[i] for i in told], cells), ""]
        lines += [f"- {note}" for note in self.notes]
        return "\n".join(lines).rstrip() + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"table: {len(row)} cells in a table of {len(head)} columns: {row}")
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]


@dataclass
class Report:
    """All of a run."""

    title: str
    facts: dict[str, str]
    introduction: str
    sections: list[Section] = field(default_factory=list)

    def missed(self) -> list[tuple[Section, Row]]:
        """The rows with a target that is not reached."""
        return [
            (section, row)
            for section in self.sections
            for row in section.rows
            if any(row.reached(one) is False for one in row.targets)
        ]

    def markdown(self) -> str:
        """The whole page."""
        facts = table(["", ""], [[name, text] for name, text in self.facts.items()])
        rows = [row for section in self.sections for row in section.rows]
        verdicts = [row.reached(one) for row in rows for one in row.targets]
        decided = [one for one in verdicts if one is not None]
        count = f"Targets met: {sum(decided)} of {len(decided)}."
        if open_ := len(verdicts) - len(decided):
            count += f" Not measured: {open_}."
        if missed := [f"- {section.title}: {row.figure}" for section, row in self.missed()]:
            count += " Missed:\n\n" + "\n".join(missed)
        pages = [section.markdown() for section in self.sections]
        head = f"# {self.title}\n\n{self.introduction}\n\n" + "\n".join(facts)
        return "\n".join([f"{head}\n\n{count}\n", *pages])

    def raw(self) -> dict[str, Any]:
        """Every sample of every row."""
        return {"facts": self.facts, "sections": [_raw(one) for one in self.sections]}

    def write(self, folder: Path, name: str) -> Path:
        """Write ``name.md`` and ``name.json``; returns the page."""
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / f"{name}.md"
        page.write_text(self.markdown(), encoding="utf-8")
        raw = json.dumps(self.raw(), indent=1)
        page.with_suffix(".json").write_text(raw + "\n", encoding="utf-8")
        return page


def _raw(section: Section) -> dict[str, Any]:
    rows = [
        {
            "figure": row.figure,
            "unit": row.unit,
            "samples": {name: list(values) for name, values in row.samples.items()},
            "ratios": row.ratios(),
            "itself": row.itself,
            "noise": row.noise(),
            "bound": list(row.bound),
            "share": row.share(),
            "targets": [[one.limit, one.of, row.reached(one)] for one in row.targets],
        }
        for row in section.rows
    ]
    return {"title": section.title, "notes": section.notes, "rows": rows}
