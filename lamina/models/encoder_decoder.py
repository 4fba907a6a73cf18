"""What every model is that writes one sequence while it reads another: an encoder, and a decoder
whose tokens see the vectors of the encoder; and how it writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from lamina.core.dtypes import int64
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.jit import jit
from lamina.frontend.tensor import Tensor
from lamina.models.language_model import KeyShape
from lamina.models.multi_head import Memory
from lamina.models.network import Network
from lamina.models.parts import Cache
from lamina.models.sampling import best

__all__ = ["EncoderDecoder", "SequenceWriter"]


class EncoderDecoder(Network, ABC):
    """What is read, and the tokens (batch, length) that are written, to the logits of each next
    token, (batch, length, vocabulary). keys: of the decoder."""

    keys: KeyShape

    def __call__(self, inputs: Tensor, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """As the text is known, in training: all tokens at once. mask: bool (batch, length), which
        of the inputs are not padding; by default all."""
        return self.decoded(ids, self.memories(self.encoded(inputs, mask)), mask)

    @abstractmethod
    def encoded(self, inputs: Tensor, mask: Tensor | None = None) -> Tensor:
        """The vectors of what is read: (batch, length, size)."""

    @abstractmethod
    def memories(self, vectors: Tensor) -> list[Memory]:
        """What each layer of the decoder sees of these vectors: the same for all tokens."""

    @abstractmethod
    def vectors(
        self, ids: Tensor, memories: Sequence[Memory], mask: Tensor | None,
        caches: Sequence[Cache | None], first: Tensor | None,
    ) -> Tensor:  # fmt: skip
        """The vectors of tokens after all layers of the decoder, (batch, length, size)."""

    @abstractmethod
    def logits(self, x: Tensor) -> Tensor:
        """Of vectors (..., size): (..., vocabulary)."""

    def decoded(
        self, ids: Tensor, memories: Sequence[Memory], mask: Tensor | None = None,
        caches: Sequence[Cache] | None = None, first: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """The logits after tokens. caches: of each layer, which the tokens are added to; `first` is
        then the position of the first one, a scalar.

        Raises ShapeError for ids that have no two axes, and other numbers of memories or caches."""
        name, layers = type(self).__name__, self.keys.layers
        if ids.ndim != 2:
            raise ShapeError(
                f"tokens of shape {ids.shape}; (batch, length) is needed", operation=name
            )
        for what, given in (("memories", memories), ("caches", caches)):
            if given is not None and len(given) != layers:
                raise ShapeError(f"{len(given)} {what} for {layers} layers", operation=name)
        caches_or_none = [None] * layers if caches is None else caches
        return self.logits(self.vectors(ids, memories, mask, caches_or_none, first))

    def new_caches(self, batch: int, capacity: int, device: str | None = None) -> list[Cache]:
        """Empty ones for each layer of the decoder."""
        keys = self.keys
        return [
            Cache(batch, keys.heads, capacity, keys.size, device, keys.dtype)
            for _ in range(keys.layers)
        ]


@dataclass(frozen=True, eq=False)
class _Read:
    """What was read: the memories of the layers, and which inputs are not padding."""

    memories: list[Memory]
    mask: Tensor | None


class SequenceWriter:
    """Writes one text at a time with `network`, always the most probable token; a text and the
    tokens that it starts with have up to `capacity` tokens. There is a program that reads for each
    length of what is read, and one that computes the next token at any place. Raises ArgumentError
    for a capacity below 1."""

    def __init__(self, network: EncoderDecoder, capacity: int, device: str) -> None:
        if capacity < 1:
            raise ArgumentError(
                f"a capacity of {capacity} tokens; 1 or more is needed", operation="SequenceWriter"
            )
        self.capacity, self._device = capacity, device
        self._held: _Read | None = None
        caches = network.new_caches(1, capacity, device)

        @jit
        def read(inputs: Tensor, mask: Tensor | None) -> list[Memory]:
            return network.memories(network.encoded(inputs, mask))

        @jit
        def step(
            ids: Tensor, first: Tensor, penalties: Tensor, memories: list[Memory],
            mask: Tensor | None,
        ) -> Tensor:  # fmt: skip
            """As `ids` of the next token: (1, 1)."""
            return best(network.decoded(ids, memories, mask, caches, first) + penalties)

        self._read: Callable[..., list[Memory]] = read
        self._step: Callable[..., Tensor] = step

    def read(self, inputs: Tensor, mask: Tensor | None = None) -> None:
        """What the next texts are written about, as `EncoderDecoder.encoded` has it."""
        self._held = _Read(self._read(inputs, mask), mask)

    def next_token(self, token: int, place: int, penalties: Tensor) -> int:
        """The token that follows `token`, which is at `place`, and those that were at the places
        before. penalties: (vocabulary,), which are added to the logits, 0 or minus infinity."""
        if self._held is None:
            raise ArgumentError("nothing was read", operation="SequenceWriter.next_token")
        ids = Tensor([[token]], int64, self._device)
        first = Tensor(place, int64, self._device)
        held = self._held
        return int(self._step(ids, first, penalties, held.memories, held.mask).item())

    def tokens(
        self, start: Sequence[int], limit: int, stops: Collection[int], penalties: Tensor,
        first_penalties: Tensor | None = None,
    ) -> Iterator[int]:  # fmt: skip
        """The tokens that follow those of `start`, at most `limit`, and none beyond the capacity;
        one of `stops` is the last. first_penalties: for the first token, if they differ.

        Raises ArgumentError for a start without tokens or one that does not fit."""
        if not 1 <= len(start) <= self.capacity:
            raise ArgumentError(
                f"a start of {len(start)} tokens; 1 to {self.capacity} are needed",
                operation="SequenceWriter.tokens",
            )
        if first_penalties is None:
            first_penalties = penalties
        for place, token in enumerate(start):
            chosen = self.next_token(token, place, first_penalties)
        place = len(start)
        for _ in range(min(limit, self.capacity - len(start) + 1)):
            yield chosen
            if chosen in stops or place == self.capacity:
                return
            chosen = self.next_token(chosen, place, penalties)
            place += 1
