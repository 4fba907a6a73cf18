"""The benchmarks' statistics and tables; nothing here is timed."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import machine
from bench.cases import REFERENCE
from bench.gpu import error_of
from bench.kernels import compare
from bench.process import Bench, take_turns
from bench.report import SHARE, VALUE, Report, Row, Section, Target, quantity, sections_of, table
from bench.samples import in_turns, noise, ratio
from bench.worker import ProgramError, Worker


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, seed=1, quick=True, clang=None)


def _order_of_calls(rounds: int, order: random.Random | None) -> list[list[str]]:
    """The names in each round, by what they returned."""
    count = itertools.count()
    functions = {name: partial(next, count) for name in "abcd"}
    results = in_turns(functions, rounds, order)
    return [sorted(results, key=lambda name: results[name][at]) for at in range(rounds)]


def test_functions_take_turns() -> None:
    assert _order_of_calls(3, None) == [["a", "b", "c", "d"]] * 3


def test_the_order_of_turns_is_drawn_anew_each_round() -> None:
    orders = _order_of_calls(20, random.Random(5))
    assert all(sorted(order) == ["a", "b", "c", "d"] for order in orders)
    assert {order[0] for order in orders} == {"a", "b", "c", "d"}
    assert orders == _order_of_calls(20, random.Random(5))
    assert orders != _order_of_calls(20, random.Random(6))


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    # The third round was disturbed as a whole: the ratio of the medians would be 2.
    assert ratio([2.0, 4.0, 60.0], [1.0, 1.0, 20.0]) == 3.0
    # What took no turns has no partners.
    assert ratio([6.0], [1.0, 2.0, 9.0]) == 3.0


def test_errors_are_of_the_largest_value_or_of_the_norm_and_see_nan() -> None:
    want = np.zeros(10_000, np.float32)
    want[0] = 100.0
    got = want.copy()
    got[1] = 5.0
    assert error_of(got, want) == pytest.approx(0.05)
    assert error_of(want + 0.5, want) == pytest.approx(0.5)  # the largest error is but 0.005 of 100
    got[2] = np.nan
    assert np.isnan(error_of(got, want))
    assert np.isnan(error_of(want, got))


def test_noise_is_the_deviation_of_a_program_from_itself() -> None:
    assert noise([2.0, 2.0, 2.0], [2.0, 2.0, 2.0]) == 0.0
    assert noise([2.0, 2.0, 2.0], [1.6, 1.6, 1.6]) == pytest.approx(0.25)
    # One disturbed round is not noise of the median, but rounds that differ are.
    assert noise([1.0] * 9, [1.0] * 8 + [5.0]) == 0.0
    assert noise([1.0, 1.1, 0.9] * 3, [1.0] * 9) == pytest.approx(0.0, abs=0.13)
    assert noise([1.0, 1.1, 0.9] * 3, [1.0] * 9) > 0.05


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.0523, "s", "0.0523 s"),
        (4.314, "ms", "4.31 ms"),
        (999.4, "", "999"),
        (1234.4, "us", "1234 us"),
        (174.0, "", "174"),
    ],
)
def test_quantities(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


@pytest.mark.parametrize(
    ("target", "reached"),
    [
        (Target(2.0, VALUE), True),
        (Target(1.9, VALUE), False),
        (Target(2.0, "torch"), True),
        (Target(2.1, "torch"), False),
        (Target(1.0), False),
        (Target(0.5), True),
        (Target(2.0, "tinygrad"), None),
        (Target(0.7, SHARE), True),
        (Target(0.8, SHARE), False),
    ],
)
def test_targets(target: Target, reached: bool | None) -> None:
    samples = {"lamina": [1.0, 2.0, 3.0], "torch": [2.0, 4.0, 6.0], "numpy": [0.5, 1.0, 1.5]}
    row = Row("step", samples, "ms", (target,), bound=[0.75, 1.5, 2.25])
    assert row.reached(target) is reached


@pytest.mark.parametrize(
    ("theirs", "itself", "reached"),
    [
        (0.98, 1.0, False),
        (0.98, 1.03, True),  # the peer was as far from itself
        (0.90, 1.2, False),  # so much noise excuses nothing
        (1.02, 1.03, True),
    ],
)
def test_a_ratio_within_the_noise_counts_as_1(theirs: float, itself: float, reached: bool) -> None:
    samples = {"lamina": [1.0, 1.0], "torch": [theirs, theirs]}
    row = Row("step", samples, "ms", (Target(1.0),), ([itself] * 2, [1.0] * 2))
    assert row.reached(Target(1.0)) is reached


def test_a_figure_that_was_not_measured_meets_nothing() -> None:
    row = Row("step", {"torch": [1.0]}, "ms", (Target(1.0), Target(1.0, VALUE)))
    cells = ["step", "-", "1 ms", "-", "-", "-", "1x best peer; <= 1 ms", "-; -"]
    assert row.cells(["torch"]) == cells


def test_a_row_of_a_table() -> None:
    samples = {"lamina": [2.0, 2.0], "torch": [4.0, 8.0], "jax": [3.0, 3.0]}
    itself = [4.0, 4.0], [4.0, 4.0]
    row = Row("step", samples, "ms", (Target(2.0),), itself, bound=[1.5, 1.5])
    ratios = "1.5 jax, 3 torch"
    cells = ["step", "2 ms (2)", "6 ms (4)", "-", ratios, "0.0%", "75%", "2x best peer", "**no**"]
    assert row.cells(["torch", "tinygrad"]) == cells


def test_columns_that_say_nothing_are_left_out() -> None:
    section = Section("Part", ("torch",), [Row("first", {"lamina": [1.0]}, "s")])
    assert "| figure | lamina |\n" in section.markdown()


def test_tables_are_rectangular() -> None:
    assert table(["a", "b"], [["1", "2"]]) == ["| a | b |", "| --- | --- |", "| 1 | 2 |"]
    with pytest.raises(ValueError, match="1 cells in a table of 2 columns"):
        table(["a", "b"], [["1"]])


def test_a_report_is_written_with_its_samples(tmp_path: Path) -> None:
    rows = [
        Row("first", {"lamina": [1.0]}, "s", (Target(2.0, VALUE),)),
        Row("second", {"lamina": [1.0]}, "s", (Target(0.5, VALUE), Target(1.0, "torch"))),
        Row("third", {"lamina": [1.0, 3.0], "torch": [4.0, 12.0]}, "s"),
    ]
    section = Section("Part", ("torch",), rows, facts={"CPU": "one"})
    page = Report("A title", "Words.", [section]).write(tmp_path / "new", "cpu")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# A title\n\nWords.\n")
    assert "| CPU | one |" in text
    assert "Targets met: 1 of 2. Not measured: 1. Missed:\n\n- Part: second\n" in text
    assert "| third | 2 s (1) | 8 s (4) | 4 torch | - | - |" in text
    raw = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert raw["sections"][0]["rows"][2]["samples"] == {"lamina": [1.0, 3.0], "torch": [4.0, 12.0]}


def test_a_page_is_measured_in_pieces(tmp_path: Path) -> None:
    targets = Target(2.0, VALUE), Target(3.0, "alone", most=True)
    samples = {"in turns": [1.0, 2.0], "alone": [2.0, 4.0]}
    pair, bound = ([2.0, 4.0], [2.0, 5.0]), [0.5, 1.0]
    row = Row("step", samples, "ms", targets, pair, bound, subject="in turns")
    first = Section("First", ("alone",), [row], ["A note."], {"CPU": "one", "seed": "1"})
    old, new = (Section("Second", (), notes=[f"{seed}."], facts={"CPU": "one", "seed": seed})
                for seed in ("2", "3"))  # fmt: skip
    Report("A title", "Words.", [first, old]).write(tmp_path, "cpu")
    report = Report("A title", "Words.", sections_of(tmp_path, "cpu"))
    assert report.sections == [first, old]
    report.put(new)
    report.put(Section("Third", (), facts={"seed": "3"}))
    assert [section.title for section in report.sections] == ["First", "Second", "Third"]
    assert report.sections[1] is new
    assert report.facts() == {"CPU": "one", "seed": "1, 3"}
    assert sections_of(tmp_path, "cuda") == []


def test_results_must_agree() -> None:
    numpy = pytest.importorskip("numpy")
    right = numpy.array([1.0, -4.0])
    assert compare(right, right) == 0.0
    assert compare(right + 1e-3, right) == pytest.approx(0.25e-3)
    assert compare(right[:1], right) == float("inf")
    assert compare(right * numpy.nan, right) == float("inf")


def test_a_program_that_fails_is_noted_and_left_out(bench: Bench) -> None:
    def fail() -> Any:
        raise ProgramError("it ended")

    results = take_turns(bench, "kernels", {"torch": fail, "lamina": lambda: 1}, 3)
    assert results == {"lamina": [1, 1, 1]}
    assert bench.failures == ["kernels, torch: it ended"]


def test_a_worker_answers_and_ends(bench: Bench) -> None:
    environment = bench.environment(bench.new_cache())
    with Worker("bench.programs.nodes", "lamina", environment=environment) as worker:
        assert worker.read() == {"count": 2000}
        answer = worker.ask("miss", 2)
        assert len(answer["seconds"]) == 2
        with pytest.raises(ProgramError, match="nodes ended with 1: KeyError: 'other'"):
            worker.ask("other")
    assert worker.process.returncode == 1


def test_programs_see_an_empty_cache_and_no_settings(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMINA_DEBUG", "4")
    environment = bench.environment(bench.folder, LAMINA_THREADS="1")
    assert "LAMINA_DEBUG" not in environment
    assert environment["LAMINA_THREADS"] == "1"
    assert Path(environment["LAMINA_CACHE_DIR"]).is_relative_to(bench.folder)


def test_a_missing_peer_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.process.version", lambda name: None)
    assert bench.frameworks("torch", "tinygrad") == ["lamina"]
    columns = "lamina", "lamina unjitted", "torch.compile", "jax", REFERENCE
    assert bench.installed(*columns) == ["lamina", "lamina unjitted"]


def test_programs_are_told_their_threads(bench: Bench) -> None:
    environment = bench.environment(bench.folder, 1)
    assert environment["LAMINA_THREADS"] == environment["OMP_NUM_THREADS"] == "1"
    assert "LAMINA_THREADS" not in bench.environment(bench.folder)


@pytest.mark.parametrize(
    ("clang", "inherited", "expected"),
    [
        (None, None, None),
        (None, "", None),
        (None, "gcc", "gcc"),
        ("clang", "", "clang"),
        ("clang", "gcc", "clang"),
    ],
)
def test_programs_never_see_an_empty_c_compiler(
    clang: str | None,
    inherited: str | None,
    expected: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CC", raising=False)
    if inherited is not None:
        monkeypatch.setenv("CC", inherited)
    environment = Bench(tmp_path, 1, True, clang).environment(tmp_path)
    assert environment.get("CC") == expected


def test_facts_name_no_folder_and_no_host() -> None:
    facts = machine.facts(7, None)
    assert facts["seed"] == "7"
    text = " ".join(facts.values())
    assert os.uname().nodename not in text
    assert sys.prefix not in text
    assert "/" not in text.replace("-", "")


def test_a_benchmark_runs_as_a_script() -> None:
    """Its folder is the first that modules are looked for in then: none of bench may have the name
    of another one that it needs."""
    folder = Path(__file__).parents[2] / "bench"
    names = {one.stem for one in folder.glob("*.py")}
    assert not names & {*sys.stdlib_module_names, "cuda", "mpi4py", "numpy", "torch"}
    command = [sys.executable, str(folder / "distributed.py"), "--help"]
    environment = os.environ | {"PYTHONPATH": str(folder.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
