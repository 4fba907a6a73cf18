"""Ranks that are objects of one process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lamina.runtime.peers import Peers


@pytest.fixture(autouse=True, scope="session")
def _no_rank_ends_the_process() -> Iterator[None]:
    """A rank that does not notice the failure of another one ends its process 30 s later: here that
    of the tests, also when the failure is that a test has closed the server at its end. Scripts of
    their own test it (`scripts/faults.py`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Peers, "end_soon", lambda self, seconds: None)
        yield
