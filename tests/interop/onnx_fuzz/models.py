"""Small models to mutate, each with arguments that fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_RNG = np.random.default_rng(0)
_IMPORTS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]


@dataclass(frozen=True)
class Sample:
    """A model and its arguments in the order of its inputs."""

    model: onnx.ModelProto
    arguments: Sequence[Any]


def _floats(*shape: int) -> Any:
    return _RNG.normal(size=shape).astype(np.float32)


def _weights(name: str, *shape: int) -> onnx.TensorProto:
    return numpy_helper.from_array(_floats(*shape), name)


def _integers(name: str, values: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, np.int64), name)


def _sample(
    nodes: Sequence[onnx.NodeProto], arguments: Sequence[Any], initializers: Sequence[Any] = (),
    functions: Sequence[Any] = (), output: str = "y",
) -> Sample:  # fmt: skip
    """A model of the inputs x0, x1, ..."""
    inputs = []
    for number, value in enumerate(arguments):
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        inputs.append(helper.make_tensor_value_info(f"x{number}", kind, value.shape))
    result = helper.make_tensor_value_info(output, TensorProto.UNDEFINED, None)
    graph = helper.make_graph(list(nodes), "graph", inputs, [result], list(initializers))
    model = helper.make_model(graph, opset_imports=_IMPORTS, functions=list(functions))
    return Sample(model, arguments)


def _network() -> Sample:
    nodes = [
        helper.make_node("Conv", ["x0", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="first"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "v"], ["g"], transB=1, alpha=0.5),
        helper.make_node("Softmax", ["g"], ["y"], axis=-1),
    ]
    weights = [_weights("w", 3, 2, 3, 3), _weights("b", 3), _weights("m", 5, 12), _weights("v", 5)]
    return _sample(nodes, [_floats(1, 2, 4, 4)], weights)


def _shapes() -> Sample:
    nodes = [
        helper.make_node("Shape", ["x0"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x0", "t"], ["r"]),
        helper.make_node("Slice", ["r", "begin", "end", "axis"], ["c"]),
        helper.make_node("Expand", ["c", "wide"], ["e"]),
        helper.make_node("ReduceMean", ["e", "axis"], ["m"], keepdims=0),
        helper.make_node("Pad", ["m", "pads"], ["y"], mode="reflect"),
    ]
    constants = [
        _integers("zero", [0]), _integers("rest", [-1]), _integers("begin", [1]),
        _integers("end", [5]), _integers("axis", [1]), _integers("wide", [3, 2, 4]),
        _integers("pads", [1, 1, 1, 1]),
    ]  # fmt: skip
    return _sample(nodes, [_floats(2, 3, 4)], constants)


def _loop() -> Sample:
    values = [("i", TensorProto.INT64, []), ("go", TensorProto.BOOL, []),
              ("v", TensorProto.FLOAT, [3])]  # fmt: skip
    results = [("go2", TensorProto.BOOL, []), ("w", TensorProto.FLOAT, [3]),
               ("scan", TensorProto.FLOAT, [3])]  # fmt: skip
    then, other = (
        helper.make_graph([helper.make_node(operator, ["v"], [name])], name, [],
                          [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])])
        for operator, name in (("Neg", "a"), ("Exp", "b"))
    )  # fmt: skip
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go2"]),
            helper.make_node("If", ["x1"], ["branch"], then_branch=then, else_branch=other),
            helper.make_node("Mul", ["branch", "v"], ["w"]),
            helper.make_node("Identity", ["w"], ["scan"]),
        ], "body", [helper.make_tensor_value_info(*value) for value in values],
        [helper.make_tensor_value_info(*value) for value in results],
    )  # fmt: skip
    node = helper.make_node("Loop", ["turns", "", "x0"], ["last", "y"], body=body)
    return _sample([node], [_floats(3), np.array(True)], [_integers("turns", 3)])


def _functions() -> Sample:
    inner = helper.make_function(
        "own", "scaled", ["a"], ["b"],
        [helper.make_node("Mul", ["a", "a"], ["q"]), helper.make_node("Add", ["q", "a"], ["b"])],
        _IMPORTS,
    )  # fmt: skip
    softmax = helper.make_node("Softmax", ["q"], ["b"])
    reference = softmax.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "axis", "along", 2
    outer = helper.make_function(
        "own", "twice", ["a"], ["b"],
        [helper.make_node("scaled", ["a"], ["p"], domain="own"),
         helper.make_node("scaled", ["p"], ["q"], domain="own"), softmax],
        _IMPORTS, ["along"],
    )  # fmt: skip
    node = helper.make_node("twice", ["x0"], ["y"], domain="own", along=1)
    return _sample([node], [_floats(2, 3)], functions=[inner, outer])


def _recurrent() -> Sample:
    node = helper.make_node("LSTM", ["x0", "w", "r", "b"], ["", "y"], hidden_size=2,
                            direction="bidirectional")  # fmt: skip
    weights = [_weights("w", 2, 8, 3), _weights("r", 2, 8, 2), _weights("b", 2, 16)]
    return _sample([node], [_floats(4, 1, 3)], weights)


def _quantized() -> Sample:
    nodes = [
        helper.make_node("QuantizeLinear", ["x0", "scale", "zero"], ["q"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("TopK", ["f", "k"], ["y", "places"], axis=1),
    ]
    weights = numpy_helper.from_array(_RNG.integers(0, 9, (4, 5)).astype(np.uint8), "w")
    scale = numpy_helper.from_array(np.array(0.1, np.float32), "scale")
    zero = numpy_helper.from_array(np.array(7, np.uint8), "zero")
    return _sample(nodes, [_floats(3, 4)], [weights, scale, zero, _integers("k", [2])])


def _resized() -> Sample:
    nodes = [
        helper.make_node("Resize", ["x0", "", "scales"], ["r"], mode="linear"),
        helper.make_node("LayerNormalization", ["r", "w"], ["n"]),
        helper.make_node("Einsum", ["n", "n"], ["e"], equation="abij,abkj->abik"),
        helper.make_node("CumSum", ["e", "axis"], ["s"]),
        helper.make_node("ScatterElements", ["s", "places", "new"], ["y"], axis=3),
    ]
    scales = numpy_helper.from_array(np.array([1, 1, 2, 1.5], np.float32), "scales")
    constants = [scales, _weights("w", 6), _integers("axis", 2), _integers("places", [[[[1]]]]),
                 _weights("new", 1, 1, 1, 1)]  # fmt: skip
    return _sample(nodes, [_floats(1, 1, 2, 4)], constants)


def _sequences() -> Sample:
    nodes = [
        helper.make_node("SplitToSequence", ["x0", "two"], ["s"], axis=0),
        helper.make_node("SequenceInsert", ["s", "x0"], ["t"]),
        helper.make_node("SequenceAt", ["t", "two"], ["a"]),
        helper.make_node("StringSplit", ["texts"], ["parts", "n"], delimiter=" "),
        helper.make_node("ReduceMax", ["n"], ["m"]),
        helper.make_node("Cast", ["m"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "f"], ["y"]),
    ]
    texts = helper.make_tensor("texts", TensorProto.STRING, [2], [b"one two", b"three"])
    return _sample(nodes, [_floats(4, 3)], [_integers("two", 2), texts])


def _attention() -> Sample:
    node = helper.make_node("GroupNormalization", ["x0", "s", "s"], ["g"], num_groups=2)
    other = helper.make_node("Clip", ["g", "low"], ["c"])
    last = helper.make_node("NegativeLogLikelihoodLoss", ["c", "t"], ["y"], reduction="mean")
    low = numpy_helper.from_array(np.array(-1, np.float32), "low")
    constants = [_weights("s", 4), low, _integers("t", [[0, 1, 3]])]
    return _sample([node, other, last], [_floats(1, 4, 3)], constants)


def samples() -> list[Sample]:
    """Models of most kinds of operators, attributes and graphs inside of graphs."""
    return [
        _network(), _shapes(), _loop(), _functions(), _recurrent(), _quantized(), _resized(),
        _sequences(), _attention(),
    ]  # fmt: skip
