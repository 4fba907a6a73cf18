"""The functions are compositions: they are tested on the reference device, which needs no
compiler and takes no time to start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lamina.core import options
from tests.compiled import also_compiled, recorder

__all__ = ["also_compiled", "recorder"]


@pytest.fixture(scope="package", autouse=True)
def reference_device() -> Iterator[None]:
    with options.using(device=os.environ.get("LAMINA_DEVICE", "interp")):
        yield
