"""The page of drawn programs: its arithmetic, its order, and what is read from it again."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.cliffs.draw import draw
from bench.cliffs.outcome import Failure, KernelTime, Outcome, distance, is_right, kept
from bench.cliffs.page import Page, cause, earlier, geometric_mean, summary
from bench.cliffs.program import Program
from bench.cliffs.sketch import TINY

SEED = 1


def _program(index: int) -> Program:
    return draw(SEED, index, TINY)


def _outcome(index: int, ratio: float | None = None) -> Outcome:
    """Of a program whose only peer takes `ratio` times as long as lamina."""
    outcome = Outcome(_program(index), compared=True, first={"lamina": 1.0, "torch": 0.1})
    if ratio is not None:
        outcome.samples = {"lamina": [1e-3] * 3, "torch": [1e-3 * ratio] * 3}
    return outcome


def _wrong(index: int) -> Outcome:
    outcome = _outcome(index)
    outcome.wrong, outcome.distances = True, {"lamina": 0.5}
    return outcome


def _failed(index: int) -> Outcome:
    outcome = _outcome(index)
    outcome.failures["lamina"] = Failure("ShapeError", "does not fit")
    return outcome


def _page(*outcomes: Outcome) -> Page:
    return Page("drawn", {"seed": str(SEED)}, "cpu", list(outcomes))


def test_means_and_shares() -> None:
    outcomes = [_outcome(0, 2.0), _outcome(1, 0.5), _outcome(2, 0.25), _outcome(3), _wrong(4)]
    figures = summary([*outcomes, _failed(5)])
    assert (figures.count, figures.failed, figures.alone) == (6, 2, 1)
    assert figures.mean == pytest.approx(0.25 ** (1 / 3))
    assert (figures.near, figures.half) == (pytest.approx(1 / 5), pytest.approx(2 / 5))
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_nothing_measured_has_no_figures() -> None:
    assert math.isnan(summary([]).mean)
    assert summary([]).cells() == ["0", "-", "-", "-", "-", "-"]


def test_wrong_results_come_first_with_what_repeats_them() -> None:
    text = _page(_outcome(0, 2.0), _failed(7), _wrong(4)).markdown()
    sections = [line for line in text.splitlines() if line.startswith("## ")]
    assert sections[:3] == ["## WRONG RESULTS: 1", "## No result of lamina: 1", "## Ratios"]
    assert "### 4 reduction: wrong by 0.5 lamina" in text
    assert "`python -m bench cliffs --seed 1 --case 4`" in text
    assert _program(4).text() in text
    assert "### 7 movement: ShapeError" in text


def test_the_worst_come_first_and_none_that_are_ahead() -> None:
    page = _page(_outcome(0, 0.8), _outcome(1, 0.2), _outcome(2, 1.5), _wrong(3))
    assert [one.program.index for one in page.worst()] == [1, 0]
    many = _page(*(_outcome(index, 0.5) for index in range(30)))
    assert len(many.worst()) == 20


def test_the_command_names_the_device() -> None:
    page = Page("drawn", {}, "cuda:0", [])
    assert page.command(_program(3)) == "python -m bench cliffs --seed 1 --case 3 --device cuda:0"


def test_an_outcome_takes_the_place_of_an_earlier_one() -> None:
    page = _page(_outcome(0, 0.8), _outcome(5, 0.2))
    page.put(_outcome(3, 0.5))
    page.put(_outcome(0, 0.9))
    assert [one.program.index for one in page.outcomes] == [0, 3, 5]
    assert page.outcomes[0].ratio == pytest.approx(0.9)


def test_bounds_are_shares_of_calls() -> None:
    bounded, fast, unknown = _outcome(0, 0.5), _outcome(1, 0.5), _outcome(2, 0.5)
    bounded.bound, bounded.predicted = 2.5e-4, 5e-4
    fast.bound, fast.predicted = 4e-3, 2e-3
    unknown.cost_failure = Failure("ArgumentError", "nobody measured it")
    text = _page(bounded, fast, unknown).markdown()
    assert "the bound is 100% of a call, the prediction 100%. " in text
    assert "Faster than their bounds: 1 elementwise." in text
    assert "- 2 convolution: no bound: ArgumentError: nobody measured it" in text
    assert "| 0.25, predicted 0.5 |" in text


def test_a_page_is_read_again(tmp_path: Path) -> None:
    slow = _outcome(1, 0.5)
    slow.slow, slow.kernels = [KernelTime("map", 1e-3, 8, 4)], 1
    slow.itself = [1.0, 2.0], [2.0, 1.0]
    slow.bound, slow.predicted = 1e-3, 2e-3
    page = _page(_wrong(0), slow, _failed(2))
    page.write(tmp_path, "page")
    assert (tmp_path / "page.md").read_text() == page.markdown()
    again = _page(*earlier(tmp_path, "page", SEED, _program))
    assert again.markdown() == page.markdown()
    assert again.outcomes[1] == slow
    assert earlier(tmp_path, "page", SEED + 1, _program) == []
    assert earlier(tmp_path, "other", SEED, _program) == []


def test_outcomes_of_programs_that_are_drawn_otherwise_by_now_are_forgotten() -> None:
    raw = _outcome(0, 0.5).raw()
    same = kept(raw, _program(0))
    assert same is not None
    assert same.samples == _outcome(0, 0.5).samples
    assert kept(raw, _program(1)) is None


def test_the_cause_names_slow_kernels_and_time_outside_of_them() -> None:
    outcome = _outcome(0, 0.5)
    assert cause(outcome) == "-"
    outcome.slow = [KernelTime("sum", 9e-4, 900_000, 0), KernelTime("map", 1e-5, 0, 0)]
    assert cause(outcome) == "sum 99% (1 GB/s, 0 GFLOP/s)"
    outcome.slow = [KernelTime("sum", 1e-4, 0, 200_000)]
    assert cause(outcome) == "kernels take 10% of the call; sum 100% (0 GB/s, 2 GFLOP/s)"


def test_the_page_tells_how_good_predictions_and_first_choices_are() -> None:
    outcomes = []
    for index, (predicted, regret) in enumerate([(1.0, 1.0), (1.4, 1.1), (2.0, 1.2), (4.0, 1.5)]):
        outcome = Outcome(_program(index))
        outcome.samples = {"lamina": [1.0], "torch": [1.0]}
        outcome.bound, outcome.predicted, outcome.regret = 0.5, predicted, regret
        outcomes.append(outcome)
    text = Page("title", {"seed": "1"}, "cpu", outcomes).markdown()
    assert "factor of 1.5 are 50% of the predictions, within 3 75%" in text
    assert "1.15 times as long as the best of 8 in the median of 4 programs" in text
    assert "at most 1.50 times as long in 95%" in text


def test_distances_are_shares_of_the_largest_value() -> None:
    want = [np.array([1.0, -4.0]), np.array([2])]
    assert distance([np.array([1.0, -3.0]), np.array([2])], want) == pytest.approx(0.25)
    assert distance(want, want) == 0.0
    assert distance([want[0]], want) == math.inf
    assert distance([want[0], np.array([2, 2])], want) == math.inf
    assert distance([np.array([1.0, np.nan]), want[1]], want) == math.inf
    assert distance([np.zeros(0)], [np.zeros(0)]) == 0.0


def test_what_no_number_of_a_dtype_holds_is_infinite() -> None:
    want = [np.array([1e5, 1.0])]
    assert distance([np.array([np.inf, 1.0], np.float16)], want) == 0.0
    assert distance([np.array([-np.inf, 1.0], np.float16)], want) == math.inf
    assert distance([np.array([np.inf, 1.0], np.float32)], want) == math.inf
    assert distance([np.array([np.inf, np.inf], np.float16)], want) == math.inf


@pytest.mark.parametrize(
    ("exact", "error"), [(65_519.9, 0.0), (-65_490.0, 0.0), (65_480.0, np.inf)]
)
def test_infinity_is_right_within_a_rounding_error_of_the_range(exact: float, error: float) -> None:
    """Float16 has 65,504 and infinity, and rounds 65,520 to that."""
    got = np.array([np.copysign(np.inf, exact)], np.float16)
    assert distance([got], [np.array([exact])]) == error


def test_differences_of_large_values_are_no_mistakes() -> None:
    """A derivative that is 0, computed as a difference of products that are about 100."""
    want = [np.full(2, 100.0), np.zeros(2)]
    assert distance([want[0], np.full(2, 1e-5)], want) == pytest.approx(1e-5)
    assert distance([want[0], np.full(2, 1.0)], want) == pytest.approx(1.0)


def test_a_result_is_right_within_a_tolerance_or_as_far_off_as_pytorch() -> None:
    program = _program(0)
    assert program.dtype == "float32"
    assert is_right(program, 1e-5, 0.0)
    assert not is_right(program, 1e-3, 0.0)
    assert is_right(program, 1e-3, 2e-4)
    assert not is_right(program, math.inf, math.inf)
