"""Keys and values in 8 bits: what is kept, what attention makes of it, and what kernels write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, cli, models
from lamina.core.options import using
from lamina.errors import DTypeError, FormatError, OutOfMemoryError
from lamina.frontend.execution import compile_sinks
from lamina.frontend.jit import jit
from lamina.ir.kernel import points
from lamina.models import generate
from lamina.models.generate import Generator
from lamina.models.llama import Llama, LlamaConfig
from lamina.models.rope import Rope
from lamina.models.sampling import Sampling
from lamina.models.speculation import PromptLookup
from lamina.models.vector_cache import VectorCache
from lamina.models.weights import DrawnWeights
from lamina.runtime.profile import runs
from lamina.serving.batch import Batch, Text
from lamina.serving.engine import Engine
from tests.models.families import saved
from tests.serving import tiny

IDS = np.random.default_rng(7).integers(3, 90, (2, 20))
CONFIG = LlamaConfig(
    vocabulary=64, size=96, inner=48, layers=2, heads=6, key_heads=2, head_size=16,
    rope=Rope(16, 10000.0), tied=True, windows=(None, 100),
)  # fmt: skip
CAPACITY = 512


@pytest.mark.parametrize("device", ["interp", "cpu"])
def test_the_greatest_number_of_a_vector_becomes_127(device: str) -> None:
    new = np.random.default_rng(0).standard_normal((2, 3, 4, 8)).astype(np.float32)
    new[1, 2, 0] = 0.0
    kept = VectorCache((2, 3, 9, 8), lm.int8, device)
    kept.put(2, Tensor([5, 0, 8, 9], device=device), Tensor(new, device=device))  # no place 9
    assert kept.scales is not None
    numbers, scales = kept.numbers.numpy(), kept.scales.numpy()
    assert numbers.dtype == np.int8
    wanted = np.abs(new).max(axis=-1, keepdims=True) / np.float32(127)
    np.testing.assert_allclose(scales[:, :, [5, 0, 8]], wanted[:, :, :3], rtol=1e-6)
    is_zero = wanted == 0
    rounded = np.rint(new / np.where(is_zero, 1, wanted))
    np.testing.assert_array_equal(numbers[:, :, [5, 0, 8]], rounded[:, :, :3])
    assert np.abs(numbers[:, :, [5, 0, 8]]).max(axis=-1)[~is_zero[:, :, :3, 0]].min() == 127
    assert not numbers[:, :, [1, 2, 3, 4, 6, 7]].any()


def logits_by_parts(network: Any, dtype: lm.DType | None, device: str) -> np.ndarray:
    """Of a chunk of tokens, then of one token after another."""
    caches = network.new_caches(len(IDS), 32, device, dtype)
    parts = []
    for first, size in ((0, 12), *((at, 1) for at in range(12, IDS.shape[1]))):
        ids = Tensor(IDS[:, first : first + size], device=device)
        parts.append(network(ids, caches, Tensor(first, device=device)).numpy())
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("activations", [lm.float32, lm.bfloat16])
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma2", "mistral"])
def test_logits_are_near_those_of_floats(name: str, activations: lm.DType, tmp_path: Path) -> None:
    """Also with bounds of scores (Gemma 2) and windows (Mistral)."""
    pytest.importorskip("transformers")
    saved(name, tmp_path)
    network = models.load(tmp_path, "interp", activations=activations).network
    exact, ours = (logits_by_parts(network, dtype, "interp") for dtype in (None, lm.int8))
    error = np.abs(ours - exact).max()
    assert 0 < error < 0.03 * np.abs(exact).max()
    assert (ours.argmax(axis=-1) == exact.argmax(axis=-1)).mean() > 0.9


def test_compiled_programs_agree_with_the_reference() -> None:
    plain, compiled = (
        logits_by_parts(tiny.network(device), lm.int8, device) for device in ("interp", "cpu")
    )
    np.testing.assert_allclose(compiled, plain, rtol=1e-3, atol=1e-3 * np.abs(plain).max())


def test_vectors_take_half_the_bytes_of_bfloat16() -> None:
    shape = 1, 3, 100, 64
    kept, halves = VectorCache(shape, lm.int8, "interp"), VectorCache(shape, lm.bfloat16, "interp")
    assert kept.scales is not None
    assert halves.scales is None
    bytes_of = [x.size * x.dtype.itemsize for x in (kept.numbers, kept.scales, halves.numbers)]
    assert bytes_of[0] * 2 == bytes_of[2]
    assert bytes_of[1] * 16 == bytes_of[0]


@pytest.mark.parametrize("length", [1, 5, 32])
@pytest.mark.parametrize("kind", ["caches", "pages"])
def test_kernels_write_no_keys_and_values_as_floats(kind: str, length: int) -> None:
    """Of what lives on a step stores the new vectors and their scales alone."""
    network = Llama(CONFIG, DrawnWeights())
    texts: Callable[[], Sequence[Any]]
    if kind == "caches":
        caches = network.new_caches(1, CAPACITY, "cpu", lm.int8)
        texts = lambda: [cache.prefix(CAPACITY // 2) for cache in caches]  # noqa: E731
        first = Tensor(7)
    else:
        pages = network.new_pages(CAPACITY // 16, 16, "cpu", lm.int8)
        table = Tensor([[*range(CAPACITY // 32)]])
        texts = lambda: [page.texts(table) for page in pages]  # noqa: E731
        first = Tensor([7])

    @jit
    def step(ids: Tensor, first: Tensor) -> Tensor:
        return network(ids, texts(), first).argmax()

    with using(device="cpu"), runs() as records:
        step(Tensor([[5] * length]), first).item()
    program = records[-1][0].program
    stores = [
        (launch.arguments[store.parameter].kind, launch.kernel.parameters[store.parameter].dtype,
         points(store.axes))
        for launch in program.launches for store in launch.kernel.stores
    ]  # fmt: skip
    vectors = CONFIG.key_heads * length
    written = sorted(count for kind, _, count in stores if kind == "input")
    assert written == [vectors] * 4 + [vectors * CONFIG.head_size] * 4
    whole = CONFIG.key_heads * CAPACITY // 2 * CONFIG.head_size
    scores = CONFIG.heads * length * CAPACITY // 2
    assert whole != scores
    large = [dtype for _, dtype, count in stores if count >= whole and count != scores]
    assert lm.int8 not in large or kind == "pages"
    assert lm.float32 not in large


def test_there_are_as_many_programs_as_for_floats() -> None:
    def compiled(dtype: lm.DType | None) -> int:
        generator = Generator(NETWORK, 64, "cpu", (8,), cache_dtype=dtype)
        before = compile_sinks.cache_info().misses
        for sampling in (Sampling(), Sampling(1.0)):
            assert len([*generator.tokens([7, 2, 3], 60, sampling)]) == 60
        return compile_sinks.cache_info().misses - before

    assert compiled(None) == compiled(lm.int8) > 0


NETWORK = tiny.network("cpu")
PROMPT = [7, 2, 3, 7, 2, 3, 9]


def test_a_server_and_proposals_write_what_one_text_has() -> None:
    generator = Generator(NETWORK, 96, "cpu", (16,), cache_dtype=lm.int8)
    expected = [*generator.tokens(PROMPT, 30)]
    lookup = Generator(NETWORK, 96, "cpu", (16,), PromptLookup(3, 1), lm.int8)
    assert [*lookup.tokens(PROMPT, 30)] == expected
    batch = Batch(Engine(NETWORK, replace(tiny.ROOM, pages=40), "cpu", lm.int8))
    texts = [Text(PROMPT, 30, Sampling()), Text([5, 6], 9, Sampling())]
    for text in texts:
        batch.add(text)
    while batch.waiting or batch.active:
        batch.step()
    assert texts[0].new == expected
    plain = tiny.greedy(tiny.network("interp"), PROMPT, 8)
    same = [ours == theirs for ours, theirs in zip(expected, plain, strict=False)]
    assert sum(same) >= 6


def test_what_fills_up_a_chunk_leaves_numbers_in_the_caches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A prompt of 13 tokens in a chunk of 16 and a program of 14 positions: the last two see none
    of these through a window of two tokens. The program after that has 28 positions."""
    monkeypatch.setattr(generate, "_SHORTEST", 14)
    with using(device="interp"):
        network = Llama(replace(CONFIG, windows=(2, 2)), DrawnWeights(0.4))
    texts = [
        [*Generator(network, 64, "interp", (size,), None, lm.int8).tokens(range(13), 12)]
        for size in (16, 1)
    ]
    assert texts[0] == texts[1]
    assert any(texts[0])


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DTypeError, match=r"float16; int8 or None is needed"):
        NETWORK.new_caches(1, 8, "cpu", lm.float16)

    def zeros(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("lamina.models.vector_cache.np.zeros", zeros)
    with pytest.raises(OutOfMemoryError, match="keys or values of a layer, 96 bytes"):
        VectorCache((2, 48), lm.int8, "cpu")


@pytest.mark.parametrize("command", ["generate", "chat", "serve"])
def test_commands_keep_what_they_are_asked_for(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    def made(*_: object, cache_dtype: lm.DType | None = None, **others: object) -> None:
        asked.append(cache_dtype)
        raise FormatError("that is all")

    loaded = models.Model(NETWORK, NETWORK.config, "cpu", tiny.tokenizer)
    for name in ("lamina.models.command", "lamina.serving.command"):
        monkeypatch.setattr(f"{name}.load", lambda *_, **others: loaded)
    monkeypatch.setattr("lamina.models.command.Generator", made)
    monkeypatch.setattr("lamina.serving.command.Engine", lambda *args: made(cache_dtype=args[3]))
    arguments = [command, str(tmp_path), *(["pip"] if command == "generate" else [])]
    arguments += ["--port", "0"] if command == "serve" else []
    assert cli.main([*arguments, "--cache-dtype", "int8"]) == 1
    assert cli.main(arguments) == 1
    assert asked == [lm.int8, None]
