"""A part of an array in memory that is one stretch of it is an input of the program that reads it:
no program is compiled for one place alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import nn
from lamina.frontend import realize as memory
from lamina.frontend.execution import compile_sinks

X = np.random.default_rng(0).standard_normal((64, 5, 32)).astype(np.float32)


def compiled() -> int:
    return compile_sinks.cache_info().misses


def bounds(size: int) -> st.SearchStrategy[slice]:
    ends = st.integers(-size, size)
    return st.builds(slice, ends, ends, st.sampled_from([None, 1, 2, -1]))


@settings(max_examples=20)  # each may be a program
@given(st.tuples(*(bounds(size) | st.integers(-size, size - 1) for size in X.shape)))
def test_slices_like_numpy(key: tuple[slice | int, ...]) -> None:
    x = lm.asarray(X)
    part, double = x[key], x[key] * 2.0
    lm.realize(part, double)
    np.testing.assert_array_equal(part.numpy(), X[key])
    np.testing.assert_array_equal(double.numpy(), X[key] * 2)


@pytest.mark.parametrize("dtype", [lm.bfloat16, lm.complex64, lm.int8], ids=str)
def test_other_dtypes(dtype: lm.DType) -> None:
    x = lm.asarray(np.arange(4096).reshape(64, 64) % 100).cast(dtype).realize()
    for at in (1, 64 // 2):
        assert (x[at] + x[at]).tolist() == (x + x).tolist()[at]


def test_the_place_is_in_no_program() -> None:
    x, y = lm.asarray(X), lm.asarray(np.arange(64 * 16))
    for at in range(0, 64, 16):
        _ = x[at].tolist(), (x[at : at + 8] * 2.0 + 1.0).numpy(), (y[at : at + 16] + 1).numpy()
        if at == 0:
            before = compiled()
    assert compiled() == before


def test_training_on_parts_compiles_a_step_once() -> None:
    x, y = lm.asarray(X.reshape(64, -1)), lm.asarray(np.arange(64) % 3)
    model = nn.Linear(160, 3)
    optimizer = nn.optim.SGD(nn.parameters(model), lr=0.1, momentum=0.9)
    weight, bias = model.weight.numpy(), model.bias.numpy()
    velocity = [np.zeros_like(weight), np.zeros_like(bias)]
    for step, at in enumerate(range(0, 64, 8)):
        loss = lm.cross_entropy(model(x[at : at + 8]), y[at : at + 8])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        rows, right = x.numpy()[at : at + 8], np.eye(3)[y.numpy()[at : at + 8]]
        powers = np.exp(rows @ weight.T + bias)
        slope = (powers / powers.sum(1, keepdims=True) - right) / 8
        velocity = [0.9 * velocity[0] + slope.T @ rows, 0.9 * velocity[1] + slope.sum(0)]
        weight, bias = weight - 0.1 * velocity[0], bias - 0.1 * velocity[1]
        if step == 1:  # the first one has no momentum yet
            before = compiled()
    assert compiled() == before
    np.testing.assert_allclose(model.weight.numpy(), weight, atol=1e-4)


def test_a_part_keeps_its_value_when_the_whole_is_overwritten() -> None:
    state = lm.arange(64.0).realize()
    part, more = state[16:32], state[16:32] + 1.0
    state.assign(state * 0.0 - 1.0)
    lm.realize(state)
    assert part.tolist() == list(range(16, 32))
    assert more.tolist() == list(range(17, 33))
    state[0:16] = state[16:32] + 2.0
    assert state.tolist() == [1.0] * 16 + [-1.0] * 48


def test_derivatives_reach_the_whole() -> None:
    x = lm.Tensor(X[:4], requires_grad=True)
    (x[1:3] * x[1:3]).sum().backward()
    assert x.grad is not None
    wanted = np.zeros_like(X[:4])
    wanted[1:3] = 2 * X[1:3]
    np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-6)


def test_a_traced_function_sees_later_values_of_what_it_reads_a_part_of() -> None:
    state = lm.arange(64.0).realize()
    first = lm.jit(lambda x: x + state[16:32])
    zero = lm.zeros((16,)).realize()
    assert first(zero).tolist() == list(range(16, 32))
    state.assign(state * 2.0)
    assert first(zero).tolist() == list(range(32, 64, 2))


def test_memory_of_a_part_is_the_wholes() -> None:
    x = lm.asarray(X)
    node = memory.stretch(x[16:32].node)
    assert node is not None
    assert node.arg.storage.pointer == memory.memory_of(x).pointer + 16 * 5 * 32 * 4
    assert memory.stretch(x[:, 1].node) is None
    assert memory.stretch((x + 1.0)[16:32].node) is None
