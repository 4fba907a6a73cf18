"""Every collective on every rank: values and derivatives, beside the same in NumPy; or a few."""

import sys

import numpy as np

import lamina as lm
from lamina import Tensor, distributed
from lamina.distributed.mesh import Axis
from tests.distributed.cases import cases, drawn
from tests.distributed.lockstep import gradients_on_ranks

rank, size = distributed.rank(), distributed.size()
mesh = distributed.Mesh(data=1, model=size)
over = mesh["model"]
assert (over.place, over.group) == (rank, (0, 1))


def check_values(dtype: str) -> None:
    """All results of one dtype, in one program."""
    operands = [one.astype(np.float32) for one in drawn()[:size]]
    tensors = [Tensor(one).cast(getattr(lm, dtype)) for one in operands]
    inputs = np.stack([one.numpy() for one in tensors])
    wanted, results = [], []
    for name, (function, reference) in cases(Axis("all", size, 1)).items():
        if dtype == "bool" and name.endswith(("sum", "product")):
            continue
        results.append(function(tensors[rank]))
        wanted.append(reference(inputs)[rank])
    lm.realize(*results)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(dtype, 1e-6)
    for result, want in zip(results, wanted, strict=True):
        np.testing.assert_allclose(
            result.numpy().astype(np.float64),
            want.astype(result.numpy().dtype).astype(np.float64),
            tolerance,
        )


def check_derivatives() -> None:
    """Those of the engine beside those of all ranks in one process."""
    operands = [one.astype(np.float32) for one in drawn()[:size]]
    slopes, wanted = [], []
    for function, _ in cases(over).values():
        x = Tensor(operands[rank], requires_grad=True)
        z = function(x)
        seeds = [np.full(z.shape, 2.0 + other, np.float32) for other in range(size)]
        slopes += lm.gradient(z, [x], Tensor(seeds[rank]))
        wanted.append(gradients_on_ranks(function, operands, seeds)[rank])
    lm.realize(*slopes)
    for slope, want in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(slope.numpy(), want, rtol=1e-5)


def check_nan_wins() -> None:
    """As it does in every other maximum."""
    x = Tensor(np.array([np.nan, 1.0, 2.0] if rank else [0.0, np.nan, 5.0], np.float32))
    for combine, last in (("max", 5.0), ("min", 2.0)):
        result = distributed.all_reduce(x, combine).numpy()
        np.testing.assert_array_equal(result, [np.nan, np.nan, last])


def check_jit() -> None:
    """Calls after the first run the program again, on other numbers."""
    function = lm.jit(lambda x: distributed.all_reduce(x * 2.0) + 1.0)
    for number in range(5):
        x = Tensor(np.full((300, 7), float(number + rank), np.float32))
        np.testing.assert_array_equal(function(x).numpy(), np.full((300, 7), 4.0 * number + 3.0))


if "few" not in sys.argv:
    for dtype in ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64"):
        check_values(dtype)
    check_derivatives()
check_nan_wins()
check_jit()
print(f"rank {rank}: all is well", flush=True)
