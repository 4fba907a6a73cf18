"""The emulated GPU, on which every test of this folder runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lamina.core import options
from tests.msl import emulator, fake


@pytest.fixture(scope="package", autouse=True)
def gpu() -> Iterator[fake.Modules]:
    """Let new tensors live on an emulated GPU."""
    if not emulator.available():
        pytest.skip(f"{emulator.CLANG} is not installed: {emulator.INSTALL}")
    with fake.installed() as modules, options.using(device="metal"):
        yield modules
