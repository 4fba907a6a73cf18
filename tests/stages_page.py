"""The stages of the compiler that the pages of docs/ show, printed anew.

A page holds a block between two marks, with the program, the device and what of it is printed:

    <!-- printed: softmax cpu fuse -->
    ```text
    kernel ...
    ```
    <!-- printed: end -->

What is printed is the name of a stage of `Lowered.stages`; ``kernel0``, ``kernel1``, ... for the
source of one kernel, abridged; ``launches`` for how they are run; ``cost`` for what a run is
predicted to take; or ``passes`` for the compiler's table of contents. ``kernel0 ELEMENTS..FINISH``
is the part of a kernel from the first line with the one word to the next line with the other.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

import lamina as lm
from lamina import backends, pipeline
from lamina.core.target import CUDA, cpu_target
from lamina.frontend.lowered import Lowered
from tests import page_examples
from tests.schedule.machines import RATES

MARK = r"<!-- printed: (\w+) (\w+) (\w+)(?: (\w+)\.\.(\w+))? -->\n"
BLOCK = re.compile(MARK + r".*?<!-- printed: end -->\n", re.DOTALL)
ARCH = "sm_90a"
DEVICES = {"cpu": "cpu", "cuda": "cuda:0"}
TARGETS = {"cpu": cpu_target(vector_bytes=64, cores=2), "cuda": CUDA[ARCH]}
LANGUAGES = {"cpu": "c", "cuda": "cpp"}
COLUMNS = 100  # longer lines are cut
MAX_PERIOD = 16  # lines of the longest group that is looked for in unrolled text
MIN_LEFT_OUT = 3  # fewer lines than this are printed rather than left out


@dataclass(frozen=True)
class Example:
    """A function, and the shapes and dtypes of its arguments."""

    function: Callable[..., lm.Tensor]
    arguments: tuple[lm.TensorSpec, ...]


_HEADS = lm.TensorSpec((2, 8, 1024, 64), lm.bfloat16)
_SQUARE = lm.TensorSpec((4096, 4096), lm.bfloat16)
EXAMPLES = {
    "softmax": Example(page_examples.softmax, (lm.TensorSpec((64, 128)), lm.TensorSpec((128, 32)))),
    "rules": Example(page_examples.rules, (lm.TensorSpec((64, 128)),)),
    "attention": Example(page_examples.attention, (_HEADS, _HEADS, _HEADS)),
    "product": Example(page_examples.product, (_SQUARE, _SQUARE)),
}


def page_with_stages(page: str) -> str:
    """`page` with each printed block made anew."""
    return BLOCK.sub(_printed_anew, page)


def _printed_anew(block: re.Match[str]) -> str:
    name, device, what, first, last = block.groups()
    mark = re.match(MARK, block.group())
    assert mark is not None
    language = LANGUAGES[device] if what.startswith("kernel") else "text"
    lines = text_of(name, device, what).strip("\n").splitlines()
    if first:
        lines = part_of(lines, first, last)
    if what.startswith("kernel"):
        lines = abridged(lines)
    body = "\n".join(map(cut, lines))
    return f"{mark.group()}```{language}\n{body}\n```\n<!-- printed: end -->\n"


def text_of(name: str, device: str, what: str) -> str:
    """The text from which a block is made."""
    if what == "passes":
        return passes_text()
    lowered = lower(name, device)
    if what == "launches":
        return launches_text(lowered)
    if what == "cost":
        return cost_text(lowered)
    if what.startswith("kernel"):
        return lowered.kernels[int(what.removeprefix("kernel"))].source
    return lowered.stages[what]


def part_of(lines: list[str], first: str, last: str) -> list[str]:
    """From the first line with the word `first` to the next one with `last`, both included, without
    the indentation that they share."""
    begin = next(i for i, line in enumerate(lines) if re.search(rf"\b{first}\b", line))
    end = next(i for i in range(begin, len(lines)) if re.search(rf"\b{last}\b", lines[i]))
    return textwrap.dedent("\n".join(lines[begin : end + 1])).splitlines()


@cache
def lower(name: str, device: str) -> Lowered:
    """An example at every stage, for one of TARGETS whatever this machine has."""
    example = EXAMPLES[name]
    settings = lm.using(device=DEVICES[device], schedule="", search=0, tf32=False)
    with pytest.MonkeyPatch.context() as patch, settings:
        for module in (pipeline, backends):
            patch.setattr(module, "target_of", lambda options: TARGETS[options.kind])
        return lm.jit(example.function).lower(*example.arguments, arch=ARCH)


def passes_text() -> str:
    """The rows of `pipeline.PASSES`: the dialect that a pass writes, its name and what it does."""
    return "\n".join(f"{step.writes:8} {step.name:17} {step.does}" for step in pipeline.PASSES)


def cost_text(lowered: Lowered) -> str:
    """What a program is predicted to take on a CPU of fixed rates."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (pipeline, backends):
            patch.setattr(module, "target_of", lambda options: TARGETS[options.kind])
        patch.setattr(pipeline, "rates_of", lambda options: RATES)
        return str(lowered.cost)


def launches_text(lowered: Lowered) -> str:
    """How the kernels are run: the C function that does it, or a line for each launch of a GPU."""
    source = lowered.planned.source
    assert source is not None
    if source.entry:
        return source.entry
    return "\n".join(
        f"{launch.name}<<<{launch.blocks} blocks, {launch.threads} threads, "
        f"{launch.shared} bytes shared>>>"
        for launch in lowered.planned.launches
    )


def abridged(lines: list[str]) -> list[str]:
    """`lines` with groups of lines that repeat but for their numbers, as unrolled loops make, shown
    once: ``a_1 = b[0]; a_2 = b[1]; ...; a_8 = b[7]`` becomes the first of these and a line that
    says how many are left out."""
    shapes = [re.sub(r"\d+", "#", line) for line in lines]
    shown: list[str] = []
    at = 0
    while at < len(lines):
        period, repeats = _repetition(shapes, at)
        left_out = period * (repeats - 1)
        shown += lines[at : at + period]
        if left_out:
            indent = re.match(" *", lines[at]).group()  # type: ignore[union-attr]
            shown.append(f"{indent}// ... {left_out} more such lines")
        at += period * repeats
    return shown


def _repetition(shapes: list[str], at: int) -> tuple[int, int]:
    """The group of lines at `at` whose repetitions take most lines: its length, and how often it
    stands there; (1, 1) where it is too short to leave anything out."""
    best = (1, 1)
    for period in range(1, MAX_PERIOD + 1):
        group = shapes[at : at + period]
        if group[-1].count("{") != group[-1].count("}"):
            break  # a loop or a branch begins or ends here
        repeats = 1
        while shapes[at + period * repeats : at + period * (repeats + 1)] == group:
            repeats += 1
        left_out = period * (repeats - 1)
        if left_out >= MIN_LEFT_OUT and left_out > best[0] * (best[1] - 1):
            best = (period, repeats)
    return best


def cut(line: str) -> str:
    """A line of at most `COLUMNS` columns."""
    return line if len(line) <= COLUMNS else line[: COLUMNS - 4] + " ..."
