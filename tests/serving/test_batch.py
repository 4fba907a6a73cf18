"""Texts that are written together are those that the network writes of each alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lamina.models.generate import Generator
from lamina.models.llama import Llama
from lamina.models.sampling import Sampling
from lamina.serving.batch import Batch, Text
from lamina.serving.engine import Engine
from tests.serving.tiny import ROOM, greedy, network

PROMPTS = [
    [int(one) for one in np.random.default_rng(length).integers(5, 600, length)]
    for length in (1, 37, 8, 16, 5)
]


@pytest.fixture(scope="module")
def plain() -> Llama:
    return network("interp")


def run(batch: Batch, *texts: Text) -> list[list[int]]:
    """What is written of `texts`, to their ends."""
    for text in texts:
        batch.add(text)
    while batch.waiting or batch.active:
        batch.step()
    return [text.new for text in texts]


def text(prompt: list[int], limit: int = 6, sampling: Sampling | None = None) -> Text:
    return Text(prompt, limit, sampling or Sampling())


@pytest.mark.parametrize("device", ["interp", "cpu"])
def test_texts_of_unequal_lengths_are_those_of_each_alone(plain: Llama, device: str) -> None:
    """Five texts in three slots: some begin while others are in their middle."""
    batch = Batch(Engine(network(device), ROOM, device))
    limits = [9, 6, 4, 7, 5]
    texts = [text(prompt, limit) for prompt, limit in zip(PROMPTS, limits, strict=True)]
    written = run(batch, *texts)
    for prompt, limit, new in zip(PROMPTS, limits, written, strict=True):
        assert new == greedy(plain, prompt, limit)
    assert batch.pool.free == ROOM.pages
    # A conversation that goes on finds its pages again, and is the same text as without them.
    prompt = [*PROMPTS[1], *written[1], 7]
    again = text(prompt)
    assert run(batch, again) == [greedy(plain, prompt, 6)]
    assert again.reused == (len(prompt) - 1 - 1) // ROOM.page_size * ROOM.page_size == 40


def test_long_texts_and_many_texts_have_programs_of_their_own(plain: Llama) -> None:
    """Of 600 positions beside 256, and of 4 and 6 texts beside 1."""
    room = replace(ROOM, slots=6, capacity=600, pages=90, chunk=128)
    long = [int(one) for one in np.random.default_rng(9).integers(5, 600, 270)]
    texts = [text(prompt, 3) for prompt in (PROMPTS[0], PROMPTS[2], PROMPTS[4], PROMPTS[3], long)]
    batch = Batch(Engine(plain, room, "interp"))
    for one, new in zip(texts, run(batch, *texts), strict=True):
        assert new == greedy(plain, one.prompt, 3)


def test_texts_with_one_begin_share_pages_while_they_are_written(plain: Llama) -> None:
    batch = Batch(Engine(plain, ROOM, "interp"))
    first = text(PROMPTS[1], 20)
    batch.add(first)
    while not first.new:
        batch.step()
    free = batch.pool.free
    second = text([*PROMPTS[1][:33], 8], 5)
    batch.add(second)
    batch.step()
    assert second.reused == 32
    assert free - batch.pool.free == 1
    assert run(batch) == []
    assert [first.new, second.new] == [greedy(plain, one.prompt, one.limit)
                                       for one in (first, second)]  # fmt: skip


def test_a_short_prompt_passes_a_long_one(plain: Llama) -> None:
    """80 tokens are 5 chunks of 16; 4 tokens are one, which is read next."""
    batch = Batch(Engine(plain, ROOM, "interp"))
    long, short = text([*PROMPTS[1], *PROMPTS[1][:33], *range(5, 15)], 2), text(PROMPTS[4], 2)
    batch.add(long)
    batch.step()
    batch.add(short)
    batch.step()
    assert (len(short.new), long.is_read) == (1, False)
    run(batch)
    for one in (long, short):
        assert one.new == greedy(plain, one.prompt, one.limit)


def test_short_prompts_that_keep_coming_do_not_starve_a_long_one(plain: Llama) -> None:
    """After 80 tokens of others at most a text of 80 tokens is read on."""
    batch = Batch(Engine(plain, ROOM, "interp"))
    long, passed = text(list(range(5, 85)), 1), 0
    batch.add(long)
    for number in range(40):
        if long.new:
            break
        short = text([number + 100, *PROMPTS[3][1:]], 1)
        batch.add(short)
        batch.step()
        passed += len(short.prompt) if short.new else 0
    assert long.new == greedy(plain, long.prompt, 1)
    assert 0 < passed <= 80


def test_texts_of_one_prompt_that_begin_together_read_it_once(plain: Llama) -> None:
    batch = Batch(Engine(plain, ROOM, "interp"))
    texts = [text(PROMPTS[1], 3) for _ in range(3)]
    new = run(batch, *texts)
    assert new == [greedy(plain, PROMPTS[1], 3)] * 3
    assert [one.reused for one in texts] == [0, 32, 32]
    assert batch.pool.free == ROOM.pages


def test_cancelled_texts_free_their_pages(plain: Llama) -> None:
    batch = Batch(Engine(plain, ROOM, "interp"))
    texts = [text(prompt, 30) for prompt in PROMPTS]
    for one in texts:
        batch.add(one)
    for _ in range(4):
        batch.step()
    assert batch.pool.free < ROOM.pages
    waiting = batch.waiting[0]
    for one in texts:
        batch.remove(one)
        batch.remove(one)  # that was so already
    assert waiting.new == []
    assert batch.pool.free == ROOM.pages
    assert not batch.waiting
    assert not batch.active


def test_a_text_waits_for_pages(plain: Llama) -> None:
    """There are 4 pages of 8 tokens: for one text of 30, or for one of 10 and one of 16."""
    batch = Batch(Engine(plain, replace(ROOM, pages=4), "interp"))
    long, short, other = text(PROMPTS[4], 25), text(PROMPTS[2], 2), text(PROMPTS[4], 3)
    for one in (long, short, other):
        assert batch.fits(one)
        batch.add(one)
    batch.step()
    assert batch.active == [long]
    run(batch)
    for one in (long, short, other):
        assert one.new == greedy(plain, one.prompt, one.limit)
    assert not batch.fits(text(PROMPTS[4], 28))


def test_a_stop_token_ends_a_text(plain: Llama) -> None:
    expected = greedy(plain, PROMPTS[2], 6)
    stop = expected[3]
    one = Text(PROMPTS[2], 6, Sampling(), frozenset({stop}))
    run(Batch(Engine(plain, ROOM, "interp")), one)
    assert one.new == expected[: expected.index(stop) + 1]
    assert one.finish_reason == "stop"


def test_drawn_texts_follow_from_their_seeds(plain: Llama) -> None:
    """Beside others, alone, and as `lamina generate` draws them."""
    samplings = [Sampling(1.0, seed=1), Sampling(), Sampling(0.8, 0.9, 0.01, seed=1)]
    texts = [text(prompt, 5, one) for prompt, one in zip(PROMPTS, samplings, strict=False)]
    together = run(Batch(Engine(plain, ROOM, "interp")), *texts)
    generator = Generator(plain, 64, "interp", chunks=(16,))
    for prompt, sampling, new in zip(PROMPTS, samplings, together, strict=False):
        alone = text(prompt, 5, sampling)
        assert run(Batch(Engine(plain, ROOM, "interp")), alone) == [new]
        assert [*generator.tokens(prompt, 5, sampling)] == new
