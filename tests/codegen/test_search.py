"""Schedules found by measuring: the walk, right results whatever it finds, and what is kept."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import pipeline, tuning
from lamina.core.options import current, using
from lamina.core.target import DEFAULT_CUDA, cpu_target
from lamina.errors import CompileError, FormatError
from lamina.fuse.program import build_program
from lamina.fuse.target import FusionTarget
from lamina.ir import build
from lamina.ir.kernel import Kernel
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.loops.moves import Schedule, Split, apply
from lamina.loops.text import parse, to_text
from lamina.loops.verify import verify_nest
from lamina.runtime.cpu import CpuProgram
from lamina.schedule.cpu.heuristic import schedule_for_cpu
from lamina.schedule.gpu.loops import schedule_for_gpu
from lamina.schedule.knobs import CpuKnobs, GpuKnobs
from lamina.schedule.search import search
from tests.codegen.test_schedule import A, B, matmul
from tests.fuse.graphs import PROGRAMS
from tests.generators import leaf

RNG = np.random.default_rng(11)


def written(knobs: CpuKnobs) -> Schedule:
    """A schedule that says two of the numbers, and no other."""
    return (Split(0, knobs.panel_columns, 1, 2), Split(3, knobs.min_transposed, 4, 5))


def test_the_search_goes_where_the_clock_says() -> None:
    asked: list[Schedule] = []

    def clock(schedule: Schedule) -> float:
        asked.append(schedule)
        panel, turn = (move.factor for move in schedule if isinstance(move, Split))
        return 1 + abs(np.log2(panel / 2048)) + abs(np.log2(turn / 8))

    fastest = CpuKnobs(panel_columns=2048, min_transposed=8)
    assert search(CpuKnobs(), written, 40, clock) == written(fastest)
    assert len(set(asked)) <= 40
    first, asked[:] = list(asked), []
    assert search(CpuKnobs(), written, 40, clock) == search(CpuKnobs(), written, 40, clock)
    assert asked == first * 2  # the order is the same each time


def test_what_is_a_little_faster_once_does_not_count() -> None:
    first = written(CpuKnobs())
    assert search(CpuKnobs(), written, 20, lambda one: 0.98 if one != first else 1) == first
    noise = random.Random(1)
    best = search(CpuKnobs(), written, 10, lambda one: noise.choice([1, 1, 1, 0.5]))
    assert isinstance(best, tuple)


@pytest.mark.parametrize("error", [FormatError, CompileError])
def test_what_does_not_fit_is_left_out(error: type[Exception]) -> None:
    def clock(schedule: Schedule) -> float:
        if schedule != written(CpuKnobs()):
            raise error("no")
        return 1.0

    assert search(CpuKnobs(), written, 20, clock) == written(CpuKnobs())


def kernels() -> Iterator[Kernel]:
    for program in PROGRAMS.values():
        for launch in build_program([program()], FusionTarget()).launches:
            if isinstance(launch.kernel, Kernel):
                yield launch.kernel


def varied(knobs: Any, rng: random.Random, **changes: int) -> Any:
    """Knobs with each number a quarter to four times as large, and these changes."""
    for name, value in asdict(knobs).items():
        factor = rng.choice([0.25, 0.5, 1, 1, 2, 4])
        changes.setdefault(name, int(value * factor) or 1)
    return replace(knobs, **changes)


def test_other_numbers_make_schedules_that_print_and_verify() -> None:
    refused = total = 0
    for number, kernel in enumerate(kernels()):
        rng = random.Random(number)
        for _ in range(6):
            cpu = varied(CpuKnobs(), rng, tile_rows=rng.randint(0, 20))
            gpu = varied(GpuKnobs(), rng, atom_rank=rng.randint(0, 5))
            kind = rng.choice(["f32", "tf32"])
            for width in (16, 64, 0):
                total += 1
                try:
                    if width:
                        moves = schedule_for_cpu(kernel, cpu_target(width, cores=2), cpu)
                    else:
                        moves = schedule_for_gpu(kernel, DEFAULT_CUDA, kind, gpu)
                except FormatError:
                    refused += 1
                    continue
                verify_nest(apply(kernel, moves))
                assert parse(to_text(moves))[""] == moves
    assert refused < total / 10


def test_every_number_may_be_1() -> None:
    """The search divides them again and again, down to 1."""
    scheduled = 0
    for kernel in kernels():
        for name in asdict(CpuKnobs()):
            with contextlib.suppress(FormatError):
                knobs = replace(CpuKnobs(), **{name: 1})
                moves = schedule_for_cpu(kernel, cpu_target(64, cores=2), knobs)
                verify_nest(apply(kernel, moves))
                scheduled += 1
        for name in asdict(GpuKnobs()):
            with contextlib.suppress(FormatError):
                knobs_of_gpu = replace(GpuKnobs(), **{name: 1})
                moves = schedule_for_gpu(kernel, DEFAULT_CUDA, "f32", knobs_of_gpu)
                verify_nest(apply(kernel, moves))
                scheduled += 1
    assert scheduled > 150


def test_few_registers_hold_an_element() -> None:
    parts = [build.cast(leaf(at, (512, 1024), lm.bfloat16), lm.float32) for at in range(3)]
    total = build.reduce(ADD, [0], parts[0] * parts[1] * parts[2])
    (launch,) = build_program([total], FusionTarget()).launches
    assert isinstance(launch.kernel, Kernel)
    moves = schedule_for_gpu(launch.kernel, DEFAULT_CUDA, "f32", GpuKnobs(row_registers=16))
    verify_nest(apply(launch.kernel, moves))


@pytest.fixture
def searching(tmp_path: Path) -> Iterator[Path]:
    with using(device="cpu", search=8, cache_dir=str(tmp_path)):
        yield tmp_path


@pytest.mark.usefixtures("searching")
def test_results_stay_right() -> None:
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in ((70, 150), (150, 130)))
    x, y = lm.asarray(a), lm.asarray(b)
    np.testing.assert_allclose((x @ y).numpy(), a @ b, atol=1e-3)
    np.testing.assert_array_equal((x.T + 1).numpy(), a.T + 1)
    powers = np.exp(a - a.max(1, keepdims=True))
    wanted = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(lm.softmax(x, axis=1).numpy(), wanted, rtol=1e-5)


def graph() -> Node:
    return matmul(A, B)


def text_of(**options: object) -> str:
    return pipeline.compile_source([graph()], replace(current(), **options)).text


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many schedules each search was to measure; it finds another one each time."""
    counts: list[int] = []

    def found(
        knobs: CpuKnobs, scheduled: Callable[[CpuKnobs], Schedule], count: int, _: object
    ) -> Schedule:
        counts.append(count)
        return scheduled(replace(knobs, tile_rows=12 // len(counts)))

    monkeypatch.setattr(tuning, "search", found)
    return counts


def test_what_is_found_is_kept_until_more_is_asked_for(
    searching: Path, measured: list[int]
) -> None:
    first = text_of(search=4)
    assert text_of(search=4) == text_of(search=3) == first
    assert measured == [4]
    second = text_of(search=5)
    assert measured == [4, 5]
    assert text_of(search=4) == second != first


@pytest.mark.parametrize(
    "content", [b"", b"# many", b"# 9 schedules\nsplit(a0", b"# 9\nbind(a99, vector)", b"\xff\x00"]
)
def test_a_damaged_file_is_measured_again(
    searching: Path, measured: list[int], content: bytes
) -> None:
    text_of(search=4)
    cache = tuning.disk_cache(current())
    (file,) = [one for one in cache.folder.iterdir() if one.read_bytes().startswith(b"# 4 ")]
    cache.store(file.name, content)
    text_of(search=4)
    assert measured == [4, 4]
    file.write_bytes(b"cut short")
    text_of(search=4)
    assert measured == [4, 4, 4]


def test_nothing_is_compiled_without_a_search(
    searching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(tuning, "search", refuse)
    monkeypatch.setattr(CpuProgram, "__init__", refuse)
    assert text_of(search=0)
    with using(schedule="#"):
        assert text_of(search=8)  # nor for a schedule that is given
