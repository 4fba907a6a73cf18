"""Rows of ONNX's operators against onnx's own reference evaluator."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import lamina as lm  # noqa: E402
from lamina.core.options import using  # noqa: E402
from lamina.interop.onnx import OnnxError, load  # noqa: E402
from lamina.interop.onnx.rows import find_row  # noqa: E402
from lamina.ir.node import toposort  # noqa: E402
from lamina.ir.ops import Op  # noqa: E402

FLOATS = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _interpreted() -> Iterator[None]:
    """Rows build graphs, which the interpreter runs at once."""
    with using(device="interp"):
        yield


def _model(
    operator: str, inputs: list[Any], opset: int = 21, domain: str = "", **attributes: Any
) -> Any:
    names = [f"x{number}" for number in range(len(inputs))]
    node = helper.make_node(operator, names, ["y"], domain=domain, **attributes)
    kinds = []
    for name, value in zip(names, inputs, strict=True):
        number = helper.np_dtype_to_tensor_dtype(value.dtype)
        kinds.append(helper.make_tensor_value_info(name, number, value.shape))
    result = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "one", kinds, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)])


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


@pytest.mark.parametrize("scale", [0.4, 1.7])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "half_pixel_symmetric"])
def test_resized_images(mode: str, coordinates: str, scale: float) -> None:
    scales = np.array([1, 1, scale, 2], np.float32)
    antialias = int(mode != "nearest" and scale < 1)
    _agrees("Resize", _floats(1, 2, 11, 3), np.zeros(0, np.float32), scales, mode=mode,
            coordinate_transformation_mode=coordinates, antialias=antialias)  # fmt: skip


@pytest.mark.parametrize(("scale", "reads_index"), [(2.0, False), (3.0, False), (1.5, True)])
def test_whole_repetitions_read_no_index(scale: float, reads_index: bool) -> None:
    x, scales = lm.asarray(_floats(1, 2, 4, 6)), np.array([1, 1, scale, 2], np.float32)
    model = _model("Resize", [x.numpy(), np.zeros(0, np.float32), scales], mode="nearest",
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")  # fmt: skip
    result = load(model)(x, np.zeros(0, np.float32), scales)
    assert (Op.GATHER in {node.op for node in toposort([result.node])}) == reads_index


def test_resized_integers_stay_in_their_range() -> None:
    x = np.array([[[[0, 255, 0, 255, 255, 0]]]], np.uint8)
    scales = np.array([1, 1, 1, 3], np.float32)
    model = _model("Resize", [x, np.zeros(0, np.float32), scales], mode="cubic")
    (wanted,) = ReferenceEvaluator(model).run(None, {"x0": x, "x1": scales[:0], "x2": scales})
    result = load(model)(x, scales[:0], scales).numpy()
    assert abs(result.astype(int) - wanted).max() <= 1  # of a sum that is nearly an integer


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16])
def test_quantized_values(dtype: Any) -> None:
    x, scale = _floats(3, 5) * 300, np.array([0.5, 1.5, 2.5], np.float32)
    origin = np.array([3, 4, 5], dtype)
    _agrees("QuantizeLinear", x, scale, origin, axis=0)
    quantized = FLOATS.integers(0, 100, (3, 5)).astype(dtype)
    _agrees("DequantizeLinear", quantized, scale, origin, axis=0)


def test_quantized_convolution_of_channels_with_scales() -> None:
    x, w = FLOATS.integers(0, 255, (2, 3, 6, 5)), FLOATS.integers(0, 255, (4, 3, 3, 3))
    one, three = np.float32([0.1])[0], np.array(3, np.uint8)
    scales = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    _agrees("QLinearConv", x.astype(np.uint8), np.asarray(one), three, w.astype(np.uint8), scales,
            three, np.array(5000, np.float32), three, pads=[1, 1, 1, 1])  # fmt: skip


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [6, 7, 12])
def test_fourier_transforms(length: int, onesided: int) -> None:
    x = _floats(2, 9, 1)
    spectrum = np.fft.fft(x[..., 0], length, axis=1)[:, : length // 2 + 1 if onesided else length]
    pairs = np.stack([spectrum.real, spectrum.imag], axis=-1)
    model = _model("DFT", [x, np.array(length)], onesided=onesided)
    forward = load(model)(x, np.array(length)).numpy()
    np.testing.assert_allclose(forward, pairs, atol=1e-5)
    inverse = _model("DFT", [forward, np.array(length)], onesided=onesided, inverse=1)
    padded = np.zeros((2, length), np.float32)
    padded[:, :9] = x[:, :length, 0]
    result = load(inverse)(forward, np.array(length)).numpy()
    np.testing.assert_allclose(result[..., 0], padded, atol=1e-5)


def test_boxes_that_overlap_a_better_one_are_left_out() -> None:
    corners = FLOATS.uniform(size=(2, 40, 4)).astype(np.float32)
    scores = FLOATS.uniform(size=(2, 3, 40)).astype(np.float32)
    limits = np.array([9]), np.array([0.2], np.float32), np.array([0.3], np.float32)
    _agrees("NonMaxSuppression", corners, scores, *limits)
    _agrees("NonMaxSuppression", corners, scores, *limits, center_point_box=1)


def test_a_seed_draws_the_same_numbers_again() -> None:
    x = _floats(200)
    seeded = load(_model("RandomUniformLike", [x], seed=0.5))
    other = load(_model("RandomUniformLike", [x], seed=0.25))
    first = seeded(x).numpy()
    assert (first == seeded(x).numpy()).all()
    assert (first != other(x).numpy()).any()
    assert first.min() >= 0
    assert first.max() < 1
    assert 0.4 < first.mean() < 0.6


def test_multinomial_draws_classes_by_their_weight() -> None:
    logits = np.log(np.array([[0.0001, 0.2, 0.8]], np.float32))
    drawn = load(_model("Multinomial", [logits], sample_size=1000, seed=1.0))(logits).numpy()
    assert drawn.shape == (1, 1000)
    assert drawn.dtype == np.int32
    assert abs((drawn == 2).mean() - 0.8) < 0.05


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("operator", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_nets(operator: str, gates: int, direction: str, layout: int) -> None:
    ways, hidden = 2 if direction == "bidirectional" else 1, 4
    x = _floats(3, 5, 2) if layout else _floats(5, 3, 2)
    weights = _floats(ways, gates * hidden, 2), _floats(ways, gates * hidden, hidden)
    biases = _floats(ways, 2 * gates * hidden)
    _agrees(operator, x, *weights, biases, hidden_size=hidden, direction=direction, layout=layout)


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_short_sequences_end_before_the_longest(direction: str) -> None:
    x, w, r, b = _floats(5, 2, 3), _floats(1, 8, 3), _floats(1, 8, 2), _floats(1, 16)
    lengths = np.array([5, 2], np.int32)
    model = load(_model("LSTM", [x, w, r, b, lengths], direction=direction))
    both = model(x, w, r, b, lengths).numpy()
    short = x[:2, 1:], w, r, b
    alone = load(_model("LSTM", list(short), direction=direction))(*short).numpy()
    np.testing.assert_allclose(both[:2, :, 1:], alone, rtol=1e-5)
    assert not both[2:, :, 1].any()


def test_activations_take_their_parameters_in_order() -> None:
    x, w, r = _floats(2, 1, 3), _floats(1, 2, 3), np.zeros((1, 2, 2), np.float32)
    model = _model("RNN", [x, w, r], activations=["Affine"], activation_alpha=[2.0],
                   activation_beta=[0.5], clip=0.25)  # fmt: skip
    wanted = np.clip(x @ w[0].T, -0.25, 0.25)[:, None] * 2 + 0.5
    np.testing.assert_allclose(load(model)(x, w, r).numpy(), wanted, rtol=1e-5)


@pytest.mark.parametrize(("group", "offset_group"), [(1, 1), (2, 1), (1, 2)])
def test_deformed_convolutions(group: int, offset_group: int) -> None:
    x, w = _floats(2, 4, 5, 6), _floats(6, 4 // group, 3, 2)
    offset, mask = _floats(2, 12 * offset_group, 5, 5), _floats(2, 6 * offset_group, 5, 5)
    _agrees("DeformConv", x, w, offset, _floats(6), mask, group=group, offset_group=offset_group,
            pads=[1, 0, 1, 0])  # fmt: skip


@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_regions_of_interest(mode: str, ratio: int) -> None:
    x, batches = _floats(2, 3, 8, 9), np.array([1, 0, 1])
    rois = np.array([[1, 2, 7, 6], [0, 0, 3, 1], [4, 4, 12, 11]], np.float32)
    _agrees("RoiAlign", x, rois, batches, mode=mode, output_height=2, output_width=3,
            sampling_ratio=ratio, coordinate_transformation_mode="output_half_pixel")  # fmt: skip


def _forest(rng: Any, kinds: list[int]) -> dict[str, Any]:
    """Two full trees of depth 3: nodes 0 to 6 and 7 to 13, leaves 0 to 7 and 8 to 15."""
    nodes = range(14)
    inner = [at % 7 < 3 for at in nodes]
    first = [at // 7 * 7 + 2 * (at % 7) + 1 for at in nodes]
    leaf = [at // 7 * 8 + 2 * (at % 7 - 3) for at in nodes]
    modes = rng.choice(kinds, 14)
    members = [value for mode in modes if mode == 6 for value in (1.0, 3.0, np.nan)]
    return {
        "nodes_splits": _array(rng.integers(0, 5, 14).astype(np.float32)),
        "nodes_featureids": rng.integers(0, 3, 14).tolist(),
        "nodes_modes": _array(modes.astype(np.uint8)),
        "nodes_truenodeids": np.where(inner, first, leaf).tolist(),
        "nodes_falsenodeids": (np.where(inner, first, leaf) + 1).tolist(),
        "nodes_trueleafs": [int(not value) for value in inner],
        "nodes_falseleafs": [int(not value) for value in inner],
        "nodes_missing_value_tracks_true": rng.integers(0, 2, 14).tolist(),
        "tree_roots": [0, 7],
        "leaf_targetids": rng.integers(0, 2, 16).tolist(),
        "leaf_weights": _array(rng.normal(size=16).astype(np.float32)),
        "membership_values": _array(np.array(members, np.float32)),
        "n_targets": 2,
    }


def _array(values: Any) -> Any:
    return onnx.numpy_helper.from_array(values)


@pytest.mark.parametrize("aggregate_function", [0, 1, 2, 3])
@pytest.mark.parametrize("kinds", [[0], [1, 2, 3], [0, 4, 5, 6]])
def test_ensembles_of_trees(kinds: list[int], aggregate_function: int) -> None:
    rng = np.random.default_rng(aggregate_function)
    x = rng.integers(0, 5, (30, 3)).astype(np.float32)
    x[::7, 1] = np.nan
    _agrees("TreeEnsemble", x, opset=5, domain="ai.onnx.ml", aggregate_function=aggregate_function,
            **_forest(rng, kinds))  # fmt: skip


def test_nodes_that_lead_back_to_themselves_are_refused() -> None:
    x = np.zeros((1, 3), np.float32)
    forest = _forest(np.random.default_rng(0), [0])
    forest["nodes_truenodeids"][1] = 0
    with pytest.raises(OnnxError, match="leads back to itself"):
        load(_model("TreeEnsemble", [x], opset=5, domain="ai.onnx.ml", **forest))(x)


def test_labels_of_numbers() -> None:
    x = np.array([[1, 5], [2, 9]])
    model = _model("LabelEncoder", [x], opset=4, domain="ai.onnx.ml", keys_int64s=[1, 2, 5],
                   values_floats=[0.5, 1.5, 2.5], default_float=-1.0)  # fmt: skip
    assert load(model)(x).tolist() == [[0.5, 2.5], [1.5, -1.0]]


def test_features_of_tables() -> None:
    x = _floats(4, 3)
    domain: dict[str, Any] = {"opset": 1, "domain": "ai.onnx.ml"}
    _agrees("Scaler", x, offset=[1.0, 2.0, 3.0], scale=[2.0, 3.0, 4.0], **domain)
    _agrees("FeatureVectorizer", x, _floats(4, 2), inputdimensions=[3, 2], **domain)
    for norm in ("MAX", "L1", "L2"):
        # Of negative elements the definition and the evaluator say different things for MAX.
        _agrees("Normalizer", abs(x) if norm == "MAX" else x, norm=norm, **domain)
    x[1:3, 1] = np.nan
    _agrees("Imputer", x, imputed_value_floats=[1.0, 2.0, 3.0], replaced_value_float=np.nan,
            **domain)  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_regression(transform: str) -> None:
    x, weights = _floats(5, 3), _floats(2, 3)
    model = _model("LinearRegressor", [x], opset=1, domain="ai.onnx.ml", targets=2,
                   coefficients=weights.ravel().tolist(), intercepts=[0.5, -0.5],
                   post_transform=transform)  # fmt: skip
    wanted = x @ weights.T + np.array([0.5, -0.5], np.float32)
    if transform == "LOGISTIC":
        wanted = 1 / (1 + np.exp(-wanted))
    if transform == "SOFTMAX":
        wanted = np.exp(wanted) / np.exp(wanted).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(load(model)(x).numpy(), wanted, rtol=1e-4)


def test_an_operator_that_is_left_out_says_what_to_do() -> None:
    x = _floats(2, 3)
    model = _model("ZipMap", [x], opset=1, domain="ai.onnx.ml", classlabels_int64s=[1, 2, 3])
    with pytest.raises(OnnxError, match="lamina has no maps: take the tensors"):
        load(model)(x)


@pytest.mark.parametrize("pixel_format", ["RGB", "BGR", "Grayscale"])
def test_images_in_the_formats_of_files(pixel_format: str) -> None:
    images = pytest.importorskip("PIL.Image")
    pixels = FLOATS.integers(0, 255, (5, 7, 3)).astype(np.uint8)
    file = BytesIO()
    images.fromarray(pixels).save(file, "PNG")
    encoded = np.frombuffer(file.getvalue(), np.uint8)
    _agrees("ImageDecoder", encoded, pixel_format=pixel_format)
    with pytest.raises(OnnxError, match="cannot decode"):
        load(_model("ImageDecoder", [encoded]))(encoded[::-1].copy())


def test_a_transform_beyond_bounds_is_refused() -> None:
    x, length = np.zeros((1, 2**15, 1), np.float32), np.array(2**40)
    with pytest.raises(OnnxError, match="is beyond"):
        load(_model("DFT", [x, length]))(x, length)


def test_every_operator_since_version_7_has_a_row_or_a_body() -> None:
    missing = set()
    for version in range(7, onnx.defs.onnx_opset_version() + 1):
        for name in {schema.name for schema in onnx.defs.get_all_schemas_with_history()}:
            try:
                schema = onnx.defs.get_schema(name, version)
            except onnx.defs.SchemaError:
                continue
            bodies = schema.function_opset_versions
            bodies += schema.context_dependent_function_opset_versions
            has_body = any(body <= version for body in bodies)
            if not schema.deprecated and not has_body and not find_row(name, version, ""):
                missing.add(name)
    assert missing == {"MaxRoiPool"}


@pytest.mark.parametrize("opset", [13, 17, 22])
def test_bodies_are_for_later_versions_too(opset: int) -> None:
    targets = np.array([[0, 1, 3]])
    _agrees("NegativeLogLikelihoodLoss", _floats(1, 4, 3), targets, opset=opset)
    _agrees("HardSwish", _floats(5), opset=max(opset, 14))


def test_steps_beyond_an_image_leave_its_first_window() -> None:
    x, w = _floats(2, 3, 9, 7), _floats(4, 3, 3, 2)
    _agrees("MaxPool", x, kernel_shape=[3, 2], strides=[100, 50])
    _agrees("Conv", x, w, strides=[100, 50])
    model = _model("MaxPool", [x], kernel_shape=[3, 2], strides=[2**40, 2**40])
    assert load(model)(x).tolist() == x[:, :, :3, :2].max((2, 3), keepdims=True).tolist()


@pytest.mark.parametrize("element", [TensorProto.INT64, TensorProto.FLOAT])
@pytest.mark.parametrize("sizes", [(2, 3), ("rows", 3), None])
def test_a_loop_without_turns_gives_what_its_body_says(element: int, sizes: Any) -> None:
    runtime = pytest.importorskip("onnxruntime")
    info, boolean = helper.make_tensor_value_info, TensorProto.BOOL
    nodes = [helper.make_node("Identity", [a], [b]) for a, b in ("gG", "vV", "vs")]
    body = helper.make_graph(
        nodes, "body",
        [info("i", TensorProto.INT64, ()), info("g", boolean, ()), info("v", element, sizes)],
        [info("G", boolean, ()), info("V", element, sizes), info("s", element, sizes)],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["n", "", "self"], ["last", "all"], body=body)], "graph",
        [info("n", TensorProto.INT64, ()), info("self", element, (2, 3))],
        [info(name, element, None) for name in ("last", "all")],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=9)
    dtype = helper.tensor_dtype_to_np_dtype(element)
    feed = {"n": np.array(0, np.int64), "self": np.ones((2, 3), dtype)}
    settings = runtime.SessionOptions()
    settings.log_severity_level = 3
    session = runtime.InferenceSession(model.SerializeToString(), settings)
    for ours, theirs in zip(load(model)(**feed), session.run(None, feed), strict=True):
        assert (ours.shape, ours.dtype.numpy) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("length", [0, 3])
def test_scans_of_any_length(axis: int, length: int) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, (2,))
    part = helper.make_tensor_value_info("part", TensorProto.FLOAT, (2,))
    after = helper.make_tensor_value_info("after", TensorProto.FLOAT, (2,))
    seen = helper.make_tensor_value_info("seen", TensorProto.FLOAT, (2,))
    nodes = [
        helper.make_node("Add", ["state", "part"], ["after"]),
        helper.make_node("Identity", ["after"], ["seen"]),
    ]
    body = helper.make_graph(nodes, "body", [state, part], [after, seen])
    node = helper.make_node(
        "Scan", ["x0", "x1"], ["end", "all"], body=body, num_scan_inputs=1, scan_output_axes=[axis]
    )
    inputs = [_floats(2), _floats(3, 2)]
    kinds = [
        helper.make_tensor_value_info("x0", TensorProto.FLOAT, (2,)),
        helper.make_tensor_value_info("x1", TensorProto.FLOAT, ("n", 2)),
    ]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("end", "all")]
    graph = helper.make_graph([node], "scan", kinds, made)
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, {"x0": inputs[0], "x1": inputs[1]})
    if length == 0:  # which onnxruntime refuses
        inputs[1] = inputs[1][:0]
        wanted = [inputs[0], np.take(wanted[1], [], axis=axis)]
    for got, expected in zip(load(model)(*inputs), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)
        assert np.asarray(got).shape == expected.shape
