"""The Metal Shading Language: what a prelude of macros cannot say of it.

There are no 64-bit floats and no ``long long``. Arithmetic on 64-bit integers takes many
instructions, so an index has 32 bits wherever all that it is computed from fits.
"""

from lamina.codegen.gpu import GpuPrinter
from lamina.dtypes import float64
from lamina.errors import DTypeError
from lamina.ir.kernel import bounds, terms_of
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.kernel.schedule import Nest
from lamina.runtime.metal import TABLE


class MetalPrinter(GpuPrinter):
    """One kernel."""

    preludes, direct = ("prelude.metal",), TABLE

    def __init__(self, nest: Nest, name: str) -> None:
        super().__init__(nest, name)
        if any(one.dtype is float64 for one in nest.kernel.nodes):
            what = f"kernel {name}: Metal has no float64"
            raise DTypeError(f"{what}; cast to float32, or from complex128 to complex64, first")
        self.index = "i32" if all(map(_is_short, nest.kernel.nodes)) else "i64"


def _is_short(node: Node) -> bool:
    """Do 32 bits hold each sum that `node`, if it is an index, is computed by?"""
    terms, constant = terms_of(node) if node.op in (Op.AXIS, Op.AFFINE) else ({}, 0)
    sizes = (abs(by) * max(map(abs, bounds(term))) for term, by in terms.items() if not term.src)
    return abs(constant) + sum(sizes) < 1 << 31
