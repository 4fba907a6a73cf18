"""Rows of ONNX's operators against onnx's own reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from lamina.interop.onnx import load  # noqa: E402

FLOATS = np.random.default_rng(0)


def _model(operator: str, inputs: list[Any], opset: int = 21, **attributes: Any) -> Any:
    names = [f"x{number}" for number in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], **attributes)
    kinds = []
    for name, value in zip(names, inputs, strict=True):
        number = helper.np_dtype_to_tensor_dtype(value.dtype)
        kinds.append(helper.make_tensor_value_info(name, number, value.shape))
    result = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "one", kinds, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def _agrees(operator: str, *inputs: Any, opset: int = 21, **attributes: Any) -> None:
    model = _model(operator, list(inputs), opset, **attributes)
    feeds = {f"x{number}": value for number, value in enumerate(inputs)}
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    result = load(model)(*inputs).numpy()
    assert result.dtype == wanted.dtype
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-6)


def _floats(*shape: int) -> Any:
    return FLOATS.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("operator", ["Abs", "Exp", "Floor", "Neg", "Sigmoid", "Softsign", "Tanh"])
def test_elementwise_of_one(operator: str) -> None:
    _agrees(operator, _floats(3, 4))


@pytest.mark.parametrize("operator", ["Add", "Div", "Less", "Max", "Mul", "Pow", "Sub"])
def test_elementwise_of_two(operator: str) -> None:
    _agrees(operator, abs(_floats(3, 4)), _floats(4))


def test_quotients_of_integers_are_rounded_towards_zero() -> None:
    model = _model("Div", [np.array([-7, 7, -8]), np.array([2, -2, 2])])
    result = load(model)(np.array([-7, 7, -8]), np.array([2, -2, 2]))
    np.testing.assert_array_equal(result.numpy(), [-3, -3, -4])


@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 1, 2, 1)])
@pytest.mark.parametrize("group", [1, 2])
def test_convolutions(pads: tuple[int, ...], group: int) -> None:
    x, w = _floats(2, 4, 7, 8), _floats(6, 4 // group, 3, 2)
    _agrees("Conv", x, w, _floats(6), pads=pads, group=group, strides=[2, 1])


def test_transposed_convolution() -> None:
    x, w = _floats(1, 2, 4, 5), _floats(2, 3, 3, 3)
    _agrees("ConvTranspose", x, w, pads=[1, 0, 0, 1], strides=[2, 2], output_padding=[1, 1])


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
def test_pools(operator: str) -> None:
    _agrees(operator, _floats(2, 3, 9, 7), kernel_shape=[3, 2], strides=[2, 2])


def test_norms() -> None:
    x = _floats(2, 6, 5)
    _agrees("LayerNormalization", x, _floats(5), _floats(5))
    _agrees("InstanceNormalization", x, _floats(6), _floats(6))
    _agrees("BatchNormalization", x, *(_floats(6) for _ in range(3)), abs(_floats(6)))


def test_products() -> None:
    _agrees("Gemm", _floats(3, 4), _floats(5, 4), _floats(5), transB=1, alpha=0.5, beta=2.0)
    _agrees("Det", _floats(3, 4, 4))
    _agrees("Einsum", _floats(2, 3), _floats(3, 4), equation="ij, jk -> ik")
