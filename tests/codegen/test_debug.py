"""What LAMINA_DEBUG prints of kernels, and where errors of compilers point."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import lamina as lm
from lamina import Tensor, calibrate, pipeline
from lamina.errors import CompileError
from lamina.fuse import row_block_limits
from lamina.ir.ops import Op
from lamina.schedule.cost import ProgramCost, program_cost
from lamina.targets.c import operations as c
from tests.fuse.test_row_blocks import SMALL

BROKEN = {Op.ATAN: lambda printer, node, operands, out: "(1.0f +)"}


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A printer whose arc tangent is no expression."""
    monkeypatch.setitem(c.OPERATIONS, Op.ATAN, BROKEN[Op.ATAN])


@pytest.mark.usefixtures("on_cpu")
def test_the_fourth_level_prints_kernels_alone(capfd: pytest.CaptureFixture[str]) -> None:
    with lm.using(debug=4):
        (lm.exp(Tensor([1.0, 2.0, 3.0])) + 0.375).realize()
    text = capfd.readouterr().err
    assert "\n/* p1[i] = exp(p0[i]) + 0.375 */\nKERNEL(" in text
    assert "typedef" not in text


@pytest.mark.usefixtures("on_cpu")
def test_the_first_level_prints_a_prediction_and_a_bound(capfd: pytest.CaptureFixture[str]) -> None:
    x = lm.ones((64, 80)).realize()
    with lm.using(debug=1):
        lm.softmax(x, axis=1).realize()
    (line,) = capfd.readouterr().err.splitlines()
    number = r"\d+\.\d"
    assert re.search(rf" predicted {number} us by [\w ]+, bound {number} us$", line), line


@pytest.mark.usefixtures("on_cpu")
def test_kernels_are_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted = []

    def counted(*arguments: Any) -> ProgramCost:
        predicted.append(arguments)
        return program_cost(*arguments)

    monkeypatch.setattr(pipeline, "program_cost", counted)
    step = lm.jit(lambda x: lm.exp(x) * 0.6875)
    x = lm.ones((64, 80)).realize()
    with lm.using(debug=1):
        for _ in range(3):
            step(x).realize()
    assert len(predicted) == 1


@pytest.mark.usefixtures("on_cpu")
def test_a_machine_that_cannot_be_measured_gets_no_predictions(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A measuring program that does not compile leaves them out, and says so once."""
    source = tmp_path / "calibrate.c"
    source.write_text("int broken(", encoding="utf-8")
    monkeypatch.setattr(calibrate, "_SOURCE", source)
    monkeypatch.setattr(pipeline, "rates_of", calibrate.rates_of)
    x = lm.ones((64, 80)).realize()
    with lm.using(debug=1, cache_dir=str(tmp_path)):  # options that no other test has
        results = [(x * number).realize() for number in (0.4375, 0.8125)]
    assert [result.numpy()[0, 0] for result in results] == [0.4375, 0.8125]
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("no times are predicted: ")  # what the compiler says may follow
    assert not any("predicted" in line for line in lines[1:])
    assert sum(re.search(r"\d us\b", line) is not None for line in lines[1:]) == 2


@pytest.mark.usefixtures("on_cpu")
def test_the_second_level_names_each_kernel_of_row_blocks(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in SMALL.items():
        monkeypatch.setattr(row_block_limits, name, small)
    monkeypatch.setattr(row_block_limits, "CACHE_BYTES", 1 << 10)
    x = lm.ones((64, 96)).realize()
    weight = lm.random.normal((96, 80), seed=1).realize()
    with lm.using(debug=2):
        lm.softmax(x @ weight, axis=1).realize()
    lines = capfd.readouterr().err.splitlines()
    groups = [line.split()[0].split("+") for line in lines if re.match(r"\w+\+\w+ .*us", line)]
    assert groups, lines
    for name in groups[0]:
        assert f"  {name}" in lines


@pytest.mark.usefixtures("on_cpu", "broken")
def test_a_refused_kernel_is_named_with_the_users_line() -> None:
    with pytest.raises(CompileError) as caught:
        (lm.atan(Tensor([1.0, 2.0, 3.0])) + 0.4375).realize()
    message = str(caught.value)
    assert re.search(r"kernel map0_3:\d+:\d+: error", message)
    assert "test_debug.py" in message
    assert "0.4375" in message
