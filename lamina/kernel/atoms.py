"""The atom table: what one instruction, or one short sequence, computes at once.

An atom multiplies and accumulates an M x N x K block. Rows are data: a target offers those whose
`target` it is, and `tensorize` names one.
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.dtypes import DType, float32, float64


@dataclass(frozen=True)
class Atom:
    """One row. m, n, k: the block, n in vectors of `lanes` elements where lanes > 1; operands
    and accumulator by dtype; scope: how many threads run it together."""

    name: str
    target: str
    m: int
    n: int
    k: int
    operand: DType
    accumulator: DType
    lanes: int
    scope: int = 1


# On CPU an outer product of a column of m scalars and n vectors of a row: m * n accumulators stay
# in registers, m + n loads feed m * n fused multiply-adds. With 32 vector registers 14 x 2 leaves
# two for the row and two for broadcasts; with 16 registers 6 x 2 does.
ATOMS: dict[str, Atom] = {
    atom.name: atom
    for atom in (
        Atom("outer_f32_32r", "c", 14, 2, 1, float32, float32, 16),
        Atom("outer_f64_32r", "c", 14, 2, 1, float64, float64, 8),
        Atom("outer_f32_16r", "c", 6, 2, 1, float32, float32, 8),
        Atom("outer_f64_16r", "c", 6, 2, 1, float64, float64, 4),
    )
}
