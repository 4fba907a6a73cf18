"""Products of float32 matrices: square, odd and flat ones, with B as it is and transposed."""

from __future__ import annotations

from bench.cases import ANY, Case, Group
from bench.report import Target

PEERS = ("numpy", "torch", "jax")
SIZES = (
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024),
    (2048, 2048, 2048), (384, 3072, 768), (1000, 1001, 999),
)  # fmt: skip
QUICK = (256, 1024)


def _case(m: int, k: int, n: int, transposed: bool) -> Case:
    cubic = m == k == n
    return Case(
        f"{m if cubic else f'{m}x{k}x{n}'} {'A @ B.T' if transposed else 'A @ B'}",
        ((m, k), (n, k) if transposed else (k, n)),
        {ANY: (lambda _, a, b: a @ b.T) if transposed else (lambda _, a, b: a @ b)},
        (*PEERS, "tinygrad") if m == 512 else PEERS,
        ("fma", 2.0 * m * k * n),
        (Target(0.95 if m == 2048 else 1.0),),
        quick=m in QUICK,
    )


GROUP = Group(
    "Matrix products (M x K x N, float32)",
    tuple(_case(*sizes, transposed) for transposed in (False, True) for sizes in SIZES),
    ("The share is of the multiply-adds that a loop without memory does.",),
)
