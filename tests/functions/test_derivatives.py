"""Every differentiable function against central differences in float64.

The derivative of a weighted sum of the result along a random direction is compared: a wrong entry
anywhere in any derivative changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings

import lamina as lm
from tests.compiled import EACH_TEST, Recorder
from tests.functions.agreement import agree_with_torch, close
from tests.functions.sampling import (
    SEEDS,
    SHAPES,
    Array,
    Draw,
    Shape,
    apart,
    broadcasting,
    joined,
    view_of,
)  # fmt: skip
from tests.functions.tables import MOVEMENT, REDUCTIONS, any_shape, broadcast_pair, filled

STEP = 1e-5


class Smooth(NamedTuple):
    """A function of tensors, the shapes of its operands, and where they lie."""

    function: Callable[..., Any]
    shapes: Callable[[Shape, Draw], list[Shape]]
    low: float = -2.2
    high: float = 2.2


def unary(name: str, low: float = -2.2, high: float = 2.2) -> Smooth:
    return Smooth(lambda r, x: getattr(lm, name)(x), any_shape, low, high)


def binary(name: str, low: float = -2.2, high: float = 2.2) -> Smooth:
    return Smooth(lambda r, x, y: getattr(lm, name)(x, y), broadcast_pair, low, high)


def images(rank: int) -> Callable[[Shape, Draw], list[Shape]]:
    """One batch of two channels."""
    return lambda shape, r: [(1, 2, *(int(one) for one in r.integers(3, 5, rank)))]


def convolved(rank: int, transposed: bool = False) -> Callable[[Shape, Draw], list[Shape]]:
    """An input, a kernel of two groups, a bias."""

    def shapes(shape: Shape, r: Draw) -> list[Shape]:
        kernel = tuple(int(one) for one in r.integers(1, 3, rank))
        each, outputs = (1, 2) if transposed else (2, 4)
        return [(1, 4, *[3] * rank), (4, each, *kernel), (outputs,)]

    return shapes


def pairs(shape: Shape, r: Draw) -> list[Shape]:
    return [filled(shape, r)[0]] * 2


def rows(shape: Shape, r: Draw) -> list[Shape]:
    """A batch of rows of three, which a norm needs to vary."""
    return [(*filled(shape, r)[0], 3), (3,), (3,)]


def loss(name: str, low: float = -2.2, high: float = 2.2) -> Smooth:
    def function(r: Draw, x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        return getattr(lm, name)(x, y, reduction=("none", "mean", "sum")[r.integers(3)])

    return Smooth(function, pairs, low, high)


def classified(name: str) -> Smooth:
    def function(r: Draw, x: lm.Tensor) -> lm.Tensor:
        return getattr(lm, name)(x, lm.asarray(r.integers(0, 3, x.shape[0])))

    return Smooth(function, lambda s, r: [(int(r.integers(1, 4)), 3)])


def by_slices(name: str, *more: Any) -> Smooth:
    """A function of an array and of two slices that are put at places of its last axis."""

    def function(r: Draw, x: lm.Tensor, source: lm.Tensor) -> lm.Tensor:
        return getattr(lm, name)(x, -1, lm.asarray(r.permutation(3)[:2]), source, *more)

    return Smooth(function, lambda s, r: [(*filled(s, r)[0], 3), (*filled(s, r)[0], 2)])


def by_elements(name: str, *more: Any) -> Smooth:
    """A function of an array and of an array of elements that are put along its first axis."""

    def function(r: Draw, x: lm.Tensor, source: lm.Tensor) -> lm.Tensor:
        index = lm.asarray(r.integers(0, x.shape[0], source.shape))
        return getattr(lm, name)(x, 0, index, source, *more)

    return Smooth(function, lambda s, r: [(3, *filled(s, r)[0]), (2, *filled(s, r)[0])])


def unpooled(rank: int) -> Smooth:
    def function(r: Draw, x: lm.Tensor) -> lm.Tensor:
        indices = lm.max_pool1d(x.detach().flatten(2), 1, return_indices=True).indices
        return getattr(lm, f"max_unpool{rank}d")(x, indices.reshape(x.shape) + 1, 2)

    return Smooth(function, images(rank))


def mask_of(x: lm.Tensor, r: Draw) -> lm.Tensor:
    return lm.asarray(r.random(x.shape) < 0.5)


def attended(shape: Shape, r: Draw) -> list[Shape]:
    batch = filled(shape[:2], r)[0]
    return [(*batch, 2, 3), (*batch, 3, 3), (*batch, 3, 2)]


ELEMENTWISE: dict[str, Smooth] = {
    **{name: unary(name) for name in (
        "abs", "asinh", "atan", "ceil", "cos", "cosh", "elu", "erf", "exp", "exp2", "expm1",
        "floor", "gelu", "hardsigmoid", "hardswish", "leaky_relu", "logsigmoid", "mish",
        "nan_to_num", "negative", "positive", "real", "conj", "relu", "relu6", "round", "sigmoid",
        "sign", "silu", "sin", "sinh", "softplus", "softsign", "square", "tanh", "trunc",
    )},
    **{name: unary(name, 0.3, 3.2) for name in ("log", "log2", "log10", "rsqrt", "sqrt",
                                                "reciprocal")},
    **{name: unary(name, -0.9, 0.9) for name in ("acos", "asin", "atanh")},
    "log1p": unary("log1p", -0.7, 3.0),
    "acosh": unary("acosh", 1.2, 3.2),
    "tan": unary("tan", -1.1, 1.1),
    **{name: binary(name) for name in (
        "add", "atan2", "copysign", "hypot", "logaddexp", "maximum", "minimum", "multiply",
        "nextafter", "subtract",
    )},
    **{name: binary(name, 0.4, 3.2) for name in ("divide", "floor_divide", "pow", "remainder")},
    "where": Smooth(lambda r, x, y: lm.where(mask_of(x, r), x, y), broadcast_pair),
    "masked_fill": Smooth(lambda r, x: lm.masked_fill(x, mask_of(x, r), 2), any_shape),
    "clip": Smooth(lambda r, x: lm.clip(x, -1, 1), any_shape),
    "astype": Smooth(lambda r, x: lm.astype(x * 2, lm.float64), any_shape),
}  # fmt: skip

COMPOSED: dict[str, Smooth] = {
    **{f"conv{rank}d": Smooth(
        lambda r, x, w, b, rank=rank: getattr(lm, f"conv{rank}d")(x, w, b, 2, 1, 1, 2),
        convolved(rank)) for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": Smooth(
        lambda r, x, w, b, rank=rank: getattr(lm, f"conv_transpose{rank}d")(x, w, b, 2, 1, 1, 2),
        convolved(rank, transposed=True)) for rank in (1, 2, 3)},
    **{f"{kind}_pool{rank}d": Smooth(
        lambda r, x, name=f"{kind}_pool{rank}d": getattr(lm, name)(x, 2, 1, 1), images(rank))
       for kind in ("max", "avg") for rank in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{rank}d": Smooth(
        lambda r, x, name=f"adaptive_{kind}_pool{rank}d": getattr(lm, name)(x, 2), images(rank))
       for kind in ("max", "avg") for rank in (1, 2, 3)},
    **{f"max_unpool{rank}d": unpooled(rank) for rank in (1, 2, 3)},
    **{name: by_slices(name) for name in ("index_add", "index_copy")},
    "index_reduce": by_slices("index_reduce", "mean", False),
    "index_fill": Smooth(lambda r, x: lm.index_fill(x, 0, [1], 2.0),
                         lambda s, r: [(3, *filled(s, r)[0])]),
    "index_select": Smooth(lambda r, x: lm.index_select(x, 0, [1, 2, 1]),
                           lambda s, r: [(3, *filled(s, r)[0])]),
    "scatter_add": by_elements("scatter_add"),
    "scatter_reduce": by_elements("scatter_reduce", "mean"),
    "put": Smooth(lambda r, x, source: lm.put(x, [2, 0, 2], source, accumulate=True),
                  lambda s, r: [(3, *filled(s, r)[0]), (3,)]),
    "matrix_norm": Smooth(lambda r, x: lm.matrix_norm(x, ("fro", 1, np.inf)[r.integers(3)]),
                          lambda s, r: [(*filled(s, r)[0], 2, 3)]),
    "interpolate": Smooth(
        lambda r, x: lm.interpolate(x, 5, mode=("linear", "nearest", "area")[r.integers(3)]),
        images(1)),
    "layer_norm": Smooth(lambda r, *a: lm.layer_norm(a[0], 3, *a[1:]), rows),
    "rms_norm": Smooth(lambda r, x, w: lm.rms_norm(x, 3, w), lambda s, r: rows(s, r)[:2]),
    "batch_norm": Smooth(
        lambda r, *a: lm.batch_norm(a[0], None, None, *a[1:], training=True).output,
        lambda s, r: [(4, 3, *filled(s, r)[0][:1]), (3,), (3,)]),
    "group_norm": Smooth(lambda r, x, w, b: lm.group_norm(x, 2, w, b),
                         lambda s, r: [(2, 4, 3), (4,), (4,)]),
    "instance_norm": Smooth(lambda r, x: lm.instance_norm(x), lambda s, r: [(2, 2, 4)]),
    "dropout": Smooth(lambda r, x: lm.dropout(x, 0.4, seed=3), any_shape),
    "embedding": Smooth(lambda r, w: lm.embedding(lm.asarray([[0, 2], [2, 1]]), w),
                        lambda s, r: [(3, 2)]),
    "scaled_dot_product_attention": Smooth(
        lambda r, *a: lm.scaled_dot_product_attention(*a, is_causal=bool(r.integers(2))),
        attended),
    **{name: loss(name) for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss",
                                     "binary_cross_entropy_with_logits")},
    "kl_div": loss("kl_div", 0.3, 2.2),
    "binary_cross_entropy": loss("binary_cross_entropy", 0.1, 0.9),
    "cosine_similarity": Smooth(lambda r, x, y: lm.cosine_similarity(x, y, -1),
                                lambda s, r: [(*filled(s, r)[0], 3)] * 2),
    **{name: classified(name) for name in ("cross_entropy", "nll_loss")},
}  # fmt: skip

def signs(x: lm.Tensor, r: Draw) -> lm.Tensor:
    return lm.asarray(r.choice([-1.0, 1.0], x.shape))


def aligned(r: Draw, x: lm.Tensor) -> lm.Tensor:
    return lm.ctc_loss(lm.log_softmax(x), lm.asarray([[1, 2], [2, 2]]), [4, 3], [2, 1])


def rows_of_three(count: int) -> Callable[[Shape, Draw], list[Shape]]:
    return lambda s, r: [(2, 3)] * count


LAYERS: dict[str, Smooth] = {
    **{name: unary(name) for name in (
        "celu", "hardshrink", "hardtanh", "rrelu", "selu", "softshrink", "tanhshrink")},
    "threshold": Smooth(lambda r, x: lm.threshold(x, 0.3, 2.0), any_shape),
    "prelu": Smooth(lambda r, x, w: lm.prelu(x, w), lambda s, r: [(2, 3, 2), (3,)]),
    "glu": Smooth(lambda r, x: lm.glu(x), lambda s, r: [(*s, 4)]),
    "softmin": Smooth(lambda r, x: lm.softmin(x), lambda s, r: [(*s, 3)]),
    "gumbel_softmax": Smooth(lambda r, x: lm.gumbel_softmax(x, seed=3), lambda s, r: [(*s, 3)]),
    "linear": Smooth(lambda r, *a: lm.linear(*a), lambda s, r: [(*s, 3), (2, 3), (2,)]),
    "bilinear": Smooth(lambda r, *a: lm.bilinear(*a),
                       lambda s, r: [(*s, 3), (*s, 2), (2, 3, 2), (2,)]),
    "normalize": Smooth(lambda r, x: lm.normalize(x), lambda s, r: [(2, 3)]),
    "alpha_dropout": Smooth(lambda r, x: lm.alpha_dropout(x, 0.4, True, seed=3), any_shape),
    "feature_alpha_dropout": Smooth(
        lambda r, x: lm.feature_alpha_dropout(x, 0.4, True, seed=3), images(1)),
    **{f"dropout{rank}d": Smooth(
        lambda r, x, name=f"dropout{rank}d": getattr(lm, name)(x, 0.4, seed=3), images(rank))
       for rank in (1, 2, 3)},
    **{f"lp_pool{rank}d": Smooth(
        lambda r, x, name=f"lp_pool{rank}d": getattr(lm, name)(x, 2.0, 2, 1), images(rank))
       for rank in (1, 2, 3)},
    "local_response_norm": Smooth(lambda r, x: lm.local_response_norm(x, 2), images(1)),
    "unfold": Smooth(lambda r, x: lm.unfold(x, 2, padding=1), images(2)),
    "fold": Smooth(lambda r, x: lm.fold(x, 3, 2), lambda s, r: [(2, 4, 4)]),
    "pixel_shuffle": Smooth(lambda r, x: lm.pixel_shuffle(x, 2), lambda s, r: [(4, 2, 3)]),
    "pixel_unshuffle": Smooth(lambda r, x: lm.pixel_unshuffle(x, 2), lambda s, r: [(2, 2, 4)]),
    "channel_shuffle": Smooth(lambda r, x: lm.channel_shuffle(x, 2), lambda s, r: [(1, 4, 3)]),
    "affine_grid": Smooth(lambda r, x: lm.affine_grid(x, (1, 2, 2, 3)), lambda s, r: [(1, 2, 3)]),
    "grid_sample": Smooth(lambda r, x, at: lm.grid_sample(x, at, padding_mode="border"),
                          lambda s, r: [(1, 2, 3, 3), (1, 2, 3, 2)], -0.6, 0.6),
    "embedding_bag": Smooth(
        lambda r, w: lm.embedding_bag(lm.asarray([0, 2, 2]), w, lm.asarray([0, 1])),
        lambda s, r: [(3, 2)]),
    "ctc_loss": Smooth(aligned, lambda s, r: [(4, 2, 3)]),
    "hinge_embedding_loss": Smooth(
        lambda r, x: lm.hinge_embedding_loss(x, signs(x, r)), filled),
    "soft_margin_loss": Smooth(lambda r, x: lm.soft_margin_loss(x, signs(x, r)), filled),
    "margin_ranking_loss": Smooth(
        lambda r, x, y: lm.margin_ranking_loss(x, y, signs(x, r)), pairs),
    "cosine_embedding_loss": Smooth(
        lambda r, x, y: lm.cosine_embedding_loss(x, y, lm.asarray([1, -1])), rows_of_three(2)),
    "triplet_margin_loss": Smooth(lambda r, *a: lm.triplet_margin_loss(*a), rows_of_three(3)),
    "triplet_margin_with_distance_loss": Smooth(
        lambda r, *a: lm.triplet_margin_with_distance_loss(*a), rows_of_three(3)),
    "multi_margin_loss": Smooth(lambda r, x: lm.multi_margin_loss(x, [0, 2]), rows_of_three(1)),
    "multilabel_margin_loss": Smooth(
        lambda r, x: lm.multilabel_margin_loss(x, [[0, -1, 1], [2, 0, -1]]), rows_of_three(1)),
    "multilabel_soft_margin_loss": Smooth(
        lambda r, x, y: lm.multilabel_soft_margin_loss(x, y), rows_of_three(2)),
    "poisson_nll_loss": loss("poisson_nll_loss"),
    "gaussian_nll_loss": Smooth(
        lambda r, *a: lm.gaussian_nll_loss(*a), rows_of_three(3), 0.3, 2.2),
}  # fmt: skip

TABLE: dict[str, Smooth] = ELEMENTWISE | COMPOSED | LAYERS | {
    name: Smooth(row.ours, row.shapes)
    for name, row in (MOVEMENT | REDUCTIONS).items()
    if row.differentiable
}


@pytest.fixture(autouse=True)
def one_program_each(recorder: Recorder, also_compiled: None) -> None:
    """A table is long: one program of each row, the derivatives, is compiled as well."""
    recorder.kept = EACH_TEST - 1


@pytest.mark.parametrize("name", TABLE)
@settings(max_examples=12)
@given(shape=SHAPES, seed=SEEDS)
@example(shape=(3, 2), seed=0)
def test_derivatives(name: str, shape: Shape, seed: int) -> None:
    row = TABLE[name]
    draw = np.random.default_rng([seed, len(shape)])
    views = [view_of(one, draw, repeats=False) for one in row.shapes(shape, draw)]
    arrays = apart([view.base for view in views], row.low, row.high, draw)

    def result(leaves: list[lm.Tensor]) -> lm.Tensor:
        seen = [view.of_tensor(leaf) for view, leaf in zip(views, leaves, strict=True)]
        return joined(row.function(np.random.default_rng(seed), *seen))

    leaves = [lm.asarray(array) for array in arrays]
    y = result(leaves)
    assert y.dtype is lm.float64
    weights = draw.uniform(0.5, 1.5, y.shape)
    derivatives = lm.gradient(y, leaves, lm.asarray(weights))
    lm.realize(y, *derivatives)
    sizes = [draw.uniform(0.5, 1, one.shape) for one in arrays]
    directions = [size * draw.choice([-1, 1], size.shape) for size in sizes]
    exact = sum(
        float((one.numpy() * way).sum()) for one, way in zip(derivatives, directions, strict=True)
    )
    assert [one.shape for one in derivatives] == [one.shape for one in arrays]
    values: list[Array] = []
    for step in (STEP, -STEP):
        moved = [a + step * way for a, way in zip(arrays, directions, strict=True)]
        values.append(result([lm.asarray(one) for one in moved]).numpy())
    slope = float((weights * (values[0] - values[1])).sum() / (2 * STEP))
    assert exact == pytest.approx(slope, rel=2e-6, abs=2e-6)
    assert np.isfinite(exact)


KINKS = np.array([-6.0, -3.0, -1.0, -0.0, 0.0, 0.5, 1.0, 2.5, 3.0, 6.0])
ROWS = np.array([[0.0, 0, 0], [1, 0, 2], [0, 3, 0], [2, 2, 2], [1, 2, 3]])


@pytest.mark.parametrize("name", [
    "relu", "relu6", "leaky_relu", "elu", "hardsigmoid", "hardswish", "softsign", "softplus",
    "gelu", "silu", "mish", "logsigmoid", "abs", "sign", "floor", "ceil", "round", "trunc", "tanh",
])  # fmt: skip
def test_slopes_at_kinks_are_pytorchs(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    agree_with_torch(getattr(lm, name), theirs, KINKS, tolerance=1e-7)  # its 1/6 is a float32


def test_slopes_of_several_operands_at_kinks_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    grid = np.array([-2.0, -1, -0.0, 0, 1, 2])
    x, y = (one.reshape(-1) for one in np.meshgrid(grid, grid))
    for name in ("maximum", "minimum", "atan2", "logaddexp"):
        agree_with_torch(getattr(lm, name), getattr(torch, name), x, y)
    agree_with_torch(lm.remainder, torch.remainder, x[y != 0], y[y != 0])
    agree_with_torch(lm.pow, torch.pow, np.abs(x), y)
    agree_with_torch(lambda a: lm.clip(a, -1, 1), lambda a: torch.clamp(a, -1, 1), KINKS)
    agree_with_torch(lm.acosh, torch.acosh, np.array([1.0, 2.0]))
    for name in ("acos", "asin", "atanh"):  # infinite
        agree_with_torch(getattr(lm, name), getattr(torch, name), np.array([-1.0, 0.5, 1.0]))


@pytest.mark.parametrize("name", ["acos", "asin", "asinh", "atanh", "expm1", "log1p", "sinh",
                                  "tanh", "hypot", "logaddexp"])  # fmt: skip
def test_three_derivatives_hold_where_formulas_meet(name: str) -> None:
    torch = pytest.importorskip("torch")
    points = np.array([-0.5, -0.0, 0.0, 0.3]), np.array([0.5, 1.0, -2.0, 0.3])
    arrays = points if name in ("hypot", "logaddexp") else points[:1]
    mine = [lm.asarray(one) for one in arrays]
    other = [torch.tensor(one, requires_grad=True) for one in arrays]
    y, expected = getattr(lm, name)(*mine), getattr(torch, name)(*other)
    for _ in range(3):
        y, *_ = lm.gradient(y.sum(), mine)
        expected, *_ = torch.autograd.grad(expected.sum(), other, create_graph=True)
        close(y.numpy(), expected.detach().numpy(), 1e-9, name)


@pytest.mark.parametrize(("ours", "theirs", "options"), [
    ("prod", "prod", {}), ("max", "amax", {}), ("min", "amin", {}), ("sort", "sort", {}),
    ("std", "std", {"correction": 0}), ("var", "var", {"correction": 0}),
    ("cumulative_prod", "cumprod", {}), ("cumulative_sum", "cumsum", {}),
    ("logsumexp", "logsumexp", {}), ("norm", "norm", {"p": 2}), ("norm", "norm", {"p": 1}),
    ("norm", "norm", {"p": 3}), ("norm", "norm", {"p": np.inf}),
])  # fmt: skip
def test_slopes_of_ties_and_zeros_are_pytorchs(
    ours: str, theirs: str, options: dict[str, Any]
) -> None:
    torch = pytest.importorskip("torch")
    mine = {"ord": options["p"]} if "p" in options else {}

    def other(a: Any) -> Any:
        result = getattr(torch, theirs)(a, dim=1, **options)
        return result.values if theirs == "sort" else result

    agree_with_torch(lambda a: getattr(lm, ours)(a, axis=1, **mine), other, ROWS)


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "where", "matmul"])
def test_broadcast_axes_are_summed(name: str) -> None:
    first, second = ((2, 1, 3, 4), (5, 4, 2)) if name == "matmul" else ((2, 1, 3), (4, 3))
    x, y = lm.asarray(np.ones(first)), lm.asarray(np.full(second, 2.0))
    f: Any = getattr(lm, name) if name != "where" else lambda a, b: lm.where(b > 3, a, b)
    shapes = [one.shape for one in lm.gradient(f(x, y).sum(), [x, y])]
    assert shapes == [x.shape, y.shape]


def test_broadcast_partners_have_all_shapes() -> None:
    draw = np.random.default_rng(0)
    shapes = {broadcasting((2, 3), draw) for _ in range(100)}
    assert {(), (3,), (1,), (2, 3), (1, 3), (2, 1)} <= shapes
