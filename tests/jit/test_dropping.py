"""What goes with the functions that used it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

import lamina as lm
from lamina.frontend import jit as module
from lamina.frontend.session import SESSION


def test_programs_go_with_the_last_function_that_uses_them(on_cpu: None) -> None:
    x = lm.asarray([1.0, 2.0]).realize()

    def make() -> Any:
        return lm.jit(lambda x: (x * 31.0).sum() + 17.0)

    first, second = make(), make()
    assert first(x).item() == second(x).item() == 110.0
    (program,) = first._programs.values()
    (other,) = second._programs.values()
    assert program.compiled is other.compiled
    code = weakref.ref(program.compiled.code)
    del first, program
    gc.collect()
    assert code() is not None
    del second, other
    gc.collect()
    assert code() is None
    assert make()(x).item() == 110.0


def test_no_gradient_outlives_its_call(on_cpu: None) -> None:
    w = lm.Tensor([1.0, 2.0], requires_grad=True)
    step = lm.jit(lambda w, gradient: w - 0.5 * gradient)
    gradients = []
    for number in range(4):
        (w * float(number)).sum().backward()
        assert w.grad is not None
        for _ in range(2):
            assert step(w, w.grad).tolist() == [1.0 - 0.5 * number, 2.0 - 0.5 * number]
        gradients.append(weakref.ref(w.grad))
        w.grad = None
    gc.collect()
    assert [gradient() for gradient in gradients] == [None] * 4


def test_programs_beyond_the_limit_go(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PROGRAMS", 2)
    function = lm.jit(lambda x: (x * 37.0).sum() + 19.0)
    codes = []
    for size in range(1, 7):
        x = lm.ones((size,)).realize()
        for _ in range(3):
            assert function(x).item() == 37.0 * size + 19.0
        codes.append(weakref.ref(list(function._programs.values())[-1].compiled.code))
    SESSION.forget()
    gc.collect()
    assert sum(code() is not None for code in codes) <= 3
