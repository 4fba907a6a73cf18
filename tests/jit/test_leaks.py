"""What a traced function leaves behind: parameters without a value are refused where they leak."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import nn
from lamina.errors import JitError


@pytest.fixture(autouse=True)
def on_cpu() -> Iterator[None]:
    with lm.using(device="cpu"):
        yield


class Lazy:
    """A model that makes its layer at the first call."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.layer = make, None

    def __call__(self, x: lm.Tensor) -> lm.Tensor:
        if self.layer is None:
            self.layer = self.make()
        return self.layer(x)


LAYERS = {
    "linear": lambda: nn.Linear(3, 2),
    "copied": lambda: copy.deepcopy(nn.Linear(3, 2)),
    "nested": lambda: nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2)),
    "transformer": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(3, 1, 4, 0.0), 2),
}


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_that_outlives_its_trace_is_refused_once(name: str, lower: bool) -> None:
    model, x = Lazy(LAYERS[name]), lm.ones((1, 3)).realize()
    function = lm.jit(model)
    with pytest.raises(JitError, match="outlives the traced function") as caught:
        function.lower(x) if lower else function(x)
    made, called = str(caught.value).split("\n")
    assert re.search(rf"\(test_leaks.py:\d+: .*\"{name}\": lambda", made)
    assert re.search(r"test_leaks.py:\d+: function", called)
    assert (x * 2.0).tolist() == [[2.0] * 3]  # who computes something else next hears nothing
    for use in model, function:
        with pytest.raises(JitError, match="a traced function left behind"):
            use(x).tolist()
    model.layer = LAYERS[name]()
    np.testing.assert_allclose(function(x).numpy(), model(x).numpy(), rtol=1e-5)


def test_values_that_need_no_tracer_may_be_left_behind() -> None:
    model, x = Lazy(lambda: nn.LayerNorm(3)), lm.asarray([[1.0, 2.0, 4.0]])
    function = lm.jit(model)
    first = function(x).tolist()
    assert model.layer.weight.requires_grad
    assert function(x).tolist() == model(x).tolist() == first
    outside = lm.Tensor([1.0, 2.0, 3.0])
    kept: list[lm.Tensor] = []
    lm.jit(lambda x: kept.append(lm.Tensor(outside, requires_grad=True)) or x)(x)
    (kept[0] * kept[0] * outside).sum().backward()
    assert kept[0].grad is not None
    assert kept[0].grad.tolist() == [2.0, 8.0, 18.0]


class Cycle:
    """A layer that is freed by the collector of garbage alone."""

    def __init__(self) -> None:
        self.layer, self.me = nn.Linear(3, 2), self


def test_a_layer_may_live_while_it_is_traced() -> None:
    x = lm.ones((1, 3))
    for make in (lambda: nn.Linear(3, 2), lambda: Cycle().layer):
        drawn = lm.jit(lambda x, make=make: make()(x))
        assert drawn(x).tolist() != drawn(x).tolist()

    @lm.jit
    def weights() -> dict[str, lm.Tensor]:
        return nn.state_dict(nn.Linear(3, 2))

    assert weights()["weight"].tolist() != weights()["weight"].tolist()

    @lm.jit
    def slope(x: lm.Tensor) -> lm.Tensor:
        layer = nn.Linear(3, 2)
        layer(x).sum().backward()
        return layer.weight.grad

    assert slope(x).tolist() == [[1.0] * 3] * 2


def test_a_state_may_be_loaded_in_a_program() -> None:
    online, target = nn.Linear(3, 2), nn.Linear(3, 2)

    @lm.jit
    def copied() -> None:
        nn.load_state_dict(target, nn.state_dict(online))

    for _ in range(2):
        copied()
        assert target.weight.tolist() == online.weight.tolist()
        assert target.weight.requires_grad
        online.weight.assign(online.weight * 2.0)


def test_a_value_that_was_left_behind_says_so() -> None:
    left: list[lm.Tensor] = []
    x = lm.ones(3)
    assert lm.jit(lambda x: left.append(x * 2.0) or x + 1.0)(x).tolist() == [2.0] * 3
    for use in (lambda: left[0].tolist(), lambda: (left[0] + x).tolist()):
        with pytest.raises(JitError, match="a traced function left behind"):
            use()
    with pytest.raises(JitError, match="exists only when the compiled program runs"):
        lm.jit(lambda x: x * x.sum().item())(x)
