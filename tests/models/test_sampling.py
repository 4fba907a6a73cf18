"""Sampling: its share of tokens against sorted probabilities, its draws against the softmax."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import ArgumentError
from lamina.models.sampling import Sampling, all_allowed, best, drawn, drawn_with_limits, recent_of

# Of 70 tokens the last 64 count; token 39, which is not among these, is not penalized.
TEXT = [39] * 6 + [int(one) for one in np.random.default_rng(2).integers(0, 20, 64)]
RECENT_TOKENS = recent_of(TEXT)
ALL = Tensor(all_allowed(1, 40))
LOGITS = (np.random.default_rng(0).standard_normal(40) * 2).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max())
    return weights / weights.sum()


@lm.jit
def draw(numbers: Tensor, keys: Tensor) -> Tensor:
    logits = Tensor(LOGITS).reshape((1, -1)).expand((len(keys), -1))
    recent = Tensor([RECENT_TOKENS] * len(keys))
    return drawn_with_limits(logits, numbers, keys, recent, Tensor(all_allowed(len(keys), 40)))


@lm.jit
def draw_from_all(numbers: Tensor, keys: Tensor) -> Tensor:
    return drawn(Tensor(LOGITS).reshape((1, -1)).expand((len(keys), -1)), numbers, keys)


def tokens(sampling: Sampling, count: int, rows: int = 50) -> np.ndarray:
    """The tokens that are drawn in `count` steps, so many at once."""
    numbers = Tensor([sampling.numbers()] * rows, lm.float32)
    steps = [
        draw(numbers, Tensor([sampling.key(first + row) for row in range(rows)], lm.uint32)).numpy()
        for first in range(0, count, rows)
    ]
    return np.concatenate(steps)


def draws(sampling: Sampling, count: int) -> np.ndarray:
    """How often each token is drawn."""
    return np.bincount(tokens(sampling, count), minlength=len(LOGITS))


def penalized(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    result = logits.astype(np.float64)
    for token in {*TEXT[-64:]}:
        factor = sampling.repetition_penalty
        result[token] *= 1 / factor if result[token] > 0 else factor
        result[token] -= sampling.presence_penalty
        result[token] -= sampling.frequency_penalty * TEXT[-64:].count(token)
    return result


def allowed(sampling: Sampling) -> np.ndarray:
    """The probabilities after sorting, as the definitions of penalties, top-k, top-p and min-p say.
    """
    shares = softmax(penalized(LOGITS, sampling) / sampling.temperature)
    order = np.argsort(-shares)
    shares[order[sampling.top_k or len(order) :]] = 0
    shares /= shares.sum()
    before = np.cumsum(shares[order]) - shares[order]
    kept = np.zeros(len(shares), bool)
    kept[order] = before < sampling.top_p
    kept &= shares >= sampling.min_p * shares.max()
    return np.where(kept, shares, 0) / shares[kept].sum()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(1.0), Sampling(0.5, top_p=0.8), Sampling(2.0, top_p=0.6), Sampling(1.5, min_p=0.1),
        Sampling(1.5, top_k=5), Sampling(2.0, top_k=8, top_p=0.7), Sampling(1.0, top_k=99),
        Sampling(1.0, repetition_penalty=1.8),
        Sampling(1.0, frequency_penalty=0.4, presence_penalty=-0.5),
    ],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_are_probable(sampling: Sampling) -> None:
    count = 2000
    found, wanted = draws(sampling, count), allowed(sampling)
    assert not found[wanted == 0].any()
    deviation = np.sqrt(count * wanted * (1 - wanted))
    assert (np.abs(found - count * wanted) <= 5 * deviation + 1e-9).all()


def test_tokens_of_all_blocks_are_drawn_as_often_as_they_are_probable() -> None:
    """600 tokens are two blocks and a part of one; some of each block have no share."""
    logits = (np.random.default_rng(1).standard_normal(600) * 1.5).astype(np.float32)
    logits[::3] = -np.inf
    sampling, count = Sampling(0.8, min_p=0.01), 20000
    numbers = Tensor([sampling.numbers()] * count, lm.float32)
    keys = Tensor([sampling.key(row) for row in range(count)], lm.uint32)
    function = lm.jit(lambda x, numbers, keys: drawn(x.expand((count, -1)), numbers, keys))
    found = np.bincount(function(Tensor(logits[None]), numbers, keys).numpy(), minlength=600)
    wanted = softmax(logits / 0.8)
    wanted = np.where(wanted >= 0.01 * wanted.max(), wanted, 0.0)
    wanted /= wanted.sum()
    assert not found[wanted == 0].any()
    deviation = np.sqrt(count * wanted * (1 - wanted))
    assert (np.abs(found - count * wanted) <= 5 * deviation + 1e-9).all()


@pytest.mark.parametrize("sampling", [Sampling(1.3, seed=5), Sampling(0.6, min_p=0.1), Sampling()])
def test_without_limits_tokens_are_those_of_the_program_with_limits(sampling: Sampling) -> None:
    assert not sampling.is_limited
    numbers = Tensor([sampling.numbers()] * 50, lm.float32)
    keys = Tensor([sampling.key(row) for row in range(50)], lm.uint32)
    np.testing.assert_array_equal(draw_from_all(numbers, keys).numpy(), tokens(sampling, 50))


def test_what_needs_limits() -> None:
    limited = [
        Sampling(1.0, 0.9), Sampling(1.0, top_k=3), Sampling(repetition_penalty=2.0),
        Sampling(1.0, frequency_penalty=0.1), Sampling(1.0, presence_penalty=-1.0),
    ]  # fmt: skip
    assert all(one.is_limited and not one.is_plain for one in limited)


def test_a_seed_and_a_step_decide_the_draw() -> None:
    first = draws(Sampling(1.0, seed=1), 50)
    np.testing.assert_array_equal(first, draws(Sampling(1.0, seed=1), 50))
    assert (first != draws(Sampling(1.0, seed=2), 50)).any()


def test_the_best_token() -> None:
    assert best(Tensor(LOGITS)).item() == LOGITS.argmax()
    almost_one = Sampling(1.0, top_p=1e-6)
    assert draws(almost_one, 50)[LOGITS.argmax()] == 50


def test_penalties_change_the_best_token() -> None:
    """As transformers does for a whole text, where that has 64 tokens."""
    torch = pytest.importorskip("torch")
    processors = pytest.importorskip("transformers.generation.logits_process")
    penalize = processors.RepetitionPenaltyLogitsProcessor(1.7)
    for seed in range(5):
        logits = np.random.default_rng(seed).standard_normal((1, 40)).astype(np.float32)
        theirs = penalize(torch.tensor([TEXT[-64:]]), torch.tensor(logits)).numpy()
        numbers = Tensor([Sampling(repetition_penalty=1.7).numbers()], lm.float32)
        keys = Tensor([[0, 0]], lm.uint32)
        ours = drawn_with_limits(Tensor(logits), numbers, keys, Tensor([RECENT_TOKENS]), ALL)
        assert ours.item() == theirs.argmax()


def test_a_short_text_has_few_recent_tokens() -> None:
    assert recent_of([3, 4]) == [3, 4] + [-1] * 62
    numbers = Tensor([Sampling(frequency_penalty=2.0).numbers()], lm.float32)
    keys, logits = Tensor([[0, 0]], lm.uint32), Tensor([[0.0, 1.0, 2.0, 3.0]])
    assert drawn_with_limits(logits, numbers, keys, Tensor([recent_of([3])]), ALL).item() == 2
    assert drawn_with_limits(logits, numbers, keys, Tensor([recent_of([])]), ALL).item() == 3


@pytest.mark.parametrize("device", ["interp", "cpu"])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.3, 0.9, top_k=5)])
def test_tokens_are_drawn_among_those_that_are_allowed(device: str, sampling: Sampling) -> None:
    """As from the logits of these alone, of 40 tokens in two words."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        bits = rng.random(64) < rng.uniform(0.02, 0.9)
        bits[seed] = True
        allowed = np.packbits(bits, bitorder="little").view(np.int32)
        inputs = [
            Tensor([sampling.numbers()], lm.float32, device),
            Tensor([sampling.key(seed)], lm.uint32, device),
            Tensor([recent_of([])], lm.int64, device),
        ]
        token = drawn_with_limits(
            Tensor([LOGITS], device=device), *inputs, Tensor([allowed], device=device)
        ).item()
        lowest = np.where(bits[:40], LOGITS, np.float32(-1e30))
        every = Tensor(all_allowed(1, 40), device=device)
        expected = drawn_with_limits(Tensor([lowest], device=device), *inputs, every).item()
        assert bits[token]
        assert token == expected
        assert sampling.temperature > 0.0 or token == lowest.argmax()


def test_each_row_of_a_batch_is_drawn_as_by_itself() -> None:
    rows = [Sampling(1.0, seed=3), Sampling(), Sampling(0.7, 0.9, seed=4), Sampling(2.0, 1.0, 0.2)]
    numbers = Tensor([one.numbers() for one in rows], lm.float32)
    for step in range(5):
        keys = Tensor([one.key(step) for one in rows], lm.uint32)
        recent = Tensor([RECENT_TOKENS])
        alone = [
            drawn_with_limits(Tensor([LOGITS]), Tensor([one.numbers()], lm.float32),
                              Tensor([one.key(step)], lm.uint32), recent, ALL).item()
            for one in rows
        ]  # fmt: skip
        assert draw(numbers, keys).tolist() == alone
        assert alone[1] == LOGITS.argmax()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature: -1.0; a number from 0 on"),
        ({"temperature": float("nan")}, "temperature: nan"),
        ({"temperature": 1e-60}, r"a number from 0 on, 1\.2e-38 to 3\.4e\+38 or 0, is"),
        ({"top_p": 0.0}, "top_p: 0.0; above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p: 1.5; 0 to 1"),
        ({"top_k": -1}, "top_k: -1; 0 to 2147483647"),
        ({"repetition_penalty": 0.0}, "repetition_penalty: 0.0; 0.01 to 100"),
        ({"presence_penalty": float("inf")}, "presence_penalty: inf; -2 to 2"),
        ({"seed": -1}, "seed: -1; 0 to 4294967295"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Sampling(**changes)  # type: ignore[arg-type]
