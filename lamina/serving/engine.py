"""The programs of a server: one computes a chunk of a prompt, one the next token of many texts.

Texts have their keys and values in pages (`lamina.models.paged`), so that a program is the same
whichever texts it is for and however long they are. There are a few of each kind:

    widths     1 text, 4, 16 and so on up to the slots; rows without a text compute for nobody
    lengths    room for 128 positions of each text, for twice as many, and so on: attention reads
               all of the room that a program has
    draws      the most probable token; one drawn from all tokens, with a temperature and min-p; or
               with top-k, top-p, penalties and constraints as well, if a text of the batch asks
               for these
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamina.core.dtypes import DType
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from lamina.models.language_model import LanguageModel
from lamina.models.sampling import (
    RECENT,
    Sampling,
    all_allowed,
    best,
    drawn,
    drawn_with_limits,
)

__all__ = ["Engine", "Room", "Row"]

_SHORTEST = 128  # positions of the shortest programs; the next have twice as many
_GROWTH = 4  # how many times as many texts the next widths have


@dataclass(frozen=True)
class Room:
    """How much an engine holds. slots: texts that are written at once. capacity: tokens of a text.
    pages, page_size: of the caches, in tokens. chunk: tokens of a prompt that are computed at
    once."""

    slots: int
    capacity: int
    pages: int
    page_size: int
    chunk: int


@dataclass(frozen=True)
class Row:
    """One text in a step. tokens: new ones, the first of which is number `first` of the text; the
    token after the last one is wanted. pages: of all tokens so far, by number. recent: as
    `recent_of` the text says. allowed: as `Constraint.allowed` says; None allows all tokens."""

    tokens: Sequence[int]
    first: int
    pages: Sequence[int]
    recent: Sequence[int]
    sampling: Sampling
    allowed: NDArray[np.int32] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the best token by the logits is wanted."""
        return self.sampling.is_plain and self.allowed is None

    @property
    def is_limited(self) -> bool:
        """Whether it needs the program with limits."""
        return self.sampling.is_limited or self.allowed is not None


class Engine:
    """Computes next tokens with `network`, whose keys and values it keeps in pages, in 8 bits where
    `cache_dtype` is int8."""

    def __init__(
        self, network: LanguageModel, room: Room, device: str, cache_dtype: DType | None = None
    ) -> None:
        self.room, self._device = room, device
        self._vocabulary = network.vocabulary
        caches = network.new_pages(room.pages, room.page_size, device, cache_dtype)

        @jit
        def greedy(ids: Tensor, first: Tensor, last: Tensor, table: Tensor) -> Tensor:
            texts = [cache.texts(table) for cache in caches]
            return best(network(ids, texts, first, only=last)[:, 0])

        @jit
        def sampled(
            ids: Tensor, first: Tensor, last: Tensor, table: Tensor, numbers: Tensor, keys: Tensor
        ) -> Tensor:
            texts = [cache.texts(table) for cache in caches]
            return drawn(network(ids, texts, first, only=last)[:, 0], numbers, keys)

        @jit
        def limited(
            ids: Tensor, first: Tensor, last: Tensor, table: Tensor, numbers: Tensor, keys: Tensor,
            recent: Tensor, allowed: Tensor,
        ) -> Tensor:  # fmt: skip
            texts = [cache.texts(table) for cache in caches]
            logits = network(ids, texts, first, only=last)[:, 0]
            return drawn_with_limits(logits, numbers, keys, recent, allowed)

        self._greedy, self._sampled, self._limited = greedy, sampled, limited

    def read(self, row: Row) -> int:
        """Compute a chunk of a prompt; the token that follows it."""
        return self._run([row], 1, self.room.chunk)[0]

    def write(self, rows: Sequence[Row]) -> list[int]:
        """The next token of each text, all of which have one new token."""
        width = 1
        while width < len(rows):
            width *= _GROWTH
        return self._run(rows, min(width, self.room.slots), 1)[: len(rows)]

    def _run(self, rows: Sequence[Row], width: int, length: int) -> list[int]:
        """The next tokens of a program for `width` texts with `length` new tokens each."""
        end = max(row.first + len(row.tokens) for row in rows)
        ids = np.zeros((width, length), np.int64)
        first = np.zeros(width, np.int64)
        last = np.asarray(len(rows[0].tokens) - 1)  # a chunk is of one text
        table = np.full((width, self._table_size(end)), self.room.pages)  # of no pages
        for at, row in enumerate(rows):
            held = row.pages[: -(-(row.first + len(row.tokens)) // self.room.page_size)]
            ids[at, : len(row.tokens)] = row.tokens
            first[at] = row.first
            table[at, : len(held)] = held
        inputs = [self._tensor(one) for one in (ids, first, last, table)]
        if all(row.is_plain for row in rows):
            result = self._greedy(*inputs)
        elif not any(row.is_limited for row in rows):
            result = self._sampled(*inputs, *self._draws(rows, width))
        else:
            limits = [self._recent(rows, width), self._allowed(rows, width)]
            result = self._limited(*inputs, *self._draws(rows, width), *limits)
        return [int(token) for token in result.numpy()]

    def _draws(self, rows: Sequence[Row], width: int) -> list[Tensor]:
        """The numbers and keys that `drawn` needs beside logits."""
        numbers = np.zeros((width, len(Sampling().numbers())), np.float32)
        keys = np.zeros((width, 2), np.uint32)
        for at, row in enumerate(rows):
            numbers[at] = row.sampling.numbers()
            keys[at] = row.sampling.key(row.first + len(row.tokens) - 1)
        return [self._tensor(numbers), self._tensor(keys)]

    def _recent(self, rows: Sequence[Row], width: int) -> Tensor:
        """The tokens that penalties count."""
        recent = np.full((width, RECENT), -1)
        for at, row in enumerate(rows):
            recent[at] = row.recent
        return self._tensor(recent)

    def _allowed(self, rows: Sequence[Row], width: int) -> Tensor:
        """The tokens that may come next."""
        words = all_allowed(width, self._vocabulary)
        for at, row in enumerate(rows):
            if row.allowed is not None:
                words[at] = row.allowed
        return self._tensor(words)

    def _table_size(self, end: int) -> int:
        """The pages of a text in the shortest program that has room for `end` tokens."""
        tokens = _SHORTEST
        while tokens < end:
            tokens *= 2
        return -(-min(tokens, self.room.capacity) // self.room.page_size)

    def _tensor(self, array: Any) -> Tensor:
        return Tensor(array, device=self._device)
