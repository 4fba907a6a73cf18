"""Which pages of the caches belong to which text.

A full page is known by the tokens in it and by the page before it, so that texts which begin alike
find the pages of one another: prompts with the same instructions, a conversation that goes on. The
known pages are a tree. A page that no text uses stays in the tree until its memory is needed; the
one that was used least recently goes first.

    "You are ... " -> "Question: what" -> "is a monoid? A"
                   -> "Question: name" -> "three primes."
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lamina.errors import ArgumentError

__all__ = ["Page", "PagePool", "TextPages"]

Tokens = tuple[int, ...]


@dataclass(eq=False)
class Page:
    """Page `number` of the caches. uses: the texts that have it. A known page has `tokens`, is a
    child of the page before it, and has the pages that follow it as children."""

    number: int
    uses: int = 0
    tokens: Tokens = ()
    parent: Page | None = None
    children: dict[Tokens, Page] = field(default_factory=dict)


@dataclass(eq=False)
class TextPages:
    """The pages of one text, in order. The first `full` ones are known, the rest are its own."""

    pages: list[Page]
    full: int

    @property
    def numbers(self) -> list[int]:
        return [page.number for page in self.pages]


class PagePool:
    """`count` pages of `size` tokens each. Raises ArgumentError for numbers below 1."""

    def __init__(self, count: int, size: int) -> None:
        if min(count, size) < 1:
            raise ArgumentError(
                f"{count} pages of {size} tokens; 1 or more are needed", operation="PagePool"
            )
        self.count, self.size = count, size
        self._root = Page(-1)
        self._empty = [Page(number) for number in reversed(range(count))]
        # Known pages that no text uses, the one used least recently first. A text gives its pages
        # back from the last one on, so that a page comes before the one it is a child of.
        self._unused: dict[Page, None] = {}

    @property
    def free(self) -> int:
        """The pages that a text can get."""
        return len(self._empty) + len(self._unused)

    def needed(self, tokens: int) -> int:
        """The pages of so many tokens."""
        return -(-tokens // self.size)

    def take(self, prompt: Sequence[int], tokens: int) -> TextPages | None:
        """The pages of a text of up to `tokens` tokens, which begins with `prompt`; None where
        there are too few. The known ones among them are not all of the prompt: its last token
        has to be computed, as what follows it is wanted."""
        shared = self._known(prompt[:-1])
        new = self.needed(tokens) - len(shared)
        unused_shared = sum(1 for page in shared if page.uses == 0)
        if new > self.free - unused_shared:
            return None
        for page in shared:
            self._use(page)
        return TextPages([*shared, *(self._new() for _ in range(new))], full=len(shared))

    def fill(self, text: TextPages, tokens: Sequence[int]) -> None:
        """Make known what pages of `text` are full, now that the caches hold `tokens` of it. Where
        another text was first with the same tokens, its page takes the place of this one's."""
        while (text.full + 1) * self.size <= len(tokens):
            number = text.full
            page = text.pages[number]
            parent = text.pages[number - 1] if number else self._root
            content = tuple(tokens[number * self.size : (number + 1) * self.size])
            known = parent.children.get(content)
            if known is None:
                page.tokens, page.parent = content, parent
                parent.children[content] = page
            else:
                self._use(known)
                text.pages[number] = known
                self._drop(page)
            text.full += 1

    def give_back(self, text: TextPages) -> None:
        """The text has ended: what is known of it stays until its memory is needed."""
        for page in reversed(text.pages):
            self._drop(page)
        text.pages = []

    def _known(self, tokens: Sequence[int]) -> list[Page]:
        """The known pages that `tokens` begin with."""
        page, found = self._root, list[Page]()
        for first in range(0, len(tokens) - self.size + 1, self.size):
            child = page.children.get(tuple(tokens[first : first + self.size]))
            if child is None:
                break
            found.append(child)
            page = child
        return found

    def _use(self, page: Page) -> None:
        self._unused.pop(page, None)
        page.uses += 1

    def _drop(self, page: Page) -> None:
        page.uses -= 1
        if page.uses:
            return
        if page.parent is None:
            self._empty.append(page)
        else:
            self._unused[page] = None

    def _new(self) -> Page:
        """An empty page; where there is none, the known one that was used least recently."""
        if self._empty:
            page = self._empty.pop()
        else:
            page = next(iter(self._unused))
            del self._unused[page]
            if page.parent is not None:
                del page.parent.children[page.tokens]
            page.tokens, page.parent = (), None
        page.uses = 1
        return page
