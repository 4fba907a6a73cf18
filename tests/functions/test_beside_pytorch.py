"""Functions beyond the standard: PyTorch's values and derivatives, and every float dtype."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import lamina as lm
from tests.compiled import EACH_TEST, Recorder
from tests.functions.agreement import Array, agree_with_torch, close, first
from tests.functions.pytorch_cases import CASES, Case

EACH = [pytest.param(case, id=f"{name}-{number}")
        for name, cases in CASES.items() for number, case in enumerate(cases)]  # fmt: skip


@pytest.fixture(autouse=True)
def one_program_of_each_function(
    recorder: Recorder, also_compiled: None, request: pytest.FixtureRequest
) -> None:
    """The value of a function's first case is compiled as well."""
    chosen = request.node.name.startswith("test_values") and request.node.name.endswith("-0]")
    recorder.kept = EACH_TEST - int(chosen)


def is_float(operand: Array) -> bool:
    return operand.dtype.kind == "f"


@pytest.mark.parametrize("case", EACH)
def test_values_and_derivatives(case: Case) -> None:
    torch = pytest.importorskip("torch")
    agree_with_torch(case.ours, partial(case.theirs, torch), *case.operands,
                     tolerance=case.tolerance, differentiate=case.derivatives > 0)  # fmt: skip


@pytest.mark.parametrize("case", [one for one in EACH if one.values[0].derivatives > 1])
def test_second_derivatives(case: Case) -> None:
    """Of the sum of squares of all results, whose derivative no function makes constant."""
    torch = pytest.importorskip("torch")
    mine = [lm.asarray(one) for one in case.operands]
    other = [torch.tensor(one, requires_grad=is_float(one)) for one in case.operands]
    chosen = [at for at, one in enumerate(case.operands) if is_float(one)]
    y, wanted = first(case.ours(*mine)), first(case.theirs(torch, *other))
    y, wanted = (y * y).sum(), (wanted * wanted).sum()
    slopes = lm.gradient(y, [mine[at] for at in chosen])
    known = torch.autograd.grad(
        wanted, [other[at] for at in chosen], create_graph=True, allow_unused=True
    )
    y = lm.asarray(0.0, dtype=lm.float64)
    wanted = torch.zeros((), dtype=torch.float64, requires_grad=True)
    for ours, theirs in zip(slopes, known, strict=True):
        y = y + (ours * ours).sum()
        wanted = wanted if theirs is None else wanted + (theirs * theirs).sum()
    got = lm.gradient(y, [mine[at] for at in chosen])
    expected = torch.autograd.grad(wanted, [other[at] for at in chosen], allow_unused=True)
    for at, ours, theirs in zip(chosen, got, expected, strict=True):
        against = np.zeros(ours.shape) if theirs is None else theirs.numpy()
        size = max(1.0, float(np.abs(against).max(initial=0.0)))
        close(ours.numpy() / size, against / size, 1e-7, f"second derivative by {at}")


def as_dtype(operand: Array, dtype: Any) -> lm.Tensor:
    return lm.asarray(operand).cast(dtype) if is_float(operand) else lm.asarray(operand)


# Results that are parts of a float itself, have a wide dtype whatever the operands are, or count
# what lies between edges, which are rounded.
OTHERS = ("frexp", "float_power", "histogram", "histc")


@pytest.mark.parametrize("dtype", [lm.float16, lm.bfloat16, lm.float32], ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if name not in OTHERS])
def test_narrow_floats(name: str, dtype: lm.DType) -> None:
    """The result has the dtype of the operands, and is near that of the same operands in float64.
    Rounding of operands on the way moves results, so the limits are loose."""
    case = CASES[name][0]
    narrow = [as_dtype(one, dtype) for one in case.operands]
    wide = [one.cast(lm.float64) if one.dtype.is_float else one for one in narrow]
    got, exact = first(case.ours(*narrow)), first(case.ours(*wide))
    assert got.dtype is (dtype if exact.dtype.is_float else exact.dtype)
    found, wanted = (one.cast(lm.float64).numpy() for one in (got, exact))
    if not exact.dtype.is_float:
        np.testing.assert_array_equal(found, wanted)
        return
    size = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=1.0))
    eps = lm.finfo(dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=16 * eps, atol=16 * eps * size)
