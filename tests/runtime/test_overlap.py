"""What kernels and collectives wait for on two streams."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import distributed
from lamina.core.options import Options
from lamina.distributed.mesh import Axis
from lamina.explain.overlap import HELD, Part, has_collectives, parts_of, timeline
from lamina.pipeline import compile_source, cost_of
from tests.distributed.lockstep import opened
from tests.fuse.test_overlap import argument


def kernel(seconds: float, after: int = -1, *, fills: bool = False) -> Part:
    return Part("kernel", seconds, after=after, fills=fills)


def test_a_kernel_that_needs_a_result_waits_for_it() -> None:
    parts = [kernel(1.0), Part("sum", 2.0, exchange=0), kernel(1.0), kernel(1.0, after=0)]
    run = timeline(parts)
    (one,) = run.exchanged
    assert (one.ready, one.begin, one.end) == (1.0, 1.0, 3.0)
    assert one.held == pytest.approx(HELD)  # of the second kernel
    assert one.awaited == pytest.approx(1.0 - HELD)
    assert run.seconds == pytest.approx(4.0)


def test_a_kernel_that_fills_the_device_ends_later_by_what_is_held() -> None:
    run = timeline([kernel(1.0), Part("sum", 0.5, exchange=0), kernel(2.0, fills=True)])
    assert run.exchanged[0].held == 0.5
    assert run.seconds == 3.5


def test_a_collective_begins_after_a_kernel_that_fills_the_device() -> None:
    first, second = Part("first", 3.0, exchange=0), Part("second", 1.0, exchange=1)
    run = timeline([kernel(1.0), first, kernel(1.0), second, kernel(4.0, fills=True)])
    # The last blocks of the product begin at 4, where the first ends; the product takes 4 more.
    assert [one.begin for one in run.exchanged] == pytest.approx([1.0, 8.0])
    assert run.exchanged[1].ready == pytest.approx(2.0 + HELD)
    assert run.seconds == pytest.approx(9.0)


@st.composite
def programs(draw: st.DrawFn) -> list[Part]:
    parts: list[Part] = []
    count = 0
    for seconds in draw(st.lists(st.floats(0.1, 5.0), max_size=12)):
        if draw(st.booleans()):
            parts.append(Part("sum", seconds, exchange=count))
            count += 1
        else:
            after = draw(st.integers(-1, count - 1))
            parts.append(kernel(seconds, after, fills=draw(st.booleans())))
    return parts


@given(programs())
def test_a_run_takes_as_long_as_its_streams_and_no_longer_than_one_stream(
    parts: list[Part],
) -> None:
    run = timeline(parts)
    of_kernels = sum(part.seconds for part in parts if part.exchange < 0)
    of_collectives = sum(part.seconds for part in parts if part.exchange >= 0)
    margin = 1e-9
    assert run.seconds >= max(of_kernels, of_collectives) - margin
    assert run.seconds <= of_kernels + of_collectives + margin
    lost = sum(one.held + one.awaited for one in run.exchanged)
    assert run.seconds == pytest.approx(of_kernels + lost)
    assert all(one.begin >= one.ready for one in run.exchanged)


def test_the_parts_of_a_program_have_its_products_and_collectives() -> None:
    options = Options(device="cuda:0", arch="sm_90a")
    x = argument(0, 512, 512).cast("bfloat16")
    total = distributed.all_reduce(x @ x, over=Axis("pair", 2, 1))
    planned = compile_source([opened(total * 2.0)], options)
    assert has_collectives(planned.launches)
    seconds = [step.seconds for step in cost_of(planned, options).steps]
    parts = list(parts_of(planned, seconds))
    assert [part.exchange for part in parts if part.exchange >= 0] == [0]
    assert any(part.fills for part in parts)
    assert parts[-1].after == 0
    assert "all_reduce" in str(timeline(parts))
