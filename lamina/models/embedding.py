"""Texts to vectors, which are close to one another for texts that mean the same.

Texts are sorted by their lengths and computed some at a time: 16, then 4, then 1, so that no row of
a program is empty. Each program is for a number of texts and a length that they are padded to.
There are few lengths, at most four from a power of two to the next, so that programs are few.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lamina.errors import ArgumentError
from lamina.frontend.functions.elementwise import maximum
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from lamina.models.sentences import Pooling, SentenceSettings
from lamina.models.text_encoder import TextEncoder
from lamina.text.tokenizer import Tokenizer

__all__ = ["Embedder", "pooled"]

Array = Any  # numpy.ndarray
_WIDTHS = (16, 4, 1)  # texts of a program
_SHORTEST = 8  # tokens of the shortest program


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
        for group in _groups([len(tokens) for tokens in texts]):
            vectors[group] = self._run([texts[number] for number in group])
        return vectors

    def _check(self, tokens: Sequence[int]) -> None:
        longest = self.settings.longest
        if not 0 < len(tokens) <= longest:
            raise ArgumentError(
                f"{len(tokens)} tokens of a text; 1 to {longest} are needed", operation="embed"
            )
        if not all(0 <= token < self.vocabulary for token in tokens):
            reason = f"a number of a token is from 0 to {self.vocabulary - 1}"
            raise ArgumentError(reason, operation="embed")

    def _run(self, texts: Sequence[Sequence[int]]) -> Array:
        """The vectors of texts that one program computes, (texts, size)."""
        length = min(_padded(max(map(len, texts))), self.settings.longest)
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


def _groups(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of the texts that are computed together: the longest first, with others that are
    about as long."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        width = next(width for width in _WIDTHS if width <= len(order))
        yield order[:width]
        order = order[width:]


def _padded(length: int) -> int:
    """The length of the program for texts of up to `length` tokens: a multiple of 8 up to 64, of 16
    up to 128, of 32 up to 256 and so on."""
    power = 1 << (length - 1).bit_length()
    step = max(_SHORTEST, power // 8)
    return -(-length // step) * step
