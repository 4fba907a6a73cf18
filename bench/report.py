"""The results as a page of tables, and as raw numbers beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.samples import noise, ratio

LAMINA = "lamina"
BEST, VALUE, SHARE = "best peer", "value", "share"
_MOST_NOISE = 0.05  # more of it excuses nothing


def digits(value: float) -> str:
    """Three digits that mean something, or all before the point: ``4.31``, ``1234``."""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def quantity(value: float, unit: str) -> str:
    """A number with its unit: ``4.31 ms``."""
    return f"{digits(value)} {unit}".rstrip()


def measured(samples: Sequence[float], unit: str) -> str:
    """The median, and the least of several samples in brackets: ``4.31 ms (4.02)``."""
    middle = quantity(median(samples), unit)
    return f"{middle} ({digits(min(samples))})" if len(samples) > 1 else middle


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
    allow in each round, in the same unit. subject: whose figure is compared with the others'.
    """

    figure: str
    samples: Mapping[str, Sequence[float]]
    unit: str
    targets: tuple[Target, ...] = ()
    itself: tuple[Sequence[float], Sequence[float]] | None = None
    bound: Sequence[float] = ()
    subject: str = LAMINA

    def ours(self) -> Sequence[float]:
        """The subject's samples, none where it was not measured."""
        return self.samples.get(self.subject, ())

    def ratios(self) -> dict[str, float]:
        """Each peer's figure divided by the subject's, the best peer first: above 1 the subject is
        better."""
        ours = self.ours()
        found = {
            peer: ratio(theirs, ours)
            for peer, theirs in self.samples.items()
            if peer != self.subject and ours and theirs and min(ours) > 0
        }
        return dict(sorted(found.items(), key=lambda item: item[1]))

    def noise(self) -> float | None:
        """How far from 1 a ratio may be for no reason; see `bench.samples.noise`."""
        return noise(*self.itself) if self.itself else None

    def share(self) -> float | None:
        """The share of the machine's limit that lamina reaches."""
        ours = self.ours()
        return ratio(self.bound, ours) if self.bound and ours else None

    def reached(self, target: Target) -> bool | None:
        """Whether a target is reached; None when it was not measured. A ratio that differs from 1
        by no more than the noise, or 5 % where that is more, counts as 1."""
        ours = self.ours()
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
            return measured(values, self.unit) if values else "-"

        ratios = ", ".join(f"{value:.3g} {peer}" for peer, value in self.ratios().items())
        deviation, share = self.noise(), self.share()
        verdict = {None: "-", True: "yes", False: "**no**"}
        return [
            self.figure, shown(self.subject), *map(shown, peers), ratios or "-",
            "-" if deviation is None else f"{deviation:.1%}",
            "-" if share is None else f"{share:.0%}",
            "; ".join(one.text(self.unit) for one in self.targets) or "-",
            "; ".join(verdict[self.reached(one)] for one in self.targets) or "-",
        ]  # fmt: skip


@dataclass
class Section:
    """A heading, one table, and sentences below it. facts: on what it was measured."""

    title: str
    peers: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)

    def markdown(self) -> str:
        """The section as text; columns that say nothing are left out."""
        lines = [f"## {self.title}", ""]
        if self.rows:
            head = ["figure", self.rows[0].subject, *self.peers]
            head += ["ratio", "noise", "share", "target", "met"]
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
    """A page: the sections of one run, and those that an earlier run measured."""

    title: str
    introduction: str
    sections: list[Section] = field(default_factory=list)

    def facts(self) -> dict[str, str]:
        """On what the sections were measured; where they differ, with commas between."""
        told: dict[str, list[str]] = {}
        for section in self.sections:
            for name, text in section.facts.items():
                told.setdefault(name, []).append(text)
        return {name: ", ".join(dict.fromkeys(texts)) for name, texts in told.items()}

    def missed(self) -> list[tuple[Section, Row]]:
        """The rows with a target that is not reached."""
        return [
            (section, row)
            for section in self.sections
            for row in section.rows
            if any(row.reached(one) is False for one in row.targets)
        ]

    def put(self, section: Section) -> None:
        """Add a section, in the place of an earlier one with its title."""
        titles = [earlier.title for earlier in self.sections]
        if section.title in titles:
            self.sections[titles.index(section.title)] = section
        else:
            self.sections.append(section)

    def markdown(self) -> str:
        """The whole page."""
        facts = table(["", ""], [[name, text] for name, text in self.facts().items()])
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

    def write(self, folder: Path, name: str) -> Path:
        """Write ``name.md``, and ``name.json`` with every sample; returns the page."""
        folder.mkdir(parents=True, exist_ok=True)
        page = folder / f"{name}.md"
        page.write_text(self.markdown(), encoding="utf-8")
        raw = {"facts": self.facts(), "sections": [_raw(section) for section in self.sections]}
        text = json.dumps(raw, indent=1)
        page.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
        return page


def sections_of(folder: Path, name: str) -> list[Section]:
    """The sections that `Report.write` has written there, none where there is no page."""
    path = folder / f"{name}.json"
    if not path.exists():
        return []
    raw = json.loads(path.read_text(encoding="utf-8"))
    return [_section(section) for section in raw["sections"]]


def _raw(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "facts": section.facts,
        "peers": list(section.peers),
        "notes": section.notes,
        "rows": [_raw_row(row) for row in section.rows],
    }


def _raw_row(row: Row) -> dict[str, Any]:
    return {
        "figure": row.figure,
        "unit": row.unit,
        "subject": row.subject,
        "samples": {name: list(values) for name, values in row.samples.items()},
        "ratios": row.ratios(),
        "itself": row.itself,
        "noise": row.noise(),
        "bound": list(row.bound),
        "share": row.share(),
        "targets": [asdict(target) | {"reached": row.reached(target)} for target in row.targets],
    }


def _section(raw: dict[str, Any]) -> Section:
    """The section that `_raw` was given."""
    rows = [_row(row) for row in raw["rows"]]
    return Section(raw["title"], tuple(raw["peers"]), rows, raw["notes"], raw["facts"])


def _row(raw: dict[str, Any]) -> Row:
    return Row(
        raw["figure"],
        raw["samples"],
        raw["unit"],
        tuple(Target(told["limit"], told["of"], told["most"]) for told in raw["targets"]),
        tuple(raw["itself"]) if raw["itself"] else None,
        raw["bound"],
        raw["subject"],
    )
