"""T5 against transformers: logits, gradients, and the tokens that are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, models, nn
from lamina.errors import ArgumentError, FormatError, ShapeError
from lamina.io import safetensors
from lamina.models.configuration import from_hugging_face
from lamina.models.distances import Distances
from lamina.models.encoder_decoder import SequenceWriter

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SIZES = {
    "vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "t5": {},
    "t5 1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "other sizes": {
        "d_kv": 6, "num_decoder_layers": 1, "relative_attention_num_buckets": 6,
        "relative_attention_max_distance": 9, "feed_forward_proj": "gated-silu",
        "layer_norm_epsilon": 1e-3, "decoder_start_token_id": 7,
    },
}  # fmt: skip
GENERATOR = np.random.default_rng(0)
INPUTS, IDS = GENERATOR.integers(2, 60, (2, 19)), GENERATOR.integers(2, 60, (2, 11))
MASK = np.arange(19) < np.array([[19], [13]])


def saved(name: str, folder: Path, scale: float = 0.15) -> Any:
    torch.manual_seed(0)
    config = transformers.T5Config(**SIZES | FAMILIES[name])
    model = transformers.T5ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.5 if weight.ndim == 1 else scale))
        if name == "t5 1.1":  # its last projection is no lookup
            model.lm_head.weight = torch.nn.Parameter(torch.randn(60, 32) * scale)
    model.save_pretrained(folder)
    if name == "t5 1.1":
        keep(model.lm_head.weight, folder)
    return model


def keep(weight: Any, folder: Path) -> None:
    """A last projection in the file, which transformers leaves out where it would tie it."""
    weights = dict(safetensors.load(folder / "model.safetensors"))
    weights["lm_head.weight"] = Tensor(weight.detach().numpy())
    safetensors.save(folder / "model.safetensors", weights)


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    network = models.load(tmp_path, device="interp").network
    inputs, ids, mask = (Tensor(one, device="interp") for one in (INPUTS, IDS, MASK))
    with torch.no_grad():
        plain = theirs(torch.tensor(INPUTS), decoder_input_ids=torch.tensor(IDS)).logits
        masked = theirs(
            torch.tensor(INPUTS), torch.tensor(MASK).long(), torch.tensor(IDS)
        ).logits  # fmt: skip
    np.testing.assert_allclose(network(inputs, ids).numpy(), plain.numpy(), atol=1e-4)
    np.testing.assert_allclose(network(inputs, ids, mask).numpy(), masked.numpy(), atol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_caches_give_the_same_logits_token_by_token(name: str, tmp_path: Path) -> None:
    saved(name, tmp_path)
    network = models.load(tmp_path, device="interp").network
    inputs, ids, mask = (Tensor(one, device="interp") for one in (INPUTS, IDS, MASK))
    wanted = network(inputs, ids, mask).numpy()
    memories = network.memories(network.encoded(inputs, mask))
    caches = network.new_caches(2, 16, "interp")
    for start, stop in ((0, 4), (4, 5), (5, 11)):
        first = Tensor(start, device="interp")
        logits = network.decoded(ids[:, start:stop], memories, mask, caches, first).numpy()
        np.testing.assert_allclose(logits, wanted[:, start:stop], atol=1e-5)


@pytest.mark.parametrize("name", ["t5", "t5 1.1"])
def test_the_tokens_of_a_text_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path, scale=0.4)
    model = models.load(tmp_path, device="cpu")
    network = model.network
    writer = SequenceWriter(network, 16, "cpu")
    for row in (0, 1):
        prompt = INPUTS[row : row + 1, : 19 - 6 * row]
        with torch.no_grad():
            wanted = theirs.generate(
                torch.tensor(prompt), do_sample=False, num_beams=1, max_new_tokens=12
            )[0, 1:].tolist()  # fmt: skip
        # What fills it up to a length that all texts have is not seen.
        filled = np.zeros((1, 24), np.int64)
        filled[:, : prompt.shape[1]] = prompt
        writer.read(Tensor(filled), Tensor(np.arange(24)[None] < prompt.shape[1]))
        nothing = lm.zeros((60,))
        found = writer.tokens([network.config.start], 12, network.config.stops, nothing)
        assert list(found) == wanted
        assert len(set(wanted)) > 2


@pytest.mark.parametrize("name", FAMILIES)
def test_a_training_step_has_the_gradients_of_pytorch(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    labels = GENERATOR.integers(2, 60, (2, 11))
    logits = theirs(torch.tensor(INPUTS), decoder_input_ids=torch.tensor(IDS)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.tensor(labels).flatten())
    loss.backward()
    network = models.load(tmp_path, device="interp").network
    state = nn.state_dict(network)
    inputs, ids, targets = (Tensor(one, device="interp") for one in (INPUTS, IDS, labels))
    ours = lm.cross_entropy(network(inputs, ids).flatten(0, 1), targets.flatten())
    gradients = lm.gradient(ours, list(state.values()))
    assert ours.item() == pytest.approx(loss.item(), abs=1e-5)
    of_theirs = {key: one.grad.numpy() for key, one in theirs.named_parameters()}
    of_theirs.setdefault("lm_head.weight", of_theirs["shared.weight"])  # where it is the lookup
    assert state.keys() == of_theirs.keys()
    for key, gradient in zip(state, gradients, strict=True):
        np.testing.assert_allclose(gradient.numpy(), of_theirs[key], atol=1e-4, err_msg=key)


@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (6, 9), (64, 1000), (4, 3)])
def test_buckets_are_those_of_transformers(buckets: int, farthest: int) -> None:
    attention = transformers.models.t5.modeling_t5.T5Attention
    distances = torch.arange(farthest + 1)
    for is_causal in (True, False):
        wanted = attention._relative_position_bucket(-distances, not is_causal, buckets, farthest)
        found = Distances(buckets, farthest).table(is_causal)
        np.testing.assert_array_equal(found, wanted.numpy())
        beyond = attention._relative_position_bucket(
            torch.tensor([-farthest - 1, -10 * farthest]), not is_causal, buckets, farthest
        )
        assert set(beyond.tolist()) == {found[-1]}


def test_activations_of_16_bits_are_near(tmp_path: Path) -> None:
    saved("t5", tmp_path)
    inputs, ids = (Tensor(one, device="interp") for one in (INPUTS, IDS))
    wanted = models.load(tmp_path, "interp").network(inputs, ids).numpy()
    network = models.load(tmp_path, "interp", activations=lm.bfloat16).network
    logits = network(inputs, ids).numpy()
    assert network.new_caches(1, 4, "interp")[0].keys.numbers.dtype == lm.bfloat16
    assert 1e-4 < np.abs(logits - wanted).max() < 0.1 * np.abs(wanted).max()


def test_older_files_have_copies_of_the_lookup(tmp_path: Path) -> None:
    saved("t5", tmp_path)
    path = tmp_path / "model.safetensors"
    weights = dict(safetensors.load(path))
    for part in ("encoder", "decoder"):
        weights[f"{part}.embed_tokens.weight"] = weights["shared.weight"]
    safetensors.save(path, weights)
    assert models.load(tmp_path).network.config.vocabulary == 60


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    saved("t5", tmp_path)
    network = models.load(tmp_path).network
    with pytest.raises(ShapeError, match=r"tokens of shape \(3,\); \(batch, length\) is needed"):
        network.decoded(Tensor([1, 2, 3]), [])
    with pytest.raises(ShapeError, match="0 memories for 2 layers"):
        network.decoded(Tensor([[1, 2]]), [])
    writer = SequenceWriter(network, 4, "cpu")
    with pytest.raises(ArgumentError, match="nothing was read"):
        next(writer.tokens([0], 4, (), lm.zeros((60,))))
    with pytest.raises(ArgumentError, match="a start of 5 tokens; 1 to 4 are needed"):
        next(writer.tokens([0] * 5, 4, (), lm.zeros((60,))))


PLAIN = {**SIZES, "model_type": "t5"}
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "activation": ({"feed_forward_proj": "gated-odd"}, "feed_forward_proj: 'gated-odd'; known"),
    "buckets": ({"relative_attention_num_buckets": 5}, "num_buckets: 5 buckets; an even number"),
    "distance": ({"relative_attention_max_distance": 16}, "max_distance: 16; more than half of 32"),
    "start": ({"decoder_start_token_id": 60}, "decoder_start_token_id: 60; a number from 0 to 59"),
    "stops": ({"eos_token_id": [1, True]}, "eos_token_id: True; a number from 0 to 59"),
    "layers": ({"num_decoder_layers": 0}, "num_decoder_layers: 0; an integer from 1 to"),
}


@pytest.mark.parametrize("name", WRONG)
def test_configurations_that_make_no_sense_are_refused(name: str) -> None:
    changes, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        from_hugging_face({**PLAIN, **changes}, "config.json")
