"""Sampling at points, windows as columns, shuffled channels and bags of rows against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import ArgumentError, AxisError, ShapeError
from tests.functions.agreement import agree_with_torch, normals

torch = pytest.importorskip("torch")
F = torch.nn.functional


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample_agrees(mode: str, padding_mode: str, align_corners: bool) -> None:
    settings = mode, padding_mode, align_corners
    grid = normals(2, 3, 6, 2, seed=1) * 1.3  # many points are outside
    agree_with_torch(
        lambda x, at: lm.grid_sample(x, at, *settings),
        lambda x, at: F.grid_sample(x, at, *settings),
        normals(2, 3, 4, 5), grid,
    )  # fmt: skip
    if mode == "bicubic":
        return
    agree_with_torch(
        lambda x, at: lm.grid_sample(x, at, *settings),
        lambda x, at: F.grid_sample(x, at, *settings),
        normals(2, 3, 4, 5, 3), normals(2, 3, 2, 4, 3, seed=1) * 1.3,
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Since version 1.3.0")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("sizes", [(4, 5), (1, 3), (2, 3, 4)])
def test_affine_grids_agree(sizes: tuple[int, ...], align_corners: bool) -> None:
    rank = len(sizes)
    size = (2, 3, *sizes)
    agree_with_torch(
        lambda theta: lm.affine_grid(theta, size, align_corners),
        lambda theta: F.affine_grid(theta, size, align_corners),
        normals(2, rank, rank + 1),
    )


def test_an_identity_samples_the_image_itself() -> None:
    x = Tensor(normals(1, 2, 4, 5))
    theta = Tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], lm.float64)
    result = lm.grid_sample(x, lm.affine_grid(theta, x.shape))
    np.testing.assert_allclose(result.numpy(), x.numpy())


@pytest.mark.parametrize(
    "settings",
    [
        {"kernel_size": 2},
        {"kernel_size": (2, 3), "dilation": (1, 2), "padding": 1, "stride": (2, 1)},
        {"kernel_size": 3, "stride": 3, "padding": (0, 1)},
    ],
)
def test_unfold_and_fold_agree(settings: dict[str, Any]) -> None:
    x = normals(2, 3, 7, 8)
    agree_with_torch(lambda a: lm.unfold(a, **settings), lambda a: F.unfold(a, **settings), x)
    columns = F.unfold(torch.tensor(x), **settings).shape
    for shape in (columns, columns[1:]):
        agree_with_torch(
            lambda a: lm.fold(a, (7, 8), **settings), lambda a: F.fold(a, (7, 8), **settings),
            normals(*shape),
        )  # fmt: skip
    agree_with_torch(
        lambda a: lm.unfold(a, **settings), lambda a: F.unfold(a, **settings), x[0]
    )


def test_shuffles_agree_and_undo_each_other() -> None:
    x = normals(2, 8, 3, 4)
    agree_with_torch(lambda a: lm.pixel_shuffle(a, 2), lambda a: F.pixel_shuffle(a, 2), x)
    agree_with_torch(lambda a: lm.pixel_unshuffle(a, 2), lambda a: F.pixel_unshuffle(a, 2),
                     normals(3, 4, 6))  # fmt: skip
    agree_with_torch(lambda a: lm.channel_shuffle(a, 4), lambda a: F.channel_shuffle(a, 4), x)
    again = lm.pixel_unshuffle(lm.pixel_shuffle(Tensor(x), 2), 2)
    np.testing.assert_array_equal(again.numpy(), x)


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("order", [1.0, 2.0, 3.0])
def test_lp_pools_agree(rank: int, order: float) -> None:
    if rank == 3 and not hasattr(F, "lp_pool3d"):
        pytest.skip("this PyTorch has no lp_pool3d")
    x = np.abs(normals(2, 3, *[5] * rank)) + 0.1
    for settings in ((2,), (3, 1), (2, 2, True)):
        agree_with_torch(
            lambda a, s=settings: getattr(lm, f"lp_pool{rank}d")(a, order, *s),
            lambda a, s=settings: getattr(F, f"lp_pool{rank}d")(a, order, *s),
            x, tolerance=1e-7,
        )  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("rest", [(4,), (3, 2)])
def test_local_response_norm_agrees(size: int, rest: tuple[int, ...]) -> None:
    settings = {"alpha": 0.5, "beta": 0.6, "k": 2.0}
    agree_with_torch(
        lambda a: lm.local_response_norm(a, size, **settings),
        lambda a: F.local_response_norm(a, size, **settings),
        normals(2, 5, *rest),
    )


INDICES = np.array([1, 4, 1, 0, 5, 2, 2])
OFFSETS = np.array([0, 2, 2, 5])


@pytest.mark.parametrize("padding_idx", [None, 2, -5])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags_agree(mode: str, padding_idx: int | None) -> None:
    rows = np.array([[1, 2, 1], [2, 2, 2], [0, 1, 5]])
    settings: dict[str, Any] = {"mode": mode, "padding_idx": padding_idx}
    weight = normals(6, 3)
    agree_with_torch(
        lambda w: lm.embedding_bag(rows, w, **settings),
        lambda w: F.embedding_bag(torch.tensor(rows), w, **settings), weight,
    )  # fmt: skip
    for offsets, ends in ((OFFSETS, False), (np.array([0, 2, 5, 7]), True)):
        agree_with_torch(
            lambda w, at=offsets, ends=ends: lm.embedding_bag(
                INDICES, w, at, include_last_offset=ends, **settings),
            lambda w, at=offsets, ends=ends: F.embedding_bag(
                torch.tensor(INDICES), w, torch.tensor(at), include_last_offset=ends, **settings),
            weight,
        )  # fmt: skip


def test_rows_of_a_bag_are_scaled_to_a_norm() -> None:
    settings: dict[str, Any] = {"max_norm": 1.0, "norm_type": 1.0, "mode": "sum"}
    agree_with_torch(
        lambda w: lm.embedding_bag(INDICES, w, OFFSETS, **settings),
        lambda w: F.embedding_bag(
            torch.tensor(INDICES), w.clone(), torch.tensor(OFFSETS), **settings
        ),
        normals(6, 3), differentiate=False,
    )  # fmt: skip


def test_the_slope_of_a_row_is_shared_by_its_occurrences() -> None:
    # PyTorch's own bags divide by the counts of other rows (2.13, on the CPU); its embedding does
    # not.
    rows = np.array([[1, 2, 1], [2, 2, 2], [0, 1, 5]])
    agree_with_torch(
        lambda w: lm.embedding_bag(rows, w, mode="sum", scale_grad_by_freq=True),
        lambda w: F.embedding(torch.tensor(rows), w, scale_grad_by_freq=True).sum(1),
        normals(6, 3),
    )


def test_rows_of_a_bag_have_weights() -> None:
    agree_with_torch(
        lambda w, p: lm.embedding_bag(INDICES, w, OFFSETS, mode="sum", per_sample_weights=p),
        lambda w, p: F.embedding_bag(torch.tensor(INDICES), w, torch.tensor(OFFSETS), mode="sum",
                                     per_sample_weights=p),
        normals(6, 3), normals(7),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: lm.pixel_shuffle(x, 2), ShapeError, "groups of 4"),
        (lambda x: lm.pixel_unshuffle(x, 3), ShapeError, "squares of 3"),
        (lambda x: lm.channel_shuffle(x, 5), ShapeError, "5 groups"),
        (lambda x: lm.grid_sample(x, lm.ones((1, 2, 2, 3))), ShapeError, r"grid \(1, 2, 2, 3\)"),
        (lambda x: lm.grid_sample(x, lm.ones((1, 2, 2, 2)), "cubic"), ArgumentError, "'cubic'"),
        (lambda x: lm.affine_grid(x, (1, 3, 4, 4)), ShapeError, "affine_grid: theta"),
        (lambda x: lm.unfold(x, 9), ShapeError, r"kernel \(9, 9\)"),
        (lambda x: lm.fold(x[0], (4, 4), 2), ShapeError, "times 4"),
        (lambda x: lm.fold(lm.ones((4, 8)), (4, 4), 2), ShapeError, "8 columns .* are 9"),
        (lambda x: lm.local_response_norm(x[0, 0], 2), ShapeError, "N, C"),
        (lambda x: lm.embedding_bag([1], lm.ones((2, 2))), ShapeError, "with offsets None"),
        (lambda x: lm.embedding_bag([[1]], lm.ones((2, 2)), lm.arange(2)), ShapeError,
         r"with offsets \(2,\)"),
        (lambda x: lm.embedding_bag([0, 2], lm.ones((2, 2)), [0]), AxisError, "index 2 is out of"),
        (lambda x: lm.embedding_bag([[-1]], lm.ones((2, 2))), AxisError, "index -1 is out of"),
        (lambda x: lm.embedding_bag([0, 1], lm.ones((2, 2)), [1]), ArgumentError, "ascend from 0"),
        (lambda x: lm.embedding_bag([0, 1], lm.ones((2, 2)), [0, 5]), ArgumentError, "to 2 at"),
        (lambda x: lm.embedding_bag([0, 1], lm.ones((2, 2)), [0, 2, 1]), ArgumentError, "ascend"),
        (lambda x: lm.embedding_bag([[1]], lm.ones((2, 2)), mode="min"), ArgumentError, "'min'"),
    ],
)  # fmt: skip
def test_misuse_is_named(
    call: Callable[[Tensor], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(lm.ones((1, 3, 4, 4)))
