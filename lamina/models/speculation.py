"""Proposers: they guess the next tokens of a text, and `lamina.models.generate.Generator` checks
several guesses in one step.

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

# Tokens that are proposed at once. A step then computes 1 + 4 tokens, which took SmolLM2 2.6 times
# as long as one token, on one thread of a CPU. With 2 of 4 accepted, it gives 3 tokens, and pays.
PROPOSED = 4


class PromptLookup:
    """Looks for the last `size` tokens of the text earlier in the text, and proposes up to `count`
    tokens that followed them there. Of several such places it takes the last. Good for texts that
    repeat parts of themselves. Raises ArgumentError for a `count` or `size` below 1.

    After 1 2 3 9 8 1 2 3 it proposes 9 8 1 2.

    size: a single token occurs in most texts again, but with other successors: looking for 1 token,
        SmolLM2 accepted a tenth of the proposals for a story; looking for 3, it accepted all for a
        copy of some code."""

    def __init__(self, count: int = PROPOSED, size: int = 3) -> None:
        _check_count(count)
        if size < 1:
            raise ArgumentError(
                f"size: {size} tokens; 1 or more is needed", operation="PromptLookup"
            )
        self.count, self._size = count, size

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        """As `Proposer` says; [] if the last tokens do not occur earlier."""
        if len(text) <= self._size:
            return []
        # A window for each position; the last window is the end of the text itself.
        windows = sliding_window_view(np.asarray(text), self._size)
        (places,) = np.nonzero((windows[:-1] == windows[-1]).all(axis=1))
        if not len(places):
            return []
        return _continued(text, len(windows) - 1 - int(places[-1]), limit)


def _continued(text: Sequence[int], period: int, count: int) -> list[int]:
    """The next `count` tokens of a text that repeats its last `period` tokens: after 3 1 2 1 2 with
    a period of 2, the next three are 1 2 1."""
    longer = list(text)
    for _ in range(count):
        longer.append(longer[-period])
    return longer[len(text) :]


class DraftModel:
    """Proposes the tokens that a smaller model, the draft, writes after the text. The draft draws
    tokens with the same random numbers as the model, which depend on the seed and the position
    alone. So where both give similar probabilities, both draw the same token.

    draft: the smaller model. A text longer than it was trained for gets no proposals
    model: the model whose writing is to be faster
    capacity: the most tokens of a text of `model`
    count: the most tokens that are proposed at once

    Raises ArgumentError if the tokenizers differ, as token numbers would then mean other texts, and
    for a count below 1."""

    def __init__(self, draft: Model, model: Model, capacity: int, count: int = PROPOSED) -> None:
        _check_count(count)
        _check_tokenizers(draft, model)
        self.count = count
        # If all proposals are accepted, the draft has two tokens to compute: its last proposal, and
        # the token that the model added. Else it has one. So there are chunks of one token, too.
        chunks = (1, *CHUNKS)
        max_tokens = min(capacity, draft.config.context)
        self._generator = Generator(draft.writer, max_tokens, draft.device, chunks)

    def propose(self, text: Sequence[int], limit: int, sampling: Sampling) -> list[int]:
        """As `Proposer` says."""
        if len(text) > self._generator.capacity:
            return []
        return list(self._generator.tokens(text, limit, sampling))


def _check_count(count: int) -> None:
    if count < 1:
        raise ArgumentError(
            f"{count} tokens to propose; 1 or more is needed", operation="speculation"
        )


def _check_tokenizers(draft: Model, model: Model) -> None:
    """Raises ArgumentError unless both tokenizers give each token the same number."""
    numbers = draft.tokenizer.backend.get_vocab()
    wanted = model.tokenizer.backend.get_vocab()
    if numbers == wanted:
        return
    differing = [token for token, number in wanted.items() if numbers.get(token) != number]
    if differing:
        example = f"{len(differing)} of {len(wanted)} tokens differ, such as {differing[0]!r}"
    else:
        example = f"it has {len(numbers)} tokens in place of {len(wanted)}"
    raise ArgumentError(
        f"the tokenizer of the draft is another one: {example}", operation="draft",
        remedy="give a smaller model of the same family",
    )  # fmt: skip
