"""The text of an answer as its tokens arrive, up to where one of some texts would begin."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.text.tokenizer import TextStream, Tokenizer

__all__ = ["StoppingStream"]


class StoppingStream:
    """Text that ends before the first of `stops` in it. What may be the begin of one is held back
    until more text says that it is none. prompt: the tokens of a text that goes on; none before an
    answer."""

    def __init__(
        self, tokenizer: Tokenizer, stops: Sequence[str], prompt: Sequence[int] = ()
    ) -> None:
        self._stream, self._stops = TextStream.after(tokenizer, prompt), stops
        self._held = ""
        self.is_stopped = False

    def push(self, token: int) -> str:
        """The text that `token` makes certain."""
        return self._certain(self._stream.push(token))

    def close(self) -> str:
        """What is left at the end."""
        text = self._certain(self._stream.close())
        rest, self._held = self._held, ""
        return text if self.is_stopped else text + rest

    def _certain(self, new: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + new
        places = [place for stop in self._stops if (place := text.find(stop)) >= 0]
        if places:
            self.is_stopped, self._held = True, ""
            return text[: min(places)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """The characters at the end of `text` that `stop` begins with; never all of `stop`."""
    for count in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:count]):
            return count
    return 0
