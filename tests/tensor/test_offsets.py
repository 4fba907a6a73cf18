"""Indices, slices and shifts that change: the second program reads them from memory, and serves all
that come after it. NumPy says what is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import nn
from lamina.core import options
from lamina.core.dtypes import int64
from lamina.frontend import realize as memory
from lamina.frontend.execution import compile_sinks
from lamina.frontend.session import SESSION
from lamina.graph import index as ix
from lamina.ir.kernel import TRUE, bounds
from lamina.ir.node import Node, const
from lamina.ir.ops import Load, Op
from lamina.runtime.profile import runs

Array = np.ndarray[Any, Any]
X = np.random.default_rng(0).standard_normal((24, 28, 32)).astype(np.float32)
SEVERAL = range(20)


@pytest.fixture(autouse=True)
def on_the_compiler() -> Iterator[None]:
    """Nothing is known of numbers, neither before nor after."""
    forget()
    with options.using(device="cpu"):
        yield
    forget()


def forget() -> None:
    SESSION.forget()


def programs() -> int:
    return compile_sinks.cache_info().misses


def stored(x: Any, key: Any, value: Any) -> Any:
    """`x` with another value at `key`, for tensors and arrays."""
    copy = x * 1
    copy[key] = value
    return copy


def rolled(x: Any, shift: Any, axis: Any = None) -> Any:
    return np.roll(x, shift, axis) if isinstance(x, np.ndarray) else lm.roll(x, shift, axis=axis)


CASES: dict[str, Callable[[Any, int], Any]] = {
    "row": lambda x, i: x[i] * 2,
    "rows": lambda x, i: x[i : i + 4] * 2,
    "row from the end": lambda x, i: x[-1 - i] * 2,
    "column": lambda x, i: x[:, i] * 2,
    "columns": lambda x, i: x[:, i : i + 5].sum(1),
    "inner row": lambda x, i: x[..., i, :] + 1,
    "single elements": lambda x, i: x[i, i + 1, 2 * i // 3] * 2,
    "some of each": lambda x, i: x[i, :, i : i + 11 : 2] * 2,
    "backwards": lambda x, i: x[:, i + 6 : i : -2] * 2,
    "one row less another": lambda x, i: x[i + 2] - x[i],
    "store a row": lambda x, i: stored(x, i, x[0] + 1),
    "store rows": lambda x, i: stored(x, slice(i, i + 4), x[:4, :, ::-1]),
    "store a column": lambda x, i: stored(x, (slice(None), i), 3),
    "store some": lambda x, i: stored(x, (i, slice(i, i + 7, 3), slice(20, 2, -6)), x[0, :3, :3]),
    "store beside arrays": lambda x, i: stored(x, ([0, 2, 5], i), 3),
    "read beside arrays": lambda x, i: x[[0, 2, 5], i : i + 4] * 2,
    "roll": rolled,
    "roll back": lambda x, i: rolled(x, -1 - i),
    "roll an axis": lambda x, i: rolled(x, i, 1),
    "roll axes": lambda x, i: rolled(x, (i, 3 - 2 * i), (0, 2)),
}


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("name", CASES)
def test_few_programs_serve_all_numbers(name: str, traced: bool) -> None:
    x, case = lm.asarray(X), CASES[name]
    function = lm.jit(case) if traced else case
    for i in SEVERAL:
        np.testing.assert_allclose(function(x, i).numpy(), case(X, i), rtol=1e-5, atol=1e-5)
    assert programs() <= 3


def test_a_cache_of_keys_and_values() -> None:
    """Written at a number, and read up to it."""
    cache, expected = lm.zeros((4, 20, 8)).realize(), np.zeros((4, 20, 8), np.float32)

    @lm.jit
    def step(new: lm.Tensor, at: int) -> lm.Tensor:
        cache[:, at] = new
        scores = lm.where(lm.arange(20) <= at, (cache * new[:, None]).sum(-1), -np.inf)
        return lm.softmax(scores, axis=-1)

    for at in SEVERAL:
        expected[:, at] = X[at, :4, :8]
        scores = (expected[:, : at + 1] * X[at, :4, None, :8]).sum(-1)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        results = step(lm.Tensor(X[at, :4, :8]), at).numpy()
        wanted = chances / chances.sum(-1, keepdims=True)
        np.testing.assert_allclose(results[:, : at + 1], wanted, rtol=1e-4)
        assert not results[:, at + 1 :].any()
    np.testing.assert_array_equal(cache.numpy(), expected)
    assert programs() <= 2 + 2  # and at first, zeros and a copy of them


@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.complex64, lm.int8, lm.bool], ids=str)
def test_other_dtypes(dtype: lm.DType) -> None:
    values = np.arange(60).reshape(6, 10) % 7 % 2
    x = lm.asarray(values).cast(dtype).realize()
    for i in range(5):
        results = lm.stack(
            [x[:, i], stored(x, (slice(None), 1 + i), True)[:, 2], rolled(x, i, 1)[:, 0]]
        )
        wanted = (
            values[:, i],
            stored(values, (slice(None), 1 + i), 1)[:, 2],
            rolled(values, i, 1)[:, 0],
        )
        np.testing.assert_array_equal(results.cast(lm.complex64).numpy(), np.stack(wanted))
    assert programs() <= 3 + 1  # and the casts


def test_a_first_program_is_as_it_was() -> None:
    x = lm.asarray(X)
    for i, count in ((3, 0), (5, 1), (7, 1)):
        inputs: dict[Any, int] = {}
        sinks = tuple(memory.cut([(x[:, i] * 2.0).node], inputs))
        program, numbers = memory.lifted(sinks, len(inputs), "cpu")
        assert (program == sinks) is (not count)
        assert len(numbers) == count


def test_offsets_that_part() -> None:
    """What has always been equal is one input, until it differs."""
    x, y = lm.asarray(X), lm.asarray(-X)
    for i, j in ((0, 0), (1, 1), (2, 2), (3, 5), (5, 3), (4, 4)):
        np.testing.assert_array_equal((x[:, i] + y[:, j]).numpy(), X[:, i] - X[:, j])
    assert programs() <= 3 + 1  # with i == j it may be one slice less


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_training_on_parts_of_a_data_set(traced: bool) -> None:
    inputs, labels = X.reshape(-1, 32)[:660], np.arange(660) % 3
    x, y = lm.asarray(inputs), lm.asarray(labels)
    layer = nn.Linear(32, 3)
    optimizer = nn.optim.SGD(nn.parameters(layer), lr=0.1)
    weight, bias = layer.weight.numpy(), layer.bias.numpy()

    def step(i: int) -> lm.Tensor:
        loss = lm.cross_entropy(layer(x[i : i + 32]), y[i : i + 32])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    train = lm.jit(step) if traced else step
    forget()
    for i in range(0, 640, 32):
        loss = train(i).item()
        scores = inputs[i : i + 32] @ weight.T + bias
        chances = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        hits = np.eye(3)[labels[i : i + 32]]
        np.testing.assert_allclose(loss, -np.log((chances * hits).sum(1)).mean(), rtol=1e-4)
        slope = (chances - hits) / 32
        weight, bias = weight - 0.1 * slope.T @ inputs[i : i + 32], bias - 0.1 * slope.sum(0)
    np.testing.assert_allclose(layer.weight.numpy(), weight, rtol=1e-3, atol=1e-5)
    # Two are of steps. The others: what a loss that is asked for, or, at first, the own memory of
    # each parameter takes.
    assert programs() <= 4


def test_derivatives_through_offsets() -> None:
    x = lm.Tensor(X[0], requires_grad=True)

    def loss(x: lm.Tensor, i: int) -> lm.Tensor:
        changed = stored(x * 2, (slice(None), i), x[:, i + 1] ** 2)
        return (lm.roll(changed, i, axis=0)[i : i + 4] ** 2).sum()

    slope = lm.jit(lambda x, i: lm.grad(lambda x: loss(x, i))(x))
    for i in range(12):
        (eager,) = lm.gradient(loss(x, i), [x])
        y = stored(2 * X[0], (slice(None), i), X[0][:, i + 1] ** 2)
        kept = np.zeros((28, 1), np.float32)
        kept[i : i + 4] = 1
        outer = 2 * y * np.roll(kept, -i, 0)
        wanted = stored(2 * outer, (slice(None), i), 0)
        wanted[:, i + 1] += outer[:, i] * 2 * X[0][:, i + 1]
        np.testing.assert_allclose(eager.numpy(), wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(slope(x, i).numpy(), wanted, rtol=1e-4, atol=1e-5)
    assert programs() <= 2 * 3


Step = Callable[[Any, int], Any]


def slices(axis: int, size: int, step: int) -> Step:
    """`size` elements of an axis, from a number on."""

    def part(x: Any, number: int) -> Any:
        reach = (size - 1) * abs(step) + 1
        if reach > x.shape[axis]:
            return x
        first = number % (x.shape[axis] - reach + 1)
        chosen = range(first, first + reach)[:: abs(step)][:: 1 if step > 0 else -1]
        end = chosen[-1] + (1 if step > 0 else -1)
        return x[(slice(None),) * axis + (slice(chosen[0], end if end >= 0 else None, step),)]

    return part


def stores(axis: int, size: int, value: float) -> Step:
    """Others at `size` elements of an axis: a number, or what is at the other end."""

    def store(x: Any, number: int) -> Any:
        first = number % (x.shape[axis] - size + 1)
        key = (slice(None),) * axis + (slice(first, first + size),)
        other = x[(slice(None),) * axis + (slice(-size, None),)]
        return stored(x, key, value if value else other * 2)

    return store


AXES = st.integers(0, 2)
STEPS = st.one_of(
    st.builds(slices, AXES, st.integers(2, 4), st.sampled_from([1, 1, 2, -1, -2])),
    st.builds(stores, AXES, st.integers(1, 2), st.sampled_from([0.0, 2.5])),
    st.builds(lambda axis: lambda x, number: rolled(x, number, axis), AXES),
    st.just(rolled),
    st.just(lambda x, number: x * 2 - 1),
    st.just(lambda x, number: x.transpose(1, 0, 2) if isinstance(x, np.ndarray)
            else lm.permute_dims(x, (1, 0, 2))),
    st.just(lambda x, number: x + x[number % x.shape[0]]),
)  # fmt: skip


@settings(max_examples=12)  # each takes some programs
@given(st.lists(STEPS, min_size=1, max_size=4), st.integers(0, 1000), st.booleans())
def test_random_programs(steps: list[Step], seed: int, traced: bool) -> None:
    generator = np.random.default_rng(seed)
    values = generator.integers(-9, 9, (6, 7, 8)).astype(np.float32)
    x = lm.asarray(values).realize()

    def function(x: Any, *numbers: int) -> Any:
        for step, number in zip(steps, numbers, strict=True):
            x = step(x, number)
        return x

    run = lm.jit(function) if traced else function
    for _ in range(4):
        numbers = generator.integers(0, 20, len(steps)).tolist()
        np.testing.assert_array_equal(run(x, *numbers).numpy(), function(values, *numbers))


def test_indices_are_one_base_and_the_loops() -> None:
    """No condition, and neighbours in memory along the loop that has vectors."""
    x = lm.asarray(X)
    (x[:, 2:18] * 2).realize()
    with runs() as records:
        (x[:, 5:21] * 2).realize()
    ((kernel,),) = (planned.plans for planned, *_ in records)
    (read,) = (load for load in kernel.of(Op.LOAD) if load.dtype is lm.float32)
    (at,) = read.src
    axes = {term: by for term, by in ix.terms_of(at)[0].items() if term.op is Op.AXIS}
    assert 1 in axes.values()
    assert len(ix.terms_of(at)[0]) == len(axes) + 1
    assert bounds(at) == (0, X.size - 1)


def test_sums_that_may_wrap_around_are_no_indices() -> None:
    loaded = Node(Op.LOAD, (ix.ZERO,), Load(0, int64))
    axis = ix.axis(0, 8)
    assert ix.of_value(loaded + axis).op is Op.ADD
    limited = Node(Op.MIN, (Node(Op.MAX, (loaded, const(-3, int64))), const(4, int64)))
    assert ix.of_value(axis * 2 + limited) is ix.add(ix.scale(axis, 2), limited)
    assert bounds(limited) == (-3, 4)
    assert ix.inside(ix.add(axis, limited, const(3, int64)), 15) is TRUE
