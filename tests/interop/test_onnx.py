"""Models of ONNX on lamina."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402

import lamina as lm  # noqa: E402
from lamina.interop.onnx import OnnxError, load  # noqa: E402


def reshaping_model() -> onnx.ModelProto:
    """Its outputs: the input in one axis, and the input's shape."""
    graph = helper.make_graph(
        [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Reshape", ["x", "all"], ["y"])],
        "reshaping",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "n"])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("s", TensorProto.INT64, None),
        ],
        [helper.make_tensor("all", TensorProto.INT64, [1], [-1])],
    )
    return helper.make_model(graph)


def test_a_model_is_a_function(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(reshaping_model(), path)
    model = load(path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for function in (model, lm.jit(model)):
        flat, shape = function(x)
        assert flat.tolist() == [0, 1, 2, 3, 4, 5]
        assert shape.tolist() == [2, 3]


def test_arguments_that_do_not_fit_are_refused() -> None:
    model = load(reshaping_model())
    with pytest.raises(OnnxError, match=r"input 'x' has shape \(3, 3\), not \(2, \?\)"):
        model(np.zeros((3, 3), np.float32))
    with pytest.raises(OnnxError, match="input 'x' has dtype int64, not float32"):
        model(np.zeros((2, 3), np.int64))
    with pytest.raises(OnnxError, match="no value for the inputs x"):
        model()


def test_tensors_of_pytorch_that_numpy_cannot_see_are_refused() -> None:
    torch = pytest.importorskip("torch")
    model = load(reshaping_model())
    assert model(torch.ones(2, 3).T.contiguous().T)[1].tolist() == [2, 3]
    for wrong in (torch.ones(2, 3, requires_grad=True), torch.ones(2, 3).bfloat16()):
        with pytest.raises(OnnxError, match="input 'x' is no array: "):
            model(wrong)
