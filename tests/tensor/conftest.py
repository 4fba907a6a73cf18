"""The front is tested on the reference device: NumPy decides, and nothing is compiled."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lamina.core import options
from tests.compiled import also_compiled, recorder

__all__ = ["also_compiled", "recorder"]


@pytest.fixture(scope="package", autouse=True)
def reference_device() -> Iterator[None]:
    """New tensors live on the interpreter."""
    with options.using(device=os.environ.get("LAMINA_DEVICE", "interp")):
        yield
