"""Transformers against PyTorch: results, masks, derivatives and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import ArgumentError, ShapeError
from tests.nn.beside_pytorch import check_equal, check_layers, copied

torch = pytest.importorskip("torch")

WIDTH, HEADS, HIDDEN = 8, 2, 12
CAUSAL = np.triu(np.ones((4, 4), bool), 1)
PADDING = np.array([[False, False, False, True], [False, False, True, True]])
SIZES: dict[str, Any] = {"dim_feedforward": HIDDEN, "dropout": 0.0}


def sequences(*lengths: int, batch_first: bool = True) -> list[Any]:
    state = np.random.default_rng(0)
    shapes = [(2, one, WIDTH) if batch_first else (one, 2, WIDTH) for one in lengths]
    return [state.standard_normal(shape).astype(np.float32) for shape in shapes]


def check_masked(ours: Any, theirs: Any, inputs: list[Any], masks: dict[str, Any]) -> None:
    nn.load_state_dict(ours, copied(theirs))
    mine = ours(*map(Tensor, inputs), **{name: Tensor(one) for name, one in masks.items()})
    other = theirs(
        *map(torch.tensor, inputs), **{name: torch.tensor(one) for name, one in masks.items()}
    )
    check_equal(mine, other)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "settings", [{}, {"batch_first": True, "activation": "gelu"}, {"bias": False}]
)
def test_layers_agree(norm_first: bool, settings: dict[str, Any]) -> None:
    given = SIZES | settings | {"norm_first": norm_first}
    arrays = sequences(3, 5, batch_first=settings.get("batch_first", False))
    for name, inputs in (("TransformerEncoderLayer", arrays[:1]),
                         ("TransformerDecoderLayer", arrays)):  # fmt: skip
        ours = getattr(nn, name)(WIDTH, HEADS, **given, dtype=lm.float64)
        theirs = getattr(torch.nn, name)(WIDTH, HEADS, **given, dtype=torch.float64)
        check_layers(ours, theirs, [one.astype(np.float64) for one in inputs])


@pytest.mark.parametrize("masks", [
    {"src_mask": CAUSAL}, {"src_key_padding_mask": PADDING},
    {"src_mask": np.where(CAUSAL, -np.inf, 0.0).astype(np.float32),
     "src_key_padding_mask": PADDING},
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Support for mismatched")
def test_encoder_masks_agree(masks: dict[str, Any]) -> None:
    given = SIZES | {"batch_first": True}
    ours = nn.TransformerEncoderLayer(WIDTH, HEADS, **given)
    theirs = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, **given)
    check_masked(ours, theirs, sequences(4), masks)


def test_decoder_masks_agree() -> None:
    given = SIZES | {"batch_first": True}
    ours = nn.TransformerDecoderLayer(WIDTH, HEADS, **given)
    theirs = torch.nn.TransformerDecoderLayer(WIDTH, HEADS, **given)
    masks = {"tgt_mask": CAUSAL, "memory_key_padding_mask": PADDING,
             "tgt_key_padding_mask": PADDING & False}  # fmt: skip
    check_masked(ours, theirs, sequences(4, 4), masks)


@pytest.mark.parametrize("extra", [{"add_bias_kv": True}, {"add_zero_attn": True},
                                   {"add_bias_kv": True, "add_zero_attn": True}])  # fmt: skip
@pytest.mark.parametrize("need_weights", [False, True])
def test_attention_to_extra_keys_agrees(extra: dict[str, bool], need_weights: bool) -> None:
    ours = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **extra)
    theirs = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **extra)
    inputs = sequences(4, 4, 4)
    check_layers(ours, theirs, inputs)
    mine, mine_weights = ours(
        *inputs, key_padding_mask=PADDING, attn_mask=CAUSAL, need_weights=need_weights
    )
    other, weights = theirs(
        *map(torch.tensor, inputs), key_padding_mask=torch.tensor(PADDING),
        attn_mask=torch.tensor(CAUSAL), need_weights=need_weights,
    )  # fmt: skip
    check_equal(mine, other)
    if need_weights:
        check_equal(mine_weights, weights)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_stacks_of_layers_agree_and_have_parameters_of_their_own() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, **SIZES)
    other = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, **SIZES)
    ours = nn.TransformerEncoder(layer, 2, nn.LayerNorm(WIDTH))
    theirs = torch.nn.TransformerEncoder(other, 2, torch.nn.LayerNorm(WIDTH))
    start = [one.linear1.weight.numpy() for one in (layer, *ours.layers)]
    np.testing.assert_array_equal(start[0], start[1])
    np.testing.assert_array_equal(start[0], start[2])
    assert len({id(one) for one in nn.parameters([layer, ours])}) == 12 * 3 + 2
    check_layers(ours, theirs, sequences(3, batch_first=False))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_transformer_agrees() -> None:
    given: dict[str, Any] = dict(
        d_model=WIDTH, nhead=HEADS, num_encoder_layers=1, num_decoder_layers=2, batch_first=True,
        norm_first=True, **SIZES,
    )  # fmt: skip
    ours, theirs = nn.Transformer(**given), torch.nn.Transformer(**given)
    names = {name: one.shape for name, one in nn.state_dict(ours).items()}
    assert names == {name: tuple(one.shape) for name, one in theirs.state_dict().items()}
    for name, one in nn.state_dict(ours).items():
        if one.ndim > 1:
            bound = np.sqrt(6.0 / sum(one.shape))
            assert 0.8 * bound < abs(one.numpy()).max() <= bound, name
    check_layers(ours, theirs, sequences(5, 4))
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    wanted = torch.nn.Transformer.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(mask.numpy(), wanted.numpy())
    result = ours(*sequences(5, 4), tgt_mask=mask, tgt_is_causal=True)
    check_equal(result, theirs(*map(torch.tensor, sequences(5, 4)), tgt_mask=wanted,
                               tgt_is_causal=True))  # fmt: skip


def test_a_decoder_is_a_stack_as_well() -> None:
    layer = nn.TransformerDecoderLayer(WIDTH, HEADS, **SIZES)
    other = torch.nn.TransformerDecoderLayer(WIDTH, HEADS, **SIZES)
    ours, theirs = nn.TransformerDecoder(layer, 2), torch.nn.TransformerDecoder(other, 2)
    check_layers(ours, theirs, sequences(3, 4, batch_first=False))


def test_dropout_is_on_while_training() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, HIDDEN, dropout=0.5)
    x = Tensor(sequences(3)[0])
    assert (layer(x).numpy() != layer(x).numpy()).any()
    nn.eval(layer)
    np.testing.assert_array_equal(layer(x).numpy(), layer(x).numpy())


def test_misuse_is_named() -> None:
    with pytest.raises(ArgumentError, match="TransformerEncoderLayer: activation 'tan'"):
        nn.TransformerEncoderLayer(WIDTH, HEADS, activation="tan")
    model = nn.Transformer(WIDTH, HEADS, 1, 1, HIDDEN)
    with pytest.raises(ShapeError, match=r"src \(2, 3, 8\) and tgt \(2, 3, 7\)"):
        model(lm.ones((2, 3, 8)), lm.ones((2, 3, 7)))
