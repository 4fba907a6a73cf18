"""Sampling: its share of tokens against sorted probabilities, its draws against the softmax."""

from __future__ import annotations

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.errors import ArgumentError
from lamina.models.sampling import Sampling, best, drawn

LOGITS = (np.random.default_rng(0).standard_normal(40) * 2).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max())
    return weights / weights.sum()


@lm.jit
def draw(numbers: Tensor, keys: Tensor) -> Tensor:
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


def allowed(sampling: Sampling) -> np.ndarray:
    """The probabilities after sorting, as the definitions of top-p and min-p say."""
    shares = softmax(LOGITS / sampling.temperature)
    order = np.argsort(-shares)
    before = np.cumsum(shares[order]) - shares[order]
    kept = np.zeros(len(shares), bool)
    kept[order] = before < sampling.top_p
    kept &= shares >= sampling.min_p * shares.max()
    return np.where(kept, shares, 0) / shares[kept].sum()


@pytest.mark.parametrize(
    "sampling",
    [Sampling(1.0), Sampling(0.5, top_p=0.8), Sampling(2.0, top_p=0.6), Sampling(1.5, min_p=0.1)],
    ids=str,
)
def test_tokens_are_drawn_as_often_as_they_are_probable(sampling: Sampling) -> None:
    count = 2000
    found, wanted = draws(sampling, count), allowed(sampling)
    assert not found[wanted == 0].any()
    deviation = np.sqrt(count * wanted * (1 - wanted))
    assert (np.abs(found - count * wanted) <= 5 * deviation + 1e-9).all()


def test_a_seed_and_a_step_decide_the_draw() -> None:
    first = draws(Sampling(1.0, seed=1), 50)
    np.testing.assert_array_equal(first, draws(Sampling(1.0, seed=1), 50))
    assert (first != draws(Sampling(1.0, seed=2), 50)).any()


def test_the_best_token() -> None:
    assert best(Tensor(LOGITS)).item() == LOGITS.argmax()
    almost_one = Sampling(1.0, top_p=1e-6)
    assert draws(almost_one, 50)[LOGITS.argmax()] == 50


def test_each_row_of_a_batch_is_drawn_as_by_itself() -> None:
    rows = [Sampling(1.0, seed=3), Sampling(), Sampling(0.7, 0.9, seed=4), Sampling(2.0, 1.0, 0.2)]
    numbers = Tensor([one.numbers() for one in rows], lm.float32)
    for step in range(5):
        keys = Tensor([one.key(step) for one in rows], lm.uint32)
        alone = [
            drawn(Tensor([LOGITS]), Tensor([one.numbers()], lm.float32),
                  Tensor([one.key(step)], lm.uint32)).item()
            for one in rows
        ]  # fmt: skip
        assert draw(numbers, keys).tolist() == alone
        assert alone[1] == LOGITS.argmax()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1.0}, "temperature: -1.0; a number from 0 on"),
        ({"temperature": float("nan")}, "temperature: nan"),
        ({"top_p": 0.0}, "top_p: 0.0; above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p: 1.5; 0 to 1"),
        ({"seed": -1}, "seed: -1; 0 to 4294967295"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Sampling(**changes)  # type: ignore[arg-type]
