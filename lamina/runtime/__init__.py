"""Devices, memory, compilers and launches. This package knows bytes and source text, no IR."""

from lamina.runtime.buffer import KINDS, DeviceKind, Heap


def _cuda_names() -> list[str]:
    from lamina.runtime import cuda

    return cuda.names()


def _cuda_device(number: int) -> Heap:
    from lamina.runtime import cuda

    return cuda.Device(number)


def _metal_names() -> list[str]:
    from lamina.runtime import metal

    return metal.names()


def _metal_device(number: int) -> Heap:
    from lamina.runtime import metal

    return metal.Device(number)


# The module of a kind loads when the kind is first asked for.
KINDS["cuda"] = DeviceKind(_cuda_names, _cuda_device)
KINDS["metal"] = DeviceKind(_metal_names, _metal_device)
