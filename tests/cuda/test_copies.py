"""What the copy engine of a GPU is asked to copy, element by element, and what it cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, pipeline
from lamina.core import options
from lamina.core.shape import Shape
from lamina.frontend.realize import opened_as_computed
from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes, points
from lamina.ir.node import Node, const
from lamina.ir.ops import Load, Op
from lamina.runtime.buffer import TensorMap
from lamina.schedule.gpu.atoms import LINE_BYTES, Atom
from lamina.tiles import decisions
from lamina.tiles.copies import EngineCopy, engine_copy
from lamina.tiles.decisions import copy_of_tile
from tests.cuda.test_tiles import CONVOLUTIONS, Convolution, channels_last
from tests.generators import leaf


@dataclass(frozen=True)
class Asked:
    """A tile that the engine may copy: its fill, its lines, the elements of a line, and how."""

    store: Store
    lines: int
    width: int
    copy: EngineCopy | None


def asked_of(
    monkeypatch: pytest.MonkeyPatch, form: Callable[..., Any], *shapes: Shape
) -> list[Asked]:
    """The tiles of the products of a form of arrays of bfloat16, two for each product."""
    asked: dict[Store, Asked] = {}  # a plan is decided several times

    def spied(tile: Store, atom: Atom, lines: int) -> EngineCopy | None:
        copy = copy_of_tile(tile, atom, lines)
        asked[tile] = Asked(tile, lines, LINE_BYTES // tile.value.dtype.itemsize, copy)
        return copy

    monkeypatch.setattr(decisions, "copy_of_tile", spied)
    leaves = [leaf(1000 + number, shape, lm.bfloat16) for number, shape in enumerate(shapes)]
    results = form(*(Tensor.of(one, "cpu") for one in leaves))
    for result in results if isinstance(results, tuple) else (results,):
        chosen = replace(options.current(), device="cuda:0")
        pipeline.compile_source(opened_as_computed([result.node], {}), chosen)
    return list(asked.values())


def elements(index: Node, at: Mapping[Node, Any]) -> Any:
    """An index, or a condition that bounds some, at these places of its axes."""
    if index.op in (Op.AND, Op.LT):
        left, right = (elements(one, at) for one in index.src)
        return left & right if index.op is Op.AND else left < right
    terms, constant = ix.terms_of(index)
    return sum((by * at[axis] for axis, by in terms.items()), constant)


def copied(array: TensorMap, start: Sequence[int], lines: int) -> Any:
    """Which element of an array the engine copies to each place of each line; -1 for zeros."""
    offset, extents, steps = array.offset, array.sizes, array.strides
    box, corners = array.box, array.corners
    size = int(array.element_kind[-2:]) // 8
    flat, where = np.arange(lines)[:, None], [start[0] + np.arange(box[0])]
    if not corners:
        where += [start[1] + flat, *start[2:]]
    more = start[len(extents) :]
    for place, by, extent, corner in zip(start[1:], more, extents[1:], corners, strict=False):
        low, high, step = corner
        count = (extent + high - low - 1) // step + 1
        flat = flat + (place - low) // step
        where.append(flat % count * step + low + by)
        flat = flat // count
    if corners:
        where.append(start[len(extents) - 1] + flat)
    number = (
        offset // size
        + where[0]
        + sum(one * by // size for one, by in zip(where[1:], steps, strict=True))
    )
    for one, extent in zip(where, extents, strict=True):
        number = np.where((one >= 0) & (one < extent), number, -1)
    return number


def assert_copied(tile: Asked) -> None:
    """The engine copies what the load of a tile reads, and zeros for steps beyond the last."""
    assert tile.copy is not None
    rng = np.random.default_rng(0)
    index, *guard = tile.store.value.src
    *outer, inner = tile.store.axes
    lines, width = tile.lines, tile.width
    shape, end = [axis.arg.size for axis in outer], inner.arg.size
    for _ in range(8):
        at = {axis: int(rng.integers(axis.arg.size)) for axis in free_axes(tile.store.value)}
        first = lines * int(rng.integers(-(-points(outer) // lines)))
        at[inner] = width * int(rng.integers(-(-end // width)))
        at |= zip(outer, map(int, np.unravel_index(first, shape)), strict=True)
        start = [elements(coordinate, at) for coordinate in tile.copy.coordinates]
        got = copied(tile.copy.array, start, lines)
        number, along = first + np.arange(lines)[:, None], at[inner] + np.arange(width)
        line = np.unravel_index(np.minimum(number, points(outer) - 1), shape)
        every = {**at, inner: np.minimum(along, end - 1), **dict(zip(outer, line, strict=True))}
        want = elements(index, every)
        want = np.where(elements(guard[0], every), want, -1) if guard else want
        known = (number < points(outer)) & (along < end)
        np.testing.assert_array_equal(np.where(known, got, 0), np.where(known, want, 0))
        beyond = along >= end if inner.arg.reduce else number >= points(outer)
        assert (np.where(beyond, got, -1) == -1).all()


@pytest.mark.parametrize("case", CONVOLUTIONS[:7], ids=str)
def test_tiles_of_convolutions(case: Convolution, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of images, of filters, and of their derivatives."""
    (n, *sides), (channels, filters), window, how = case

    def form(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        y = channels_last(lm.conv2d, x, w, **how)
        dy = Tensor.of(leaf(2, y.shape, lm.bfloat16), "cpu")
        return (y,) if "stride" in how else (y, *lm.gradient(y, [x, w], dy))

    asked = asked_of(monkeypatch, form, (n, *sides, channels), (filters, *window, channels))
    assert len(asked) == (2 if "stride" in how else 6)
    for tile in asked:
        assert_copied(tile)


def test_steps_along_several_axes_are_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a filter's derivative, images with 8 x 8 pixels each, are 8 neighbours in memory
    at a time where channels are the second axis."""

    def form(x: Tensor, w: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
        return tuple(lm.gradient(lm.conv2d(x, w, padding=1), [w], dy))

    asked = asked_of(monkeypatch, form, (2, 8, 8, 8), (8, 8, 3, 3), (2, 8, 8, 8))
    assert asked
    for tile in asked:
        steps = [axis for axis in tile.store.axes if axis.arg.reduce]
        assert len(steps) == 3
        assert tile.copy is None


def convolved(x: Tensor, w: Tensor, **how: Any) -> Tensor:
    """A convolution along one to three axes, whose channels are the last axis."""
    axes = range(1, x.ndim - 1)
    convolution = {3: lm.conv1d, 4: lm.conv2d, 5: lm.conv3d}[x.ndim]
    channels_second = (0, x.ndim - 1, *axes)
    result = convolution(
        lm.permute_dims(x, channels_second), lm.permute_dims(w, channels_second), **how
    )
    return lm.permute_dims(result, (0, *(axis + 1 for axis in axes), 1))


PRODUCT: tuple[Shape, ...] = ((300, 200), (200, 264))
Case = tuple[Callable[..., Any], tuple[Shape, ...]]
# Products whose factors the engine copies.
COPIED: dict[str, Case] = {
    "rows": (lambda a, b: a @ b, PRODUCT),
    "columns": (lambda a, b: a.T @ b, ((200, 304), (200, 264))),
    "batches": (lambda a, b: a @ b, ((3, 5, 300, 200), (3, 5, 200, 264))),
    "a window": (lambda a, b: a[8:, 8:] @ b, ((308, 208), (200, 264))),
    "zeros around rows": (lambda a, b: lm.pad(a, ((3, 5), (0, 0))) @ b, PRODUCT),
    "zeros far before rows": (lambda a, b: lm.pad(a, ((40000, 0), (0, 0))) @ b, PRODUCT),
    "every other row": (lambda a, b: a[::2] @ b, ((600, 200), (200, 264))),
    "pixels of windows without zeros": (convolved, ((2, 18, 18, 64), (64, 3, 3, 64))),
    "pixels of one image": (
        lambda x, w: convolved(x, w, padding=1), ((1, 20, 24, 64), (64, 3, 3, 64)),
    ),
    "pixels of one image in groups": (
        lambda x, w: convolved(x, w, padding=1, groups=2), ((1, 20, 24, 128), (128, 3, 3, 64)),
    ),
    "dilated windows without zeros": (
        lambda x, w: convolved(x, w, dilation=2), ((2, 600, 64), (64, 3, 64)),
    ),
    "windows of one axis": (lambda x, w: convolved(x, w, padding=1), ((2, 600, 64), (64, 3, 64))),
    "windows of three axes": (
        lambda x, w: convolved(x, w, padding=1), ((2, 10, 12, 14, 64), (64, 3, 3, 3, 64)),
    ),
    "windows 8 apart": (
        lambda x, w: convolved(x, w, padding=1, stride=8), ((2, 64, 72, 64), (64, 3, 3, 64)),
    ),
    "zeros up to the lowest corner": (
        lambda x, w: convolved(x, w, padding=(128, 0)), ((2, 8, 8, 64), (64, 3, 3, 64)),
    ),
}  # fmt: skip
# Products of which threads have to fill a factor.
NOT_COPIED: dict[str, Case] = {
    "arithmetic": (lambda a, b: (a + 1) @ b, PRODUCT),
    "zeros twice": (
        lambda a, b: lm.pad(lm.pad(a, ((4, 0), (0, 0)))[:-3], ((0, 5), (0, 0))) @ b, PRODUCT,
    ),
    "every other element": (lambda a, b: a[:, ::2] @ b, ((300, 400), (200, 264))),
    "every other element, with zeros": (
        lambda a, b: lm.pad(a, ((0, 0), (8, 8)))[:, ::2] @ b, ((300, 400), (208, 264)),
    ),
    "every other row, with zeros": (
        lambda a, b: lm.pad(a, ((1, 1), (0, 0)))[::2] @ b, ((600, 200), (200, 264)),
    ),
    "flipped rows": (lambda a, b: lm.flip(a, axis=0) @ b, PRODUCT),
    "flipped rows, with zeros": (
        lambda a, b: lm.pad(lm.flip(a, axis=0), ((3, 5), (0, 0))) @ b, PRODUCT,
    ),
    "rows that begin within chunks": (lambda a, b: a @ b, ((800, 35), (35, 264))),
    "a window that begins within a chunk": (lambda a, b: a[:, 4:204] @ b, ((300, 208), (200, 264))),
    "six dimensions": (
        lambda a, b: lm.permute_dims(a, (1, 0, 3, 2, 4, 5)) @ b,
        ((2, 3, 2, 5, 300, 200), (3, 2, 5, 2, 200, 264)),
    ),
    "chosen by data": (
        lambda a, b, i: lm.take(a, i.cast(lm.int32), axis=0) @ b,
        ((7, 300, 200), (3, 200, 264), (3,)),
    ),
    "one row, with zeros": (
        lambda a, b: lm.pad(lm.broadcast_to(a, (300, 200)), ((3, 5), (0, 0))) @ b,
        ((1, 200), (200, 5280)),
    ),
    "windows 9 apart": (
        lambda x, w: convolved(x, w, padding=1, stride=9), ((2, 64, 72, 64), (64, 3, 3, 64)),
    ),
    "zeros before the lowest corner": (
        lambda x, w: convolved(x, w, padding=(129, 0)), ((2, 8, 8, 64), (64, 3, 3, 64)),
    ),
    "zeros far behind the image": (
        lambda x, w: convolved(lm.pad(x, ((0, 0), (0, 140), (0, 0), (0, 0))), w),
        ((2, 8, 8, 64), (64, 3, 3, 64)),
    ),
    "windows of too many elements": (
        lambda x, w: convolved(x, w, padding=(128, 1)), ((16, 16, 8, 64), (64, 257, 3, 64)),
    ),
    "dilated windows of three axes without zeros": (
        lambda x, w: convolved(x, w, dilation=(1, 1, 2)), ((2, 9, 9, 12, 64), (64, 3, 3, 3, 64)),
    ),
    "dilated windows in groups without zeros": (
        lambda x, w: convolved(x, w, dilation=2, groups=2), ((2, 600, 128), (128, 3, 64)),
    ),
    "columns that go on beyond the steps": (
        lambda a, b: lm.pad(a, ((8, 0), (0, 0)))[:100].T @ b, ((200, 304), (100, 264)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COPIED)
def test_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, shapes = COPIED[name]
    asked = asked_of(monkeypatch, form, *shapes)
    assert len(asked) == 2
    for tile in asked:
        assert_copied(tile)


@pytest.mark.parametrize("name", NOT_COPIED)
def test_not_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    form, shapes = NOT_COPIED[name]
    asked = asked_of(monkeypatch, form, *shapes)
    assert len(asked) == 2
    assert None in [tile.copy for tile in asked]


def test_zeros_inside_are_not_copied() -> None:
    """The lower triangle of a matrix."""
    row, step = ix.axis(0, 300), ix.axis(1, 200, reduce=True)
    condition = Node(Op.LT, (step, row))
    value = Node(Op.LOAD, (ix.row_major((row, step)), condition), Load(0, lm.bfloat16))
    triangle = Store(-1, row, value, (row, step))
    everything = replace(triangle, value=Node(Op.LOAD, value.src[:1], value.arg))
    zero = const(0.0, lm.bfloat16)
    chosen = replace(triangle, value=Node(Op.WHERE, (condition, everything.value, zero)))
    assert engine_copy(triangle, 64, 64, is_tf32=False) is None
    assert engine_copy(chosen, 64, 64, is_tf32=False) is None
    assert engine_copy(everything, 64, 64, is_tf32=False) is not None
