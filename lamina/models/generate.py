"""Writing text: a prompt in chunks, then token after token, with programs of fixed shapes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from lamina.core.dtypes import float32, int32, int64, uint32
from lamina.errors import ArgumentError
from lamina.frontend.jit import jit
from lamina.frontend.realize import fetch
from lamina.frontend.tensor import Tensor
from lamina.models.language_model import LanguageModel
from lamina.models.sampling import (
    Sampling,
    all_allowed,
    best,
    drawn,
    drawn_with_limits,
    recent_of,
)
from lamina.text.schema import Constraint

__all__ = ["Generator"]

# Tokens of a prompt that are computed at once. Weights are decoded once for a chunk, and a short
# prompt fills up a long one: 512 tokens of SmolLM2 took a core 3.7 s in chunks of 128 and 5.7 s in
# chunks of 32, 31 tokens 0.79 s and 0.34 s (measured beside other work).
CHUNKS = (32, 128)

# Positions that the shortest programs have: attention reads all positions of a program, so that a
# longer text has one for twice as many.
_SHORTEST = 256


@dataclass(frozen=True)
class _Step:
    """The inputs of a program: tokens, the place of the first in the text, and the place among
    them of the one whose successor is wanted."""

    ids: Sequence[int]
    first: int
    last: int


@dataclass(frozen=True)
class _Choice:
    """How the tokens of a text are chosen."""

    sampling: Sampling
    constraint: Constraint | None

    @property
    def is_plain(self) -> bool:
        return self.sampling.is_plain and self.constraint is None

    @property
    def is_limited(self) -> bool:
        return self.sampling.is_limited or self.constraint is not None


class Generator:
    """Writes with `network` texts of up to `capacity` tokens, prompts included.

    A program for each length among `chunks` computes so many tokens of a prompt, another one the
    next token, all at any place of the text: the place is a tensor. There is one of each for 256
    positions, for 512 and so on up to the capacity. What the cache holds of an earlier text that
    begins alike is not computed again. It writes one text at a time. Raises ArgumentError for a
    capacity below 1."""

    def __init__(
        self, network: LanguageModel, capacity: int, device: str, chunks: Sequence[int] = CHUNKS
    ) -> None:
        if capacity < 1:
            raise ArgumentError(
                f"a capacity of {capacity} tokens; 1 or more is needed", operation="Generator"
            )
        self.capacity, self._device = capacity, device
        self._vocabulary = network.vocabulary
        self._chunks = sorted({min(chunk, capacity) for chunk in chunks})
        self._held: list[int] = []  # the tokens whose keys and values are in the caches
        caches = network.new_caches(1, capacity, device)

        @jit
        def greedy(ids: Tensor, places: Tensor, room: int) -> Tensor:
            """As `ids` of the next token: (1, 1). room: positions that a text has."""
            texts = [cache.prefix(room) for cache in caches]
            return best(network(ids, texts, places[0], only=places[1]))

        @jit
        def sampled(
            ids: Tensor, places: Tensor, room: int, numbers: Tensor, keys: Tensor
        ) -> Tensor:
            texts = [cache.prefix(room) for cache in caches]
            logits = network(ids, texts, places[0], only=places[1])[:, 0]
            return drawn(logits, numbers, keys)

        @jit
        def limited(
            ids: Tensor, places: Tensor, room: int, numbers: Tensor, keys: Tensor, recent: Tensor,
            allowed: Tensor,
        ) -> Tensor:  # fmt: skip
            texts = [cache.prefix(room) for cache in caches]
            logits = network(ids, texts, places[0], only=places[1])[:, 0]
            return drawn_with_limits(logits, numbers, keys, recent, allowed)

        self._greedy, self._sampled, self._limited = greedy, sampled, limited

    def tokens(
        self, prompt: Sequence[int], limit: int, sampling: Sampling | None = None,
        constraint: Constraint | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """The tokens that follow `prompt`, at most `limit`, and none beyond the capacity.
        constraint: of these tokens, each of which it is told.

        Raises ArgumentError for a prompt without tokens, one that does not fit, and a limit below
        1."""
        if limit < 1:
            raise ArgumentError(
                f"a limit of {limit} new tokens; 1 or more is needed", operation="generate"
            )
        if not prompt:
            raise ArgumentError("the prompt has no tokens; give it a text", operation="generate")
        if len(prompt) > self.capacity:
            raise ArgumentError(
                f"the prompt has {len(prompt)} tokens, {self.capacity} fit; shorten it, "
                "or give more room where the model was trained for it",
                operation="generate",
            )
        choice = _Choice(sampling or Sampling(), constraint)
        count = min(limit, self.capacity - len(prompt) + 1)
        yield from self._following(self._read(prompt, choice), count, choice)

    def _following(self, chosen: Tensor, count: int, choice: _Choice) -> Iterator[int]:
        """`count` tokens, of which `chosen` is the first. Where the next one depends on this one
        alone, its program is begun before the host reads this one, which takes as long."""
        for left in reversed(range(count)):
            runs_ahead = choice.is_plain and fetch(chosen)
            following = None
            if left and runs_ahead:
                place = len(self._held)
                following = self._greedy(chosen, self._places(place, 0), self._room(place + 1))
            token = int(chosen.item())
            if following is not None:
                self._held.append(token)
            if choice.constraint is not None:
                choice.constraint.add(token)
            yield token
            if following is not None:
                chosen = following
            elif left:
                chosen = self._next(_Step([token], len(self._held), 0), choice)

    def _read(self, prompt: Sequence[int], choice: _Choice) -> Tensor:
        """The token that follows the prompt, whose chunks are computed."""
        pairs = zip(self._held, prompt[:-1], strict=False)
        known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self._held = list(prompt[:known])
        while len(self._held) < len(prompt):
            first = len(self._held)
            size = self._chunk_of(len(prompt) - first)
            new = list(prompt[first : first + size])
            # What fills up the last chunk is written behind the text, and read by no token of it:
            # each one writes its own keys and values first.
            filled = new + [0] * (size - len(new))
            chosen = self._next(_Step(filled, first, len(new) - 1), choice)
        return chosen

    def _chunk_of(self, rest: int) -> int:
        """The longest chunk that `rest` tokens fill by more than half, or the shortest."""
        filled = [chunk for chunk in self._chunks if rest > chunk // 2]
        return filled[-1] if filled else self._chunks[0]

    def _next(self, step: _Step, choice: _Choice) -> Tensor:
        device, sampling = self._device, choice.sampling
        ids = Tensor([step.ids], int64, device)
        places = self._places(step.first, step.last)
        new = step.ids[: step.last + 1]
        room = self._room(step.first + len(new))
        numbers = Tensor([sampling.numbers()], float32, device)
        keys = Tensor([sampling.key(step.first + step.last)], uint32, device)
        chosen: Tensor
        if choice.is_plain:
            chosen = self._greedy(ids, places, room)
        elif not choice.is_limited:
            chosen = self._sampled(ids, places, room, numbers, keys)
        else:
            recent = recent_of([*self._held[: step.first], *new])
            last = Tensor([recent], int64, device)
            allowed = self._allowed(choice.constraint)
            chosen = self._limited(ids, places, room, numbers, keys, last, allowed)
        self._held[step.first :] = new
        return chosen

    def _allowed(self, constraint: Constraint | None) -> Tensor:
        """The tokens that may come next, of one text."""
        words = all_allowed(1, self._vocabulary)
        if constraint is not None:
            words[0] = constraint.allowed()
        return Tensor(words, int32, self._device)

    def _room(self, end: int) -> int:
        """The positions of the shortest program for a text of `end` tokens: 512 for 300."""
        room = _SHORTEST
        while room < end:
            room *= 2
        return min(room, self.capacity)

    def _places(self, first: int, last: int) -> Tensor:
        return Tensor([first, last], int64, self._device)
