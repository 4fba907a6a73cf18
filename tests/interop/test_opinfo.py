"""A sample of PyTorch's database of operations through the door; `tests.interop.opinfo` has all."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the samples are PyTorch's: pip install torch==2.13.0")
pytest.importorskip("expecttest", reason="PyTorch's database of operations imports it")

import lamina as lm  # noqa: E402
from tests.interop import opinfo  # noqa: E402

COUNT = 40
WITHOUT_ROWS = ("fft.", "linalg.", "special.")


@pytest.mark.timeout(300)
def test_a_sample_of_operations_has_pytorchs_results() -> None:
    opinfo.draw_in_place()
    with_rows = [one for one in opinfo.entries([]) if not one.name.startswith(WITHOUT_ROWS)]
    chosen = random.Random(20261123).sample(with_rows, COUNT)
    with warnings.catch_warnings(), lm.using(device="interp"):
        warnings.simplefilter("ignore")
        outcomes = [opinfo.run(entry, 1) for entry in chosen]
    torch._dynamo.reset()
    assert [str(one) for one in outcomes if one.status == opinfo.WRONG] == []
    whole = [one for one in outcomes if one.status == opinfo.OK]
    assert len(whole) >= COUNT * 0.8


@pytest.mark.parametrize(("name", "dtype"), [
    ("histogram", "float32"), ("nn.functional.fractional_max_pool2d", "float32"),
    ("nn.functional.fractional_max_pool3d", "float32"), ("cummax", "float32"),
    ("cummin", "float32"), ("cdist", "float32"), ("searchsorted", "float32"),
    ("gather", "float32"), ("nonzero_static", "int64"), ("scatter_add", "bool"),
    ("index_add", "bool"), ("index_put", "bool"), ("baddbmm", "int64"), ("mvlgamma", "int64"),
    ("nn.functional.avg_pool2d", "int64"), ("_softmax_backward_data", "bfloat16"),
    ("addbmm", "bfloat16"),
])  # fmt: skip
def test_rare_operations_have_pytorchs_results(name: str, dtype: str) -> None:
    opinfo.draw_in_place()
    entry = next(opinfo.entries([name], getattr(torch, dtype)))
    with warnings.catch_warnings(), lm.using(device="interp"):
        warnings.simplefilter("ignore")
        outcome = opinfo.run(entry, 5, getattr(torch, dtype))
    torch._dynamo.reset()
    assert outcome.status == opinfo.OK, str(outcome)


def test_the_record_of_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    record = opinfo.Record(tmp_path / "outcomes")
    record.add(opinfo.Outcome("add", "bool", opinfo.CRASHED))
    record.add(opinfo.Outcome("add", "bool", opinfo.OK))
    record.add(opinfo.Outcome("svd", "bool", opinfo.CRASHED))
    again = opinfo.Record(tmp_path / "outcomes")
    assert [one.status for one in again.outcomes] == [opinfo.OK, opinfo.CRASHED]
    assert again.has("add", "bool")
    assert not again.has("add", "int64")


def test_an_operation_that_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def forever(*_: Any) -> None:
        while True:
            pass

    monkeypatch.setattr(opinfo, "_compare", forever)
    (entry,) = opinfo.entries(["sin"])
    assert opinfo.run(entry, 1, seconds=1).status == opinfo.SLOW


def test_samples_are_spread_from_the_first_to_the_last() -> None:
    assert opinfo.spread(range(10), 4) == [0, 3, 6, 9]
    assert opinfo.spread(range(3), 4) == [0, 1, 2]
    assert opinfo.spread(range(3), 1) == [0]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_segments_are_reduced(reduce: str) -> None:
    """Of an axis behind another one, with an empty segment, and from offsets."""
    lengths = torch.tensor([[2, 0, 3], [1, 1, 3]])
    offsets = torch.nn.functional.pad(lengths.cumsum(1), (1, 0))

    def function(x: Any, lengths: Any, offsets: Any) -> Any:
        options = {"axis": 1, "unsafe": True, "initial": 1.0}
        first = torch.segment_reduce(x, reduce, lengths=lengths, **options)
        return first, torch.segment_reduce(x, reduce, offsets=offsets, **options)

    results = []
    x = torch.randn(2, 5, 3)
    compiled = torch.compile(function, backend="lamina", options={"fallback": False})
    for run in (compiled, function):
        leaf = x.clone().requires_grad_()
        values = run(leaf, lengths, offsets)
        (values[0] * values[1]).sum().backward()
        results.append((*values, leaf.grad))
    torch._dynamo.reset()
    torch.testing.assert_close(*results)


def test_the_page_has_counts_and_reasons() -> None:
    outcomes = [
        opinfo.Outcome("add", "float32", opinfo.OK),
        opinfo.Outcome("add", "int64", opinfo.OK),
        opinfo.Outcome("unique", "float32", opinfo.LEFT, "sizes | data"),
        opinfo.Outcome("unique", "int64", opinfo.LEFT, "sizes | data"),
        opinfo.Outcome("equal", "int64", opinfo.OK),
        opinfo.Outcome("equal", "float32", opinfo.WRONG, "1 is not 2"),
    ]
    text = opinfo.page(outcomes)
    assert "| float32 | 1 | 1 | 0 | 1 | 0 | 0 | 1 of 3, 33.3% |\n" in text
    assert "| int64 | 2 | 1 | 0 | 0 | 0 | 0 | 2 of 3, 66.7% |\n" in text
    assert "| unique | left to PyTorch | float32, int64 | sizes / data |" in text
    assert "| equal | wrong | float32 | 1 is not 2 |" in text
    assert text.endswith("\nadd\n")
