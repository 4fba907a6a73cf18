"""Quick calls of programs that give captured tensors new values in their own memory."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina.frontend.realize import memory_of

VALUES = np.linspace(-1, 1, 96, dtype=np.float32).reshape(8, 12)


def counter() -> tuple[Any, lm.Tensor]:
    """A function that adds its argument to a tensor and returns twice the argument, and the tensor;
    it was called so often with ones that its calls are quick."""
    total = lm.asarray(VALUES.copy())

    @lm.jit
    def add(x: lm.Tensor) -> lm.Tensor:
        total.assign(total + x)
        return x * 2.0

    one = lm.ones((8, 12)).realize()
    for _ in range(3):
        add(one)
    assert add._quick
    return add, total


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls that took all steps since the test began."""
    from lamina.frontend.program import Program

    calls: list[int] = []
    call = Program.call

    def counted(self: Program, tensors: Any) -> Any:
        calls.append(1)
        return call(self, tensors)

    monkeypatch.setattr(Program, "call", counted)
    return calls


def test_values_go_to_the_same_memory(on_cpu: None, slow_calls: list[int]) -> None:
    add, total = counter()
    before, address = len(slow_calls), memory_of(total).pointer
    for number in range(5):
        double = add(lm.full((8, 12), float(number)).realize())
        np.testing.assert_array_equal(double.numpy(), np.full((8, 12), 2.0 * number))
    np.testing.assert_array_equal(total.numpy(), VALUES + 1 + 1 + 1 + 0 + 1 + 2 + 3 + 4)
    assert memory_of(total).pointer == address
    assert len(slow_calls) == before


def test_who_reads_the_old_value_has_it(on_cpu: None) -> None:
    add, total = counter()
    more = total + 1.0  # which nothing has computed yet
    other = total.detach()
    seen = total.numpy().copy()
    add(lm.ones((8, 12)).realize())
    np.testing.assert_array_equal(more.numpy(), seen + 1)
    np.testing.assert_array_equal(other.numpy(), seen)
    np.testing.assert_array_equal(total.numpy(), seen + 1)


def test_a_tensor_that_is_assigned_or_rebound_outside(on_cpu: None) -> None:
    add, total = counter()
    one = lm.ones((8, 12)).realize()
    total.assign(total * 0.0)
    add(one)
    np.testing.assert_array_equal(total.numpy(), np.ones((8, 12)))
    source = lm.full((8, 12), 5.0).realize()
    total.assign(source)  # whose memory it then has, too
    add(one)
    add(one)
    np.testing.assert_array_equal(total.numpy(), np.full((8, 12), 7.0))
    np.testing.assert_array_equal(source.numpy(), np.full((8, 12), 5.0))


def test_an_argument_that_is_written_is_read_as_it_was(on_cpu: None) -> None:
    add, total = counter()
    before = total.numpy().copy()
    for _ in range(2):
        double = add(total)
        np.testing.assert_array_equal(double.numpy(), before * 2)
        before = before * 2
        np.testing.assert_array_equal(total.numpy(), before)


def test_memory_that_another_library_has_stays(on_cpu: None) -> None:
    add, total = counter()
    shared = np.from_dlpack(total)
    seen = shared.copy()
    add(lm.ones((8, 12)).realize())
    np.testing.assert_array_equal(shared, seen)
    np.testing.assert_array_equal(total.numpy(), seen + 1)


def test_arrays_of_what_was_written_are_made_again(on_cpu: None) -> None:
    add, total = counter()
    scaled = lm.jit(lambda x: x @ (total.T * 3.0))  # to which `total` is constant
    x = lm.ones((8, 12)).realize()
    for _ in range(3):
        np.testing.assert_allclose(scaled(x).numpy(), x.numpy() @ (total.numpy().T * 3), rtol=1e-5)
        add(x)


def test_calls_of_several_threads_all_count(on_cpu: None) -> None:
    add, total = counter()
    one = lm.ones((8, 12)).realize()
    before = total.numpy().copy()
    threads = [threading.Thread(target=lambda: [add(one) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_allclose(total.numpy(), before + 200, rtol=1e-6)
