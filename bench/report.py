"""The results as a page of tables, and as raw numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.statistics import ratio

LAMINA = "lamina"


def quantity(value: float, unit: str) -> str:
    """A number with three digits that mean something: ``4.31 ms``."""
    digits = f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return f"{digits} {unit}".rstrip()


@dataclass(frozen=True)
class Target:
    """What a figure is held to: at most `limit`, for the value or for the ratio to `peer`."""

    limit: float
    peer: str = ""

    def text(self, unit: str) -> str:
        """The target as the table says it."""
        if self.peer:
            return f"<= {self.limit:g}x {self.peer}"
        return f"<= {quantity(self.limit, unit)}"


@dataclass
class Row:
    """One line of a table: samples of every framework, in the order of the rounds."""

    figure: str
    samples: Mapping[str, Sequence[float]]
    unit: str
    target: Target | None = None

    def ratios(self) -> dict[str, float]:
        """lamina's figure divided by each peer's."""
        ours = self.samples.get(LAMINA, ())
        return {
            peer: ratio(ours, theirs)
            for peer, theirs in self.samples.items()
            if peer != LAMINA and len(theirs) == len(ours) and theirs and min(theirs) > 0
        }

    def met(self) -> bool | None:
        """Whether the target is reached; None without one, or when it was not measured."""
        ours = self.samples.get(LAMINA, ())
        if self.target is None or not ours:
            return None
        if not self.target.peer:
            return median(ours) <= self.target.limit
        against = self.ratios().get(self.target.peer)
        return None if against is None else against <= self.target.limit

    def cells(self, peers: Sequence[str]) -> list[str]:
        """The line, with a column for every peer."""

        def shown(name: str) -> str:
            values = self.samples.get(name)
            return quantity(median(values), self.unit) if values else "-"

        ratios = ", ".join(f"{value:.3g} {peer}" for peer, value in self.ratios().items())
        met = {None: "-", True: "yes", False: "**no**"}[self.met()]
        target = self.target.text(self.unit) if self.target else "-"
        return [self.figure, shown(LAMINA), *map(shown, peers), ratios or "-", target, met]


@dataclass
class Section:
    """A heading, one table, and sentences below it."""

    title: str
    peers: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The section as text."""
        lines = [f"## {self.title}", ""]
        if self.rows:
            head = ["figure", LAMINA, *self.peers, "ratio", "target", "met"]
            lines += [*table(head, [row.cells(self.peers) for row in self.rows]), ""]
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

    def markdown(self) -> str:
        """The whole page."""
        facts = table(["", ""], [[name, text] for name, text in self.facts.items()])
        rows = [row for section in self.sections for row in section.rows]
        decided = [met for row in rows if (met := row.met()) is not None]
        count = f"Targets met: {sum(decided)} of {len(decided)}."
        pages = [section.markdown() for section in self.sections]
        head = f"# {self.title}\n\n{self.introduction}\n\n" + "\n".join(facts)
        return "\n".join([f"{head}\n\n{count}\n", *pages])

    def raw(self) -> dict[str, Any]:
        """Every sample of every row."""
        return {
            "facts": self.facts,
            "sections": [
                {
                    "title": section.title,
                    "notes": section.notes,
                    "rows": [
                        {
                            "figure": row.figure,
                            "unit": row.unit,
                            "samples": {name: list(v) for name, v in row.samples.items()},
                            "ratios": row.ratios(),
                            "met": row.met(),
                        }
                        for row in section.rows
                    ],
                }
                for section in self.sections
            ],
        }

    def write(self, folder: Path, name: str) -> Path:
        """Write ``name.md`` and ``name.json``; returns the page."""
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / f"{name}.md"
        page.write_text(self.markdown(), encoding="utf-8")
        raw = json.dumps(self.raw(), indent=1)
        page.with_suffix(".json").write_text(raw + "\n", encoding="utf-8")
        return page
