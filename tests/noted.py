"""Notes of what a function is called with."""

from __future__ import annotations

from typing import Any

import pytest


def noted_calls(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[Any]:
    """The first argument of each call of the attribute `name` of `owner` from now on, which does
    what it did before."""
    called = getattr(owner, name)
    arguments: list[Any] = []

    def noting(first: Any, *others: Any) -> Any:
        arguments.append(first)
        return called(first, *others)

    monkeypatch.setattr(owner, name, noting)
    return arguments
