"""Losses of margins, rankings, distributions and alignments against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.core import options
from lamina.errors import ArgumentError, AxisError, ShapeError
from lamina.frontend.realize import cut
from lamina.pipeline import compile_source
from tests.functions.agreement import Array, agree_with_torch, normals

torch = pytest.importorskip("torch")
F = torch.nn.functional

REDUCTIONS = ["mean", "sum", "none"]
SIGNS = np.sign(normals(4, 3, seed=9)).astype(np.int64)
COUNTS = np.random.default_rng(5).integers(0, 5, (4, 3)).astype(np.float64)
CLASSES = np.array([0, 2, 1, 1])
LABELS = np.array([[3, 0, -1, 1], [-1, 0, 1, 2], [0, 1, 2, 3], [2, -1, -1, -1]])
A, B, C = (normals(4, 3, seed=seed) for seed in range(3))
SIZES = np.abs(normals(4, 3, seed=4)) + 0.1


def case(name: str, *arrays: Array, **settings: Any) -> Any:
    words = ",".join(f"{key}={value}" for key, value in settings.items())
    return pytest.param(name, arrays, settings, id=f"{name}({words})")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("name", "arrays", "settings"),
    [
        case("hinge_embedding_loss", A, SIGNS),
        case("hinge_embedding_loss", A, SIGNS, margin=0.3),
        case("cosine_embedding_loss", A, B, SIGNS[:, 0], margin=0.1),
        case("cosine_embedding_loss", A[0], B[0], np.array(-1)),
        case("margin_ranking_loss", A, B, SIGNS, margin=0.1),
        case("soft_margin_loss", A * 100.0, SIGNS),
        case("triplet_margin_loss", A, B, C),
        case("triplet_margin_loss", A, B, C, p=1.0, swap=True, margin=0.5),
        case("triplet_margin_loss", A, B, C, p=3.0, eps=1e-3),
        case("triplet_margin_with_distance_loss", A, B, C, swap=True),
        case("multi_margin_loss", A, CLASSES),
        case("multi_margin_loss", A, CLASSES, p=2, margin=0.7),
        case("multi_margin_loss", A[0], np.array(2)),
        case("multi_margin_loss", A[0], np.array([2])),
        case("multi_margin_loss", np.array(0.3), np.array(0)),
        case("multilabel_margin_loss", normals(4, 4), LABELS),
        case("multilabel_margin_loss", np.array(0.3), np.array(0)),
        case("multilabel_margin_loss", normals(4), LABELS[0]),
        case("multilabel_soft_margin_loss", A * 50.0, np.round(SIZES % 1.0)),
        case("poisson_nll_loss", A, COUNTS + 1.0, full=True),
        case("poisson_nll_loss", SIZES, COUNTS, log_input=False),
        case("gaussian_nll_loss", A, B, SIZES, full=True),
        case("gaussian_nll_loss", A, B, SIZES[:, 0]),
        case("gaussian_nll_loss", A, B, np.zeros((4, 1)), eps=0.1),
    ],
)
def test_losses_agree(
    name: str, arrays: tuple[Array, ...], settings: dict[str, Any], reduction: str
) -> None:
    def ours(*tensors: Any) -> Any:
        return getattr(lm, name)(*tensors, reduction=reduction, **settings)

    def theirs(*tensors: Any) -> Any:
        return getattr(F, name)(*tensors, reduction=reduction, **settings)

    agree_with_torch(ours, theirs, *arrays)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_weights_of_classes_agree(reduction: str) -> None:
    weight = np.array([0.3, 1.0, 2.0])
    target = np.round(SIZES % 1.0)
    agree_with_torch(
        lambda x, w: lm.multi_margin_loss(x, CLASSES, weight=w, reduction=reduction),
        lambda x, w: F.multi_margin_loss(
            x, torch.tensor(CLASSES), weight=w.detach(), reduction=reduction
        ) + 0.0 * w.sum(),
        A, weight, differentiate=False,
    )  # fmt: skip
    agree_with_torch(
        lambda x, w: lm.multilabel_soft_margin_loss(x, target, w, reduction),
        lambda x, w: F.multilabel_soft_margin_loss(
            x, torch.tensor(target), w, reduction=reduction
        ),
        A, weight,
    )  # fmt: skip


def test_a_triplet_takes_a_distance_of_the_user() -> None:
    def distance(a: Any, b: Any) -> Any:
        return abs(a - b).sum(-1)

    agree_with_torch(
        lambda *a: lm.triplet_margin_with_distance_loss(*a, distance_function=distance),
        lambda *a: F.triplet_margin_with_distance_loss(*a, distance_function=distance),
        A, B, C,
    )  # fmt: skip


STEPS, BATCH, SYMBOLS = 7, 3, 5
SCORES = normals(STEPS, BATCH, SYMBOLS, seed=3)
TARGETS = np.array([[1, 2, 2], [3, 1, 4], [2, 1, 1]])


def ctc_agrees(
    scores: Array, targets: Array, inputs: Any, lengths: Any, **settings: Any
) -> None:
    """Through `log_softmax`, since PyTorch's derivative holds for normalised inputs alone."""

    def ours(x: Tensor) -> Tensor:
        log_probs = lm.log_softmax(x, axis=-1)
        return lm.ctc_loss(log_probs, Tensor(targets), inputs, lengths, **settings)

    def theirs(x: Any) -> Any:
        log_probs = F.log_softmax(x, -1)
        sizes = torch.tensor(inputs), torch.tensor(lengths)
        return F.ctc_loss(log_probs, torch.tensor(targets), *sizes, **settings)

    agree_with_torch(ours, theirs, scores)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    ("inputs", "lengths", "settings"),
    [
        ([7, 7, 7], [3, 3, 3], {}),
        ([7, 5, 6], [3, 2, 1], {"blank": 0}),
        ([7, 5, 4], [2, 0, 3], {}),
        ([7, 2, 6], [3, 3, 1], {"zero_infinity": True}),
    ],
)
def test_ctc_of_padded_targets_agrees(
    inputs: list[int], lengths: list[int], settings: dict[str, Any], reduction: str
) -> None:
    ctc_agrees(SCORES, TARGETS, inputs, lengths, reduction=reduction, **settings)


def test_ctc_of_targets_one_after_the_other_agrees() -> None:
    joined = np.array([1, 2, 2, 3, 1, 2])
    ctc_agrees(SCORES, joined, [7, 5, 6], [3, 2, 1])
    ctc_agrees(SCORES, np.array([0, 1, 1, 3, 0, 2]), [7, 5, 6], [3, 2, 1], blank=4)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_ctc_of_one_sample_agrees(reduction: str) -> None:
    ctc_agrees(SCORES[:, 0], TARGETS[0], 7, 3, reduction=reduction)


def test_an_impossible_alignment_costs_infinitely_much() -> None:
    log_probs = lm.log_softmax(Tensor(SCORES), axis=-1)
    # Two equal labels need a blank between them: four steps for [2, 1, 1].
    losses = lm.ctc_loss(log_probs, TARGETS, [7, 7, 3], [3, 3, 3], reduction="none").numpy()
    assert np.isfinite(losses).tolist() == [True, True, False]
    certain = np.full((3, 1, 2), -np.inf)
    certain[:, 0, 1] = 0.0
    assert lm.ctc_loss(Tensor(certain), [[1]], [3], [1]).item() == 0.0


def test_padding_of_targets_may_be_anything() -> None:
    log_probs = lm.log_softmax(Tensor(SCORES), axis=-1)
    padded = [[1, 2, -1], [3, 99, 99], [2, 1, 1]]
    losses = lm.ctc_loss(log_probs, padded, [7, 7, 7], [2, 1, 3])
    expected = lm.ctc_loss(log_probs, [1, 2, 3, 2, 1, 1], [7, 7, 7], [2, 1, 3])
    assert losses.item() == pytest.approx(expected.item())


def test_ctc_steps_share_their_kernels() -> None:
    """One step more is no kernel more. That its cost decides where a kernel ends makes the number
    of kernels differ between devices, and between few and many steps."""
    counts = []
    for steps in (12, 13):
        scores = lm.ones((steps, 2, 6))
        loss = lm.ctc_loss(lm.log_softmax(scores, axis=-1), [[1, 2], [3, 4]], [steps] * 2, [2, 1])
        counts.append(len(compile_source(cut([loss.node], {}), options.current()).plans))
    assert counts[0] == counts[1]


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: lm.multi_margin_loss(x, [0, 1, 2], p=3), ArgumentError, "p=3"),
        (lambda x: lm.multi_margin_loss(x, [0]), ShapeError, r"classes of shape \(3,\)"),
        (lambda x: lm.multilabel_margin_loss(x, [0]), ShapeError, "differ in shape"),
        (lambda x: lm.triplet_margin_loss(x, x, x, margin=-1.0), ArgumentError, "margin=-1.0"),
        (lambda x: lm.gaussian_nll_loss(x, x, lm.ones((2,))), ShapeError, r"\(2,\) do not fit"),
        (lambda x: lm.gaussian_nll_loss(x, x, x, eps=0.0), ArgumentError, "eps=0.0"),
        (lambda x: lm.cosine_embedding_loss(x, x, x), ShapeError, r"target \(3, 4\)"),
        (lambda x: lm.soft_margin_loss(x, x, "all"), ArgumentError, "reduction 'all'"),
        (lambda x: lm.ctc_loss(x, [[1]], 3, 1), ShapeError, r"targets \(1, 1\)"),
        (lambda x: lm.ctc_loss(x, [1], 4, 1), ArgumentError, "input_lengths=4; .* 0 and 3"),
        (lambda x: lm.ctc_loss(x, [1], 3, 2), ArgumentError, "target_lengths=2; .* 0 and 1"),
        (lambda x: lm.ctc_loss(x, [1, 4], 3, 2), AxisError, "index 4 is out of range for axis 1"),
        (lambda x: lm.ctc_loss(x[None], [[1]] * 3, [1, 2, 0], [1] * 3), ArgumentError,
         r"input_lengths=\[1, 2, 0\]"),
        (lambda x: lm.ctc_loss(x[None], [[1]] * 3, [1] * 3, [1, -1, 1]), ArgumentError,
         r"target_lengths=\[1, -1, 1\]"),
        (lambda x: lm.ctc_loss(x[None], [[1], [4], [1]], [1] * 3, [1] * 3), AxisError, "index 4"),
        (lambda x: lm.ctc_loss(x[None], [1, 4, 1], [1] * 3, lm.ones(3, dtype="int64")), AxisError,
         "index 4 is out of range for axis 2 of size 4"),
        (lambda x: lm.ctc_loss(x[None], [[1]] * 3, [1], [1] * 3), ShapeError, "3 lengths"),
        (lambda x: lm.ctc_loss(x[None], [1, 2], [1] * 3, [1] * 3), ShapeError, "fewer than"),
        (lambda x: lm.ctc_loss(x[None], [[1]] * 3, [1] * 3, [1] * 3, 9), ArgumentError, "blank=9"),
    ],
)  # fmt: skip
def test_misuse_is_named(
    call: Callable[[Tensor], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        call(lm.ones((3, 4)))
