"""Draws programs: each one follows from a seed, its index and the kind of device alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterator

from bench.cliffs.families import FAMILIES
from bench.cliffs.program import Program, finished
from bench.cliffs.sketch import CPU, GPU, Limits, Sketch


def limits_of(device: str) -> Limits:
    """How large programs for a device are."""
    return CPU if device == "cpu" else GPU


def family_of(index: int) -> str:
    """The family of the program with that index: all families in turn."""
    return list(FAMILIES)[index % len(FAMILIES)]


def draw(seed: int, index: int, limits: Limits) -> Program:
    """The program of that seed and index."""
    source = random.Random(f"{seed} {index}")  # hashed with SHA-512, the same on every machine
    name = family_of(index)
    family = FAMILIES[name]
    with_gradients = source.random() < family.gradients
    sketch = Sketch(source, limits)
    value = family.draw(sketch)
    facts = seed, index, name, sketch.dtype
    result = value.name, value.shape
    return finished(facts, sketch.inputs, sketch.lines, result, with_gradients)


def indices(first: int, count: int, only: Collection[str]) -> Iterator[int]:
    """The indices of `count` programs from `first` on, of the families `only`, or of all where
    there is none."""
    wanted = (at for at in itertools.count(first) if not only or family_of(at) in only)
    return itertools.islice(wanted, count)
