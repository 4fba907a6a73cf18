"""``lamina run``: models of ONNX on the command line."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

import ml_dtypes  # noqa: E402  (onnx needs it)
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from lamina import cli  # noqa: E402
from lamina.interop.onnx import check, rows  # noqa: E402

WEIGHTS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture(autouse=True)
def _in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMINA_DEVICE", "interp")


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A file of x (rows, 3) times the weights, plus a bias (2,); and the product's exponential."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Add", ["p", "b"], ["y"]),
         helper.make_node("Exp", ["p"], ["e"])],
        "affine",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3]),
         helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "ye"],
        [numpy_helper.from_array(WEIGHTS, "w")],
    )  # fmt: skip
    path = tmp_path / "affine.onnx"
    imports = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return str(path)


def saved(folder: Path, name: str, value: Any) -> str:
    path = folder / f"{name}.npy"
    np.save(path, value)
    return f"{name}={path}"


def test_it_runs_a_model_on_given_and_on_drawn_values(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = saved(tmp_path, "x", np.ones((4, 3), np.float32))
    b = saved(tmp_path, "b", np.zeros(2, np.float32))
    assert cli.main(["run", model, "--input", x, "--input", b]) == 0
    printed = capsys.readouterr().out
    assert "y: float32 (4, 2), from 6 to 9, mean 7.5\n" in printed
    assert "second call" in printed
    assert cli.main(["run", model]) == 0
    assert "y: float32 (1, 2)" in capsys.readouterr().out


def test_drawn_values_follow_from_the_seed(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = []
    for seed in "112":
        assert cli.main(["run", model, "--seed", seed]) == 0
        first.append(capsys.readouterr().out.splitlines()[0])
    assert first[0] == first[1] != first[2]


def test_it_prints_the_kernels(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", model, "--profile"]) == 0
    printed = capsys.readouterr().out
    assert "kernels of the second call" in printed
    assert "GFLOP/s" in printed


@pytest.mark.parametrize("peer", ["onnxruntime", "onnx's reference evaluator"])
def test_it_compares_with_another_runtime(
    peer: str, model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if peer == "onnxruntime":
        pytest.importorskip("onnxruntime")
    else:
        _without(monkeypatch, "onnxruntime")
    assert cli.main(["run", model, "--check"]) == 0
    assert f"y agrees with {peer}: largest difference" in capsys.readouterr().out

    def wrong(context: Any, x: Any) -> Any:
        return x * 1.01

    rows.find_row("Exp", 21, "")
    monkeypatch.setitem(rows._ENTRIES, ("", "Exp"), [rows.Entry(1, wrong)])
    assert cli.main(["run", model, "--check"]) == cli.FAILED
    printed = capsys.readouterr().out
    assert f"y agrees with {peer}" in printed
    assert f"e DIFFERS with {peer}" in printed


def _without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """As if `package` were not installed."""
    importing = builtins.__import__

    def import_others(name: str, *arguments: Any) -> Any:
        if name == package:
            raise ModuleNotFoundError(name)
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", import_others)


def failed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command line that fails prints."""
    assert cli.main(["run", *arguments]) == cli.FAILED
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert printed.startswith("lamina: error: ")
    return printed


def test_bad_input_is_refused_in_a_line(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = saved(tmp_path, "x", np.ones((4, 5), np.float32))
    assert "input 'x' has shape (4, 5), not (?, 3)" in failed(capsys, model, "--input", wrong)
    whole = saved(tmp_path, "x", np.ones((4, 3), np.int64))
    assert "dtype int64, not float32" in failed(capsys, model, "--input", whole)
    unknown = saved(tmp_path, "z", np.ones(2))
    assert "no input 'z'; inputs are x, b" in failed(capsys, model, "--input", unknown)
    assert "No such file" in failed(capsys, model, "--input", "x=missing.npy")
    assert "No such file" in failed(capsys, str(tmp_path / "missing.onnx"))
    (tmp_path / "text").write_text("text")
    assert "is no array" in failed(capsys, model, "--input", f"x={tmp_path / 'text'}")
    assert "is no model of ONNX" in failed(capsys, str(tmp_path / "text"))
    objects = saved(tmp_path, "x", np.array([{}], object))
    assert "is no array" in failed(capsys, model, "--input", objects)


def test_a_wrong_command_line_says_how_to_write_it(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["run", model, "--input", "x.npy"])
    assert "'x.npy' is not NAME=FILE.npy" in capsys.readouterr().err
    for wrong, message in (("-1", "--seed: -1; 0 or more is"), ("x", "'x' is no whole number")):
        with pytest.raises(SystemExit):
            cli.main(["run", model, "--seed", wrong])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [
    (np.array([1 + 2j], np.complex64), np.array([1 + 5j], np.complex64)),
    (np.array([1 + 2j]), np.array([1 + 5j])),
    (np.array([6], ml_dtypes.int4), np.array([7], ml_dtypes.int4)),
])  # fmt: skip
def test_numbers_of_other_kinds_are_compared(wrong: tuple[Any, Any]) -> None:
    one, other = wrong
    assert not check.compare(one, other).agrees
    assert check.compare(one, one.copy()).agrees
