"""Effects belong to the thread, the trace and the moment that they were asked for in."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier, Event
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import nn
from lamina.core import options
from lamina.frontend import realize
from lamina.runtime.cpu import CpuProgram

PATIENCE = 60.0  # seconds


def filled(value: float, **settings: Any) -> lm.Tensor:
    return lm.Tensor(np.full((2, 2), value, np.float32), **settings).realize()


def during(trace: Callable[[Callable[[], None]], Any], main: Callable[[], Any]) -> Any:
    """What `trace` returns, whose argument it calls in another thread to let `main` run here."""
    inside, done = Event(), Event()

    def pause() -> None:
        inside.set()
        assert done.wait(PATIENCE)

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(trace, pause)
        assert inside.wait(PATIENCE)
        try:
            main()
        finally:
            done.set()
        return found.result(PATIENCE)


def test_another_thread_trains_while_a_function_is_traced() -> None:
    state, weight, frozen = filled(1.0), filled(1.0, requires_grad=True), filled(1.0)
    shared = weight.detach()
    optimizer = nn.optim.SGD([weight], lr=0.5)
    runs = []

    def trace(pause: Callable[[], None]) -> lm.Tensor:
        @lm.jit
        def function(x: lm.Tensor) -> lm.Tensor:
            state.assign(state + x)
            if not runs:
                pause()
            runs.append(1)
            return state.sum()

        function(lm.ones((2, 2)))
        return function(lm.ones((2, 2)))

    def train() -> None:
        (weight * 3.0).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        (weight * 5.0).sum().backward()
        frozen.assign(frozen + 1.0)

    assert during(trace, train).item() == 12.0
    assert len(runs) == 1
    assert weight.tolist() == [[-0.5, -0.5], [-0.5, -0.5]]
    assert weight.grad is not None
    assert weight.grad.tolist() == [[5.0, 5.0], [5.0, 5.0]]
    assert shared.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert frozen.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert state.tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_functions_are_traced_in_two_threads() -> None:
    barrier = Barrier(2, timeout=PATIENCE)

    def trace(value: float) -> list[Any]:
        weight = filled(value, requires_grad=True)
        optimizer = nn.optim.Adam([weight], lr=0.5)
        first: list[int] = []

        @lm.jit
        def step(x: lm.Tensor) -> lm.Tensor:
            loss = (weight * x).sum()
            loss.backward()
            if not first:
                barrier.wait()
            optimizer.step()
            optimizer.zero_grad()
            if not first:
                barrier.wait()
            first.append(1)
            return loss

        losses = [step(lm.ones((2, 2))).item() for _ in range(3)]
        assert len(first) == 1
        return [losses, weight.numpy().round(4).tolist()]

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(trace, (4.0, 8.0)))
    for value, (losses, weight) in zip((4.0, 8.0), found, strict=True):
        np.testing.assert_allclose(losses, [4 * value - 2.0 * step for step in range(3)], rtol=1e-5)
        np.testing.assert_allclose(weight, np.full((2, 2), value - 1.5), rtol=1e-5)


def test_an_assignment_is_carried_out_by_the_thread_that_made_it() -> None:
    state = filled(1.0)
    old = state.detach()
    state.assign(state + 1.0)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(2):
            assert pool.submit(state.tolist).result(PATIENCE) == [[2.0, 2.0], [2.0, 2.0]]
        assert not state.is_realized()
        state.assign(state + 1.0)
        pool.submit(lambda: state.assign(state * 2.0)).result(PATIENCE)
        nn.optim.SGD([filled(1.0, requires_grad=True)]).step([filled(1.0)])
        assert pool.submit(state.tolist).result(PATIENCE) == [[6.0, 6.0], [6.0, 6.0]]
    assert state.tolist() == [[6.0, 6.0], [6.0, 6.0]]
    assert old.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_what_a_traced_function_leaves_behind_stops_no_later_call() -> None:
    weight, left = filled(1.0), []

    @lm.jit
    def halve(x: lm.Tensor) -> lm.Tensor:
        left.append((weight * x).sum())
        weight.assign(weight * 0.5)
        return weight.sum()

    assert [halve(filled(2.0)).item() for _ in range(3)] == [2.0, 1.0, 0.5]
    weight.assign(weight * 4.0)
    assert weight.realize().tolist() == [[0.5, 0.5], [0.5, 0.5]]
    with pytest.raises((lm.errors.JitError, lm.errors.GradientError)):
        left[0].item()


def test_tensors_of_one_value_may_part() -> None:
    first = lm.Tensor(np.arange(3.0))
    second = lm.Tensor(first)
    runs = []

    @lm.jit
    def function(x: lm.Tensor) -> lm.Tensor:
        runs.append(1)
        return second + x

    assert [function(lm.zeros((3,))).tolist() for _ in range(2)] == [[0.0, 1.0, 2.0]] * 2
    assert len(runs) == 1
    first.assign(first + 1.0)
    assert function(lm.zeros((3,))).tolist() == [0.0, 1.0, 2.0]
    second.assign(second + 2.0)
    assert [function(lm.zeros((3,))).tolist() for _ in range(2)] == [[2.0, 3.0, 4.0]] * 2
    assert len(runs) == 2
    assert first.tolist() == [1.0, 2.0, 3.0]


def test_items_and_then_the_whole_are_assigned() -> None:
    def update(x: lm.Tensor) -> lm.Tensor:
        state[0] = x
        state.assign(state * 2.0)
        return state + 0.0

    found = []
    for function in (update, lm.jit(update)):
        state = lm.Tensor(np.zeros(3)).realize()
        found.append([function(lm.Tensor(value)).tolist() for value in (1.0, 2.0, 3.0)])
        found.append([state.tolist()])
    assert found[:2] == found[2:] == [[[2.0, 0, 0], [4.0, 0, 0], [6.0, 0, 0]], [[6.0, 0, 0]]]


def test_options_of_a_block_are_those_of_its_thread() -> None:
    inside, left = Event(), Event()

    def block() -> int:
        with options.using(threads=1):
            inside.set()
            assert left.wait(PATIENCE)
            return options.current().threads

    before = options.current()
    with ThreadPoolExecutor(1) as pool:
        with options.using(threads=2):
            found = pool.submit(block)
            assert inside.wait(PATIENCE)
            assert options.current().threads == 2
            options.set_options(threads=3)
            assert options.current().threads == 3
        assert options.current() is before
        left.set()
        assert found.result(PATIENCE) == 1
    assert options.current() is before


@pytest.mark.parametrize("later", [False, True])
def test_what_was_written_before_an_interrupt_is_not_written_again(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch, later: bool
) -> None:
    state, other = filled(1.0), filled(1.0)
    state.assign(state + other)

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    def last(self: CpuProgram, *arguments: Any) -> list[float]:
        found = run(self, *arguments)
        patch.setattr(realize, "buffer_node", interrupted)  # whatever is called from now on
        return found if later else interrupted()

    run = CpuProgram.run
    with monkeypatch.context() as patch:
        patch.setattr(CpuProgram, "run", last)
        with nullcontext() if later else pytest.raises(KeyboardInterrupt):
            state.realize()
    assert state.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    state.assign(state + other)
    assert state.tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize("traced", [False, True])
def test_arrays_are_tensors_wherever_a_function_runs(traced: bool) -> None:
    double = lm.jit(lambda x: x * 2)
    function = lm.jit(lambda y: double(np.ones(3)) + y) if traced else double
    for device in ("cpu", "interp"):
        with options.using(device=device):
            found = function(np.ones(3))
        assert isinstance(found, lm.Tensor)
        assert found.device == device
        assert found.tolist() == [3.0 if traced else 2.0] * 3


def test_functions_that_are_not_compiled_run_beside_each_other() -> None:
    both = Barrier(2)

    @lm.jit
    def function(x: lm.Tensor) -> lm.Tensor:
        both.wait(PATIENCE)
        return x + 1

    def call() -> float:
        with options.using(device="interp"):
            found: float = function(lm.Tensor(1.0)).item()
            return found

    with ThreadPoolExecutor(2) as pool:
        assert [one.result() for one in [pool.submit(call), pool.submit(call)]] == [2, 2]


def held_up(patch: pytest.MonkeyPatch, seconds: float) -> tuple[Event, Event]:
    """The next program, after it has run, sets the first event and waits for the other a while."""
    ran, done, run = Event(), Event(), CpuProgram.run

    def slow(self: CpuProgram, *arguments: Any) -> list[float]:
        patch.setattr(CpuProgram, "run", run)
        found = run(self, *arguments)
        ran.set()
        done.wait(seconds)
        return found

    patch.setattr(CpuProgram, "run", slow)
    return ran, done


def test_memory_is_not_read_while_another_thread_writes_it(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, other = filled(1.0), filled(1.0)
    double = state * 2.0
    state.assign(state + other)
    ran, done = held_up(monkeypatch, 0.5)

    def read() -> Any:
        assert ran.wait(PATIENCE)
        found = double.tolist()
        done.set()
        return found

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(read)
        state.realize()
        assert found.result(PATIENCE) == [[2.0, 2.0], [2.0, 2.0]]
    assert state.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_a_value_is_read_while_another_thread_assigns(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = filled(1.0) + filled(1.0)
    ran, done = held_up(monkeypatch, PATIENCE)

    def assign() -> None:
        assert ran.wait(PATIENCE)
        state.assign(state * 2.0)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        assigned = pool.submit(assign)
        assert state.tolist() == [[4.0, 4.0], [4.0, 4.0]]
        assigned.result(PATIENCE)


def test_a_child_may_compute_whatever_other_threads_did(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = filled(1.0), filled(1.0)
    (one + other).realize()
    ran, _ = held_up(monkeypatch, 0.5)
    with ThreadPoolExecutor(1) as pool:
        pool.submit((one + other).realize)
        assert ran.wait(PATIENCE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # "fork in a threaded process"
            child = os.fork()
        if not child:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(20)  # ends it
            os._exit((one + other).tolist() != [[2.0, 2.0], [2.0, 2.0]])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.usefixtures("on_cpu")
def test_a_traced_function_moves_no_tensor_to_another_device() -> None:
    x, weight = lm.ones((2,), device="cpu"), lm.full((2,), 3.0, device="cpu")
    step = lm.jit(lambda x: weight.rebind(lm.ones((2,), device="interp")) or x * weight)
    with pytest.raises(lm.errors.JitError, match=r"rebind: .* from cpu to interp"):
        step(x)
    assert (x * weight).tolist() == [3.0, 3.0]
