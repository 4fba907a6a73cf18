"""What is bound by memory: long elementwise chains, sums, a transpose."""

from __future__ import annotations

from bench.cases import ANY, Case, Group
from bench.report import SHARE, Target

ELEMENTS, SIZE = 1 << 24, 4096
PEERS = ("torch", "jax", "tinygrad")
TARGETS = (Target(0.85, SHARE),)
READ, COPY = ("read", 4.0 * SIZE * SIZE), ("copy", 8.0 * ELEMENTS)
SQUARE = ((SIZE, SIZE),)

GROUP = Group(
    "Bound by memory (16 M float32)",
    (
        Case(
            "gelu(x * a + b)", ((ELEMENTS,),),
            {
                "lamina": lambda lm, x: lm.gelu(x * 1.25 + 0.125),
                "torch": lambda torch, x: torch.nn.functional.gelu(x * 1.25 + 0.125),
                "jax": lambda jax, x: jax.nn.gelu(x * 1.25 + 0.125, approximate=False),
            },
            ("torch", "torch.compile", "jax"), COPY, TARGETS, quick=True,
        ),
        Case(
            f"sum of {SIZE} x {SIZE} over axis 0", SQUARE,
            {ANY: lambda _, x: x.sum(0)},
            ("numpy", *PEERS), READ, TARGETS, quick=True,
        ),
        Case(
            f"sum of {SIZE} x {SIZE} over axis 1", SQUARE,
            {ANY: lambda _, x: x.sum(1)},
            ("numpy", *PEERS), READ, TARGETS,
        ),
        Case(
            f"sum of {SIZE} x {SIZE}", SQUARE,
            {ANY: lambda _, x: x.sum()},
            ("numpy", *PEERS), READ, TARGETS, quick=True, tolerance=1e-3,
        ),
        Case(
            f"transpose of {SIZE} x {SIZE}", SQUARE,
            {
                "lamina": lambda lm, x: x.T.clone(),
                "torch": lambda torch, x: x.T.contiguous(),
                "jax": lambda jax, x: x.T,
                "numpy": lambda np, x: np.ascontiguousarray(x.T),
            },
            ("numpy", "torch", "jax"), COPY, TARGETS, quick=True,
        ),
    ),
    ("The share is of what the machine reads, or copies, in the same time.",),
)  # fmt: skip
