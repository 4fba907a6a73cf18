"""The example of a file of ONNX, where the package is installed."""

from __future__ import annotations

import pytest

from tests.examples.test_examples import ROOT, run

pytest.importorskip("onnx")


def test_the_example_of_onnx_runs() -> None:
    run(ROOT / "examples" / "11_onnx.py")
