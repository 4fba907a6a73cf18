"""What lies across is read in squares, and what no cache holds is written past the caches."""

from __future__ import annotations

import ctypes
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.core.dtypes import float32
from lamina.core.target import cpu_target
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Load, Op
from lamina.loops import nest as loop_nest
from lamina.runtime.buffer import Buffer
from lamina.schedule.cpu import maps
from lamina.targets.c import prefetches
from lamina.targets.c.operations import CLanguage
from lamina.targets.c.printer import CPrinter
from tests.codegen.running import leaf
from tests.programs import execute_on_buffers

pytestmark = pytest.mark.usefixtures("on_cpu")
TARGET = cpu_target(vector_bytes=64, cores=2)
KINDS = ("float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool")
SIZES = (1, 3, 5, 16, 17, 31, 40, 64, 77)
RNG = np.random.default_rng(11)


def _array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1100, 1200), (2, 40, 33), (1024, 1025), (70, 90)])
def test_transposes_are_read_in_squares(texts: list[str], shape: tuple[int, ...]) -> None:
    a = _array(*shape)
    found = lm.matrix_transpose(lm.asarray(a)).contiguous().numpy()
    np.testing.assert_array_equal(found, np.swapaxes(a, -1, -2))
    assert all("TRANSPOSED(f32x16, " in text for text in texts)


def test_what_is_added_to_a_transpose_is_read_as_it_lies(texts: list[str]) -> None:
    a, b = _array(70, 90), _array(90, 70)
    found = (lm.asarray(a).T * 2 + lm.asarray(b)).numpy()
    np.testing.assert_allclose(found, a.T * 2 + b, rtol=1e-6, atol=1e-6)
    (text,) = texts
    assert "TRANSPOSED(f32x16, " in text


def test_long_expressions_are_not_repeated_for_each_row_of_a_square(texts: list[str]) -> None:
    a = _array(70, 90)
    found = lm.asarray(a).T.tanh().sin().exp().cos().atan().numpy()
    want = np.arctan(np.cos(np.exp(np.sin(np.tanh(a.T)))))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    (text,) = texts
    assert "TRANSPOSED(" not in text


def test_transposed_operands_of_products_are_packed_in_squares(texts: list[str]) -> None:
    a, b = _array(150, 75), _array(301, 75)
    found = (lm.asarray(a) @ lm.asarray(b).T).numpy()
    np.testing.assert_allclose(found, a @ b.T, atol=2e-3)
    (text,) = texts
    assert "TRANSPOSED(f32x16, " in text


def test_what_is_padded_is_zero_in_a_square(texts: list[str]) -> None:
    a = _array(2, 20, 33)
    padded = lm.pad(lm.asarray(a), ((1, 1), (0, 0), (0, 0)))
    found = lm.matrix_transpose(padded).contiguous().numpy()
    right = np.swapaxes(np.pad(a, ((1, 1), (0, 0), (0, 0))), 1, 2)
    np.testing.assert_array_equal(found, right)
    (text,) = texts
    assert "TRANSPOSED(f32x16, " in text


@pytest.mark.parametrize("padding", [((0, 0), (1, 2)), ((3, 0), (0, 5)), ((1, 1), (1, 0))])
@pytest.mark.parametrize("kind", ["float32", "int8", "float64"])
def test_what_is_padded_along_its_neighbours_is_no_square(
    padding: tuple[tuple[int, int], ...], kind: str
) -> None:
    a = (_array(64, 47) * 9).astype(kind)
    x, right = lm.asarray(a).realize(), np.pad(a, padding).T
    np.testing.assert_array_equal(lm.pad(x, padding).T.contiguous().numpy(), right)
    b = _array(right.shape[1], 40)
    found = (lm.pad(x, padding).T.cast(lm.float32) @ lm.asarray(b)).numpy()
    np.testing.assert_allclose(found, right.astype(np.float32) @ b, atol=1e-3)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_vectors_of_few_are_stored_in_turns(texts: list[str], count: int) -> None:
    a = _array(5, count, 210)
    found = lm.matrix_transpose(lm.asarray(a)).contiguous().numpy()
    np.testing.assert_array_equal(found, np.swapaxes(a, -1, -2))
    (text,) = texts
    assert text.count("f32x16r *") == count


@pytest.mark.parametrize("count", [2, 3, 4])
def test_products_of_few_are_stored_in_turns(texts: list[str], count: int) -> None:
    torch = pytest.importorskip("torch")
    x, w = _array(2, 12, 5, 37), _array(12, 9, count, count)
    found = lm.conv_transpose2d(lm.asarray(x), lm.asarray(w), stride=count).numpy()
    arrays = map(torch.from_numpy, (x, w))
    wanted = torch.nn.functional.conv_transpose2d(*arrays, stride=count).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    assert "splat_f32x16(0.0f)" in texts[0]  # sums along the input's neighbours


def test_sums_of_windows_that_move_by_several_elements_have_vectors(texts: list[str]) -> None:
    torch = pytest.importorskip("torch")
    x, g = _array(2, 3, 40, 41), _array(2, 3, 20, 21)
    pooled = lm.avg_pool2d(image := lm.asarray(x), 3, 2, 1)
    (found,) = lm.gradient(pooled, [image], lm.asarray(g))
    other = torch.from_numpy(x).requires_grad_()
    torch.nn.functional.avg_pool2d(other, 3, 2, 1).backward(torch.from_numpy(g))
    np.testing.assert_allclose(found.numpy(), other.grad.numpy(), atol=1e-5)
    assert "masked_f32x16(" in texts[0]


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (2, 0, 1, 3), (1, 2, 0, 3)])
def test_what_only_moves_is_read_in_order(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    monkeypatch.setattr(maps, "UNCACHED_STORES", 64)
    a = _array(4, 9, 7, 48)
    found = lm.asarray(a).permute(order).contiguous().numpy()
    np.testing.assert_array_equal(found, a.transpose(order))
    (text,) = texts
    (load,) = re.findall(r"p0 \+ ([^)]*)\)", text)
    steps = {axis: int(step) for step, axis in re.findall(r"(\d+) \* (\w+)", load)}
    loops = [steps[axis] for axis in re.findall(r"for \(i64 (\w+)", text) if axis in steps]
    assert loops == sorted(loops, reverse=True)


@given(st.data())
@settings(max_examples=20, deadline=None)
def test_permutations_of_slices(data: st.DataObject) -> None:
    rank = data.draw(st.integers(2, 4))
    shape = [data.draw(st.sampled_from(SIZES if rank < 4 else SIZES[:5])) for _ in range(rank)]
    order = data.draw(st.permutations(range(rank)))
    cuts = tuple(slice(data.draw(st.integers(0, min(size - 1, 2))), None) for size in shape)
    kind = data.draw(st.sampled_from(KINDS))
    x = lm.asarray(_array(*shape) * 9).cast(getattr(lm, kind))
    found = x[cuts].permute(tuple(order)).contiguous().cast(lm.float64)
    right = x.cast(lm.float64).numpy()[cuts].transpose(order)
    np.testing.assert_array_equal(found.numpy(), right)


@pytest.mark.parametrize("shape", [(64, 96), (40, 33), (7, 5)])
def test_what_no_cache_holds_is_streamed(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]
) -> None:
    monkeypatch.setattr(loop_nest, "UNCACHED_STORES", 64)
    monkeypatch.setattr(loop_nest, "UNCACHED_TRANSPOSE", 64)
    a = _array(*shape)
    found = lm.asarray(a).T.contiguous(), lm.asarray(a) * 2
    lm.realize(*found)
    for one, right in zip(found, (a.T, a * 2), strict=True):
        np.testing.assert_array_equal(one.numpy(), right)
    assert any("STREAM(" in text for text in texts)


def test_both_results_of_a_product_are_streamed(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_nest, "UNCACHED_STORES", 64)
    a, b = _array(40, 48), _array(48, 80)  # whole tiles, and rows and columns that are left over
    product = lm.asarray(a) @ lm.asarray(b)
    found = product, lm.relu(product)
    lm.realize(*found)
    for one, right in zip(found, (a @ b, np.maximum(a @ b, 0)), strict=True):
        np.testing.assert_allclose(one.numpy(), right, atol=1e-4)
    (text,) = texts
    assert len(set(re.findall(r"STREAM\(\w+, (p\d)", text))) == 2


@pytest.mark.parametrize(
    ("shape", "streamed"),
    [
        ((1024, 512), True),
        ((1024, 256), False),  # 1 MiB
        ((1031, 512), False),  # one of 16 rows of the result begins with a line
    ],
)
def test_a_transpose_that_fills_the_second_cache_is_streamed(
    texts: list[str], shape: tuple[int, int], streamed: bool
) -> None:
    """Its lines lie far apart. A copy writes line after line, and is streamed from 8 MiB on."""
    a = _array(*shape)
    np.testing.assert_array_equal(lm.asarray(a).T.contiguous().numpy(), a.T)
    np.testing.assert_array_equal((lm.asarray(a) * 2).numpy(), a * 2)
    transpose, copy = texts
    assert ("STREAM(" in transpose) == streamed
    assert "STREAM(" not in copy


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "bfloat16"])
@pytest.mark.parametrize(("shape", "rotated"), [((256, 144), True), ((264, 144), False)])
def test_strips_of_squares_are_at_different_columns(
    texts: list[str], kind: str, shape: tuple[int, int], rotated: bool
) -> None:
    a = (_array(3, *shape) * 40).astype("int32")
    x = lm.asarray(a).cast(getattr(lm, kind)).realize()
    texts.clear()
    found = lm.matrix_transpose(x).contiguous().cast(lm.int32).numpy()
    np.testing.assert_array_equal(found, a.transpose(0, 2, 1))
    assert ("mod_i64(" in texts[0]) == rotated


@pytest.mark.parametrize(
    ("kind", "shape", "is_rotated"),
    [
        ("float32", (1024, 544), False),  # 2.1 MiB
        ("float32", (1024, 480), True),  # 1.9 MiB
        ("bfloat16", (2048, 544), True),  # 2.1 MiB, but 16 elements are half a line
    ],
)
def test_strips_past_the_caches_are_at_the_same_columns(
    texts: list[str], kind: str, shape: tuple[int, int], is_rotated: bool
) -> None:
    a = (_array(*shape) * 40).astype("int32")
    x = lm.asarray(a).cast(getattr(lm, kind)).realize()
    texts.clear()
    found = x.T.contiguous().realize()
    (text,) = texts
    np.testing.assert_array_equal(found.cast(lm.int32).numpy(), a.T)
    assert ("mod_i64(" in text) == is_rotated
    assert ("STREAM(" in text) != is_rotated
    if not is_rotated:
        loops = re.findall(r"for \(i64 \w+ = 0; \w+ < (\d+);", text)
        blocks, strips = loops[-2:]  # the squares in them are unrolled
        assert int(blocks) > 2
        assert strips == "2"


def _unaligned(array: np.ndarray, shift: int, memory: object) -> Node:
    """A BUFFER node over `memory`, so many bytes behind a line."""
    start = -(-ctypes.addressof(memory) // 64) * 64 + shift  # type: ignore[arg-type]
    storage = Buffer.wrap(start, array.nbytes, "cpu", memory)
    return Node(Op.BUFFER, (), BufferRef(storage, array.shape, float32, "cpu"))


@pytest.mark.parametrize("shift", [0, 4, 32, 60])
def test_streams_need_no_alignment(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, shift: int
) -> None:
    monkeypatch.setattr(loop_nest, "UNCACHED_TRANSPOSE", 64)
    a = _array(96, 128)
    memory = (ctypes.c_char * (a.nbytes + 128))()
    target = _unaligned(a.T, shift, memory)
    moved = Node(Op.PERMUTE, (leaf(a),), (1, 0))
    (buffer,) = execute_on_buffers([Node(Op.ASSIGN, (target, moved))], "cpu")
    found = np.frombuffer(buffer.view(), np.float32).reshape(a.T.shape)
    np.testing.assert_array_equal(found, a.T)
    (text,) = texts
    assert "STREAM(" in text


def test_what_is_read_in_place_is_not_streamed(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_nest, "UNCACHED_STORES", 64)
    a = _array(64, 64)
    x = leaf(a)
    doubled = Node(Op.ADD, (x, x))
    (buffer,) = execute_on_buffers([Node(Op.ASSIGN, (x, doubled))], "cpu")
    found = np.frombuffer(buffer.view(), np.float32).reshape(a.shape)
    np.testing.assert_array_equal(found, 2 * a)
    (text,) = texts
    assert "STREAM(" not in text


@pytest.mark.parametrize(("least", "asked"), [(1 << 20, []), (64, ["p0"])])
def test_what_a_stream_is_computed_from_is_asked_for_ahead(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, least: int, asked: list[str]
) -> None:
    monkeypatch.setattr(prefetches, "UNCACHED", least)
    a, b = _array(64, 96), _array(96)
    np.testing.assert_array_equal((lm.asarray(a) + lm.asarray(b)).numpy(), a + b)
    (text,) = texts
    assert re.findall(r"AHEAD\((p\d) \+ .*, 2048, 3\)", text) == asked


def test_running_values_down_columns_ask_for_nothing_ahead(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetches, "UNCACHED", 64)
    a = _array(64, 96)
    found = lm.cumulative_sum(lm.asarray(a), axis=0).numpy()
    np.testing.assert_allclose(found, np.cumsum(a, axis=0), rtol=1e-4, atol=1e-4)
    (text,) = texts
    assert "AHEAD" not in text


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("is_far", [True, False])
def test_of_sums_that_memory_adds_up_the_next_rows_are_asked_for(
    texts: list[str], rows: int, is_far: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cache that holds the array is near enough without."""
    a, b = _array(rows, 256), _array(256, 1024)
    if is_far:
        monkeypatch.setattr(loop_nest, "UNCACHED", b.nbytes)
    found = (lm.asarray(a) @ lm.asarray(b)).numpy()
    np.testing.assert_allclose(found, a @ b, atol=2e-3)
    (text,) = texts
    assert ("AHEAD(" in text) == is_far


@pytest.mark.parametrize(
    ("dtype", "columns", "is_part"),
    [
        ("float32", 14, True),
        ("float32", 18, True),  # two tiles of 9 rows
        ("float32", 6, False),  # fewer than half of the lanes
        ("float64", 6, True),
        ("float64", 37, False),  # whole squares, which overlap
    ],
)
def test_tiles_of_fewer_rows_than_lanes_are_stored_in_squares(
    texts: list[str], dtype: str, columns: int, is_part: bool
) -> None:
    """Of a convolution with vectors along the channels, which lie apart in its result."""
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(columns)
    images = random.standard_normal((2, 24, 5, columns)).astype(dtype)
    filters = random.standard_normal((64, 24, 3, 3)).astype(dtype)
    found = lm.conv2d(lm.asarray(images), lm.asarray(filters), padding=1).numpy()
    right = torch.nn.functional.conv2d(torch.tensor(images), torch.tensor(filters), padding=1)
    np.testing.assert_allclose(found, right.numpy(), rtol=1e-4, atol=1e-4)
    assert any("store_first_" in text for text in texts) == is_part


@pytest.mark.parametrize(("rows", "is_streamed"), [(8, False), (16, True)])
def test_rows_of_fewer_elements_than_lanes_are_not_streamed(
    monkeypatch: pytest.MonkeyPatch, rows: int, is_streamed: bool
) -> None:
    """Vectors of 16 lanes, of which each is stored to a cache line of its own."""
    monkeypatch.setattr(loop_nest, "UNCACHED_TRANSPOSE", 64)
    lane, row = ix.axis(0, 16), ix.axis(1, rows)
    across = Node(Op.LOAD, (ix.affine({row: 16, lane: 1}, 0),), Load(0, float32))
    store = Store(1, ix.affine({lane: 16, row: 1}, 0), across, (lane, row))
    parameters = Parameter(float32, 16 * rows), Parameter(float32, 256, written=True)
    binding = {lane: "vector", row: "unroll"}
    nest = loop_nest.Nest(Kernel(parameters, (store,), 2), (lane, row), binding)
    text, _ = CPrinter(nest, "f", CLanguage()).print()
    assert text.count("store_first_f32x16(") == (0 if is_streamed else 16)
    assert text.count("STREAM(") == (16 if is_streamed else 0)
    assert ("const _Bool lines" in text) == is_streamed


def test_products_of_small_arrays_are_written_through_the_caches() -> None:
    """Both factors are read again and again, one of them across: that is no transpose."""

    def products(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        return lm.einsum("bih,bjh->bhij", x, y)

    specs = lm.TensorSpec((24, 52, 32)), lm.TensorSpec((24, 32, 32))
    (kernel,) = lm.jit(products).lower(*specs, device="cpu").kernels
    assert "lines" not in kernel.source  # whether vectors begin lines, past the caches
