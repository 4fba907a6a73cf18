"""The operations of PyTorch's database that pass whole keep passing."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import pytest

import lamina as lm
from tests.opinfo.harness import WrongResultError, compare, database, run_operation
from tests.opinfo.page import BEGIN, PAGE, whole_names

torch = pytest.importorskip("torch", reason="the samples are PyTorch's: pip install torch==2.13.0")
pytest.importorskip("expecttest", reason="PyTorch's database of operations imports it")

NAMES = whole_names()
CHUNK = 20
CHUNKS = [NAMES[start : start + CHUNK] for start in range(0, len(NAMES), CHUNK)]


@functools.cache
def entries() -> dict[str, list[Any]]:
    return database()


def check(names: list[str], limit: int | None) -> None:
    """Assert that the samples of the operations pass, and name all that do not."""
    with lm.using(device="interp"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [run_operation(name, entries()[name], limit) for name in names]
    failures = [str(outcome) for outcome in outcomes if not outcome.whole]
    assert not failures, "\n".join(failures)


def test_at_least_420_operations_pass_whole() -> None:
    assert len(set(NAMES)) == len(NAMES) >= 420
    assert set(NAMES) <= set(entries())


def test_the_page_counts_the_same_operations() -> None:
    """Both are of one full run: ``python -m tests.opinfo --refresh``."""
    page = PAGE.read_text(encoding="utf-8")
    assert f"| {len(entries())} | {len(NAMES)} |" in page
    assert not [name for name in NAMES if f"`{name}`" in page.split(BEGIN)[1]]


@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: f"{names[0]}-{names[-1]}")
def test_first_samples(names: list[str]) -> None:
    check(names, limit=2)


@pytest.mark.exhaustive
@pytest.mark.parametrize("names", CHUNKS, ids=lambda names: f"{names[0]}-{names[-1]}")
def test_all_samples(names: list[str]) -> None:
    check(names, limit=None)


@pytest.mark.parametrize(
    ("actual", "text"),
    [
        (lm.asarray([1.0, 2.001]), "values differ"),
        (lm.asarray([1.0, 2.0], dtype=lm.float64), "dtype float64"),
        (lm.asarray([[1.0, 2.0]]), r"shape \(1, 2\)"),
        ((lm.asarray([1.0, 2.0]),), "results"),
    ],
)
def test_the_comparison_tells_results_apart(actual: Any, text: str) -> None:
    expected = torch.tensor([1.0, 2.0])
    compare(lm.asarray([1.0, 2.0]), expected)
    with pytest.raises(WrongResultError, match=text):
        compare(actual, (expected, expected) if text == "results" else expected)
