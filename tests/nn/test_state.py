"""Finding, naming and replacing the tensors of plain objects."""

from __future__ import annotations

import types

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import FormatError
from lamina.frontend.execution import compile_sinks


class Model:
    def __init__(self) -> None:
        self.blocks = [nn.Linear(2, 3), nn.Linear(3, 2)]
        self.heads = {"left": nn.Linear(2, 1, bias=False)}
        self.tied = self.blocks[0].weight
        self.scale = Tensor(2.0)
        self.parent = self
        self.activation = lm.relu
        self.name = "text"
        self.module = types
        self._hidden = Tensor(1.0)


NAMES = ["blocks.0.weight", "blocks.0.bias", "blocks.1.weight", "blocks.1.bias",
         "heads.left.weight", "tied", "scale"]  # fmt: skip


def test_state_is_named_by_paths() -> None:
    model = Model()
    state = nn.state_dict(model)
    assert list(state) == NAMES
    assert state["tied"] is model.blocks[0].weight


def test_parameters_are_listed_once_and_only_those_that_learn() -> None:
    model = Model()
    found = nn.parameters(model)
    assert len(found) == 5
    assert all(one.requires_grad for one in found)
    model.blocks[0].bias.requires_grad = False  # type: ignore[union-attr]
    assert len(nn.parameters(model)) == 4


def test_a_state_moves_from_model_to_model() -> None:
    one, other = Model(), Model()
    handles = nn.state_dict(other)
    nn.load_state_dict(other, nn.state_dict(one))
    for name, value in nn.state_dict(one).items():
        assert nn.state_dict(other)[name] is handles[name]  # optimisers keep their handles
        np.testing.assert_array_equal(handles[name].numpy(), value.numpy())
    assert len(nn.parameters(other)) == 5


def test_loaded_tensors_do_not_share_memory_with_their_source() -> None:
    source = nn.state_dict(nn.Linear(2, 2))
    before = {name: one.numpy() for name, one in source.items()}
    layer = nn.Linear(2, 2)
    nn.load_state_dict(layer, source)
    (layer(lm.ones((1, 2))) ** 2).sum().backward()
    nn.optim.SGD(nn.parameters(layer), lr=1.0).step()
    for name, value in before.items():
        np.testing.assert_array_equal(source[name].numpy(), value)
        assert (nn.state_dict(layer)[name].numpy() != value).all()


def test_values_are_cast_to_the_dtype_of_the_model() -> None:
    layer = nn.Linear(2, 2)
    nn.load_state_dict(layer, {name: one.cast(lm.float64) for name, one in
                               nn.state_dict(nn.Linear(2, 2)).items()})  # fmt: skip
    assert layer.weight.dtype is lm.float32
    assert layer.weight.requires_grad


def test_arrays_are_loaded_as_tensors_are() -> None:
    model, rng = nn.Linear(2, 3), np.random.default_rng(0)
    state = {"weight": rng.standard_normal((3, 2)), "bias": np.ones(3, np.float16)}
    nn.load_state_dict(model, state)
    assert model.weight.dtype is lm.float32
    np.testing.assert_allclose(model.weight.numpy(), state["weight"], rtol=1e-6)
    torch = pytest.importorskip("torch")
    other = torch.nn.Linear(2, 3)
    nn.load_state_dict(model, other.state_dict())
    x = rng.standard_normal((4, 2)).astype(np.float32)
    np.testing.assert_allclose(model(x).numpy(), other(torch.tensor(x)).detach(), rtol=1e-5)


def test_every_problem_is_named_and_nothing_changes() -> None:
    layer = nn.Linear(2, 3)
    before = {name: one.numpy() for name, one in nn.state_dict(layer).items()}
    with pytest.raises(FormatError, match="missing bias") as caught:
        nn.load_state_dict(layer, {"weight": lm.zeros((3, 3)), "extra": Tensor(1.0)})
    assert "unexpected extra" in str(caught.value)
    assert "weight has shape (3, 3), (3, 2) is needed" in str(caught.value)
    with pytest.raises(FormatError, match=r"\(3, 3\)"):
        nn.load_state_dict(
            layer, {"bias": lm.zeros((3,)), "weight": lm.zeros((3, 3))}, strict=False
        )
    for name, value in before.items():
        np.testing.assert_array_equal(nn.state_dict(layer)[name].numpy(), value)


def test_without_strictness_known_names_are_loaded() -> None:
    layer = nn.Linear(2, 3)
    nn.load_state_dict(layer, {"bias": lm.ones((3,)), "extra": Tensor(1.0)}, strict=False)
    np.testing.assert_array_equal(layer.bias.numpy(), 1.0)  # type: ignore[union-attr]


def test_new_parameters_are_computed_once_and_together() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    assert not any(one.is_realized() for one in nn.parameters(model))
    model(lm.ones((1, 4))).realize()
    assert all(one.is_realized() for one in nn.parameters(model))


def test_initial_values_follow_the_seed() -> None:
    def draw() -> np.ndarray:
        lm.random.manual_seed(5)
        return nn.Linear(3, 3).weight.numpy()

    np.testing.assert_array_equal(draw(), draw())


def test_a_trained_model_compiles_no_more_after_two_steps() -> None:
    """The second step's graph is the first one's: running statistics, dropout and all."""
    with lm.using(device="cpu"):
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm(8), lm.relu, nn.Dropout(0.2),
                              nn.Linear(8, 1))  # fmt: skip
        optimizer = nn.optim.AdamW(
            nn.parameters(model), lr=nn.schedules.cosine(1e-2, 10, warmup=2)
        )
        generator = np.random.default_rng(0)
        compiled = []
        for _ in range(5):
            x = Tensor(generator.standard_normal((16, 4)), dtype=lm.float32)
            loss = lm.mse_loss(model(x), x.sum(axis=1, keepdims=True))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()
            compiled.append(compile_sinks.cache_info().misses)
        assert compiled[1:] == compiled[1:2] * 4
        assert model[1].num_batches_tracked.item() == 5
