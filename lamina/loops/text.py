"""Schedules as text: one move a line, printed and parsed."""

import re
from collections.abc import Iterable

from lamina.errors import FormatError
from lamina.loops import scatters as scatters  # its moves are parsed too
from lamina.loops.moves import Move, Schedule, Word


def to_text(schedule: Iterable[Move]) -> str:
    """One move a line."""
    return "\n".join(map(str, schedule))


def parse(text: str) -> dict[str, Schedule]:
    """Read schedules by kernel.

    A line ``[reduce0_64x10]`` begins the moves of that kernel; moves before any such line, under
    "", are for every other kernel. A semicolon ends a line too; a comment follows a #. Raises
    FormatError naming the line that is not a move.
    """
    sections: dict[str, Schedule] = {}
    kernel = ""
    without_comments = re.sub("#.*", "", text)
    for number, line in enumerate(re.split("[;\n]", without_comments), 1):
        heading = re.fullmatch(r"\s*\[(.*)\]\s*", line)
        if heading:
            kernel = heading[1]
            sections.setdefault(kernel, ())
        elif line.strip():
            move = _parse_move(number, line.strip())
            sections[kernel] = (*sections.get(kernel, ()), move)
    return sections or {"": ()}


def _parse_move(number: int, line: str) -> Move:
    """The move that prints as `line`, up to spaces, of one argument or more: ``reorder()``, of no
    axes, would move nothing and is refused."""
    name, *arguments = re.findall(r"\w+", line) or [""]  # "bind(a0, vector)": bind, a0, vector
    words = [_parse_word(argument) for argument in arguments]
    kind = Move.kinds.get(name)
    try:
        move = kind.of_words(words) if kind and words else None
        # The words alone would also be those of "bind a0 -> vector".
        if move and "".join(str(move).split()) == "".join(line.split()):
            return move
    except (TypeError, ValueError):  # too few words, too many, or a name in place of a number
        pass
    raise FormatError(f"schedule, line {number}: {line!r} is not a move")


def _parse_word(word: str) -> Word:
    """A number, of an axis ``a7`` too, or a name."""
    return int(word.lstrip("a")) if re.fullmatch(r"a?\d+", word) else word
