"""Rows of the domain com.microsoft against onnxruntime, whose operators they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper  # noqa: E402

from lamina.core.options import using  # noqa: E402
from lamina.interop.onnx import OnnxError, load  # noqa: E402

RANDOM = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


def bytes_of(*shape: int) -> Any:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


SCALE, ZERO = np.array(0.05, np.float32), np.array(128, np.uint8)
X, ROWS, ONES = floats(2, 3, 8), floats(8), np.abs(floats(8)) + 1
LEFT = (bytes_of(4, 6), SCALE, ZERO)
RIGHT = (bytes_of(4, 6), np.array(0.03, np.float32), np.array(7, np.uint8))

# The operator, its inputs by position, and its attributes.
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("FusedMatMul", [floats(2, 3, 4), floats(2, 4, 5)], {"alpha": 0.25}),
    ("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], {"transA": 1, "transB": 1}),
    ("Gelu", [X], {}),
    ("BiasGelu", [X, ROWS], {}),
    ("FastGelu", [X], {}),
    ("FastGelu", [X, ROWS], {}),
    ("QuickGelu", [X], {"alpha": 1.5}),
    ("SkipLayerNormalization", [X, floats(2, 3, 8), ONES, ROWS, floats(8)], {"epsilon": 1e-5}),
    ("SkipLayerNormalization", [X, floats(2, 3, 8), ONES], {"epsilon": 1e-5}),
    ("SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), ONES], {"epsilon": 1e-6}),
    ("SkipSimplifiedLayerNormalization", [X, floats(2, 3, 8), ONES, ROWS], {}),
    ("QLinearAdd", [*LEFT, *RIGHT, SCALE, ZERO], {}),
    ("QLinearMul", [*LEFT, *RIGHT, SCALE, ZERO], {}),
    ("QLinearSigmoid", [*LEFT, np.array(1 / 256, np.float32), np.array(0, np.uint8)], {}),
    ("QLinearLeakyRelu", [*LEFT, SCALE, ZERO], {"alpha": 0.1}),
    ("SimplifiedLayerNormalization", [X, ONES], {"epsilon": 1e-6}),
]


def model_of(
    operator: str, inputs: list[Any], attributes: dict[str, Any], results: tuple[str, ...] = ("y",)
) -> Any:
    domain = "" if operator == "SimplifiedLayerNormalization" else "com.microsoft"
    names = [f"x{number}" for number in range(len(inputs))]
    node = helper.make_node(operator, names, results, domain=domain, **attributes)
    kinds = []
    for name, value in zip(names, inputs, strict=True):
        number = helper.np_dtype_to_tensor_dtype(value.dtype)
        kinds.append(helper.make_tensor_value_info(name, number, value.shape))
    dtype = TensorProto.UINT8 if "QLinear" in operator else TensorProto.FLOAT
    made = [helper.make_tensor_value_info(name, dtype, None) for name in results if name]
    graph = helper.make_graph([node], "one", kinds, made)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize(("operator", "inputs", "attributes"), CASES)
def test_rows_agree_with_onnxruntime(
    operator: str, inputs: list[Any], attributes: dict[str, Any]
) -> None:
    model = model_of(operator, inputs, attributes)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{number}": value for number, value in enumerate(inputs)}
    wanted = session.run(None, feeds)[0]
    with using(device="interp"):
        got = load(model)(*inputs).numpy()
    assert got.dtype == wanted.dtype
    if got.dtype == np.uint8:  # the peer rounds a product of two float32 scales elsewhere
        assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
        assert np.mean(got != wanted) <= 0.05
    else:
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("operator", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_with_the_skip_is_an_output(operator: str) -> None:
    inputs = [X, floats(2, 3, 8), ONES]
    model = model_of(operator, inputs, {}, ("y", "", "", "sum"))
    with using(device="interp"):
        _, total = load(model)(*inputs)
    np.testing.assert_allclose(total.numpy(), X + inputs[1], rtol=1e-6)


def test_transposed_batches_are_refused() -> None:
    inputs = [floats(2, 3, 4), floats(2, 4, 5)]
    model = model_of("FusedMatMul", inputs, {"transBatchA": 1})
    with using(device="interp"), pytest.raises(OnnxError, match="batches"):
        load(model)(*inputs)
