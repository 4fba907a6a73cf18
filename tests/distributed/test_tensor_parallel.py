"""Parts of layers: which elements a process has, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lamina import Tensor, distributed, nn
from lamina.core import dtypes
from lamina.distributed import setup
from lamina.distributed.fully_sharded import FullySharded
from lamina.distributed.mesh import Axis
from lamina.distributed.tensor_parallel import own_part
from lamina.errors import ArgumentError, GradientError, ShapeError
from tests.distributed.lockstep import gradients_on_ranks, on_ranks

PAIR = Axis("pair", 2, 1)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the second of two."""
    monkeypatch.setattr(setup, "_joined", [setup._Process(1, 2)])


@pytest.mark.usefixtures("second")
@pytest.mark.parametrize(
    ("axis", "pieces", "rows"),
    [(0, 1, [6, 7, 8, 9, 10, 11]), (0, 3, [2, 3, 6, 7, 10, 11]), (1, 1, [2, 3])],
)
def test_a_process_has_its_part_of_each_piece(axis: int, pieces: int, rows: list[int]) -> None:
    whole = np.arange(48, dtype=np.float32).reshape(12, 4)
    part = own_part(Tensor(whole), axis, PAIR, pieces)
    assert part.requires_grad
    np.testing.assert_array_equal(part.numpy(), np.take(whole, rows, axis))


def test_parts_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"12 elements, which 2 processes cannot share .* in 4"):
        own_part(Tensor(np.zeros((12, 4), np.float32)), 0, PAIR, 4)


def test_entering_adds_derivatives_up_and_leaving_adds_values_up() -> None:
    operands = [np.array([1.0, 2.0]), np.array([10.0, 20.0])]
    seeds = [np.array([3.0, 4.0]), np.array([30.0, 40.0])]

    def enter(x: Tensor) -> Tensor:
        return distributed.enter_parallel(x, PAIR)

    def leave(x: Tensor) -> Tensor:
        return distributed.leave_parallel(x, PAIR)

    np.testing.assert_array_equal(on_ranks(enter, operands), operands)
    np.testing.assert_array_equal(gradients_on_ranks(enter, operands, seeds), [[33.0, 44.0]] * 2)
    np.testing.assert_array_equal(on_ranks(leave, operands), [[11.0, 22.0]] * 2)
    np.testing.assert_array_equal(gradients_on_ranks(leave, operands, seeds), seeds)


@pytest.mark.usefixtures("second")
def test_a_parameter_in_a_tuple_is_refused_before_anything_changes() -> None:
    layer = nn.Linear(3, 3)
    weight = layer.weight
    layer.pair = (Tensor(np.ones(2, np.float32), requires_grad=True), nn.Linear(2, 2))
    with pytest.raises(ArgumentError, match=r"FullySharded: parameter pair\.0 is directly in"):
        FullySharded(layer, PAIR)
    assert layer.weight is weight


@pytest.mark.usefixtures("second")
def test_a_sharded_layer_keeps_its_part_alone() -> None:
    layer = nn.Linear(3, 3)
    weight = layer.weight.numpy()
    sharded = FullySharded(layer, PAIR)
    assert layer.weight is None
    assert set(nn.state_dict(sharded)) == {"shards.weight", "shards.bias"}
    second_half = [*weight.reshape(-1)[5:], 0.0]  # 9 elements are 5 and 4, and a zero
    np.testing.assert_array_equal(sharded.shards["weight"].numpy(), second_half)


@pytest.mark.usefixtures("second")
def test_a_sharded_layer_is_still_trained_and_evaluated() -> None:
    """What is no parameter stays part of the state, and modes reach the layers inside."""
    inner = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.5))
    sharded = FullySharded(inner, PAIR)
    names = set(nn.state_dict(sharded))
    assert {"shards.0.weight", "layer.0.running_mean"} <= names
    assert "layer.0.weight" not in names
    nn.eval(sharded)
    assert not inner[1].training


def test_gradients_that_are_missing_are_named() -> None:
    with pytest.raises(GradientError, match=r"parameter 0, float32 \(2,\), has no gradient"):
        distributed.sum_gradients([Tensor(np.zeros(2, np.float32), requires_grad=True)], PAIR)


def attention_of_both(operands: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """`ring_attention` of two processes, of which each has (3, tokens, width), its queries, keys
    and values; and what it is in float64."""

    def attention(x: Tensor) -> Tensor:
        return distributed.ring_attention(x[0], x[1], x[2], PAIR)

    query, key, value = np.concatenate([one.astype(np.float64) for one in operands], axis=1)
    scores = query @ key.T / np.sqrt(query.shape[-1])
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = weights @ value / weights.sum(axis=1, keepdims=True)
    found = np.concatenate(on_ranks(attention, operands), axis=0)
    return found.astype(np.float64), expected


@pytest.mark.parametrize(("dtype", "half_a_step"), [("float16", 2**-11), ("bfloat16", 2**-8)])
def test_ring_attention_of_halves_is_rounded_once(dtype: str, half_a_step: float) -> None:
    generator = np.random.default_rng(0)
    kind = dtypes.BY_NAME[dtype].numpy
    operands = [generator.normal(size=(3, 4, 64)).astype(kind) for _ in range(2)]
    np.testing.assert_allclose(*attention_of_both(operands), rtol=half_a_step, atol=1e-6)


def test_products_in_ring_attention_may_be_larger_than_a_float16() -> None:
    """They are some 320,000, where two float32 are 0.03 apart: so are weights then, nearly."""
    generator = np.random.default_rng(0)
    operands = [generator.normal(size=(3, 4, 64)) for _ in range(2)]
    for operand in operands:
        operand[0] = 5.0 * operand[0] + 50.0
        operand[1] = 0.05 * operand[1] + 100.0
    halves = [operand.astype(np.float16) for operand in operands]
    assert np.abs(halves[0][0].astype(np.float64) @ halves[0][1].T).max() > 65504.0
    np.testing.assert_allclose(*attention_of_both(halves), rtol=1e-2, atol=1e-2)


def test_attention_around_a_ring_needs_equal_shapes() -> None:
    x, y = Tensor(np.zeros((4, 8), np.float32)), Tensor(np.zeros((2, 8), np.float32))
    with pytest.raises(ShapeError, match=r"query \(4, 8\), key \(2, 8\)"):
        distributed.ring_attention(x, y, y, PAIR)


def test_a_pipeline_needs_a_target_for_each_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 1)])
    one = Axis("one", 1, 1)
    weight = Tensor(np.ones(2, np.float32), requires_grad=True)
    x = Tensor(np.array([1.0, 2.0], np.float32))
    pipeline = distributed.Pipeline(
        lambda x: x * weight, lambda y, t: ((y - t) ** 2).sum(), [weight], one, (2,), x.dtype
    )
    with pytest.raises(ArgumentError, match="2 inputs and 1 targets"):
        pipeline.step([x, x], [x])
    loss = pipeline.step([x, x], [x * 2.0, x * 3.0])  # one stage: (1 + 4 + 4 * (1 + 4)) / 2
    assert loss.item() == 12.5
    np.testing.assert_array_equal(weight.grad.numpy(), [-3.0, -12.0])
