"""Writing text: a prompt in chunks, then token after token, with programs of fixed shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lamina.core.dtypes import DType, float32, int32, int64, uint32
from lamina.errors import ArgumentError
from lamina.frontend.jit import jit
from lamina.frontend.realize import fetch
from lamina.frontend.tensor import Tensor
from lamina.models.language_model import LanguageModel
from lamina.models.sampling import (
    RECENT,
    Sampling,
    all_allowed,
    best,
    drawn,
    drawn_with_limits,
    recent_of,
)
from lamina.text.schema import Constraint

__all__ = ["Acceptance", "Generator", "Proposer"]

# Tokens of a prompt that are computed at once. Weights are decoded once for a chunk, and a short
# prompt fills up a long one: 512 tokens of SmolLM2 took a core 3.7 s in chunks of 128 and 5.7 s in
# chunks of 32, 31 tokens 0.79 s and 0.34 s (measured beside other work).
CHUNKS = (32, 128)

# Positions that the shortest programs have: attention reads all positions of a program, so that a
# longer text has one for twice as many.
_SHORTEST = 256


class Proposer(Protocol):
    """Guesses how a text goes on. count: the most tokens that it proposes at once."""

    count: int

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        """Tokens that may follow those of `text`, at most `limit`, which is no more than `count`;
        `sampling` says how the text is written."""


@dataclass
class Acceptance:
    """How many tokens were proposed for a text, and how many of these it has."""

    proposed: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class _Step:
    """The inputs of a program for `size` tokens. new: the first of these, which begin at the place
    `first` of the text; others fill it up. What fills it up is written behind the text, and read by
    no token of it: each one writes its own keys and values first.

    wants_all: the successors of all tokens are wanted, not of the last new one alone. allowed: as
    `Constraint.allowed` says of the first of these successors, the second and so on; of others, and
    where it is empty, any token may come."""

    new: Sequence[int]
    first: int
    size: int
    wants_all: bool = False
    allowed: Sequence[NDArray[np.int32]] = ()

    @property
    def ids(self) -> list[int]:
        return [*self.new, *[0] * (self.size - len(self.new))]

    @property
    def places(self) -> list[int]:
        """What programs read beside `ids`."""
        return [self.first] if self.wants_all else [self.first, len(self.new) - 1]

    @property
    def counts(self) -> Sequence[int]:
        """How many of `ids` come before each successor that is wanted."""
        return range(1, self.size + 1) if self.wants_all else [len(self.new)]


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

    def ahead(self, tokens: Sequence[int]) -> tuple[Sequence[int], list[NDArray[np.int32]]]:
        """As many of `tokens` as may come next one after another, and `Constraint.allowed` before
        each of these and after the last; an empty list where any token may come always."""
        return (tokens, []) if self.constraint is None else self.constraint.ahead(tokens)


class Generator:
    """Writes with `network` texts of up to `capacity` tokens, prompts included.

    A program for each length among `chunks` computes so many tokens of a prompt, another one the
    next token, all at any place of the text: the place is a tensor. There is one of each for 256
    positions, for 512 and so on up to the capacity. What the cache holds of an earlier text that
    begins alike is not computed again. It writes one text at a time.

    proposer: guesses tokens. One more program then computes what follows the last token and each of
    as many proposals as there are at most. Each successor is chosen as it is without proposals, by
    the seed and the place. Proposals before the first wrong one are accepted, and the token in the
    place of that one is known as well. So the text is the same one, but for the last bits of sums,
    which a program of other shapes may add in another order. `acceptance` counts the proposals for
    the last text.

    cache_dtype: int8 keeps keys and values in 8 bits, None in those of the model.

    Raises ArgumentError for a capacity below 1, and DTypeError for another `cache_dtype`.

    Sources: Leviathan et al. 2023, "Fast inference from transformers via speculative decoding";
    Daliri et al. 2024, "Coupling without communication and drafter-invariant speculative
    decoding"."""

    def __init__(
        self, network: LanguageModel, capacity: int, device: str, chunks: Sequence[int] = CHUNKS,
        proposer: Proposer | None = None, cache_dtype: DType | None = None,
    ) -> None:  # fmt: skip
        if capacity < 1:
            raise ArgumentError(
                f"a capacity of {capacity} tokens; 1 or more is needed", operation="Generator"
            )
        self.capacity, self._device = capacity, device
        self.acceptance = Acceptance()
        self._vocabulary, self._proposer = network.vocabulary, proposer
        self._chunks = sorted({min(chunk, capacity) for chunk in chunks})
        self._held: list[int] = []  # the tokens whose keys and values are in the caches
        caches = network.new_caches(1, capacity, device, cache_dtype)

        def logits(ids: Tensor, places: Tensor, room: int) -> Tensor:
            """After the token whose place among `ids` is the second of `places`, or after each one:
            (1 or length, vocabulary). The first is that of ids[0] in the text. room: positions
            that a text has."""
            texts = [cache.prefix(room) for cache in caches]
            only = places[1] if places.shape == (2,) else None
            return network(ids, texts, places[0], only=only)[0]

        @jit
        def greedy(ids: Tensor, places: Tensor, room: int) -> Tensor:
            """As `ids` of the next tokens: (1, 1 or length)."""
            return best(logits(ids, places, room)).unsqueeze(0)

        @jit
        def sampled(
            ids: Tensor, places: Tensor, room: int, numbers: Tensor, keys: Tensor
        ) -> Tensor:
            return drawn(logits(ids, places, room), numbers, keys)

        @jit
        def limited(
            ids: Tensor, places: Tensor, room: int, numbers: Tensor, keys: Tensor, recent: Tensor,
            allowed: Tensor,
        ) -> Tensor:  # fmt: skip
            return drawn_with_limits(logits(ids, places, room), numbers, keys, recent, allowed)

        self._greedy: Callable[..., Tensor] = greedy
        self._sampled: Callable[..., Tensor] = sampled
        self._limited: Callable[..., Tensor] = limited

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
        self.acceptance = Acceptance()
        first = self._read(prompt, choice)
        if self._proposer is None:
            yield from self._following(first, count, choice)
        else:
            yield from self._following_proposed(first, count, choice, self._proposer)

    def _following(self, chosen: Tensor, count: int, choice: _Choice) -> Iterator[int]:
        """`count` tokens, of which `chosen` is the first. Where the next one depends on this one
        alone, its program is begun before the host reads this one, which takes as long."""
        for left in reversed(range(count)):
            runs_ahead = choice.is_plain and fetch(chosen)
            following = None
            if left and runs_ahead:
                place = len(self._held)
                places = Tensor([place, 0], int64, self._device)
                following = self._greedy(chosen, places, self._room(place + 1))
            token = int(chosen.item())
            if following is not None:
                self._held.append(token)
            if choice.constraint is not None:
                choice.constraint.add(token)
            yield token
            if following is not None:
                chosen = following
            elif left:
                chosen = self._after(token, choice)

    def _following_proposed(
        self, chosen: Tensor, count: int, choice: _Choice, proposer: Proposer
    ) -> Iterator[int]:
        """`count` tokens, of which `chosen` is the first."""
        new = [int(chosen.item())]
        left = count
        while True:
            for token in new:
                if choice.constraint is not None:
                    choice.constraint.add(token)
                yield token
            left -= len(new)
            if not left:
                return
            new = self._accepted(new[-1], left, choice, proposer)

    def _accepted(
        self, token: int, left: int, choice: _Choice, proposer: Proposer
    ) -> list[int]:
        """The tokens that follow `token`, at most `left`: the proposals that are right, and one
        more."""
        text = [*self._held, token]
        limit = min(left - 1, proposer.count)
        guessed = proposer.propose(text, limit, choice.sampling) if limit else []
        are_known = takewhile(lambda guess: guess < self._vocabulary, guessed)
        proposed, allowed = choice.ahead([*are_known])
        if not proposed:
            return [int(self._after(token, choice).item())]
        step = _Step([token, *proposed], len(self._held), proposer.count + 1, True, allowed)
        chosen = [int(number) for number in self._chosen(step, choice).numpy().flat]
        right = _alike(proposed, chosen)
        self._held += [token, *proposed[:right]]
        self.acceptance.proposed += len(proposed)
        self.acceptance.accepted += right
        return chosen[: right + 1]

    def _read(self, prompt: Sequence[int], choice: _Choice) -> Tensor:
        """The token that follows the prompt, whose chunks are computed."""
        self._held = list(prompt[: _alike(self._held, prompt[:-1])])
        _, allowed = choice.ahead([])
        while len(self._held) < len(prompt):
            first = len(self._held)
            size = self._chunk_of(len(prompt) - first)
            new = prompt[first : first + size]
            chosen = self._chosen(_Step(new, first, size, allowed=allowed), choice)
            self._held += new
        return chosen

    def _chunk_of(self, rest: int) -> int:
        """The longest chunk that `rest` tokens fill by more than half, or the shortest."""
        filled = [chunk for chunk in self._chunks if rest > chunk // 2]
        return filled[-1] if filled else self._chunks[0]

    def _after(self, token: int, choice: _Choice) -> Tensor:
        """What follows `token`, the text's last one."""
        _, allowed = choice.ahead([])
        chosen = self._chosen(_Step([token], len(self._held), 1, allowed=allowed), choice)
        self._held.append(token)
        return chosen

    def _chosen(self, step: _Step, choice: _Choice) -> Tensor:
        """The successors that are wanted. What is held is the text before the step."""
        device, sampling = self._device, choice.sampling
        ids = Tensor([step.ids], int64, device)
        places = Tensor(step.places, int64, device)
        room = self._room(step.first + len(step.new))
        if choice.is_plain:
            return self._greedy(ids, places, room)
        numbers = Tensor([sampling.numbers()] * len(step.counts), float32, device)
        steps = [sampling.key(step.first + count - 1) for count in step.counts]
        keys = Tensor(steps, uint32, device)
        if not choice.is_limited:
            return self._sampled(ids, places, room, numbers, keys)
        recent = Tensor(self._recent(step), int64, device)
        allowed = Tensor(self._allowed(step), int32, device)
        return self._limited(ids, places, room, numbers, keys, recent, allowed)

    def _recent(self, step: _Step) -> list[list[int]]:
        """The tokens that penalties count, for each successor."""
        before = self._held[-RECENT:]
        return [recent_of([*before, *step.ids[:count]]) for count in step.counts]

    def _allowed(self, step: _Step) -> NDArray[np.int32]:
        """The tokens that each successor may be."""
        words = all_allowed(len(step.counts), self._vocabulary)
        for row, allowed in enumerate(step.allowed):
            words[row] = allowed
        return words

    def _room(self, end: int) -> int:
        """The positions of the shortest program for a text of `end` tokens: 512 for 300."""
        room = _SHORTEST
        while room < end:
            room *= 2
        return min(room, self.capacity)


def _alike(one: Sequence[int], other: Sequence[int]) -> int:
    """With how many equal tokens both begin."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
