"""Parts of layers: which elements a process has, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from lamina import Tensor, distributed, nn
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
