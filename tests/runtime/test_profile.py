"""Records of what ran go to every open block, and to no other."""

from __future__ import annotations

import pytest

from lamina.explain.report import KernelRecord
from lamina.runtime.profile import Recorder

RECORD = KernelRecord("map0_4", 2e-6, 4000, 2000)


def test_a_block_collects_what_is_published_inside() -> None:
    recorder = Recorder()
    recorder.publish(RECORD)
    with recorder() as outer:
        assert recorder
        with recorder() as inner:
            recorder.publish(RECORD)
        recorder.publish(RECORD)
    recorder.publish(RECORD)
    assert (inner, outer) == ([RECORD], [RECORD, RECORD])
    assert not recorder


def test_an_empty_inner_block_does_not_close_the_outer_one() -> None:
    recorder = Recorder()
    with recorder() as outer:
        with pytest.raises(ValueError, match="inside"), recorder():
            raise ValueError("inside")
        recorder.publish(1)
    assert outer == [1]


def test_a_record_prints_its_rates() -> None:
    assert "2.0 us" in str(RECORD)
    assert "2.00 GB/s" in str(RECORD)
    assert "1.00 GFLOP/s" in str(RECORD)
