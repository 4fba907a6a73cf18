"""The seeds that a process hands out to random draws which name none.

They are one stream, which begins with a seed of the user's. A forked child goes on with a stream of
its own: it depends on the parent's, and on how many children were forked before, so workers draw
different numbers, and the same ones when the program runs again. `lamina` loads this module at
once, because a process may fork before anybody draws.
"""

import os
from random import Random


class Seeds:
    """A stream of seeds."""

    FIRST = 0  # the seed that a process begins with

    def __init__(self) -> None:
        self._generator = Random(self.FIRST)
        self._children = 0  # forked since the stream began

    def restart(self, seed: int) -> None:
        """Begin the stream of `seed`."""
        self._generator.seed(seed)
        self._children = 0

    def draw(self) -> int:
        """The next seed: 64 bits."""
        return self._generator.getrandbits(64)

    def count_child(self) -> None:
        """Note, in the parent, that a child was forked."""
        self._children += 1

    def begin_child(self) -> None:
        """Begin, in a forked child, a stream that neither the parent nor another child has."""
        self._generator.seed(f"{self.draw()} of child {self._children}")
        self._children = 0


SEEDS = Seeds()
os.register_at_fork(after_in_parent=SEEDS.count_child, after_in_child=SEEDS.begin_child)
