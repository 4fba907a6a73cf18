"""Layers against PyTorch: the same state by name, then results, gradients and running state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.core import options
from lamina.errors import ShapeError
from lamina.frontend.differentiate import map_tree
from lamina.frontend.realize import cut
from lamina.pipeline import compile_source
from tests.nn.beside_pytorch import case, check_equal, check_layers, copied, flat

torch = pytest.importorskip("torch")

Case = tuple[Callable[[], Any], Callable[[], Any], tuple[int, ...]]


CASES = [
    case("Linear", (4, 3), 3, 5),
    case("Linear", (2, 4, 3), 3, 5, bias=False),
    case("Conv1d", (2, 4, 9), 4, 6, 3, stride=2, padding=1, groups=2),
    case("Conv2d", (2, 3, 6, 5), 3, 4, (3, 2), padding=1, dilation=(1, 2)),
    case("Conv2d", (2, 3, 6, 5), 3, 4, 3, padding="same", bias=False),
    case("Conv3d", (1, 2, 4, 4, 4), 2, 3, 2),
    case("ConvTranspose1d", (2, 4, 5), 4, 2, 3, stride=2, output_padding=1),
    case("ConvTranspose2d", (2, 4, 3, 4), 4, 6, 3, stride=2, padding=1, groups=2),
    case("ConvTranspose3d", (1, 2, 2, 3, 2), 2, 3, 2),
    case("LayerNorm", (3, 4, 5), (4, 5)),
    case("LayerNorm", (3, 4), 4, eps=0.1, bias=False),
    case("LayerNorm", (3, 4), 4, elementwise_affine=False),
    case("RMSNorm", (3, 4, 5), 5),
    case("RMSNorm", (3, 4), 4, eps=0.1, elementwise_affine=False),
    case("GroupNorm", (3, 6, 4), 2, 6),
    case("InstanceNorm", (3, 2, 4, 4), 2, affine=True, of="InstanceNorm2d"),
    case("InstanceNorm", (3, 2, 7), 2, of="InstanceNorm1d"),
    case("InstanceNorm", (3, 2, 7), 2, momentum=0.3, track_running_stats=True, of="InstanceNorm1d"),
    case("InstanceNorm", (3, 2, 4, 4), 2, 1e-3, None, True, True, of="InstanceNorm2d"),
    case("BatchNorm1d", (6, 3), 3),
    case("BatchNorm1d", (4, 3, 5), 3, momentum=0.4, eps=1e-3),
    case("BatchNorm2d", (4, 3, 2, 2), 3, momentum=None),
    case("BatchNorm3d", (2, 3, 2, 2, 2), 3, affine=False),
    case("BatchNorm2d", (4, 3, 2, 2), 3, track_running_stats=False),
    case("LSTM", (5, 2, 3), 3, 4),
    case("LSTM", (2, 5, 3), 3, 4, num_layers=2, bidirectional=True, batch_first=True),
    case("LSTM", (5, 3), 3, 4, bias=False),
    case("GRU", (5, 3), 3, 4, bidirectional=True, batch_first=True),
    case("GRU", (5, 2, 3), 3, 4),
    case("GRU", (2, 5, 3), 3, 4, num_layers=2, bidirectional=True, batch_first=True),
]


@pytest.mark.parametrize(("ours", "theirs", "shape"), CASES)
def test_layer_agrees_with_pytorch(
    ours: Callable[[], Any], theirs: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    one, other = ours(), theirs()
    check_layers(one, other, [x])
    nn.eval(one)
    other.eval()
    for mine, wanted in zip(
        flat(one(Tensor(x))), flat(other(torch.tensor(x))), strict=True
    ):
        check_equal(mine, wanted)


@pytest.mark.parametrize(("ours", "theirs", "shape"), CASES)
def test_initial_state_has_pytorchs_names_and_spread(
    ours: Callable[[], Any], theirs: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    lm.random.manual_seed(0)
    own, other = nn.state_dict(ours()), theirs().state_dict()
    assert {name: one.shape for name, one in own.items()} == {
        name: tuple(one.shape) for name, one in other.items()
    }
    for name, value in other.items():
        if value.numel() < 8:  # too few to tell their spread
            continue
        limit = float(value.abs().max())
        found = float(abs(own[name].numpy()).max())
        assert found <= 2.5 * limit + 1e-6, name
        assert limit <= 2.5 * found + 1e-6, name


def test_linear_weights_fill_their_bound_evenly() -> None:
    weight = nn.Linear(64, 500).weight.numpy() * 8.0
    assert weight.max() <= 1.0
    assert weight.min() >= -1.0
    assert weight.mean() == pytest.approx(0.0, abs=0.02)
    assert weight.var() == pytest.approx(1 / 3, abs=0.01)


def test_embedding_agrees_and_its_padding_row_learns_nothing() -> None:
    ours, theirs = nn.Embedding(7, 3, padding_idx=-1), torch.nn.Embedding(7, 3, padding_idx=-1)
    assert not ours.weight.numpy()[6].any()
    assert ours.weight.numpy()[:6].all()
    nn.load_state_dict(ours, copied(theirs))
    indices = np.array([[0, 6, 2], [2, 2, 6]])
    result, expected = ours(Tensor(indices)), theirs(torch.tensor(indices))
    check_equal(result, expected)
    (result * result).sum().backward()
    (expected * expected).sum().backward()
    check_equal(ours.weight.grad, theirs.weight.grad)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("widths", [{}, {"kdim": 5, "vdim": 6}])
def test_attention_agrees(batch_first: bool, widths: dict[str, int]) -> None:
    options: dict[str, Any] = dict(batch_first=batch_first, **widths)
    ours = nn.MultiheadAttention(8, 2, **options)
    theirs = torch.nn.MultiheadAttention(8, 2, **options)
    state = np.random.default_rng(1)
    inputs = [
        state.standard_normal((2, length, width) if batch_first else (length, 2, width))
        .astype(np.float32)
        for length, width in ((3, 8), (4, widths.get("kdim", 8)), (4, widths.get("vdim", 8)))
    ]
    check_layers(ours, theirs, inputs)
    check_layers(ours, theirs, inputs, average_attn_weights=False)


def test_attention_without_a_batch_agrees() -> None:
    ours, theirs = nn.MultiheadAttention(8, 2), torch.nn.MultiheadAttention(8, 2)
    state = np.random.default_rng(4)
    inputs = [state.standard_normal((length, 8)).astype(np.float32) for length in (3, 4, 4)]
    check_layers(ours, theirs, inputs)


@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_masks_agree(need_weights: bool) -> None:
    ours = nn.MultiheadAttention(8, 2, batch_first=True)
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    nn.load_state_dict(ours, copied(theirs))
    state = np.random.default_rng(2)
    x = state.standard_normal((2, 4, 8)).astype(np.float32)
    causal = np.triu(np.ones((4, 4), bool), 1)
    padding = np.array([[False, False, True, True], [False, False, False, True]])
    heads = state.standard_normal((4, 4, 4)).astype(np.float32)
    for masks in ({"attn_mask": causal}, {"key_padding_mask": padding}, {"attn_mask": heads},
                  {"attn_mask": causal, "key_padding_mask": padding}):  # fmt: skip
        mine = {name: Tensor(one) for name, one in masks.items()}
        other = {name: torch.tensor(one) for name, one in masks.items()}
        found = flat(ours(*[Tensor(x)] * 3, need_weights=need_weights, **mine))
        wanted = flat(theirs(*[torch.tensor(x)] * 3, need_weights=need_weights, **other))
        for one, expected in zip(found, wanted, strict=True):
            check_equal(one, expected)


def test_recurrent_layers_continue_from_a_state() -> None:
    x = np.random.default_rng(0).standard_normal((3, 2, 4)).astype(np.float32)
    for kind in ("LSTM", "GRU"):
        ours, theirs = getattr(nn, kind)(4, 5), getattr(torch.nn, kind)(4, 5)
        nn.load_state_dict(ours, copied(theirs))
        _, before = ours(Tensor(x))
        _, other = theirs(torch.tensor(x))
        for one, wanted in zip(
            flat(ours(Tensor(x), before)), flat(theirs(torch.tensor(x), other)), strict=True
        ):
            check_equal(one, wanted)
        arrays = map_tree(lambda one: one.numpy(), before)
        np.testing.assert_array_equal(ours(x, arrays)[0].numpy(), ours(x, before)[0].numpy())


def test_recurrent_layers_without_steps_name_the_shape_they_were_given() -> None:
    with pytest.raises(ShapeError, match=r"LSTM: x of shape \(4, 0, 2\)"):
        nn.LSTM(2, 3, batch_first=True)(lm.ones((4, 0, 2)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_steps_in_time_share_their_kernels(kind: str) -> None:
    layer, different = getattr(nn, kind)(16, 16), []
    for length in (12, 24):
        result, _ = layer(lm.ones((length, 4, 16)))
        gradients = lm.gradient(result.square().sum(), nn.parameters(layer))
        sinks = cut([one.node for one in gradients], {})
        different.append(len(compile_source(sinks, options.current()).plans))
    assert different[0] == different[1] < 32


def test_dropout_works_only_while_training() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.0))
    x = lm.ones((1000,))
    assert 300 < int(lm.count_nonzero(model(x)).item()) < 700
    assert nn.eval(model) is model
    np.testing.assert_array_equal(model(x).numpy(), 1.0)
    nn.train(model)
    assert model[0].training


def test_sequential_nests_and_takes_functions() -> None:
    model = nn.Sequential(nn.Linear(3, 4), lm.relu, nn.Sequential(nn.Linear(4, 2, bias=False)))
    assert list(nn.state_dict(model)) == ["0.weight", "0.bias", "2.0.weight"]
    x = Tensor([[1.0, 2.0, 3.0]])
    first = (x @ model[0].weight.T + model[0].bias).relu()
    np.testing.assert_allclose(
        model(x).numpy(), (first @ model[2][0].weight.T).numpy(), rtol=1e-6
    )
    np.testing.assert_array_equal(model[:2](x).numpy(), first.numpy())


def test_sequential_is_an_argument_as_other_layers_are() -> None:
    model = nn.Sequential(nn.Linear(3, 4, device="cpu"), lm.relu)
    x = Tensor([[1.0, 2.0, 3.0]], device="cpu")
    call = lm.jit(lambda model, x: model(x))
    np.testing.assert_array_equal(call(model, x).numpy(), model(x).numpy())


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: nn.Linear(3, 4)(lm.zeros((2, 5))), r"Linear: x \(2, 5\) and weight \(4, 3\)"),
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "2 groups do not divide 4 and 3 channels"),
        (lambda: nn.Conv2d(3, 4, (3, 3, 3)), "one or 2 integers"),
        (lambda: nn.GroupNorm(4, 6), "6 channels in 4 groups"),
        (lambda: nn.MultiheadAttention(6, 4), "6 features in 4 heads"),
        (lambda: nn.Embedding(3, 4, padding_idx=3), "padding_idx=3 is out of range for 3 rows"),
        (lambda: nn.LSTM(3, 0), "layers of 0 units"),
        (lambda: nn.Linear(-1, 4), "negative size"),
    ],
)
def test_wrong_sizes_are_named(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ShapeError, match=rf"{text}.*\n  at test_layers"):  # which has it as well
        make()
