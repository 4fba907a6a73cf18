"""Collectives that run beside kernels: the order of steps, and which steps wait for which."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor, distributed
from lamina.core.options import Options
from lamina.distributed.mesh import Axis
from lamina.fuse import overlap
from lamina.fuse.launch import BufferView
from lamina.fuse.program import Program
from lamina.ir.kernel import Collective, Kernel
from lamina.ir.ops import Op
from lamina.pipeline import compile_source
from lamina.runtime.buffer import Launch
from tests.distributed.lockstep import hole, opened

PAIR = Axis("pair", 2, 1)
GPU = Options(device="cuda:0", arch="sm_90a")


def argument(number: int, *shape: int) -> Tensor:
    return Tensor.of(hole(number, np.zeros(shape, np.float32)), "cpu")


def compiled(*results: Tensor) -> tuple[Program, tuple[Launch, ...]]:
    planned = compile_source([opened(one) for one in results], GPU)
    return planned.program, planned.launches


def order_of(launches: tuple[Launch, ...]) -> str:
    """A letter for each launch: c for a collective, w for a kernel that waits for one for which
    none before it has waited, k for any other kernel."""
    letters = []
    waited_for = -1
    for launch in launches:
        if launch.exchange >= 0:
            letters.append("c")
        elif launch.after > waited_for:
            letters.append("w")
            waited_for = launch.after
        else:
            letters.append("k")
    return "".join(letters)


def chain(count: int, size: int = 64) -> list[Tensor]:
    """Updates by sums over processes of gradients that come one after the other, as those of
    layers do: the last parameter's is the first."""
    value = argument(0, size, size)
    updates = []
    for number in range(count):
        value = value @ argument(1 + number, size, size)
        total = distributed.all_reduce(value, over=PAIR)
        updates.append(argument(100 + number, size, size) - total)
    return updates[::-1]


def test_updates_come_after_all_collectives() -> None:
    _, launches = compiled(*chain(4))
    assert order_of(launches) == "kckckckc" + "wwww"


@given(st.permutations(range(4)))
def test_updates_come_in_the_order_of_what_they_wait_for(order: list[int]) -> None:
    """In whatever order a program has its results: none waits while another one could run."""
    updates = chain(4)
    _, launches = compiled(*[updates[number] for number in order])
    waits = [launch.after for launch in launches if launch.exchange < 0 and launch.after >= 0]
    assert waits == [0, 1, 2, 3]


def test_what_inputs_alone_are_gathered_for_comes_in_time() -> None:
    """The gathering begins before the first kernel: at the end it would be behind all others, and
    steps that need it would wait for these."""
    tokens = distributed.all_gather(argument(300, 64, 64), over=PAIR)
    _, launches = compiled(tokens * 2.0, *chain(4))
    assert order_of(launches) == "ckckckckc" + "wwwww"


@pytest.mark.parametrize("size", [16, 256])
def test_exchanged_arrays_lie_where_those_of_other_programs_do(size: int) -> None:
    """Programs that exchange the same arrays share a window: what else they compute may be shorter
    or longer."""

    def places(size: int) -> list[list[int]]:
        value = argument(0, 64, 64)
        for number in range(3):
            other = argument(1 + number, size, 64) @ value
            value = value + distributed.all_reduce(other.T @ other, over=PAIR)
        _, launches = compiled(value)
        offsets = [[offset for _, offset in one.arguments] for one in launches if one.exchange >= 0]
        assert len(offsets) == 3
        return offsets

    assert places(size) == places(64)


def test_updates_come_earlier_where_results_would_wait_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(overlap, "MAX_RUNNING_BYTES", 0)
    _, launches = compiled(*chain(4))
    assert order_of(launches) == "kckckwckwcww"


def test_a_sum_that_is_used_late_does_not_hold_back_one_that_is_used_at_once() -> None:
    """Kernels beside which the first could run come after those that need the second."""
    x, weight = argument(0, 512, 512), argument(1, 512, 512)
    late = distributed.all_reduce(lm.tanh(x @ weight), over=PAIR)
    value = distributed.all_reduce(x @ weight.T, over=PAIR) @ weight
    for _ in range(16):
        value = lm.softmax(value.T, axis=-1)
    program, _ = compiled(late / (value * value + 1.0))
    written: set[BufferView] = set()
    for launch in program.launches:
        views = list(zip(launch.arguments, launch.kernel.parameters, strict=True))
        reads = {view for view, parameter in views if not parameter.written}
        assert all(view.kind == "input" or view in written for view in reads)
        written |= {view for view, parameter in views if parameter.written}


def test_a_collective_of_the_result_of_another_comes_after_it() -> None:
    x = argument(0, 64, 64)
    first = distributed.all_reduce(x @ x, over=PAIR)
    _, launches = compiled(distributed.all_reduce(first @ x, over=PAIR) + 1.0)
    assert order_of(launches) == "kcwcw"


def overlaps(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


@given(st.integers(1, 5), st.sampled_from([16, 64]))
def test_no_kernel_touches_what_a_collective_may_still_use(count: int, size: int) -> None:
    """By a walk over the program with every collective unfinished until it is waited for."""
    program, launches = compiled(*chain(count, size), argument(0, size, size).exp())
    running: list[tuple[int, list[tuple[int, int, int]]]] = []  # operand, then result
    for launch, printed in zip(program.launches, launches, strict=True):
        ranges = []
        for view in launch.arguments:
            buffer, start = program.location(view)
            ranges.append((buffer, start, start + view.nbytes))
        if isinstance(launch.kernel, Collective):
            running.append((printed.exchange, ranges))
            continue
        running = [(number, held) for number, held in running if number > printed.after]
        for _, (operand, result) in running:
            for touched, parameter in zip(ranges, launch.kernel.parameters, strict=True):
                assert not overlaps(touched, result)
                assert not (parameter.written and overlaps(touched, operand))


def test_operands_stay_until_their_results_are_used() -> None:
    """So that no step has to wait for memory: operands and results of all collectives are apart."""
    program, _ = compiled(*chain(4))
    ranges = []
    for launch in program.launches:
        if isinstance(launch.kernel, Collective):
            for view in launch.arguments:
                buffer, start = program.location(view)
                ranges.append((buffer, start, start + view.nbytes))
    assert len(ranges) == 8
    assert not any(overlaps(one, other) for one, other in combinations(ranges, 2))


def test_a_product_is_stored_as_it_is_sent() -> None:
    """Whatever moves between the two: no kernel copies it."""
    x = argument(0, 64, 64)
    product = (x @ x.exp()).T
    results = [distributed.all_reduce(one, over=PAIR) for one in (product, product.reshape(-1))]
    for result in results:
        program, _ = compiled(result)
        kinds = [isinstance(launch.kernel, Collective) for launch in program.launches]
        assert kinds == [False, False, True]


def test_a_product_is_sent_with_what_is_added_to_it() -> None:
    """As the gradient of a table that scores tokens, and that is read at their places: a row of
    elements, of a product and of sums. These are stored first, as their loop would run for each
    element of a tile."""
    x, terms = argument(0, 64, 64), argument(1, 64, 64, 8)
    gradient = (x.exp() @ x + terms.sum(axis=2)).cast(lm.bfloat16)
    program, _ = compiled(distributed.reduce_scatter(gradient.reshape(2, -1), over=PAIR))
    *_, total, product, sent = (launch.kernel for launch in program.launches)
    assert isinstance(sent, Collective)
    for kernel in (total, product):
        assert isinstance(kernel, Kernel)
        assert [node.op for node in kernel.nodes].count(Op.LOOP_REDUCE) == 1


def test_nothing_waits_without_collectives() -> None:
    x = argument(0, 64, 64)
    _, launches = compiled(x @ x, (x @ x).exp() @ x)
    assert set(order_of(launches)) == {"k"}
