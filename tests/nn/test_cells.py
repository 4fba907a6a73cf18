"""Single steps of recurrent layers, and the plain recurrent layer, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import ArgumentError, ShapeError
from tests.nn.beside_pytorch import check_equal, check_layers, copied, flat

torch = pytest.importorskip("torch")


def draws(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(2, 3), (3,)])
@pytest.mark.parametrize("settings", [{}, {"bias": False}])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells_agree(name: str, settings: dict[str, Any], shape: tuple[int, ...]) -> None:
    ours, theirs = getattr(nn, name)(3, 4, **settings), getattr(torch.nn, name)(3, 4, **settings)
    check_layers(ours, theirs, [draws(*shape)])
    state: Any = draws(*shape[:-1], 4)
    other: Any = torch.tensor(state)
    if name == "LSTMCell":
        state, other = (state, state * 0.5), (other, other * 0.5)
    results = flat(ours(draws(*shape), state))
    for one, wanted in zip(results, flat(theirs(torch.tensor(draws(*shape)), other)), strict=True):
        check_equal(one, wanted)


def test_cells_begin_as_pytorchs() -> None:
    for name in ("LSTMCell", "GRUCell", "RNNCell"):
        ours, theirs = getattr(nn, name)(3, 16), getattr(torch.nn, name)(3, 16)
        for key, wanted in theirs.state_dict().items():
            values = nn.state_dict(ours)[key].numpy()
            assert values.shape == tuple(wanted.shape)
            assert 0.1 < abs(values).max() <= 0.25  # 1 / sqrt(16)


def test_steps_of_a_cell_are_a_layer() -> None:
    layer, cell = nn.LSTM(3, 4), nn.LSTMCell(3, 4)
    state = {name.removesuffix("_l0"): one for name, one in nn.state_dict(layer).items()}
    nn.load_state_dict(cell, state)
    x = Tensor(draws(5, 2, 3))
    held = None
    for step in x:
        held = cell(step, held)
    _, (h, c) = layer(x)
    np.testing.assert_allclose(held[0].numpy(), h[0].numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(held[1].numpy(), c[0].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [{}, {"nonlinearity": "relu", "num_layers": 2, "bidirectional": True}, {"bias": False},
     {"batch_first": True, "bidirectional": True}],
)  # fmt: skip
def test_the_plain_layer_agrees(settings: dict[str, Any]) -> None:
    check_layers(nn.RNN(3, 4, **settings), torch.nn.RNN(3, 4, **settings), [draws(5, 2, 3)])


def test_a_cell_of_relu_agrees() -> None:
    ours = nn.RNNCell(3, 4, nonlinearity="relu")
    theirs = torch.nn.RNNCell(3, 4, nonlinearity="relu")
    nn.load_state_dict(ours, copied(theirs))
    check_equal(ours(draws(2, 3)), theirs(torch.tensor(draws(2, 3))))


def test_misuse_is_named() -> None:
    with pytest.raises(ArgumentError, match="RNN: nonlinearity 'sin'"):
        nn.RNN(3, 4, nonlinearity="sin")
    wrong = r"LSTMCell: states \[\(2, 3\), \(2, 4\)\], not 2 of \(2, 4\)"
    with pytest.raises(ShapeError, match=wrong):
        nn.LSTMCell(3, 4)(lm.ones((2, 3)), (lm.ones((2, 3)), lm.ones((2, 4))))
    with pytest.raises(ShapeError, match=r"GRUCell: x of shape \(2, 2, 3\)"):
        nn.GRUCell(3, 4)(lm.ones((2, 2, 3)))
