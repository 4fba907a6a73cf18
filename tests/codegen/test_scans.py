"""Running values on the CPU, along axes that vectors run along and across others."""

from __future__ import annotations

from tests import scans
from tests.compiled import compare


def test_running_values_of_every_shape_and_kind() -> None:
    """Of pairs, too, one of which is the same in all lanes: a maximum of columns with its row."""
    assert compare([scans.sample()], "cpu") == []
