"""Guesses of how a text goes on, which `lamina.models.generate.Generator` checks several at once.

Sources: Saxena 2023, "Prompt lookup decoding"; Leviathan et al. 2023, "Fast inference from
transformers via speculative decoding".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from lamina.errors import ArgumentError
from lamina.models.generate import CHUNKS, Generator
from lamina.models.loading import Model
from lamina.models.sampling import Sampling

__all__ = ["PROPOSED", "DraftModel", "PromptLookup"]

# A step of five tokens of SmolLM2 took 2.6 times as long as one of one token, on a thread of a CPU.
PROPOSED = 4


class PromptLookup:
    """Proposes what followed the last `size` tokens of a text where they were before, most
    recently. A text that repeats itself goes on to do so. Raises ArgumentError for counts below 1.

    Fewer than three tokens are found too often: SmolLM2 accepted a tenth of the proposals for a
    story by their last token, and all of those for a copy of some code by the last three."""

    def __init__(self, count: int = PROPOSED, size: int = 3) -> None:
        _check(count)
        if size < 1:
            raise ArgumentError(
                f"size: {size} tokens; 1 or more is needed", operation="PromptLookup"
            )
        self.count, self._size = count, size

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        """As `Proposer` says; none where the last tokens were not there before."""
        if len(text) <= self._size:
            return []
        # Of the windows of so many tokens the last one is the end of the text itself.
        windows = sliding_window_view(np.asarray(text), self._size)
        (places,) = np.nonzero((windows[:-1] == windows[-1]).all(axis=1))
        if not len(places):
            return []
        return _continued(text, len(windows) - 1 - int(places[-1]), limit)


def _continued(text: Sequence[int], period: int, count: int) -> list[int]:
    """The next `count` tokens of a text whose tokens are those so many before them: of 3 1 2 1 2
    and a period of 2 the next three are 1 2 1."""
    longer = list(text)
    for _ in range(count):
        longer.append(longer[-period])
    return longer[len(text) :]


class DraftModel:
    """Proposes what a smaller model with the same tokenizer writes after the text, chosen in the
    same way: a token that is drawn depends on the seed and the place, so that both models draw the
    same one where they agree on what is probable.

    model: the one that is to be faster, whose texts have up to `capacity` tokens. A longer text
    than the draft was trained for gets no proposals. Raises ArgumentError for another tokenizer,
    which would give the numbers of tokens another meaning, and for a count below 1."""

    def __init__(self, draft: Model, model: Model, capacity: int, count: int = PROPOSED) -> None:
        _check(count)
        _check_tokenizers(draft, model)
        self.count = count
        # After each check one or two tokens are new.
        chunks = (1, *CHUNKS)
        room = min(capacity, draft.config.context)
        self._generator = Generator(draft.writer, room, draft.device, chunks)

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        """As `Proposer` says."""
        if len(text) > self._generator.capacity:
            return []
        return list(self._generator.tokens(text, limit, sampling))


def _check(count: int) -> None:
    if count < 1:
        raise ArgumentError(
            f"{count} tokens to propose; 1 or more is needed", operation="speculation"
        )


def _check_tokenizers(draft: Model, model: Model) -> None:
    numbers, wanted = (one.tokenizer.backend.get_vocab() for one in (draft, model))
    if numbers == wanted:
        return
    other = [token for token, number in wanted.items() if numbers.get(token) != number]
    if other:
        example = f"{len(other)} of {len(wanted)} tokens differ, such as {other[0]!r}"
    else:
        example = f"it has {len(numbers)} tokens in place of {len(wanted)}"
    raise ArgumentError(
        f"the tokenizer of the draft is another one: {example}", operation="draft",
        remedy="give a smaller model of the same family",
    )  # fmt: skip
