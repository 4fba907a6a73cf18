"""Pages against a memory that is written as the caches are: what a text reads is its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import ArgumentError
from lamina.serving.pages import PagePool, TextPages

SIZE, COUNT = 4, 9


@dataclass(eq=False)
class Writer:
    """A text, of which the memory holds the first `held` tokens."""

    tokens: list[int]
    prompt: int
    pages: TextPages
    held: int


@dataclass
class Memory:
    """What pages hold, by page and place."""

    pool: PagePool = field(default_factory=lambda: PagePool(COUNT, SIZE))
    content: dict[tuple[int, int], int] = field(default_factory=dict)
    texts: list[Writer] = field(default_factory=list)
    shared: int = 0

    def begin(self, tokens: list[int], prompt: int) -> None:
        pages = self.pool.take(tokens[:prompt], len(tokens))
        if pages is None:
            assert self.pool.needed(len(tokens)) > self.pool.free - self.pool.needed(prompt)
            return
        assert len(pages.pages) == self.pool.needed(len(tokens))
        held = pages.full * SIZE
        assert held < prompt  # something is left to compute
        self.shared += held
        self.texts.append(Writer(tokens, prompt, pages, held))

    def write(self, text: Writer, count: int) -> None:
        for at in range(text.held, min(text.held + count, len(text.tokens))):
            self.content[text.pages.numbers[at // SIZE], at % SIZE] = text.tokens[at]
            text.held = at + 1
        self.pool.fill(text.pages, text.tokens[: text.held])

    def check(self) -> None:
        for text in self.texts:
            read = [self.content[text.pages.numbers[at // SIZE], at % SIZE]
                    for at in range(text.held)]  # fmt: skip
            assert read == text.tokens[: text.held]
        used = {number for text in self.texts for number in text.pages.numbers}
        assert self.pool.free == COUNT - len(used)


TEXT = st.lists(st.integers(0, 1), min_size=2, max_size=18)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), TEXT, st.integers(1, 18)),
        st.tuples(st.just("write"), st.integers(0, 5), st.integers(1, 9)),
        st.tuples(st.just("end"), st.integers(0, 5), st.none()),
    ),
    max_size=40,
)  # fmt: skip


@given(STEPS)
def test_texts_read_what_they_wrote(steps: list[tuple[str, object, object]]) -> None:
    memory = Memory()
    for kind, what, count in steps:
        if kind == "begin":
            assert isinstance(what, list)
            assert isinstance(count, int)
            memory.begin(what, min(count, len(what)))
        elif memory.texts:
            assert isinstance(what, int)
            text = memory.texts[what % len(memory.texts)]
            if kind == "write":
                assert isinstance(count, int)
                memory.write(text, count)
            else:
                memory.texts.remove(text)
                memory.pool.give_back(text.pages)
        memory.check()
    for text in memory.texts:
        memory.pool.give_back(text.pages)
    assert memory.pool.free == COUNT


def test_texts_that_begin_alike_share_full_pages() -> None:
    memory = Memory()
    instructions = [1, 2, 3, 4, 5, 6, 7, 8]
    memory.begin([*instructions, 9, 9], 9)
    memory.write(memory.texts[0], 10)
    memory.begin([*instructions, 7, 7, 7], 10)  # beside the first one
    assert memory.texts[1].pages.numbers[:2] == memory.texts[0].pages.numbers[:2]
    assert memory.shared == 8
    for text in memory.texts:
        memory.pool.give_back(text.pages)
    memory.texts.clear()
    memory.begin(instructions, 8)  # after both; its last token has to be computed
    assert memory.shared == 8 + 4


def test_the_page_used_least_recently_goes_first() -> None:
    memory = Memory()
    for first in range(4):  # 8 pages of 9
        memory.begin([first] * 8, 7)
        memory.write(memory.texts[0], 8)
        memory.pool.give_back(memory.texts.pop().pages)
    memory.begin([9] * 8, 7)  # the page of none, and the end of the oldest text
    memory.pool.give_back(memory.texts.pop().pages)
    for first, known in ((0, 1), (1, 2), (2, 2), (3, 2)):
        pages = memory.pool.take([first] * 9, 9)
        assert pages is not None
        assert pages.full == known, first
        memory.pool.give_back(pages)


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ArgumentError, match="0 pages of 4 tokens; 1 or more"):
        PagePool(0, 4)
