"""Options: what is refused where it is said, not where it is used."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import lamina as lm
from lamina.core import options
from lamina.errors import UnknownDeviceError
from lamina.runtime.buffer import KINDS
from tests.test_layers import ROOT

WRONG = ("xx", "", "CPU", "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1:2", ":1", "interp:1")


@pytest.mark.parametrize("name", WRONG)
def test_a_device_of_no_known_kind_is_refused_at_once(name: str) -> None:
    before = options.current()
    with pytest.raises(UnknownDeviceError, match=f"no device '{name}'.*cpu, interp, cuda, metal"):
        lm.set_options(device=name)
    with pytest.raises(UnknownDeviceError, match=f"no device '{name}'"), lm.using(device=name):
        raise AssertionError("the block must not begin")
    assert options.current() is before


def test_the_environment_is_refused_when_lamina_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import lamina"],
        env=os.environ | {"LAMINA_DEVICE": "xx"}, cwd=ROOT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "UnknownDeviceError: no device 'xx' (option device, LAMINA_DEVICE)" in done.stderr


@pytest.mark.parametrize("name", ["cpu", "interp", "cuda", "cuda:0", "cuda:12", "metal", "metal:1"])
def test_no_driver_is_loaded_to_name_a_device(name: str) -> None:
    code = (
        f"import sys, lamina\nlamina.set_options(device={name!r})\n"
        "print([m for m in sys.modules if m.startswith(('lamina.runtime.', 'cuda', 'Metal'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_known_kinds_are_the_ones_that_the_runtime_has() -> None:
    assert tuple(KINDS) == options.GPU_KINDS
