"""Models of GGUF files, and what they write, against transformers with the dequantised weights."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, cli, models
from lamina.errors import ArgumentError, FormatError
from lamina.io.blocks import Packed
from lamina.models import generate
from lamina.models.generate import Generator
from lamina.models.sampling import Sampling
from tests.models.gguf_models import written

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parent.parent.parent
PROMPT = [int(one) for one in np.random.default_rng(1).integers(4, 600, 11)]


def greedy(model: Any, prompt: list[int], count: int) -> list[int]:
    """What transformers writes."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


IN_FILES = [
    "smollm", "llama", "llama with biases", "qwen2", "qwen3", "phi", "phi3", "phi4", "gemma",
    "gemma2 in files", "gemma3 in files", "olmo", "olmo without bounds", "olmo2",
]  # fmt: skip


@pytest.mark.parametrize("name", IN_FILES)
def test_gguf_files_have_the_logits_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = written(name, tmp_path / "model.gguf")
    network = models.load(tmp_path / "model.gguf", device="interp").network
    layer = network.model.layers[0].mlp
    assert isinstance((layer.fc1 if name == "phi" else layer.up_proj).weight, Packed)
    ours = network(Tensor([PROMPT], device="interp")).numpy()
    with torch.no_grad():
        np.testing.assert_allclose(ours, theirs(torch.tensor([PROMPT])).logits, atol=1e-4)


def test_old_files_of_phi_have_queries_keys_and_values_in_one(tmp_path: Path) -> None:
    theirs = written("phi", tmp_path / "model.gguf", is_fused=True)
    network = models.load(tmp_path / "model.gguf", device="interp").network
    ours = network(Tensor([PROMPT], device="interp")).numpy()
    with torch.no_grad():
        np.testing.assert_allclose(ours, theirs(torch.tensor([PROMPT])).logits, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["mixtral", "qwen2 with experts everywhere", "qwen3 with experts everywhere"]
)
def test_gguf_files_have_quantised_experts(name: str, tmp_path: Path) -> None:
    """Of several tokens, whose experts have blocks of them, and of one."""
    theirs = written(name, tmp_path / "model.gguf")
    network = models.load(tmp_path / "model.gguf", device="interp").network
    assert isinstance(network.model.layers[0].mlp.experts.up_proj, Packed)
    for prompt in (PROMPT, PROMPT[:1]):
        ours = network(Tensor([prompt], device="interp")).numpy()
        with torch.no_grad():
            np.testing.assert_allclose(ours, theirs(torch.tensor([prompt])).logits, atol=1e-4)


@pytest.fixture(scope="module")
def smollm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The model of transformers, and the file with the same weights."""
    path = tmp_path_factory.mktemp("smollm") / "model.gguf"
    return written("smollm", path), path


def test_greedy_tokens_are_those_of_transformers(smollm: tuple[Any, Path]) -> None:
    theirs, path = smollm
    generator = Generator(models.load(path).network, capacity=32, device="cpu", chunks=(2, 4))
    assert list(generator.tokens(PROMPT, 8)) == greedy(theirs, PROMPT, 8)
    # Another text that begins alike, and one that does not.
    alike = [*PROMPT[:6], 7, 8]
    assert list(generator.tokens(alike, 4)) == greedy(theirs, alike, 4)
    assert list(generator.tokens(PROMPT[3:], 4)) == greedy(theirs, PROMPT[3:], 4)
    # To the last place of the cache, whose token has a successor.
    assert list(generator.tokens(PROMPT, 99)) == greedy(theirs, PROMPT, 32 - len(PROMPT) + 1)


def test_texts_outgrow_short_programs(
    smollm: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of 8, 16 and 20 positions, for chunks and for single tokens."""
    monkeypatch.setattr(generate, "_SHORTEST", 8)
    theirs, path = smollm
    generator = Generator(models.load(path).network, capacity=20, device="cpu", chunks=(4,))
    assert list(generator.tokens(PROMPT[:3], 18)) == greedy(theirs, PROMPT[:3], 18)
    assert list(generator.tokens(PROMPT, 2)) == greedy(theirs, PROMPT, 2)


def test_rounded_activations_change_logits_by_little(smollm: tuple[Any, Path]) -> None:
    theirs, path = smollm
    network = models.load(path, round_activations=True).network
    ids = PROMPT[:1]
    with torch.no_grad():
        exact = theirs(torch.tensor([ids])).logits.numpy()
    error = np.abs(network(Tensor([ids])).numpy() - exact).max()
    assert 0 < error < 0.03 * np.abs(exact).max()


def test_drawn_tokens_follow_from_the_seed(smollm: tuple[Any, Path]) -> None:
    network = models.load(smollm[1], device="interp").network
    texts = []
    for seed in (1, 1, 2):
        generator = Generator(network, 32, "interp", chunks=(4,))
        texts.append(list(generator.tokens(PROMPT, 6, Sampling(1.0, 0.9, 0.0, seed))))
    assert texts[0] == texts[1] != texts[2]


def test_prompts_that_cannot_be_are_refused(smollm: tuple[Any, Path]) -> None:
    generator = Generator(models.load(smollm[1]).network, 8, "cpu")
    for prompt, limit, message in (
        ([], 1, "the prompt has no tokens"), (PROMPT, 1, "has 11 tokens, 8 fit"),
        ([1], 0, "a limit of 0 new tokens; 1 or"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=message):
            next(generator.tokens(prompt, limit))
    with pytest.raises(ArgumentError, match="a capacity of 0 tokens"):
        Generator(models.load(smollm[1]).network, 0, "cpu")


WRONG = {
    "general.architecture": ("mamba", "general.architecture: 'mamba' is no model that lamina kn"),
    "llama.block_count": (0, "llama.block_count: 0; an integer from 1"),
    "llama.rope.dimension_count": (8, "llama.rope.dimension_count: 8; all 16 of a head"),
    "llama.rope.scaling.type": ("odd", "llama.rope.scaling.type: 'odd'; known are none, linear"),
    "llama.attention.head_count_kv": (3, "llama.attention.head_count_kv: 3 do not divide 4 heads"),
    "llama.embedding_length": (32, r"model.embed_tokens.weight has shape \(600, 64\), \(600, 32\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_metadata_that_make_no_sense_are_refused(name: str, tmp_path: Path) -> None:
    value, message = WRONG[name]
    written("smollm", tmp_path / "model.gguf", **{name: value})
    with pytest.raises(FormatError, match=message):
        models.load(tmp_path / "model.gguf")


def lamina(*arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lamina", *arguments], input=text, capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "LAMINA_DEVICE": "interp"},
        text=True, encoding="utf-8", check=False,
    )  # fmt: skip


def answer(theirs: Any, path: Path, prompt: list[int], count: int) -> str:
    """The text of the greedy tokens of transformers up to one that ends it."""
    tokenizer = models.load(path).tokenizer
    ids = greedy(theirs, prompt, count)
    stop = next((at for at, one in enumerate(ids) if one in tokenizer.stops), count)
    return tokenizer.decode(ids[:stop])


def test_the_command_writes_an_answer_or_continues_a_text(smollm: tuple[Any, Path]) -> None:
    theirs, path = smollm
    tokenizer = models.load(path).tokenizer
    done = lamina("generate", path, "pip", "--max-tokens", "5")
    assert done.returncode == 0, done.stderr
    prompt = tokenizer.chat([{"role": "user", "content": "pip"}])
    assert done.stdout == answer(theirs, path, prompt, 5)
    assert f"{len(prompt)} tokens read, the first after" in done.stderr
    assert "tokens/s" in done.stderr
    raw = lamina("generate", path, "pip", "--max-tokens", "5", "--raw")
    assert raw.stdout == answer(theirs, path, tokenizer.encode("pip"), 5)


def test_the_command_writes_what_fits_a_schema(
    smollm: tuple[Any, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llguidance", reason="texts that fit a JSON schema need llguidance")
    schema = tmp_path / "schema.json"
    item = {"enum": ["a", "b"]}
    form = {"type": "array", "items": item, "minItems": 2, "maxItems": 3}
    schema.write_text(json.dumps(form))
    arguments = ["generate", str(smollm[1]), "pip", "--max-tokens", "25", "--schema", str(schema)]
    assert cli.main(arguments) == 0
    written = json.loads(capsys.readouterr().out)
    assert len(written) in (2, 3)
    assert set(written) <= {"a", "b"}
    for text, message in (("[", "schema.json: not JSON"), ("[]", "schema.json: a list, not an"),
                          ('{"type": 3}', "schema: ")):  # fmt: skip
        schema.write_text(text)
        assert cli.main(arguments) == 1
        assert message in capsys.readouterr().err


def test_an_answer_ends_where_nobody_reads(smollm: tuple[Any, Path]) -> None:
    command = f"{sys.executable} -m lamina generate {smollm[1]} pip --max-tokens 9 | head -c 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "LAMINA_DEVICE": "interp"},
    )  # fmt: skip
    assert (done.returncode, len(done.stdout)) == (0, 1), done.stderr
    assert b"rror" not in done.stderr


def test_a_chat_remembers(smollm: tuple[Any, Path]) -> None:
    theirs, path = smollm
    done = lamina("chat", path, "--max-tokens", "4", text="pip\n\nrun\n")
    assert done.returncode == 0, done.stderr
    tokenizer = models.load(path).tokenizer
    messages = [{"role": "user", "content": "pip"}]
    first = answer(theirs, path, tokenizer.chat(messages), 4)
    messages += [{"role": "assistant", "content": first}, {"role": "user", "content": "run"}]
    assert done.stdout == first + answer(theirs, path, tokenizer.chat(messages), 4)


def test_a_seed_is_one_word() -> None:
    done = lamina("generate", "smollm2", "x", "--seed", "4294967296")
    assert done.returncode == 2
    assert "--seed: 4294967296; 0 to 4294967295 is needed" in done.stderr


def test_the_command_says_what_is_wrong(smollm: tuple[Any, Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    for arguments, message in (
        (("generate", broken, "x"), "broken.gguf: version: 4 bytes from byte 4"),
        (("generate", tmp_path / "none.gguf", "x"), "No such file"),
        (("generate", smollm[1], "x", "--top-p", "2"), "top_p: 2.0; above 0 and at most 1"),
        (("fetch", "gpt5"), "no model 'gpt5'; there are smollm2"),
        (("generate", smollm[1], "\udcff"), r"encode: '\udcff' at place"),
    ):
        done = lamina(*arguments)
        assert done.returncode == 1
        assert done.stderr.startswith("lamina: error: ")
        assert message in done.stderr


@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
def test_activations_are_those_that_are_asked_for(
    command: str, smollm: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[lm.DType] = []

    def load(path: Path, *, activations: lm.DType, **others: object) -> None:
        asked.append(activations)
        raise FormatError("that is all")

    for module in ("lamina.models.command", "lamina.serving.command"):
        monkeypatch.setattr(f"{module}.load", load)
    arguments = [command, str(smollm[1]), *(["pip"] if command == "generate" else [])]
    arguments += ["--port", "0"] if command == "serve" else []
    assert cli.main([*arguments, "--activations", "bfloat16"]) == 1
    assert cli.main(arguments) == 1
    assert asked == [lm.bfloat16, lm.float32]
