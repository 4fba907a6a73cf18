"""The objects of answers: whole ones, and the chunks of streams."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from lamina.serving.answers import Piece
from lamina.serving.protocol import Usage

__all__ = ["ChatBodies", "CompletionBodies"]

Choices = Sequence[tuple[str, str]]  # texts, and why each ended


class _Bodies:
    """What both kinds of answers share: an id, a time and the name of the model."""

    prefix: str

    def __init__(self, model: str) -> None:
        self._id = f"{self.prefix}-{secrets.token_hex(12)}"
        self._model, self._created = model, int(time.time())

    def _body(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id, "object": kind, "created": self._created, "model": self._model,
            "choices": choices,
        }  # fmt: skip


class ChatBodies(_Bodies):
    """Answers of ``/v1/chat/completions``."""

    prefix = "chatcmpl"

    def whole(self, choices: Choices, usage: Usage) -> dict[str, Any]:
        """The whole answer."""
        objects = [
            {
                "index": number, "finish_reason": reason, "logprobs": None,
                "message": {"role": "assistant", "content": text, "refusal": None},
            }
            for number, (text, reason) in enumerate(choices)
        ]  # fmt: skip
        return self._body("chat.completion", objects) | {"usage": usage.body()}

    def first(self, choice: int) -> dict[str, Any] | None:
        """The chunk that begins a choice: it says who speaks."""
        return self._chunk(choice, {"role": "assistant", "content": ""}, None)

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """The chunk of new text."""
        delta = {"content": piece.text} if piece.text else {}
        return self._chunk(piece.choice, delta, piece.finish_reason)

    def usage(self, usage: Usage) -> dict[str, Any]:
        """The chunk after all others."""
        return self._body("chat.completion.chunk", []) | {"usage": usage.body()}

    def _chunk(self, choice: int, delta: dict[str, str], reason: str | None) -> dict[str, Any]:
        part = {"index": choice, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._body("chat.completion.chunk", [part])


class CompletionBodies(_Bodies):
    """Answers of ``/v1/completions``."""

    prefix = "cmpl"

    def whole(self, choices: Choices, usage: Usage) -> dict[str, Any]:
        """The whole answer."""
        objects = [
            _text_choice(number, text, reason) for number, (text, reason) in enumerate(choices)
        ]
        return self._body("text_completion", objects) | {"usage": usage.body()}

    def first(self, choice: int) -> dict[str, Any] | None:
        """None: nothing comes before the text."""
        return None

    def chunk(self, piece: Piece) -> dict[str, Any]:
        """The chunk of new text."""
        part = _text_choice(piece.choice, piece.text, piece.finish_reason)
        return self._body("text_completion", [part])

    def usage(self, usage: Usage) -> dict[str, Any]:
        """The chunk after all others."""
        return self._body("text_completion", []) | {"usage": usage.body()}


def _text_choice(number: int, text: str, reason: str | None) -> dict[str, Any]:
    return {"text": text, "index": number, "logprobs": None, "finish_reason": reason}
