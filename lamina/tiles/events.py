"""What the coroutines of the interpreter of tile programs tell the one who runs them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Waiting:
    """What a coroutine waits for: a test, and how an error says it."""

    is_over: Callable[[], bool]
    text: str


@dataclass(frozen=True)
class StepEnd:
    """A role that runs inside another one has done a step."""


GO_ON = Waiting(lambda: True, "")
Events = Iterator[Waiting | StepEnd]
