"""Speculative decoding: texts are those of plain decoding, and draws as often as probable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina import Tensor, cli, random
from lamina.errors import ArgumentError
from lamina.frontend.execution import compile_sinks
from lamina.models.generate import Acceptance, Generator, Proposer
from lamina.models.llama import Llama, LlamaConfig
from lamina.models.loading import Model
from lamina.models.rope import Rope
from lamina.models.sampling import Sampling
from lamina.models.speculation import DraftModel, PromptLookup
from lamina.models.weights import DrawnWeights
from lamina.runtime.profile import passes
from lamina.text.schema import Schemas
from lamina.text.tokenizer import Tokenizer
from tests.models.gguf_models import written
from tests.serving import tiny

CONFIG = LlamaConfig(
    vocabulary=48, size=32, inner=48, layers=2, heads=4, key_heads=2, head_size=8,
    rope=Rope(8, 10000.0), tied=True, context=96,
)  # fmt: skip
PROMPT = [7, 2, 3]
SAMPLINGS = [
    Sampling(), Sampling(1.0, seed=3), Sampling(0.9, 0.9, seed=4, top_k=20, frequency_penalty=0.3),
    Sampling(repetition_penalty=1.3),
]  # fmt: skip


def drawn(seed: int, config: LlamaConfig = CONFIG) -> Llama:
    random.manual_seed(seed)
    return Llama(config, DrawnWeights(0.3))


NETWORK = drawn(3)
PLAIN = Generator(NETWORK, 64, "cpu", chunks=(8,))


class Script:
    """Proposes what it is told of a text that is known: right tokens, and others at some places."""

    def __init__(self, text: Sequence[int], wrong: set[int], count: int) -> None:
        self.count = count
        self._guesses = [token + 1 if at in wrong else token for at, token in enumerate(text)]

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        assert 1 <= limit <= self.count
        return self._guesses[len(text) : len(text) + limit]


class Stubborn:
    """Proposes the same tokens always, and after these one that no model of the tests has."""

    def __init__(self, *tokens: int) -> None:
        self._guesses = [*tokens, 10**6]
        self.count = len(self._guesses)

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        return self._guesses[:limit]


def model_of(network: Llama, tokenizer: Any = None) -> Model:
    return Model(network, network.config, "cpu", lambda: tokenizer or tiny.tokenizer())


def draft(seed: int, count: int, capacity: int = 64) -> DraftModel:
    """Of weights that have a part in common with `NETWORK`."""
    network = drawn(seed)
    for layer, other in zip(network.model.layers, NETWORK.model.layers, strict=True):
        layer.mlp, layer.input_layernorm = other.mlp, other.input_layernorm
    network.model.embed_tokens = NETWORK.model.embed_tokens
    return DraftModel(model_of(network), model_of(NETWORK), capacity, count)


@pytest.fixture(scope="module")
def proposers() -> dict[str, Proposer]:
    return {
        "lookup": PromptLookup(3, 1), "lookup of one": PromptLookup(1, 2), "draft": draft(4, 3),
        "the model itself": DraftModel(model_of(NETWORK), model_of(NETWORK), 64, 2),
        "short draft": draft(4, 3, capacity=20), "stubborn": Stubborn(5, 9),
    }  # fmt: skip


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.parametrize(
    "name", ["lookup", "lookup of one", "draft", "the model itself", "short draft", "stubborn"]
)
def test_texts_are_those_of_plain_decoding(
    name: str, sampling: Sampling, proposers: dict[str, Proposer]
) -> None:
    """From a seed as well, to the last place of the caches, and for a text that begins alike."""
    generator = Generator(NETWORK, 64, "cpu", chunks=(8,), proposer=proposers[name])
    expected = [*PLAIN.tokens(PROMPT, 99, sampling)]
    assert len(expected) == 64 - len(PROMPT) + 1
    assert [*generator.tokens(PROMPT, 99, sampling)] == expected
    if name != "lookup of one":
        assert generator.acceptance.proposed > 0
    longer = [*PROMPT, *expected[:9]]
    for limit in (1, 2, 3, 7):
        assert [*generator.tokens(longer, limit, sampling)] == expected[9 : 9 + limit]
    assert [*generator.tokens([3, 3], 9, sampling)] == [*PLAIN.tokens([3, 3], 9, sampling)]


def test_a_model_accepts_its_own_proposals(proposers: dict[str, Proposer]) -> None:
    generator = Generator(NETWORK, 64, "cpu", (8,), proposers["the model itself"])
    for sampling in SAMPLINGS:
        assert len([*generator.tokens(PROMPT, 31, sampling)]) == 31
        assert generator.acceptance == Acceptance(20, 20)  # 10 checks, after the first token


@settings(deadline=None, max_examples=30)
@given(st.sets(st.integers(0, 40)), st.sampled_from([1, 2, 4]), st.integers(0, 30))
def test_proposals_before_the_first_wrong_one_are_accepted(
    wrong: set[int], count: int, stopped: int
) -> None:
    """Also where the reader stops early, and comes back with the text so far."""
    text = [*PROMPT, *PLAIN.tokens(PROMPT, 36)]
    generator = SCRIPTED[count]
    generator._proposer = Script(text, wrong, count)
    reader = generator.tokens(PROMPT, 36)
    before = [next(reader) for _ in range(stopped)]
    reader.close()
    assert [*PROMPT, *before] == text[: len(PROMPT) + stopped]
    rest = [*generator.tokens(text[: len(PROMPT) + stopped], 36 - stopped)]
    assert rest == text[len(PROMPT) + stopped :]
    expected, at = Acceptance(), len(PROMPT) + stopped + 1
    while at < len(text):
        proposed = min(count, len(text) - at - 1)
        right = 0
        while right < proposed and at + right not in wrong:
            right += 1
        expected.proposed += proposed
        expected.accepted += right
        at += right + 1
    assert generator.acceptance == expected


SCRIPTED = {
    count: Generator(NETWORK, 64, "cpu", (8,), Script([], set(), count)) for count in (1, 2, 4)
}


def probabilities(texts: np.ndarray, temperature: float) -> np.ndarray:
    """Of the next token of each text, in float64."""
    logits = NETWORK(Tensor(texts)).numpy()[:, -1].astype(np.float64) / temperature
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def shares(prompt: Sequence[int], temperature: float) -> list[np.ndarray]:
    """The probabilities of the second token after a prompt, and of the third: sums over all that
    may come before."""
    count = CONFIG.vocabulary
    tokens = np.arange(count)
    first = probabilities(np.array([prompt]), temperature)[0]
    ones = np.concatenate([np.tile(prompt, (count, 1)), tokens[:, None]], axis=1)
    second = first[:, None] * probabilities(ones, temperature)
    twos = np.concatenate(
        [np.repeat(ones, count, axis=0), np.tile(tokens, count)[:, None]], axis=1
    )
    third = second.reshape(-1, 1) * probabilities(twos, temperature)
    return [second.sum(axis=0), third.sum(axis=0)]


@pytest.mark.parametrize("name", ["draft", "stubborn"])
def test_tokens_are_drawn_as_often_as_they_are_probable(
    name: str, proposers: dict[str, Proposer]
) -> None:
    """With another seed each time; tokens that are hardly ever drawn are counted together."""
    stats = pytest.importorskip("scipy.stats")
    wanted = shares(PROMPT, 1.5)
    probable = Stubborn(*(int(one.argmax()) for one in wanted))
    proposer = probable if name == "stubborn" else proposers[name]
    generator = Generator(NETWORK, 64, "cpu", (8,), proposer)
    texts, accepted = [], 0
    for seed in range(1000):
        texts.append([*generator.tokens(PROMPT, 3, Sampling(1.5, seed=seed))])
        accepted += generator.acceptance.accepted
    assert accepted > 50
    for place, share in zip((1, 2), wanted, strict=True):
        counts = np.bincount([text[place] for text in texts], minlength=CONFIG.vocabulary)
        expected = share * len(texts)
        order = np.argsort(expected)
        bins = np.add.accumulate(expected[order]) // 20  # each of about 20 draws
        groups = [np.bincount(bins.astype(int), one[order]) for one in (counts, expected)]
        groups = [one[groups[1] > 0] for one in groups]
        assert len(groups[0]) > 20
        assert stats.chisquare(*groups).pvalue > 0.01


def test_other_proposals_compile_nothing_new(proposers: dict[str, Proposer]) -> None:
    for name in ("lookup", "draft"):
        generator = Generator(NETWORK, 64, "cpu", (8,), proposers[name])
        for prompt in ([7, 2], [1, 2, 3, 1, 2]):
            assert len([*generator.tokens(prompt, 40)]) == 40
        compiled = compile_sinks.cache_info().misses
        with passes() as records:
            for first in range(9, 13):
                assert len([*generator.tokens([first, 2, 5, 2], 40)]) == 40
        assert not records
        assert compile_sinks.cache_info().misses == compiled


def test_texts_that_fit_a_schema_are_those_of_plain_decoding() -> None:
    pytest.importorskip("llguidance", reason="texts that fit a JSON schema need llguidance")
    tokenizer, network = tiny.tokenizer(), tiny.network("cpu")
    items = {"type": "integer", "minimum": 10, "maximum": 99}
    form = {"type": "array", "items": items, "minItems": 5, "maxItems": 5}
    schemas = Schemas(tokenizer, tiny.CONFIG.vocabulary)
    prompt = tokenizer.encode("pip install")
    plain = Generator(network, 96, "cpu", chunks=(16,))
    for sampling in (Sampling(), Sampling(2.0, seed=1)):
        expected = _until_stop(plain.tokens(prompt, 60, sampling, schemas.constraint(form)))
        assert len(json.loads(tokenizer.decode(expected))) == 5
        text = [*prompt, *expected]
        for proposer in (PromptLookup(4, 1), Stubborn(5, 9), Script(text, {len(text) - 6}, 4)):
            generator = Generator(network, 96, "cpu", (16,), proposer)
            constraint = schemas.constraint(form)
            written = _until_stop(generator.tokens(prompt, 60, sampling, constraint))
            assert written == expected
        assert generator.acceptance.accepted > 10


def _until_stop(tokens: Any) -> list[int]:
    result = []
    for token in tokens:
        result.append(token)
        if token in tiny.tokenizer().stops:
            break
    return result


@given(st.lists(st.integers(0, 2), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 4))
def test_lookups_propose_what_followed_the_end_of_a_text(
    text: list[int], size: int, limit: int
) -> None:
    begins = [at for at in range(len(text) - size) if text[at : at + size] == text[-size:]]
    repeated = text[begins[-1] + size :] * limit if begins else []
    assert PromptLookup(4, size).propose(text, limit, Sampling()) == repeated[:limit]


def test_counts_below_1_are_refused() -> None:
    with pytest.raises(ArgumentError, match="0 tokens to propose; 1 or more"):
        PromptLookup(0)
    with pytest.raises(ArgumentError, match="size: 0 tokens; 1 or more"):
        PromptLookup(1, 0)


class _Backend:
    def __init__(self, numbers: dict[str, int]) -> None:
        self.get_vocab = lambda: numbers


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"a": 0, "c": 1}, "another one: 1 of 2 tokens differ, such as 'b'"),
        ({"a": 1, "b": 0}, "another one: 2 of 2 tokens differ, such as 'a'"),
        ({"a": 0, "b": 1, "c": 2}, "another one: it has 3 tokens in place of 2"),
    ],
)
def test_drafts_with_another_tokenizer_are_refused(numbers: dict[str, int], message: str) -> None:
    model = model_of(NETWORK, Tokenizer(_Backend({"a": 0, "b": 1})))
    with pytest.raises(ArgumentError, match=f"^draft: the tokenizer of the draft is {message}"):
        DraftModel(model_of(NETWORK, Tokenizer(_Backend(numbers))), model, 64)
    assert DraftModel(model, model, 64, 2).count == 2


def test_the_commands_say_how_many_proposals_were_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    path = str(tmp_path / "model.gguf")
    written("smollm", Path(path))
    generate = ["generate", path, "pip", "--max-tokens", "12"]
    assert cli.main(generate) == 0
    plain = capsys.readouterr()
    assert "proposals" not in plain.err
    for way in (["--prompt-lookup", "--proposals", "2"], ["--draft", path]):
        assert cli.main([*generate, *way]) == 0
        shown = capsys.readouterr()
        assert shown.out == plain.out
        assert "proposals accepted (" in shown.err
    assert "8 of 8 proposals accepted (100%)" in shown.err
    monkeypatch.setattr("lamina.models.command._lines", lambda: iter(["pip"]))
    assert cli.main(["chat", path, "--max-tokens", "12", "--draft", path]) == 0
    shown = capsys.readouterr()
    assert shown.out == plain.out
    assert "of 8 proposals accepted (100%))" in shown.err


def test_rounded_activations_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["generate", "smollm2", "x"], ["chat", "smollm2"]):
        assert cli.main([*command, "--prompt-lookup", "--round-activations"]) == 1
        assert "--round-activations: single vectors alone are rounded" in capsys.readouterr().err
