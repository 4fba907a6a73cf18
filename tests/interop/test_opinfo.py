"""A sample of PyTorch's database of operations through the door; `tests.interop.opinfo` has all."""

from __future__ import annotations

import random
import warnings

import pytest

torch = pytest.importorskip("torch", reason="the samples are PyTorch's: pip install torch==2.13.0")
pytest.importorskip("expecttest", reason="PyTorch's database of operations imports it")

import lamina as lm  # noqa: E402
from tests.interop import opinfo  # noqa: E402

COUNT = 40


@pytest.mark.timeout(300)
def test_a_sample_of_operations_has_pytorchs_results() -> None:
    opinfo.draw_in_place()
    chosen = random.Random(20261123).sample(list(opinfo.entries([])), COUNT)
    with warnings.catch_warnings(), lm.using(device="interp"):
        warnings.simplefilter("ignore")
        outcomes = [opinfo.run(entry, 1) for entry in chosen]
    torch._dynamo.reset()
    assert [str(one) for one in outcomes if one.status == opinfo.WRONG] == []
    whole = [one for one in outcomes if one.status == opinfo.OK]
    assert len(whole) >= COUNT * 0.8
