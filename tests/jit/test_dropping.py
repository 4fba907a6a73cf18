"""What goes with the functions that used it."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import lamina as lm


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
