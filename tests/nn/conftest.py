"""Layers are compositions of tested functions: their tests run on the reference device."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lamina.core import options


@pytest.fixture(scope="package", autouse=True)
def reference_device() -> Iterator[None]:
    with options.using(device=os.environ.get("LAMINA_DEVICE", "interp")):
        yield
