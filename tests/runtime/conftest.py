"""A cache folder of its own for every test, and a fresh search for compilers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lamina.core.options import Options
from lamina.runtime import compiler, cpu


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(cache_dir=str(tmp_path / "cache"), threads=2)


@pytest.fixture(autouse=True)
def fresh_search() -> Iterator[None]:
    forget_compilers()
    yield
    forget_compilers()
    cpu.build.cache_clear()


def forget_compilers() -> None:
    """What is asked for next is looked for anew."""
    compiler.find.cache_clear()
    compiler._probe.cache_clear()
