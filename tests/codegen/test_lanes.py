"""Maps over rows shorter than a vector: lanes run along the axis that takes fewer instructions."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import backends
from lamina.core.target import cpu_target
from lamina.frontend.session import SESSION
from lamina.schedule.cpu.heuristic import schedule_for_cpu

pytestmark = pytest.mark.usefixtures("on_cpu")
TARGET = cpu_target(vector_bytes=64, cores=2)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")
RNG = np.random.default_rng(5)


@pytest.fixture
def _vectors_of_64_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        backends, "schedule_for_cpu",
        lambda kernel, _, knobs: schedule_for_cpu(kernel, TARGET, knobs),
    )  # fmt: skip
    SESSION.forget()


def _text(function: Any, *shapes: tuple[int, ...]) -> str:
    specs = [lm.TensorSpec(shape) for shape in shapes]
    return lm.jit(function).lower(*specs, device="cpu").kernels[0].source


def _chain(x: Any, y: Any) -> Any:
    return lm.tanh(lm.sin(lm.softplus(x)) + y)


@pytest.mark.usefixtures("_vectors_of_64_bytes")
@pytest.mark.parametrize("columns", [2, 3, 5, 8, 15, 31])
@pytest.mark.parametrize("is_row", [False, True])
def test_long_chains_fill_vectors_with_rows(columns: int, is_row: bool) -> None:
    other = (1, columns) if is_row else (640, 1)
    text = _text(_chain, (640, columns), other)
    assert set(re.findall(r"\bsin_f32\w*", text)) == {"sin_f32x16"}


@pytest.mark.usefixtures("_vectors_of_64_bytes")
def test_what_is_left_of_a_reduction_is_vectors_of_fewer_lanes() -> None:
    """Rows of 77 elements: four vectors of 16, one of 8, one of 4 and a single element."""
    text = _text(lambda x: lm.layer_norm(x, (77,)), (640, 77))
    loaded = re.findall(r"\*\(f32x(\d+)r \*\)\(p0", text)
    assert set(loaded) == {"16", "8", "4"}
    assert "p0[" in text


@pytest.mark.parametrize("columns", [*range(2, 34), 45, 61, 77, 125, 197])
def test_reductions_of_rows_of_any_length(columns: int) -> None:
    x = RNG.standard_normal((40, columns), dtype=np.float32)
    wide = x.astype(np.float64)
    exps = np.exp(wide - wide.max(-1, keepdims=True))
    right = {
        "sum": wide.sum(-1), "max": wide.max(-1), "argmax": wide.argmax(-1),
        "variance": wide.var(-1), "softmax": exps / exps.sum(-1, keepdims=True),
    }  # fmt: skip
    ours = lm.asarray(x)
    found = {
        "sum": ours.sum(-1), "max": ours.max(-1), "argmax": ours.argmax(-1),
        "variance": ours.var(-1, correction=0), "softmax": lm.softmax(ours, axis=-1),
    }  # fmt: skip
    lm.realize(*found.values())
    for name, value in found.items():
        np.testing.assert_allclose(value.numpy(), right[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.usefixtures("_vectors_of_64_bytes")
@pytest.mark.parametrize("columns", [3, 8, 16, 31, 48])
def test_single_operations_have_neighbours_as_lanes(columns: int) -> None:
    text = _text(lambda x, y: x * y, (640, columns), (640, 1))
    lanes = 1 << min(columns, 16).bit_length() >> 1
    assert f"*(f32x{lanes}u *)(p2 " in text


@pytest.mark.usefixtures("_vectors_of_64_bytes")
def test_rows_that_lie_far_apart_are_no_lanes() -> None:
    text = _text(lambda x, y: _chain(x[:, :3], y), (640, 1024), (640, 1))
    assert "sin_f32x16" not in text


@pytest.mark.usefixtures("_vectors_of_64_bytes")
@pytest.mark.parametrize("channels", [3, 6])
def test_few_channels_of_narrow_images_share_what_they_read(channels: int) -> None:
    text = _text(lambda x, w: lm.conv2d(x, w), (8, 16, 18, 18), (channels, 16, 5, 5))
    sums = re.findall(r"f32x8 (sum_\d+) = splat", text)
    assert len(sums) == 2 * channels  # of 14 columns: 8 lanes from 0 on, and from 6 on
    step = text[text.index("f32x8 load_") :]
    assert step[: step.index("}")].count("f32x8 load_") == 1


def _residual(x: Any, w: Any, y: Any) -> Any:
    """Images of channels in vectors, which lie 144 elements apart in memory."""
    return y - lm.conv2d(x, w, padding=1)


@pytest.mark.usefixtures("_vectors_of_64_bytes")
def test_many_vectors_with_lanes_apart_are_calls() -> None:
    # Tiles of 7 columns; those of 8 and more are stored in squares.
    shapes = (2, 16, 12, 7), (48, 16, 3, 3), (2, 48, 12, 7)
    specs = [lm.TensorSpec(shape) for shape in shapes]
    kernels = lm.jit(_residual).lower(*specs, device="cpu").kernels
    text = "".join(kernel.source for kernel in kernels)
    assert "= load_apart_f32x16(" in text
    assert " store_apart_f32x16(" in text
    torch = pytest.importorskip("torch")
    x, w, y = (_values("float32", *shape) for shape in shapes)
    convolved = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), padding=1)
    found = lm.jit(_residual)(*map(lm.asarray, (x, w, y))).numpy()
    np.testing.assert_allclose(found, y - convolved.numpy(), rtol=1e-4, atol=1e-4)


def _values(kind: str, *shape: int) -> np.ndarray[Any, Any]:
    if kind == "bool":
        return RNG.integers(0, 2, shape).astype(bool)
    if kind in INTEGERS:
        return RNG.integers(0, 90, shape).astype(kind)
    return RNG.standard_normal(shape)


@st.composite
def _shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of an array with a short last axis, and one that broadcasts to it."""
    rows = draw(st.lists(st.integers(1, 40), min_size=1, max_size=2))
    shape = (*rows, draw(st.integers(2, 31)))
    other = tuple(size if draw(st.booleans()) else 1 for size in shape)
    return shape, other


@given(_shapes(), st.sampled_from(FLOATS))
@settings(max_examples=12)
def test_chains_of_floats(shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    x, y = (lm.asarray(_values(kind, *shape)).cast(getattr(lm, kind)).realize() for shape in shapes)
    found = lm.tanh(lm.sin(lm.exp(x)) + y).cast(lm.float64).numpy()
    a, b = (array.cast(lm.float64).numpy() for array in (x, y))
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-1}[kind]
    np.testing.assert_allclose(found, np.tanh(np.sin(np.exp(a)) + b), atol=tolerance)


def _mixed(x: Any, y: Any) -> Any:
    """Twelve steps of integer arithmetic; the same of tensors and of NumPy's arrays."""
    for _ in range(12):
        x = (x * y + x) ^ (x & y)
    return x


@given(_shapes(), st.sampled_from(INTEGERS))
@settings(max_examples=12)
def test_chains_of_integers(shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    a, b = (_values(kind, *shape) for shape in shapes)
    found = _mixed(lm.asarray(a).realize(), lm.asarray(b).realize()).numpy()
    np.testing.assert_array_equal(found, _mixed(a, b))


@given(_shapes())
@settings(max_examples=8)
def test_chains_that_masks_decide(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = _values("float32", *shapes[0]).astype(np.float32), _values("bool", *shapes[1])
    x, mask = lm.asarray(a).realize(), lm.asarray(b).realize()
    is_positive = lm.where(mask, lm.exp(x), lm.sin(x)) > 0
    np.testing.assert_array_equal(is_positive.numpy(), np.where(b, np.exp(a), np.sin(a)) > 0)


@given(_shapes(), st.integers(0, 2), st.integers(0, 2))
@settings(max_examples=8)
def test_chains_of_what_is_padded_and_reversed(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], before: int, after: int
) -> None:
    a, b = (_values("float32", *shape).astype(np.float32) for shape in shapes)
    widths = ((0, 0),) * (a.ndim - 1) + ((before, after),)
    x, y = lm.asarray(a).realize(), lm.asarray(b).realize()
    found = lm.exp(lm.sin(lm.pad(lm.flip(x, axis=-1) * y, widths)))
    right = np.exp(np.sin(np.pad(a[..., ::-1] * b, widths)))
    np.testing.assert_allclose(found.numpy(), right, rtol=1e-5)


@pytest.mark.usefixtures("_vectors_of_64_bytes")
@pytest.mark.parametrize("columns", [3, 10, 15, 31])
def test_reductions_of_short_rows_fill_vectors_with_rows(columns: int) -> None:
    text = _text(lambda x: lm.softmax(x, axis=-1), (640, columns))
    assert set(re.findall(r"\bexp_f32\w*", text)) == {"exp_f32x16"}
    assert "half_" not in text  # no lanes are added up


@pytest.mark.usefixtures("_vectors_of_64_bytes")
@pytest.mark.parametrize("columns", [8, 16, 64])
def test_plain_sums_of_rows_have_neighbours_as_lanes(columns: int) -> None:
    text = _text(lambda x: lm.sum(x, axis=-1), (640, columns))
    assert f"*(f32x{min(columns, 16)}r *)(p0 " in text


@given(_shapes(), st.sampled_from(FLOATS))
@settings(max_examples=12)
def test_reductions_of_short_rows(
    shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str
) -> None:
    x, y = (lm.asarray(_values(kind, *shape)).cast(getattr(lm, kind)).realize() for shape in shapes)
    found = lm.softmax(lm.sin(x + y), axis=-1).cast(lm.float64).numpy()
    a, b = (array.cast(lm.float64).numpy() for array in (x, y))
    exponentials = np.exp(np.sin(a + b))
    right = exponentials / exponentials.sum(axis=-1, keepdims=True)
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-2, "bfloat16": 2e-1}[kind]
    np.testing.assert_allclose(found, right, atol=tolerance)


@given(_shapes(), st.sampled_from(INTEGERS))
@settings(max_examples=12)
def test_extrema_of_short_rows(shapes: tuple[tuple[int, ...], tuple[int, ...]], kind: str) -> None:
    a, b = (_values(kind, *shape) for shape in shapes)
    values, right = _mixed(lm.asarray(a).realize(), lm.asarray(b).realize()), _mixed(a, b)
    np.testing.assert_array_equal(lm.max(values, axis=-1).numpy(), right.max(axis=-1))
    np.testing.assert_array_equal(lm.argmin(values, axis=-1).numpy(), right.argmin(axis=-1))


@given(_shapes())
@settings(max_examples=8)
def test_scans_of_short_rows(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (_values("float32", *shape).astype(np.float32) for shape in shapes)
    x, y = lm.asarray(a).realize(), lm.asarray(b).realize()
    found = lm.tanh(lm.cumulative_sum(lm.exp(lm.sin(x)) * y, axis=-1))
    right = np.tanh(np.cumsum(np.exp(np.sin(a)) * b, axis=-1))
    np.testing.assert_allclose(found.numpy(), right, atol=1e-5)


@pytest.mark.usefixtures("_vectors_of_64_bytes")
def test_a_place_that_lanes_read_at_is_found_for_all_of_them_at_once() -> None:
    """Each lane reads where its own maximum is."""

    def largest(x: Any) -> Any:
        return lm.take_along_axis(x, lm.argmax(x, axis=1, keepdims=True), axis=1)

    assert len(re.findall(r"for \(i64 k = 0; k < 9;", _text(largest, (32, 9)))) == 1
    x = RNG.standard_normal((32, 9)).astype(np.float32)
    x[3, 4] = np.nan
    found = lm.jit(largest)(lm.asarray(x).realize()).numpy()
    np.testing.assert_array_equal(found, np.max(x, axis=1, keepdims=True))
