"""The example of PyTorch's models, where PyTorch is installed."""

from __future__ import annotations

import pytest

from tests.examples.test_examples import ROOT, run

pytest.importorskip("torch", reason="the example trains its model: pip install torch==2.13.0")


@pytest.mark.timeout(300)
def test_the_example_of_pytorch_runs() -> None:
    run(ROOT / "examples" / "10_pytorch.py")
