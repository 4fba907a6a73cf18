"""Models against transformers: logits, caches, pages, a training step, and loading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, models, nn
from lamina.errors import FormatError, ShapeError
from lamina.io import safetensors
from lamina.models.configuration import from_hugging_face
from lamina.models.llama import Llama
from lamina.models.weights import DrawnWeights, StoredWeights
from tests.models.families import FAMILIES, SIZES, reference, saved

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

IDS = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (2, 24))


def wanted(model: Any, ids: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(ids)).logits.numpy()


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = wanted(saved(name, tmp_path), IDS)
    network = models.load(tmp_path, device="interp").network
    logits = network(Tensor(IDS, device="interp"))
    np.testing.assert_allclose(logits.numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize("device", ["interp", "cpu"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gpt2", "gemma2"])
def test_activations_of_16_bits_are_near_those_of_transformers(
    name: str, device: str, tmp_path: Path
) -> None:
    """With a cache, token after token: what it keeps has 16 bits as well."""
    theirs = wanted(saved(name, tmp_path), IDS)[:, :6]
    network = models.load(tmp_path, device, activations=lm.bfloat16).network
    caches = network.new_caches(batch=2, capacity=8, device=device)
    assert caches[0].keys.numbers.dtype is lm.bfloat16
    assert network.new_pages(2, 4, device)[0].keys.numbers.dtype is lm.bfloat16
    steps = [
        network(Tensor(IDS[:, at : at + 1], device=device), caches, Tensor(at, device=device))
        for at in range(6)
    ]
    logits = np.concatenate([step.numpy() for step in steps], axis=1)
    assert logits.dtype == np.float32
    # 2**-9 for each factor of a product, of a few dozen that follow each other.
    apart = np.linalg.norm(logits - theirs) / np.linalg.norm(theirs)
    assert 1e-4 < apart < 0.03


def test_old_files_of_gpt2_have_no_prefix_and_masks(tmp_path: Path) -> None:
    theirs = wanted(saved("gpt2", tmp_path), IDS)
    weights = safetensors.load(tmp_path / "model.safetensors", "interp")
    old = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    old["h.0.attn.bias"] = lm.ones((1, 1, 64, 64), device="interp")
    safetensors.save(tmp_path / "model.safetensors", old)
    network = models.load(tmp_path, device="interp").network
    np.testing.assert_allclose(network(Tensor(IDS, device="interp")).numpy(), theirs, atol=1e-4)


@pytest.mark.parametrize("name", ["llama", "phi4", "gpt2", "gemma2", "llama4"])
def test_texts_in_pages_have_the_same_logits(name: str, tmp_path: Path) -> None:
    """Each at a place of its own, in pages of 4 tokens; the page 9 is none."""
    theirs = wanted(saved(name, tmp_path), IDS)
    network = models.load(tmp_path, device="interp").network
    pages = network.new_pages(9, 4, "interp")
    table = Tensor([[7, 2, 8, 0], [3, 5, 9, 9]], device="interp")

    def step(*starts: int) -> np.ndarray:
        texts = [cache.texts(table) for cache in pages]
        ids = np.stack([IDS[row, start : start + 4] for row, start in enumerate(starts)])
        first = Tensor(list(starts), device="interp")
        return network(Tensor(ids, device="interp"), texts, first).numpy()

    for starts in ((0, 0), (4, 4), (8, 3), (11, 1)):
        logits = step(*starts)
        for row, start in enumerate(starts):
            expected = theirs[row, start : start + 4]
            np.testing.assert_allclose(logits[row], expected, atol=1e-4)


CACHED = [
    ("llama", "cpu"), ("mistral", "interp"), ("gpt2", "interp"), ("gemma2", "interp"),
    ("mixtral", "interp"), ("qwen2 with experts", "cpu"), ("qwen3 with experts", "interp"),
    ("gemma3", "interp"), ("olmo", "interp"), ("olmo2", "cpu"), ("phi", "interp"),
    ("llama4", "interp"), ("qwen2 with windows", "interp"), ("phi4 of short texts", "interp"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "device"), CACHED)
def test_a_cache_gives_the_same_logits_in_chunks_and_token_by_token(
    name: str, device: str, tmp_path: Path
) -> None:
    theirs = wanted(saved(name, tmp_path), IDS)
    network = models.load(tmp_path, device).network
    caches = network.new_caches(batch=2, capacity=32, device=device)

    @lm.jit
    def step(ids: Tensor, first: Tensor) -> Tensor:
        return network(ids, caches, first)

    def piece(start: int, stop: int) -> np.ndarray:
        ids = Tensor(IDS[:, start:stop], device=device)
        return step(ids, Tensor(start, device=device)).numpy()

    parts = [piece(0, 8), piece(8, 16), *(piece(at, at + 1) for at in range(16, 24))]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), theirs, atol=1e-4)
    # A text that begins anew never sees what is left behind its end.
    np.testing.assert_allclose(piece(0, 8), theirs[:, :8], atol=1e-4)
    ids, zero = Tensor(IDS[:, :8], device=device), Tensor(0, device=device)
    last = network(ids, caches, zero, only=Tensor(5, device=device)).numpy()
    np.testing.assert_allclose(last, theirs[:, 5:6], atol=1e-4)


def test_a_cache_keeps_the_keys_of_a_short_text_that_becomes_long(tmp_path: Path) -> None:
    """As transformers does: what comes behind the first training has other frequencies."""
    theirs = saved("phi4 of long texts", tmp_path)
    cache = transformers.DynamicCache(config=theirs.config)
    network = models.load(tmp_path, device="interp").network
    caches = network.new_caches(batch=2, capacity=32, device="interp")
    for start, stop in ((0, 10), (10, 16), (16, 24)):
        with torch.no_grad():
            expected = theirs(torch.tensor(IDS[:, start:stop]), cache=cache).logits
        ids, first = IDS[:, start:stop], Tensor(start, device="interp")
        logits = network(Tensor(ids, device="interp"), caches, first).numpy()
        np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", ["smollm", "gpt2", "gemma2", "mixtral", "olmo2", "phi"])
def test_a_training_step_has_the_gradients_of_pytorch(name: str, tmp_path: Path) -> None:
    theirs = saved(name, tmp_path)
    loss = torch.nn.functional.cross_entropy(
        theirs(torch.tensor(IDS[:, :-1])).logits.flatten(0, 1), torch.tensor(IDS[:, 1:]).flatten()
    )
    loss.backward()
    network = models.load(tmp_path, device="interp").network
    state = nn.state_dict(network)
    logits = network(Tensor(IDS[:, :-1], device="interp"))
    labels = Tensor(IDS[:, 1:], device="interp").flatten()
    ours = lm.cross_entropy(logits.flatten(0, 1), labels)
    gradients = lm.gradient(ours, list(state.values()))
    assert ours.item() == pytest.approx(loss.item(), abs=1e-5)
    of_theirs: dict[str, np.ndarray] = {}
    for parameter, value in theirs.named_parameters():
        stem, is_joined, _ = parameter.rpartition("gate_up_proj")
        parts = [f"{stem}gate_proj", f"{stem}up_proj"] if is_joined else [parameter]
        gradients_of_parts = np.split(value.grad.numpy(), len(parts), axis=1 if is_joined else 0)
        of_theirs |= dict(zip(parts, gradients_of_parts, strict=True))
    assert state.keys() == of_theirs.keys()
    for weight, gradient in zip(state, gradients, strict=True):
        np.testing.assert_allclose(gradient.numpy(), of_theirs[weight], atol=1e-4, err_msg=weight)


def test_new_weights_are_parameters_that_learn() -> None:
    config = from_hugging_face({**SIZES, "model_type": "llama", "num_hidden_layers": 1}, "test")
    lm.random.manual_seed(0)
    network = Llama(config, DrawnWeights())
    optimizer = nn.optim.AdamW(nn.parameters(network), lr=1e-2)

    @lm.jit
    def learn(ids: Tensor, labels: Tensor) -> Tensor:
        loss = lm.cross_entropy(network(ids).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [learn(Tensor(IDS[:, :-1]), Tensor(IDS[:, 1:])).item() for _ in range(8)]
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_stay_halves_and_are_computed_with_as_floats(dtype: str, tmp_path: Path) -> None:
    reference("llama").to(getattr(torch, dtype)).save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    network = models.load(tmp_path, device="interp").network
    weight = network.model.layers[0].mlp.up_proj.weight
    assert isinstance(weight, Tensor)
    assert weight.dtype.name == dtype
    logits = network(Tensor(IDS, device="interp")).numpy()
    np.testing.assert_allclose(logits, wanted(model, IDS), atol=1e-4)


VISION = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 16, "patch_size": 4,
}  # fmt: skip
PIXTRAL = VISION | {"model_type": "pixtral"}
PROJECTOR = {"projector_input_dim": 16, "projector_output_dim": 16, "vision_output_dim": 16}
WITH_IMAGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gemma3": ("Gemma3", "gemma3 in files", VISION),
    "llama4": ("Llama4", "llama4", VISION | PROJECTOR),
    "mistral3": ("Mistral3", "mistral", PIXTRAL),
}


@pytest.mark.parametrize("name", WITH_IMAGES)
def test_models_that_see_images_write_text(name: str, tmp_path: Path) -> None:
    kind, text, vision = WITH_IMAGES[name]
    torch.manual_seed(0)
    text_config = reference(text).config.to_dict()
    config = getattr(transformers, f"{kind}Config")(text_config=text_config, vision_config=vision)
    theirs = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    for weight in theirs.parameters():
        with torch.no_grad():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.15))
    theirs.save_pretrained(tmp_path)
    network = models.load(tmp_path, device="interp").network
    logits = network(Tensor(IDS, device="interp"))
    # The whole of Llama 4 needs images in this version of transformers.
    writer = theirs.language_model if name == "llama4" else theirs
    np.testing.assert_allclose(logits.numpy(), wanted(writer, IDS), atol=1e-4)


def test_sizes_that_published_files_of_gemma3_leave_out() -> None:
    """As transformers reads them."""
    text = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    theirs = transformers.Gemma3Config(text_config=text).text_config
    ours = from_hugging_face({"model_type": "gemma3", "text_config": text}, "")
    assert (ours.vocabulary, ours.heads, ours.key_heads, ours.head_size) == (
        theirs.vocab_size, theirs.num_attention_heads, theirs.num_key_value_heads, theirs.head_dim,
    )  # fmt: skip


def test_folders_of_pickles_are_refused(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    models.load(tmp_path, device="interp")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(FormatError, match=r"no model\.safetensors; pytorch_model\.bin is a pickle"):
        models.load(tmp_path, device="interp")
    (tmp_path / "pytorch_model.bin").unlink()
    with pytest.raises(FileNotFoundError, match=r"model\.safetensors"):
        models.load(tmp_path, device="interp")


def test_files_in_shards(tmp_path: Path) -> None:
    theirs = saved("llama", tmp_path, max_shard_size="50KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    network = models.load(tmp_path, device="interp").network
    ours = network(Tensor(IDS, device="interp")).numpy()
    np.testing.assert_allclose(ours, wanted(theirs, IDS), atol=1e-4)
    index = tmp_path / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["lm_head.weight"] = "../model.safetensors"
    index.write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"'lm_head.weight': '../model.safetensors' is no name"):
        models.load(tmp_path)


def test_weights_that_do_not_fit_are_all_named(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = {name: one.contiguous() for name, one in safetensors.load(path).items()}
    del tensors["model.norm.weight"]
    tensors["more"] = Tensor([1.0])
    tensors["lm_head.weight"] = lm.zeros((3, 5))
    safetensors.save(path, tensors)
    with pytest.raises(FormatError) as raised:
        models.load(tmp_path)
    message = str(raised.value)
    assert "missing model.norm.weight; unexpected more; lm_head.weight has shape (3, 5)" in message
    assert "(96, 64) is needed" in message


def test_many_names_are_counted() -> None:
    source = StoredWeights({f"w{number}": Tensor(0.0) for number in range(20)}, "file")
    with pytest.raises(FormatError, match=r"file: weights do not fit: unexpected w0, .* and 12 mo"):
        source.check()


def test_wrong_calls_are_refused() -> None:
    network = Llama(from_hugging_face({**SIZES, "model_type": "llama"}, "test"), DrawnWeights())
    with pytest.raises(ShapeError, match=r"tokens of shape \(3,\); \(batch, length\) is needed"):
        network(Tensor([1, 2, 3]))
    with pytest.raises(ShapeError, match="0 caches for 2 layers"):
        network(Tensor([[1, 2, 3]]), [], Tensor(0))


@pytest.mark.parametrize("shape", [(0, 3), (2, 0)])
def test_no_texts_and_texts_without_tokens_have_no_logits(shape: tuple[int, int]) -> None:
    network = Llama(from_hugging_face({**SIZES, "model_type": "llama"}, "test"), DrawnWeights())
    ids = lm.zeros(shape, dtype=lm.int64)
    assert network(ids).shape == (*shape, SIZES["vocab_size"])
    caches = network.new_caches(shape[0], 8)
    assert network(ids, caches, Tensor(0)).numpy().shape == (*shape, SIZES["vocab_size"])
