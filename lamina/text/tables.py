"""The tables of a tokenizer in the metadata of a GGUF file, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lamina.errors import FormatError

__all__ = ["BYTE", "CONTROL", "NORMAL", "UNKNOWN", "USER_DEFINED", "Tables"]

# Types of tokens. Special ones are written by the model and by templates; a byte is what a
# character that is no token is made of.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


@dataclass(frozen=True)
class Tables:
    """The metadata of a GGUF file below ``tokenizer.``. Methods raise FormatError, which names the
    field, for values that are not what they say."""

    metadata: Mapping[str, Any]

    def fail(self, name: str, reason: str) -> FormatError:
        """The error to raise for the value ``tokenizer.NAME``."""
        return FormatError(f"tokenizer.{name}: {reason}")

    def optional(self, name: str, kind: type, fallback: Any = None) -> Any:
        """The value ``tokenizer.NAME``, a `kind`; the fallback where it is missing."""
        value = self.metadata.get(f"tokenizer.{name}")
        if value is None:
            return fallback
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(name, f"{type(value).__name__}, not {kind.__name__}")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        value = self.optional(name, list)
        if value is None:
            raise self.fail(name, "missing")
        if not all(isinstance(text, str) for text in value):
            raise self.fail(name, "its elements are no texts")
        return list(value)

    def token(self, name: str, count: int, fallback: int | None = None) -> int | None:
        """The number of a token, of `count`."""
        value: int | None = self.optional(name, int, fallback)
        if value is not None and not 0 <= value < count:
            raise self.fail(name, f"token {value} of {count}")
        return value

    def types(self, count: int) -> Any:
        """The type of each of `count` tokens, a NumPy array; all are normal in files without."""
        import numpy as np

        normal = np.full(count, NORMAL)
        types = self.metadata.get("tokenizer.ggml.token_type", normal)
        if not isinstance(types, np.ndarray) or types.shape != normal.shape:
            raise self.fail("ggml.token_type", f"not a type for each of {count} tokens")
        return types

    def scores(self, count: int) -> Any:
        """The score of each of `count` tokens, a NumPy array of finite numbers."""
        import numpy as np

        scores: Any = self.metadata.get("tokenizer.ggml.scores")
        is_array = isinstance(scores, np.ndarray) and scores.shape == (count,)
        if not is_array or not np.isfinite(scores).all():
            raise self.fail("ggml.scores", f"not a finite number for each of {count} tokens")
        return scores
