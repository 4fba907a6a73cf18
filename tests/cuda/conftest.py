"""What the tests of the GPU need: NVRTC, or a GPU. Each says why it is skipped."""

from __future__ import annotations

import pytest

from lamina.errors import DeviceError
from lamina.runtime import cuda
from lamina.runtime.buffer import heap_of


@pytest.fixture(scope="session")
def device() -> cuda.Device:
    """The first GPU."""
    try:
        found = heap_of("cuda:0")
    except DeviceError as error:
        pytest.skip(f"no GPU: {str(error).splitlines()[0]}")
    assert isinstance(found, cuda.Device)
    return found


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """NVIDIA's compiler, which needs no GPU."""
    bindings = pytest.importorskip("cuda.bindings.nvrtc", reason="cuda-bindings is not installed")
    try:
        bindings.nvrtcVersion()
    except RuntimeError as error:
        pytest.skip(f"no NVRTC: {error}")
