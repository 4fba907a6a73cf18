"""What the heuristic stages, and that it computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.core.options import using
from lamina.core.target import Target, cpu_target
from lamina.frontend.session import SESSION
from lamina.ir.kernel import Kernel
from lamina.loops.moves import Accumulate, Move, Split, Stage
from lamina.loops.nest import Nest
from lamina.schedule.cpu import heuristic
from lamina.schedule.knobs import CpuKnobs

pytestmark = pytest.mark.usefixtures("on_cpu")
TARGET = cpu_target(vector_bytes=64, cores=2)
RNG = np.random.default_rng(7)


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of staged operands of each kernel that is scheduled."""
    from lamina import backends

    counts: list[int] = []
    original = heuristic.schedule_for_cpu

    def counting(kernel: Kernel, _: Target, knobs: CpuKnobs) -> tuple[object, ...]:
        moves = original(kernel, TARGET, knobs)
        counts.append(sum(isinstance(move, Stage) for move in moves))
        return moves

    monkeypatch.setattr(backends, "schedule_for_cpu", counting)
    SESSION.forget()
    return counts


def _array(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("m", "k", "n", "dtype", "wanted"),
    [
        (64, 70, 300, "float32", 0),
        (150, 70, 530, "float32", 0),
        (150, 1100, 530, "float32", 1),
        (150, 1100, 530, "float16", 2),  # whose rows are computed, and that once
    ],
)
def test_what_many_far_rows_of_a_product_read_is_packed(
    staged: list[int], m: int, k: int, n: int, dtype: str, wanted: int
) -> None:
    a, b = _array(m, k).astype(dtype), _array(k, n)
    found = lm.asarray(a).cast(lm.float32) @ lm.asarray(b)
    np.testing.assert_allclose(found.numpy(), a.astype(np.float32) @ b, atol=2e-3)
    assert staged == [wanted]


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("k", "n", "panel"),
    [(2048, 256, (1024, 128)), (2304, 320, (768, 160)), (1152, 1024, (384, 256))],
)
def test_panels_of_a_long_reduction_hold_a_part_of_it(
    staged: list[int], monkeypatch: pytest.MonkeyPatch, transposed: bool,
    k: int, n: int, panel: tuple[int, int],
) -> None:  # fmt: skip
    """As much of it as a cache holds: of fewer steps, more columns."""
    scheduled, splits = list[str](), list[str]()
    monkeypatch.setattr(Accumulate, "apply", _noted(Accumulate.apply, scheduled))
    monkeypatch.setattr(Split, "apply", _noted(Split.apply, splits))
    a, b = _array(150, k), _array(k, n)
    other = lm.asarray(np.ascontiguousarray(b.T)).T if transposed else lm.asarray(b)
    np.testing.assert_allclose((lm.asarray(a) @ other).numpy(), a @ b, atol=2e-3)
    assert staged == [1]
    assert scheduled
    for axis, size in zip((2, 1), panel, strict=True):
        assert any(one.startswith(f"split(a{axis}, {size})") for one in splits)


@pytest.mark.parametrize(("k", "height"), [(1008, 12), (1024, 8)])
@pytest.mark.usefixtures("staged")
def test_few_rows_go_together_where_their_lines_compete_for_places_of_a_cache(
    monkeypatch: pytest.MonkeyPatch, k: int, height: int
) -> None:
    splits: list[str] = []
    monkeypatch.setattr(Split, "apply", _noted(Split.apply, splits))
    a, b = _array(132, k), _array(k, 96)
    np.testing.assert_allclose((lm.asarray(a) @ lm.asarray(b)).numpy(), a @ b, atol=2e-3)
    assert any(f", {height}) ->" in one for one in splits)  # of the rows, or of half of them


def _noted(apply: Callable[[Any, Nest], Nest], seen: list[str]) -> Callable[[Any, Nest], Nest]:
    def noted(move: Move, nest: Nest) -> Nest:
        seen.append(str(move))
        return apply(move, nest)

    return noted


@pytest.mark.parametrize(("k", "n"), [(96, 3072), (4096, 256)])  # whole, and in blocks of steps
@pytest.mark.usefixtures("staged")
def test_main_and_last_tiles_of_rows_share_a_packed_panel(k: int, n: int) -> None:
    a, b = _array(64, k), _array(k, n)  # 10 tiles of 6 rows, and one of 4
    product = lm.jit(lambda x, y: x @ y)
    np.testing.assert_allclose(product(lm.asarray(a), lm.asarray(b)).numpy(), a @ b, atol=5e-3)
    (kernel,) = product.lower(lm.TensorSpec((64, k)), lm.TensorSpec((k, n))).kernels
    assert kernel.source.count(" *(f32x16u *)(p3 ") == 4  # stores: one for each vector of a tile


@pytest.mark.parametrize(("m", "wanted"), [(1, 0), (48, 1), (150, 1)])
def test_a_transposed_operand_is_packed_for_many_rows(
    staged: list[int], m: int, wanted: int
) -> None:
    a, b = _array(m, 75), _array(301, 75)
    bias = _array(301)
    found = (lm.asarray(a) @ lm.asarray(b).T + lm.asarray(bias)).relu()
    np.testing.assert_allclose(found.numpy(), np.maximum(a @ b.T + bias, 0), atol=2e-3)
    assert staged == [wanted]


@pytest.mark.parametrize(
    ("sizes", "kernel", "stride", "wanted"),
    [
        ((2, 8, 12, 50), (40, 8, 3, 3), 1, 0),  # rows of whole vectors
        ((2, 8, 24, 13), (70, 8, 3, 3), 1, 1),  # short rows: vectors of channels
        ((1, 40, 9, 9), (48, 40, 3, 3), 1, 1),  # 49 uses of what is packed
        ((3, 8, 22, 70), (70, 8, 3, 3), 2, 1),  # elements apart
        ((300, 16, 3, 3), (20, 16, 2, 2), 1, 1),  # images share what is packed
    ],
)
def test_the_kernels_of_a_convolution_are_packed_where_its_rows_waste_lanes(
    staged: list[int], sizes: tuple[int, ...], kernel: tuple[int, ...], stride: int, wanted: int
) -> None:
    torch = pytest.importorskip("torch")
    x, w = _array(*sizes), _array(*kernel)
    found = lm.conv2d(lm.asarray(x), lm.asarray(w), stride=stride).numpy()
    right = torch.conv2d(torch.from_numpy(x), torch.from_numpy(w), stride=stride)
    np.testing.assert_allclose(found, right.numpy(), atol=2e-4)
    assert staged == [wanted]


def test_the_kernels_gradient_of_a_convolution_packs_what_lies_across(staged: list[int]) -> None:
    torch = pytest.importorskip("torch")
    x, w, g = _array(4, 16, 15, 15), _array(40, 16, 3, 3), _array(4, 40, 13, 13)
    ours = lm.conv2d(lm.asarray(x), (weight := lm.asarray(w)))
    (found,) = lm.gradient(ours, [weight], lm.asarray(g))
    theirs = torch.nn.grad.conv2d_weight(torch.from_numpy(x), w.shape, torch.from_numpy(g))
    np.testing.assert_allclose(found.numpy(), theirs.numpy(), atol=1e-3)
    assert staged == [1]


@pytest.mark.parametrize(
    ("images", "channels", "carried"),
    [(12, 16, True), (6, 16, True), (4, 16, False), (12, 128, False)],
)
def test_panels_hold_a_part_of_a_sum_over_many_images(
    staged: list[int], monkeypatch: pytest.MonkeyPatch, images: int, channels: int, carried: bool
) -> None:
    """Of more than 1024 steps, 225 an image, unless its results are so far apart that memory takes
    longer to carry them."""
    torch = pytest.importorskip("torch")
    scheduled: list[str] = []
    monkeypatch.setattr(Accumulate, "apply", _noted(Accumulate.apply, scheduled))
    x, w = _array(images, channels, 31, 31), _array(128, channels, 3, 3)
    g = _array(images, 128, 15, 15)
    ours = lm.conv2d(lm.asarray(x), (weight := lm.asarray(w)), stride=2)
    (found,) = lm.gradient(ours, [weight], lm.asarray(g))
    theirs = torch.nn.grad.conv2d_weight(torch.from_numpy(x), w.shape, torch.from_numpy(g), 2)
    np.testing.assert_allclose(found.numpy(), theirs.numpy(), atol=2e-3)
    assert staged[-1] == 1
    assert bool(scheduled) == carried


def test_what_is_computed_from_an_operand_alone_is_packed_with_it(staged: list[int]) -> None:
    a, b = _array(150, 75).astype(np.float16), _array(301, 75)
    scale = _array(75)
    found = lm.asarray(a).cast(lm.float32) @ (lm.asarray(b) * lm.asarray(scale)).T
    np.testing.assert_allclose(found.numpy(), a.astype(np.float32) @ (b * scale).T, atol=2e-3)
    assert max(staged) >= 1


def test_an_array_times_itself_has_one_factor_packed(staged: list[int]) -> None:
    a = _array(150, 75)
    x = lm.asarray(a)
    np.testing.assert_allclose((x @ x.T).numpy(), a @ a.T, atol=2e-3)
    assert staged == [1]


def test_what_is_packed_already_is_not_packed_again(staged: list[int]) -> None:
    a, b, mask = _array(150, 75), _array(301, 75), _array(301, 75)
    found = lm.asarray(a) @ (lm.asarray(b) * lm.asarray(mask)).T
    np.testing.assert_allclose(found.numpy(), a @ (b * mask).T, atol=2e-3)
    assert staged[-1] == 1


def test_sums_across_rows_read_wide_strips(staged: list[int]) -> None:
    a = _array(90, 700)
    np.testing.assert_allclose(lm.asarray(a).sum(axis=0).numpy(), a.sum(axis=0), atol=1e-4)
    np.testing.assert_allclose(lm.asarray(a).var(axis=0).numpy(), a.var(axis=0), atol=1e-4)
    assert not any(staged)


def test_a_fill_ends_where_the_last_block_does() -> None:
    """26 rows in blocks of 8: the last block has 2, and so does its fill, which would read beyond
    the end of the array with 8."""
    x = _array(40, 26)
    function = lm.jit(lambda array: array.T * 2 + array.T.exp())
    with using(schedule="split(a0, 8) -> a2, a3; bind(a2, parallel); stage(%0, a2)"):
        (kernel,) = function.lower(lm.asarray(x)).kernels
        found = function(lm.asarray(x)).numpy()
    np.testing.assert_allclose(found, x.T * 2 + np.exp(x.T), rtol=1e-5, atol=1e-6)
    assert kernel.source.count("row_inner < (row_outer < 3 ? 8 : 2);") == 2  # fill and store
    assert kernel.source.count("load_1 = p0[") == 1
    assert "load_2 = p0[" not in kernel.source
