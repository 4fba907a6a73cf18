"""Python's collector of cycles."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """A block in which no cycles are collected, for graphs that are built and live on. After every
    700 new objects Python visits the young ones, and sometimes all: that was 0.47 of the 3.9 s in
    which SmolLM2 is compiled. Where blocks of several threads overlap, the end of the first one
    lets Python collect again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
