"""Vectors of which the last one begins earlier, and computes again what the one before it does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.target import cpu_target
from lamina.frontend.session import SESSION
from lamina.schedule.cost.walk import trips_of

pytestmark = pytest.mark.usefixtures("on_cpu")
TARGET = cpu_target(vector_bytes=64, cores=2)
RNG = np.random.default_rng(13)
Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def _vectors_of_64_bytes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module in (pipeline, backends):
        monkeypatch.setattr(module, "target_of", lambda options: TARGET)
    SESSION.forget()
    yield
    SESSION.forget()


def lowered(function: Function, *shapes: tuple[int, ...]) -> Any:
    return lm.jit(function).lower(*map(lm.TensorSpec, shapes), device="cpu")


def lanes_of(function: str, text: str) -> set[str]:
    """The lanes with which a text calls a function; "" of scalars."""
    return set(re.findall(rf"\b{function}_f32(?:x(\d+))?\(", text))


@pytest.mark.parametrize(
    ("size", "lanes"),
    [(3, {"2", ""}), (7, {"4"}), (13, {"8"}), (17, {"16", ""}), (25, {"16"}), (47, {"16"})],
)
def test_what_is_left_over_is_one_vector(size: int, lanes: set[str]) -> None:
    text = lowered(lm.sin, (size,)).kernels[0].source
    assert lanes_of("sin", text) == lanes


def test_channels_that_are_left_over_read_a_whole_vector() -> None:
    """47 channels are vectors that begin at 0, 16 and 31."""

    def pooled(x: Any) -> Any:
        return lm.max_pool2d(lm.permute_dims(x, (0, 3, 1, 2)), 3, 1)

    text = "".join(kernel.source for kernel in lowered(pooled, (3, 9, 9, 47)).kernels)
    assert set(re.findall(r"\*\(f32x(\d+)r \*\)\(p0", text)) == {"16"}


def test_costs_count_the_vectors_that_are_printed() -> None:
    """45 elements are three vectors of 16 lanes, as 48 are; they were 16, 16, 8, 4 and 1."""
    (plan,) = lowered(lm.sin, (45,)).planned.plans.values()
    assert trips_of(plan.nest, plan.nest.order[0], each_lane=True) == 3


def test_what_a_kernel_reads_is_not_written_twice() -> None:
    values = RNG.standard_normal(45).astype(np.float32)
    z = Tensor(values).realize()

    def doubled(x: Any) -> None:
        z.assign(2 * z + x)

    step = lm.jit(doubled)
    step(lm.zeros((45,)).realize())
    z.assign(Tensor(values))
    z.realize()
    step(lm.zeros((45,)).realize())
    np.testing.assert_allclose(z.numpy(), 2 * values, rtol=1e-6)


def test_what_is_added_to_is_not_added_twice() -> None:
    places = np.array([2, 0, 2, 1, 2])
    updates = RNG.standard_normal((5, 45)).astype(np.float32)
    right = np.zeros((3, 45))
    np.add.at(right, places, updates)
    found = lm.jit(lambda at, new: lm.index_add(lm.zeros((3, 45)), 0, at, new))
    result = found(Tensor(places), Tensor(updates)).numpy()
    np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-5)


FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "map": (lambda x: lm.exp(x) + 1, lambda x: np.exp(x) + 1),
    "transpose": (lambda x: 2 * x.T, lambda x: 2 * x.T),
    "sums of columns": (lambda x: lm.abs(x).sum(axis=0), lambda x: np.abs(x).sum(axis=0)),
    "product": (lambda x: x.T @ x, lambda x: x.T @ x),
    "softmax of columns": (
        lambda x: lm.softmax(x, axis=0), lambda x: np.exp(x) / np.exp(x).sum(axis=0),
    ),
    "reversed": (lambda x: lm.flip(x, axis=1) - x, lambda x: x[:, ::-1] - x),
    "padded": (
        lambda x: lm.pad(lm.tanh(x), ((1, 2), (3, 0))),
        lambda x: np.pad(np.tanh(x), ((1, 2), (3, 0))),
    ),
    "repeated": (
        lambda x: lm.sin(lm.repeat(x, 3, axis=1)), lambda x: np.sin(np.repeat(x, 3, axis=1)),
    ),
    "indices": (
        lambda x: x * lm.arange(x.shape[1]), lambda x: x * np.arange(x.shape[1]),
    ),
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(FUNCTIONS)),
    rows=st.integers(1, 50),
    columns=st.integers(2, 70),
    is_transposed=st.booleans(),
)
def test_results_are_those_of_numpy(
    name: str, rows: int, columns: int, is_transposed: bool
) -> None:
    ours, theirs = FUNCTIONS[name]
    shape = (columns, rows) if is_transposed else (rows, columns)
    x = RNG.standard_normal(shape).astype(np.float32)
    wide = x.T.astype(np.float64) if is_transposed else x.astype(np.float64)
    found = lm.jit(lambda x: ours(x.T if is_transposed else x))(Tensor(x)).numpy()
    np.testing.assert_allclose(found, theirs(wide), rtol=1e-4, atol=1e-4)
