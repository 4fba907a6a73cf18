"""Vectors of texts against transformers and its tokenizers, and the settings of folders."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import models
from lamina.errors import ArgumentError, DTypeError, FormatError
from lamina.io import gguf
from lamina.models.embedding import _groups, _padded
from lamina.models.gguf_models import from_gguf
from lamina.models.sentences import Pooling, SentenceSettings
from tests.models.encoders import sentence_file, sentence_folder, sentence_vectors
from tests.models.families import saved
from tests.test_layers import ROOT

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
TEXTS = [
    "The cat sat on the mat.", "dogs", "", "the running dogs sat on a mat. " * 9, "a b c ...",
    "Running?", "A cat", "on the mat the cat sat on a b c the mat",
]  # fmt: skip


@pytest.mark.parametrize(("pooling", "modules"), [("mean", 3), ("cls", 3), ("mean", 2)])
def test_vectors_are_those_of_transformers(tmp_path: Path, pooling: str, modules: int) -> None:
    theirs = sentence_folder(tmp_path, pooling, modules)
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path)(
        TEXTS, truncation=True, max_length=40, padding=False
    ).input_ids
    embedder = models.load(tmp_path, device="interp").embedder
    assert [embedder.tokens(text) for text in TEXTS] == tokens
    assert max(map(len, tokens)) == 40
    expected = sentence_vectors(theirs, tokens, pooling, modules == 3)
    np.testing.assert_allclose(embedder(TEXTS), expected, atol=1e-5)
    np.testing.assert_allclose(embedder.of_tokens(tokens[:1]), expected[:1], atol=1e-5)
    assert embedder([]).shape == (0, 32)


@pytest.mark.parametrize(("pooling", "number"), [("mean", 1), ("cls", 2)])
def test_gguf_files_give_the_vectors_of_transformers(
    pooling: str, number: int, tmp_path: Path
) -> None:
    theirs = sentence_folder(tmp_path, pooling)
    texts = ["The càt sat\non the mat.", "DOGS xyz, (sat)", "", "the running dogs", "a日b ..."]
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path)(texts).input_ids
    sentence_file(tmp_path / "model.gguf", theirs, number, are_old=number == 2)
    embedder = models.load(tmp_path / "model.gguf", device="interp").embedder
    assert [embedder.tokens(text) for text in texts] == tokens
    expected = sentence_vectors(theirs, tokens, pooling)
    np.testing.assert_allclose(embedder.of_tokens(tokens), expected, atol=1e-5)
    assert embedder.settings == SentenceSettings(48, Pooling(pooling), normalizes=True)


def test_gguf_files_with_other_vectors_are_refused(tmp_path: Path) -> None:
    sentence_file(tmp_path / "model.gguf", sentence_folder(tmp_path), 3, are_old=False)
    model = models.load(tmp_path / "model.gguf", device="interp")
    with pytest.raises(FormatError, match=r"bert\.pooling_type: 3; 1, the mean, or 2"):
        _ = model.embedder
    content = gguf.load(tmp_path / "model.gguf")
    with pytest.raises(FormatError, match=r"bert\.attention\.causal: True; models of this family"):
        from_gguf(content.metadata | {"bert.attention.causal": True}, {}, "")


def test_folders_without_modules_have_the_mean(tmp_path: Path) -> None:
    theirs = sentence_folder(tmp_path)
    for name in ("modules.json", "sentence_bert_config.json"):
        (tmp_path / name).unlink()
    embedder = models.load(tmp_path, device="interp").embedder
    assert embedder.settings == SentenceSettings(48)
    expected = sentence_vectors(theirs, [embedder.tokens("the cat")], normalizes=False)
    np.testing.assert_allclose(embedder(["the cat"]), expected, atol=1e-5)


def test_texts_are_padded_to_few_lengths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence_folder(tmp_path)
    embedder = models.load(tmp_path, device="interp").embedder
    shapes = list[tuple[int, ...]]()

    def program(ids: Any, mask: Any) -> Any:
        shapes.append(ids.shape)
        return ids[:, :1] * mask[:, :1] + embedder.size * 0.0

    monkeypatch.setattr(embedder, "_program", program)
    for length in (1, 8, 9, 17, 24, 25, 32, 33, 40):
        embedder.of_tokens([[1] * length])
    assert shapes == [(1, length) for length in (8, 8, 12, 20, 24, 28, 32, 36, 40)]
    lengths = (41, 64, 65, 81, 128, 129, 256, 257, 512)
    assert [_padded(length) for length in lengths] == [44, 64, 72, 88, 128, 144, 256, 288, 512]
    shapes.clear()
    lengths = (1, 2, 3, 4, 40, 40, 39, 38, 37)
    with lm.using(threads=8):  # a run costs 16 tokens
        vectors = embedder.of_tokens([[length] * length for length in lengths])
    assert shapes == [(4, 40), (1, 40), (4, 8)]
    np.testing.assert_array_equal(vectors[:, 0], lengths)


@pytest.mark.parametrize("tokens_of_run", [0, 3, 20, 300])
def test_groups_of_texts_cost_as_little_as_can_be(tokens_of_run: int) -> None:
    """Against all ways to compute up to 7 texts 4 and 1 at a time."""

    def least(lengths: Sequence[int]) -> int:
        if not lengths:
            return 0
        first, *others = lengths
        costs = [tokens_of_run + first + least(others)]
        for three in combinations(range(len(others)), 3):
            longest = max(first, *(others[number] for number in three))
            left = [other for number, other in enumerate(others) if number not in three]
            costs.append(tokens_of_run + 4 * longest + least(left))
        return min(costs)

    draws = random.Random(0)
    for count in range(8):
        lengths = [draws.randint(1, 40) for _ in range(count)]
        groups = _groups(lengths, tokens_of_run)
        assert sorted(number for group in groups for number in group) == list(range(count))
        cost = sum(
            tokens_of_run + len(group) * max(lengths[number] for number in group)
            for group in groups
        )
        assert cost == least(lengths)


def test_texts_of_one_length_are_computed_16_at_a_time() -> None:
    assert [len(group) for group in _groups([24] * 41, 1)] == [16, 16, 4, 4, 1]


def test_wrong_calls_are_refused(tmp_path: Path) -> None:
    sentence_folder(tmp_path)
    embedder = models.load(tmp_path, device="interp").embedder
    with pytest.raises(ArgumentError, match="41 tokens of a text; 1 to 40 are needed"):
        embedder.of_tokens([[1] * 41])
    with pytest.raises(ArgumentError, match="0 tokens of a text"):
        embedder.of_tokens([[]])
    with pytest.raises(ArgumentError, match="a number of a token is from 0 to 95"):
        embedder.of_tokens([[96]])
    with pytest.raises(DTypeError, match="int; a str is needed"):
        embedder([1])  # type: ignore[list-item]


def test_language_models_make_no_embeddings(tmp_path: Path) -> None:
    saved("gpt2", tmp_path)
    with pytest.raises(ArgumentError, match="GPT2 makes no embeddings of texts"):
        _ = models.load(tmp_path, device="interp").embedder


KIND = "sentence_transformers.models"
WRONG: dict[str, tuple[str, Any, str]] = {
    "module": (
        "modules.json", [{"type": f"{KIND}.Transformer", "path": ""},
                         {"type": f"{KIND}.Dense", "path": "1_Dense"}],
        "modules Transformer, Dense; a Transformer, a Pooling and perhaps",
    ),
    "path": (
        "modules.json", [{"type": f"{KIND}.Transformer", "path": "../a"}], "path: '../a' is no fol"
    ),
    "list": ("modules.json", {}, "modules.json: a list of objects is needed"),
    "pooling": (
        "1_Pooling/config.json", {"pooling_mode_max_tokens": True},
        "pooling_mode: 'pooling_mode_max_tokens'; 'mean' or 'cls' is needed",
    ),
    "two poolings": (
        "1_Pooling/config.json",
        {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "pooling_mode: 'pool"
    ),
    "size": (
        "1_Pooling/config.json", {"word_embedding_dimension": 5}, "5; the model's vectors have 32"
    ),
    "object": ("1_Pooling/config.json", [], "config.json: a list, not an object"),
    "case": ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case: True"),
    "prompt": (
        "config_sentence_transformers.json", {"default_prompt_name": "query"},
        "default_prompt_name: 'query'; texts that are put before",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_settings_that_are_not_supported_are_refused(name: str, tmp_path: Path) -> None:
    sentence_folder(tmp_path)
    file, values, message = WRONG[name]
    (tmp_path / file).write_text(json.dumps(values))
    with pytest.raises(FormatError, match=message):
        _ = models.load(tmp_path, device="interp").embedder


def test_the_command_writes_json_or_an_array(tmp_path: Path) -> None:
    sentence_folder(tmp_path / "model")
    expected = models.load(tmp_path / "model", device="interp").embedder(["the cat", "dogs"])

    def embed(*arguments: str, lines: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "lamina", "embed", str(tmp_path / "model"), *arguments],
            env=os.environ | {"PYTHONPATH": str(ROOT), "LAMINA_DEVICE": "interp"}, input=lines,
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    objects = [json.loads(line) for line in embed("the cat", "dogs").splitlines()]
    assert [one["text"] for one in objects] == ["the cat", "dogs"]
    np.testing.assert_allclose([one["embedding"] for one in objects], expected, atol=1e-6)
    path = str(tmp_path / "vectors.npy")
    assert embed("--output", path, lines="the cat\ndogs\n") == ""
    np.testing.assert_allclose(np.load(path), expected, atol=1e-6)
