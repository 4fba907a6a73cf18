"""Text that fits a JSON schema: which tokens may come next.

The package `llguidance` (the extra ``json``) makes a grammar of bytes from a schema. Its state
after the tokens of a text says of each token of the vocabulary whether a text that fits may go on
with it. The program that chooses tokens leaves the others out.
Source: Willard and Louf 2023, "Efficient Guided Generation for Large Language Models".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lamina.errors import ArgumentError, FormatError
from lamina.text.extra import package
from lamina.text.tokenizer import Tokenizer

__all__ = ["Constraint", "Schemas"]

_LONGEST_REASON = 300  # characters
# Spaces are those of `json.dumps`: where any were allowed, a model could write them for ever.
_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Constraint:
    """Which tokens may come next in one text, of which it is told each new one."""

    def __init__(self, matcher: Any, words: int) -> None:
        self._matcher, self._words = matcher, words

    def copy(self) -> Constraint:
        """For another text, with the same tokens so far."""
        return Constraint(self._matcher.deep_copy(), self._words)

    def allowed(self) -> NDArray[np.int32]:
        """int32 (ceil(vocabulary / 32),): bit i of word w is set where the token 32 w + i may come
        next. Where the text may end, the tokens that end it are among these."""
        words = np.zeros(self._words, np.int32)
        self._matcher.unsafe_compute_mask_ptr(words.ctypes.data, words.nbytes)
        return words

    def add(self, token: int) -> None:
        """Go on behind `token`, the text's next one."""
        self._matcher.consume_token(token)

    def ahead(self, tokens: Sequence[int]) -> tuple[Sequence[int], list[NDArray[np.int32]]]:
        """As many of `tokens` as may come next one after another, and what is `allowed` before each
        of these and after the last. It is told none of them."""
        text = self.copy()
        allowed = [text.allowed()]
        for count, token in enumerate(tokens):
            if not allowed[-1][token // 32] >> (token % 32) & 1:
                return tokens[:count], allowed
            text.add(token)
            allowed.append(text.allowed())
        return tokens, allowed

    @property
    def is_broken(self) -> bool:
        """Whether the package gave up, as the state became too large: what follows may not fit."""
        return bool(self._matcher.is_error())


class Schemas:
    """Constraints for the texts of one model. vocabulary: the tokens that its logits have, which
    may be more than its tokenizer has."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: int) -> None:
        self._tokenizer, self._vocabulary = tokenizer, vocabulary

    def constraint(self, schema: Mapping[str, Any]) -> Constraint:
        """Of a text that has no tokens yet. Raises ArgumentError, with the reason, for what is no
        schema or has parts that the package does not know; FormatError for a model that no text of
        JSON can be written with; MissingPackageError."""
        matcher = package("llguidance", "json").LLMatcher
        tokens = self._tokens
        try:
            grammar = matcher.grammar_from_json_schema(dict(schema), overrides=_SPACES)
        except ValueError as error:  # such as half of a pair of surrogates
            raise ArgumentError(str(error), operation="schema") from None
        made = matcher(tokens, grammar, log_level=0)
        if made.is_error():
            raise ArgumentError(_short(made.get_error()), operation="schema")
        return Constraint(made, -(-self._vocabulary // 32))

    @cached_property
    def _tokens(self) -> Any:
        """The bytes of each token: 0.4 s for 49,152 tokens, so they are made once."""
        stops = sorted(stop for stop in self._tokenizer.stops if stop < self._vocabulary)
        if not stops:
            raise FormatError("schema: this model has no token that ends a text")
        tables = self._tokenizer.backend.to_str()
        try:
            return package("llguidance", "json").LLTokenizer(tables, self._vocabulary, stops)
        except ValueError as error:
            raise FormatError(f"schema: the tokenizer of this model: {error}") from None


def _short(reason: str) -> str:
    """In a line. The package repeats all of a pattern before it says what is wrong with it."""
    line = " ".join(reason.split())
    half = _LONGEST_REASON // 2
    return line if len(line) <= _LONGEST_REASON else f"{line[:half]} ... {line[-half:]}"
