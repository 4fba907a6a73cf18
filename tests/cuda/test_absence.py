"""Without a GPU, what asks for one says what is missing and what to do."""

from __future__ import annotations

import pytest

import lamina as lm
from lamina.cli import doctor
from lamina.errors import UnknownDeviceError
from lamina.runtime import buffer, cuda
from lamina.runtime.buffer import KINDS, heap_of


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> int:
        raise UnknownDeviceError("cuda: the driver does not work: it is not installed; install it")

    monkeypatch.setitem(KINDS, "cuda", (missing, cuda.Device))
    monkeypatch.setattr(buffer, "_heaps", {"cpu": heap_of("cpu")})


def test_a_tensor() -> None:
    for act in (
        lambda: lm.Tensor([1.0], device="cuda:0"),
        lambda: lm.ones(3, device="cuda"),
        lambda: lm.Tensor([1.0], device="cpu").to("cuda:0"),
        lambda: lm.memory_stats("cuda:0"),
    ):
        with pytest.raises(UnknownDeviceError, match=r"does not work.*; install it"):
            act()


def test_the_survey() -> None:
    rows = {item: rest for item, *rest in doctor()}
    assert rows["cuda"] == ["the driver does not work: it is not installed", False, "install it"]
    assert lm.__array_namespace_info__().devices() == ["cpu", "interp"]
