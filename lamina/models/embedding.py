"""Texts to vectors, which are close to one another for texts that mean the same.

Texts are sorted by their lengths and computed 16, 4 or 1 at a time, so that no row of a program is
empty. Each program is for a number of texts and a length that they are padded to. There are few
lengths, at most eight from a power of two to the next, so that programs are few.

More texts at a time are fewer runs of programs, and more padding: which texts are computed
together is chosen by the cost of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lamina.core.options import GPU_KINDS, current
from lamina.errors import ArgumentError
from lamina.frontend.functions.elementwise import maximum
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from lamina.models.sentences import Pooling, SentenceSettings
from lamina.models.text_encoder import TextEncoder
from lamina.runtime.cpu import usable_cores
from lamina.runtime.devices import target_of
from lamina.text.tokenizer import Tokenizer

__all__ = ["Embedder", "pooled"]

Array = Any  # numpy.ndarray
_WIDTHS = (16, 4, 1)  # texts of a program
_SHORTEST = 8  # tokens of the shortest program
_SHORTEST_STEP = 4  # tokens from a length to the next
# Lengths from a power of two to the next. With 4 of them, 96 sentences of 31 tokens on average were
# padded by 11 %, with 8 by 5 %.
_LENGTHS_OF_POWER = 8
# What a run costs besides its tokens, as so many tokens for each of the device's workers. Of
# all-MiniLM-L6-v2 on a Zen 4 it was 4 tokens with one thread and 5 with two. A run of few tokens
# leaves most multiprocessors of a GPU idle: that it costs 2 tokens for each is an estimate.
_TOKENS_OF_RUN = 2


class Embedder:
    """The vectors of texts. It is called by one thread at a time."""

    def __init__(
        self, network: TextEncoder, tokenizer: Tokenizer, settings: SentenceSettings, device: str
    ) -> None:
        self.size: int = network.config.size
        self.vocabulary: int = network.config.vocabulary
        self.settings = settings
        self._tokenizer, self._device = tokenizer, device

        @jit
        def program(ids: Tensor, mask: Tensor) -> Tensor:
            return pooled(network(ids, mask), mask, settings)

        self._program = program

    def __call__(self, texts: Sequence[str]) -> Array:
        """NumPy's float32, (texts, size). The end of a text beyond `settings.longest` tokens is
        left out. Raises DTypeError for what is no text."""
        return self.of_tokens([self.tokens(text) for text in texts])

    def tokens(self, text: str) -> list[int]:
        """As the model reads a text: with its special tokens, and no longer than it may be."""
        return self._tokenizer.encode_whole(text, self.settings.longest)

    def all_tokens(self, text: str) -> list[int]:
        """As `tokens`, with the end of a text that is too long."""
        return self._tokenizer.encode_whole(text)

    def of_tokens(self, texts: Sequence[Sequence[int]]) -> Array:
        """As for texts, of the tokens of each. Raises ArgumentError for a text without tokens or
        with too many, and for numbers of no token."""
        for tokens in texts:
            self._check(tokens)
        vectors = np.empty((len(texts), self.size), np.float32)
        padded = [self._padded(len(tokens)) for tokens in texts]
        for group in _groups(padded, _TOKENS_OF_RUN * _workers(self._device)):
            length = max(padded[number] for number in group)
            vectors[group] = self._run([texts[number] for number in group], length)
        return vectors

    def _padded(self, length: int) -> int:
        """The length of the program for texts of up to `length` tokens."""
        return min(_padded(length), self.settings.longest)

    def _check(self, tokens: Sequence[int]) -> None:
        longest = self.settings.longest
        if not 0 < len(tokens) <= longest:
            raise ArgumentError(
                f"{len(tokens)} tokens of a text; 1 to {longest} are needed", operation="embed"
            )
        if not all(0 <= token < self.vocabulary for token in tokens):
            reason = f"a number of a token is from 0 to {self.vocabulary - 1}"
            raise ArgumentError(reason, operation="embed")

    def _run(self, texts: Sequence[Sequence[int]], length: int) -> Array:
        """The vectors of texts that the program for this length computes, (texts, size)."""
        ids = np.zeros((len(texts), length), np.int64)  # padding may be any token: none sees it
        mask = np.zeros(ids.shape, bool)
        for row, tokens in enumerate(texts):
            ids[row, : len(tokens)] = tokens
            mask[row, : len(tokens)] = True
        program_ids, program_mask = (Tensor(x, device=self._device) for x in (ids, mask))
        return self._program(program_ids, program_mask).numpy()


def pooled(x: Tensor, mask: Tensor, settings: SentenceSettings) -> Tensor:
    """The vectors of texts, (batch, size), from those of their tokens, (batch, length, size).
    mask: bool (batch, length), true for tokens that are no padding."""
    if settings.pooling is Pooling.FIRST:
        vectors = x[:, 0]
    else:
        weights = mask.cast(x.dtype).unsqueeze(-1)
        vectors = (x * weights).sum(1) / weights.sum(1)
    if settings.normalizes:
        lengths = (vectors * vectors).sum(-1, keepdims=True).sqrt()
        vectors = vectors / maximum(lengths, 1e-12)
    return vectors


def _workers(device: str) -> int:
    """How many run side by side: threads, or multiprocessors of a GPU."""
    options = replace(current(), device=device)
    if options.kind in GPU_KINDS:
        return target_of(options).multiprocessors
    return options.threads or usable_cores()


def _groups(padded: Sequence[int], tokens_of_run: int) -> list[list[int]]:
    """The numbers of the texts that are computed together, so that all runs together cost as little
    as can be: a run costs `tokens_of_run`, and the padded length of its longest text for each text.

    Where a run costs 4 tokens, lengths 40, 40, 40, 40, 8, 8 are computed as 4, 1 and 1: 4 + 160 +
    2 * (4 + 8) = 188. Lengths 40, 8, 8, 8 are computed one by one, for 4 * 4 + 64 = 80: all at once
    cost 4 + 4 * 40 = 164, and where a run costs 200, all at once cost less."""
    order = sorted(range(len(padded)), key=lambda number: -padded[number])
    count = len(order)
    least = [0] * (count + 1)  # the cost of the texts from each place of `order` on
    best = [0] * count  # how many texts the first run of these computes
    for at in reversed(range(count)):
        longest = padded[order[at]]
        widths = [width for width in _WIDTHS if at + width <= count]
        costs = {width: tokens_of_run + width * longest + least[at + width] for width in widths}
        best[at] = min(costs, key=lambda width: costs[width])
        least[at] = costs[best[at]]
    groups = list[list[int]]()
    at = 0
    while at < count:
        groups.append(order[at : at + best[at]])
        at += best[at]
    return groups


def _padded(length: int) -> int:
    """The least length, of those that programs are for, that is no less than `length`: a multiple
    of 4 up to 64, of 8 up to 128, of 16 up to 256 and so on."""
    power = 1 << (length - 1).bit_length()
    step = max(_SHORTEST_STEP, power // 2 // _LENGTHS_OF_POWER)
    return max(_SHORTEST, -(-length // step) * step)
