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

# Tokens of a prompt that are computed at once. A long chunk decodes the weights once for many
# tokens; a short prompt wastes the rest of a long chunk. On one core, 512 tokens of SmolLM2 took
# 3.7 s in chunks of 128 and 5.7 s in chunks of 32, and 31 tokens 0.79 s and 0.34 s (measured beside
# other work).
CHUNKS = (32, 128)

# Positions that attention reads in the programs of the shortest texts. Attention reads all
# positions of its program, so that a short text needs a short program, and a longer text one of
# twice as many positions.
_SHORTEST = 256


class Proposer(Protocol):
    """Guesses how a text goes on. count: the most tokens that it proposes at once."""

    count: int

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        """Tokens that may follow those of `text`, at most `limit`, which is no more than `count`;
        `sampling` says how the text is written."""


@dataclass
class Acceptance:
    """How many tokens were proposed for a text, and how many of these were accepted."""

    proposed: int = 0
    accepted: int = 0


@dataclass(frozen=True)
class _Step:
    """One call of a program that computes `size` tokens and chooses successors of these.

    new: the tokens of the text that the call computes, at most `size`
    first: the position of the first new token in the text
    size: the tokens that the program has. Zeros after the new tokens fill up the rest. Their keys
        and values go to positions behind the text. No token reads them there: a later token that
        has such a position overwrites them first.
    wants_all: True for the successors of all `size` tokens, False for that of the last new token
    allowed: a mask of tokens, as `Constraint.allowed` gives it, for each of the first successors.
        A successor without a mask may be any token.

    A prompt of 40 tokens whose first 32 are in the cache: 8 new tokens, first 32, size 32.
    """

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
        """The position of the first token in the text, and, if only one successor is wanted, the
        number of its predecessor among `ids`: [32, 7] in the example."""
        return [self.first] if self.wants_all else [self.first, len(self.new) - 1]

    @property
    def counts(self) -> Sequence[int]:
        """For each wanted successor, the number of `ids` before it: [8] in the example."""
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
        """The longest beginning of `tokens` that the constraint allows, and the masks of
        `Constraint.ahead`: one before each token of that beginning, one after it. Without a
        constraint all of `tokens`, and no masks."""
        return (tokens, []) if self.constraint is None else self.constraint.ahead(tokens)


class Generator:
    """Writes texts of up to `capacity` tokens with `network`, prompts included, one at a time.

    Programs have fixed shapes. For each length in `chunks` there is a program that computes as many
    tokens of a prompt; one more program computes the next token. The position in the text is a
    tensor, an input of these programs. Each program exists once for each number of positions that
    attention may read: 256, 512 and so on up to the capacity. It is compiled when a text first
    needs it.

    The cache keeps keys and values of the last text. If the next prompt begins with the same
    tokens, these are not computed again.

    proposer: guesses the next tokens. With P as `proposer.count`, one more program takes the last
        token and up to P proposals, and chooses the successor of each, by the seed and the position
        as without proposals. The text gets the proposals before the first wrong one, and then the
        chosen token in place of the wrong one. Of the proposals 5 6 7 and the choices 5 6 8 4, the
        text gets 5 6 8. So the text does not depend on proposals, but for rounding: a program of
        other shapes may add up sums in another order. `acceptance` counts the proposals for the
        last text.

    cache_dtype: int8 keeps keys and values in 8 bits, None in the dtype of the model.

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
            """The logits of successors of `ids` (1, length), with `places` as `_Step.places`: those
            of one token, (1, vocabulary), or of all, (length, vocabulary). room: the positions
            that attention reads."""
            prefixes = [cache.prefix(room) for cache in caches]
            only = places[1] if places.shape == (2,) else None
            return network(ids, prefixes, places[0], only=only)[0]

        @jit
        def greedy(ids: Tensor, places: Tensor, room: int) -> Tensor:
            """The most probable successors, in the shape of `ids`: (1, 1) or (1, length)."""
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
        constraint: says which tokens are allowed, and is told each new token.

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
        first = self._first_after(prompt, choice)
        if self._proposer is None:
            yield from self._following(first, count, choice)
        else:
            yield from self._following_proposed(first, count, choice, self._proposer)

    def _following(self, chosen: Tensor, count: int, choice: _Choice) -> Iterator[int]:
        """`count` tokens, of which `chosen` is the first.

        The host has to wait for a token to read it. Where each token is the most probable one
        (`_Choice.is_plain`), the program of the next token starts before that wait: its input is
        the tensor `chosen`, and the device works in the meantime."""
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
                chosen = self._successor(token, choice)

    def _following_proposed(
        self, chosen: Tensor, count: int, choice: _Choice, proposer: Proposer
    ) -> Iterator[int]:
        """`count` tokens, of which `chosen` is the first, with proposals for the others."""
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
        """One to `left` tokens that follow `token`: the proposals before the first wrong one, and
        the token that the model chooses after these."""
        text = [*self._held, token]
        limit = min(left - 1, proposer.count)
        guessed = proposer.propose(text, limit, choice.sampling) if limit else []
        # A draft may have a longer, padded vocabulary, and guess a number that no token here has.
        in_vocabulary = takewhile(lambda guess: guess < self._vocabulary, guessed)
        proposed, allowed = choice.ahead([*in_vocabulary])
        if not proposed:
            return [int(self._successor(token, choice).item())]
        step = _Step([token, *proposed], len(self._held), proposer.count + 1, True, allowed)
        chosen = [int(number) for number in self._successors(step, choice).numpy().flat]
        right = _common_length(proposed, chosen)
        self._held += [token, *proposed[:right]]
        self.acceptance.proposed += len(proposed)
        self.acceptance.accepted += right
        return chosen[: right + 1]

    def _first_after(self, prompt: Sequence[int], choice: _Choice) -> Tensor:
        """The token that follows the prompt. Computes the keys and values of the prompt, chunk by
        chunk, but for a beginning that the cache has from the text before. The last token is
        always computed, as its successor is wanted."""
        self._held = list(prompt[: _common_length(self._held, prompt[:-1])])
        _, allowed = choice.ahead([])
        while len(self._held) < len(prompt):
            first = len(self._held)
            size = self._chunk_of(len(prompt) - first)
            new = prompt[first : first + size]
            chosen = self._successors(_Step(new, first, size, allowed=allowed), choice)
            self._held += new
        return chosen

    def _chunk_of(self, rest: int) -> int:
        """The longest chunk that `rest` tokens fill by more than half; the shortest if they fill
        none. Of chunks of 32 and 128 tokens: 128 for 65 tokens, 32 for 64 and for 3."""
        filled = [chunk for chunk in self._chunks if rest > chunk // 2]
        return filled[-1] if filled else self._chunks[0]

    def _successor(self, token: int, choice: _Choice) -> Tensor:
        """The token that follows `token`, the last token of the text."""
        _, allowed = choice.ahead([])
        chosen = self._successors(_Step([token], len(self._held), 1, allowed=allowed), choice)
        self._held.append(token)
        return chosen

    def _successors(self, step: _Step, choice: _Choice) -> Tensor:
        """The successors that `step` wants. `_held` is the text before the step, and stays so."""
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
        """For each successor, the tokens before it that penalties count: lists of RECENT."""
        before = self._held[-RECENT:]
        return [recent_of([*before, *step.ids[:count]]) for count in step.counts]

    def _allowed(self, step: _Step) -> NDArray[np.int32]:
        """For each successor, the mask of the tokens that it may be: see `all_allowed`."""
        words = all_allowed(len(step.counts), self._vocabulary)
        for row, allowed in enumerate(step.allowed):
            words[row] = allowed
        return words

    def _room(self, end: int) -> int:
        """The positions that attention reads for a text of `end` tokens: the least power of two
        from 256 on that has them, and no more than the capacity. 512 for 300 tokens."""
        room = _SHORTEST
        while room < end:
            room *= 2
        return min(room, self.capacity)


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """The number of tokens in the longest common beginning: 2 for 5 6 7 and 5 6 8 4."""
    pairs = zip(left, right, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
