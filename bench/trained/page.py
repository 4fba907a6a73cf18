"""The page of whole programs on a GPU, with the samples beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.report import BEST, LAMINA, VALUE, Report, Row, Section, Target, sections_of
from bench.trained.catalogue import ALL
from bench.trained.run import Outcome
from bench.trained.trainers import COMPILED

PEERS = ("torch", COMPILED)
LEAST, MIDDLE = 0.6, 0.85  # of the best peer's time divided by lamina's: each, and their mean
MEMORY = 1.3  # of the compiler's
CLOSE = 2e-2  # losses, relative: bfloat16 rounds to 3 digits, and steps follow each other
MEGA = 1 << 20
NAME = "whole"
INTRODUCTION = (
    "Training steps of whole programs in lamina and in PyTorch, which multiply in bfloat16, from "
    "the same weights on the same batches. Each column is a process of its own; they take turns, "
    "in a random order in each round. A turn queues steps and waits once, after as many untimed "
    "ones. PyTorch as its guides recommend: bfloat16 by autocast or in the weights, fused "
    "optimisers, vocabularies padded to multiples of 128, images with the channels last, TF32, "
    "cuDNN measuring its ways to convolve. Nothing has dropout. A ratio is a peer's figure "
    "divided by lamina's: **above 1 lamina is better**. Written by `python -m bench whole`; the "
    "samples are in the JSON file beside this page."
)
Figures = Callable[[Outcome], dict[str, list[float]]]


def _apart(outcome: Outcome) -> dict[str, list[float]]:
    """How far lamina's losses are from PyTorch's, relative, and the compiler's from those."""
    want = [loss for step in outcome.losses.get("torch", ()) for loss in step]
    found = {}
    for column in (LAMINA, COMPILED):
        got = [loss for step in outcome.losses.get(column, ()) for loss in step]
        if want and got:
            apart = (abs(a - b) / abs(b) for a, b in zip(got, want, strict=True))
            found[column] = [max(apart)]
    return found


def _scaled(values: dict[str, list[float]], by: float) -> dict[str, list[float]]:
    return {column: [by * one for one in each] for column, each in values.items() if each}


# Titles, units, figures, targets of each program, and of the geometric mean of the ratios.
SECTIONS: dict[str, tuple[str, Figures, Target, tuple[str, float] | None]] = {
    "One training step": (
        "ms", lambda found: _scaled(found.step, 1e3), Target(LEAST, BEST), (BEST, MIDDLE)
    ),
    "Peak memory of a step": (
        "MiB",
        lambda found: {column: [peak / MEGA] for column, peak in found.peak.items()},
        Target(1 / MEMORY, COMPILED),
        None,
    ),
    "From the start of a process to its first loss, with empty caches": (
        "s",
        lambda found: {column: [first] for column, first in found.first.items()},
        Target(1.0, COMPILED),
        (COMPILED, 2.0),
    ),
    "Largest relative difference of the losses of the first steps to PyTorch's": (
        "", _apart, Target(CLOSE, VALUE), None
    ),
    "Milliseconds that the host is busy with a step": (
        "ms", lambda found: _scaled(found.host, 1e3), Target(1.0, BEST), None
    ),
}  # fmt: skip


def _ratios(rows: Sequence[Row], of: str) -> Iterator[float]:
    for row in rows:
        ratios = row.ratios()
        if ratios:
            found = min(ratios.values()) if of == BEST else ratios.get(of)
            if found is not None:
                yield found


class Page:
    """The page, which is written after each program, to `output` if there is one.

    facts: on what it is measured. What is there of other programs is kept."""

    def __init__(self, facts: dict[str, str], output: Path | None) -> None:
        self.facts, self.output = facts, output
        earlier = [] if output is None else sections_of(output, NAME)
        self.report = Report("Whole programs on a GPU", INTRODUCTION, earlier)

    def put(self, outcome: Outcome) -> None:
        """Add what was found of a program."""
        name = outcome.name
        figure = f"{name}: {ALL[name]().sizes}"
        kept = {section.title: section for section in self.report.sections}
        for title, (unit, figures, target, mean) in SECTIONS.items():
            section = kept.get(title) or Section(title, PEERS)
            section.facts = self.facts
            rows = [row for row in section.rows if not row.figure.startswith(f"{name}: ")]
            section.rows = [*rows, Row(figure, figures(outcome), unit, (target,))]
            if mean is not None:
                section.notes = [self._mean(section.rows, *mean)]
            self.report.put(section)
        self._put_notes(outcome)
        if self.output is not None:
            self.report.write(self.output, NAME)

    def _mean(self, rows: Sequence[Row], of: str, goal: float) -> str:
        found = list(_ratios(rows, of))
        if not found:
            return "No ratio was measured."
        mean = math.exp(sum(map(math.log, found)) / len(found))
        verdict = "met" if mean >= goal else "**missed**"
        return (
            f"Geometric mean of {len(found)} ratios to {of}: {mean:.3g}, target {goal:g}: "
            f"{verdict}; least {min(found):.3g}."
        )

    def _put_notes(self, outcome: Outcome) -> None:
        title = f"Notes on {outcome.name}"
        notes = [f"{column} failed: {text}" for column, text in outcome.failures.items()]
        for column, steps in outcome.losses.items():
            losses = "; ".join(", ".join(f"{loss:.4f}" for loss in step) for step in steps)
            notes.append(f"Losses of {column}: {losses}.")
        self.report.put(Section(title, (), notes=[*notes, *outcome.notes], facts=self.facts))
