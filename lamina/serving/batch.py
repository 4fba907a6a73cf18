"""Which texts are written now, and what the next step computes.

A text waits until a slot and all the pages that it may need are free: a text that has begun is
never stopped for want of memory. Then its prompt is read, a chunk in each step, and after that a
token is written in each step, together with those of all other texts that are written. So a long
prompt slows the others down by one chunk a step, and a short text need not wait for a long one.

The chunk is of the text that would have been read first if each were read alone: its time is the
tokens that were read before it began and its own ones. So a text of 2,000 tokens lets shorter ones
pass, which have 2,000 tokens together at most, and nobody waits for ever.
Source: Yu et al. 2022, "Orca"; Agrawal et al. 2023, "Sarathi" (chunks).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from lamina.models.sampling import RECENT, Sampling, recent_of
from lamina.serving.engine import Engine, Row
from lamina.serving.pages import PagePool, TextPages
from lamina.text.schema import Constraint

__all__ = ["Batch", "Text", "Written"]


@dataclass(eq=False)
class Text:
    """A prompt, and up to `limit` tokens after it; one of `stops` ends it, and is the last one.
    constraint: of the tokens after the prompt, each of which it is told."""

    prompt: Sequence[int]
    limit: int
    sampling: Sampling
    stops: frozenset[int] = frozenset()
    constraint: Constraint | None = None
    new: list[int] = field(default_factory=list)
    held: int = 0  # tokens whose keys and values are in the caches
    reused: int = 0  # of these, the ones that were there before
    due: int = 0  # when its prompt would be read if it were alone, in tokens that the batch read
    pages: TextPages | None = None  # once it has begun

    @property
    def is_read(self) -> bool:
        return self.held >= len(self.prompt)

    @property
    def finish_reason(self) -> str | None:
        """None while it goes on; "stop" after a stop token, "length" at the limit, or where the
        constraint cannot go on."""
        if self.constraint is not None and self.constraint.is_broken:
            return "length"
        if self.new and self.new[-1] in self.stops:
            return "stop"
        return "length" if len(self.new) >= self.limit else None


@dataclass(frozen=True)
class Written:
    """A new token of a text. finish_reason: of its last one, as in OpenAI's API."""

    text: Text
    token: int
    finish_reason: str | None


class Batch:
    """The texts that wait, in their order, and those that are written."""

    def __init__(self, engine: Engine) -> None:
        self._engine, room = engine, engine.room
        self.pool = PagePool(room.pages, room.page_size)
        self.waiting: deque[Text] = deque()
        self.active: list[Text] = []
        self._read_tokens = 0  # of all prompts, since the start

    @property
    def capacity(self) -> int:
        """The tokens of the longest text that has room when all others have ended."""
        room = self._engine.room
        return min(room.capacity, room.pages * room.page_size)

    @property
    def slots(self) -> int:
        """The texts that are written at once."""
        return self._engine.room.slots

    def fits(self, text: Text) -> bool:
        """Whether a text is no longer than the `capacity`."""
        return len(text.prompt) + text.limit <= self.capacity

    def add(self, text: Text) -> None:
        """Let a text that `fits` wait for its turn."""
        self.waiting.append(text)

    def remove(self, text: Text) -> None:
        """Stop writing it: its pages are free again. A text that has ended is none of these."""
        if text in self.waiting:
            self.waiting.remove(text)
        elif text in self.active:
            self._end(text)

    def clear(self) -> None:
        """Remove all texts."""
        for text in [*self.active, *self.waiting]:
            self.remove(text)

    def step(self) -> list[Written]:
        """Write a token of each text that is read, then read a chunk of one that is not."""
        self._admit()
        written = self._write([text for text in self.active if text.is_read])
        unread = [text for text in self.active if not text.is_read]
        return written + self._read(min(unread, key=_due)) if unread else written

    def _admit(self) -> None:
        """Begin the texts that have waited longest, while there is room for them."""
        while self.waiting and len(self.active) < self.slots:
            text = self.waiting[0]
            if not self._take_pages(text):
                return
            text.due = self._read_tokens + len(text.prompt) - text.held
            self.active.append(self.waiting.popleft())

    def _take_pages(self, text: Text) -> bool:
        """Give a text of which nothing is computed all its pages; False where too few are free."""
        pages = self.pool.take(text.prompt, len(text.prompt) + text.limit)
        if pages is None:
            return False
        text.pages = pages
        text.held = text.reused = pages.full * self.pool.size
        return True

    def _find_more(self, text: Text) -> None:
        """Look the pages of a text up again before its first chunk: others may have read a prompt
        that begins alike since it began. What it gives back is enough for it."""
        assert text.pages is not None
        self.pool.give_back(text.pages)
        is_taken = self._take_pages(text)
        assert is_taken

    def _write(self, texts: Sequence[Text]) -> list[Written]:
        if not texts:
            return []
        tokens = self._engine.write([self._row(text, text.new[-1:]) for text in texts])
        return [self._added(text, token, 1) for text, token in zip(texts, tokens, strict=True)]

    def _read(self, text: Text) -> list[Written]:
        """The first new token, if the chunk is the last one of the prompt."""
        if text.held == text.reused:
            self._find_more(text)
        chunk = text.prompt[text.held : text.held + self._engine.room.chunk]
        token = self._engine.read(self._row(text, chunk))
        self._read_tokens += len(chunk)
        if text.held + len(chunk) == len(text.prompt):
            return [self._added(text, token, len(chunk))]
        self._keep(text, len(chunk))
        return []

    def _row(self, text: Text, tokens: Sequence[int]) -> Row:
        assert text.pages is not None
        end = text.held + len(tokens)  # of the prompt, or beyond it
        before = [*text.prompt[max(end - RECENT, 0) : end], *text.new[-RECENT:]]
        pages = text.pages.numbers
        allowed = None if text.constraint is None else text.constraint.allowed()
        return Row(tokens, text.held, pages, recent_of(before), text.sampling, allowed)

    def _added(self, text: Text, token: int, computed: int) -> Written:
        """Add a token to a text, of which so many more tokens are in the caches now."""
        self._keep(text, computed)
        text.new.append(token)
        if text.constraint is not None:
            text.constraint.add(token)
        reason = text.finish_reason
        if reason is not None:
            self._end(text)
        return Written(text, token, reason)

    def _keep(self, text: Text, computed: int) -> None:
        assert text.pages is not None
        text.held += computed
        if text.held // self.pool.size > text.pages.full:
            self.pool.fill(text.pages, [*text.prompt, *text.new][: text.held])

    def _end(self, text: Text) -> None:
        assert text.pages is not None
        self.active.remove(text)
        self.pool.give_back(text.pages)


def _due(text: Text) -> int:
    return text.due
