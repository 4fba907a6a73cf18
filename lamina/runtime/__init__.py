"""Devices, memory, compilers and launches. This package knows bytes and source text, no IR."""

from __future__ import annotations

import contextlib

from lamina.errors import UnknownDeviceError
from lamina.runtime import cuda, metal
from lamina.runtime.buffer import HOST_DEVICES, KINDS

KINDS.update(cuda=(cuda.names, cuda.Device), metal=(metal.names, metal.Device))


def device_names() -> list[str]:
    """The devices that a tensor can live on here."""
    names = list(HOST_DEVICES)
    for present, _ in KINDS.values():
        with contextlib.suppress(UnknownDeviceError):
            names += present()
    return names
