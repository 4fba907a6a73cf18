"""The seeds that a process hands out to random draws which name none.

They are one stream, which begins with a seed of the user's. A forked child goes on with a stream of
its own: it depends on the parent's, and on how many children were forked before, so workers draw
different numbers, and the same ones when the program runs again. `lamina` loads this module at
once, because a process may fork before anybody draws.
"""

import os
from random import Random

FIRST = 0  # the seed that a process begins with

_generator = Random(FIRST)
_children = 0  # forked since the stream began


def restart(seed: int) -> None:
    """Begin the stream of `seed`."""
    global _children
    _generator.seed(seed)
    _children = 0


def draw() -> int:
    """The next seed: 64 bits."""
    return _generator.getrandbits(64)


def _count_child() -> None:
    global _children
    _children += 1


def _begin_child() -> None:
    global _children
    _generator.seed(f"{draw()} of child {_children}")
    _children = 0


os.register_at_fork(after_in_parent=_count_child, after_in_child=_begin_child)
