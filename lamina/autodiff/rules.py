"""One rule an operation: from the adjoint of the result to a contribution for each operand.

A rule takes g, the adjoint of the node, z, the node, and its operands x, y, ... It may assume that
g has the node's shape and dtype, and gives each operand a contribution of that operand's shape and
dtype, or None for a symbolic zero. The sweep drops what goes to operands that need no derivative.

Every operation is either in `VJP` or, with the reason, in `NOT_DIFFERENTIABLE`.
"""

from __future__ import annotations

import math

from lamina.autodiff import movement
from lamina.autodiff.movement import Contributions, Rule
from lamina.autodiff.reductions import reduction_rule
from lamina.ir.build import cast, flip, permute, reshape, select, unary
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op


def _pow(g: Node, z: Node, x: Node, y: Node) -> Contributions:
    """dx = g y x^(y - 1) and dy = g z ln x; both are 0 where the limit is: x^0 and 0^y, y >= 0.

    The selections are as narrow as the formulas allow, because a wider one (y = 0, say) would
    make mixed second derivatives wrong.
    """
    zero = x.lift(0.0)
    flat = x.eq(0.0) & y.eq(0.0)
    dx = g * select(flat, zero, y * Node(Op.POW, (x, y - 1.0)))
    dy = g * select(x.eq(0.0) & ~(y < 0.0), zero, z * unary(Op.LOG, x))
    return dx, dy


def _if_larger(g: Node, this: Node, other: Node) -> Node:
    """g where `this` exceeds `other`, g / 2 where they are equal (as NaN counts), else 0."""
    return select(other < this, g, select(this < other, g.lift(0.0), g * 0.5))


def _where(g: Node, z: Node, condition: Node, x: Node, y: Node) -> Contributions:
    """`lamina.autodiff.guard` says how the zeros stay zeros further down."""
    zero = g.lift(0.0)
    return None, select(condition, g, zero), select(condition, zero, g)


def _copy(g: Node, z: Node, x: Node) -> Contributions:
    """dx = g on x's device; constants live anywhere."""
    for node in reversed(toposort([x])):
        if node.op in (Op.COPY, Op.BUFFER):
            device = node.arg if node.op is Op.COPY else node.arg.device
            return (Node(Op.COPY, (g,), device),)
    return (g,)


VJP: dict[Op, Rule] = {
    Op.NEG: lambda g, z, x: (-g,),
    Op.SQRT: lambda g, z, x: (g * 0.5 / z,),
    Op.EXP: lambda g, z, x: (g * z,),
    Op.EXP2: lambda g, z, x: (g * z * math.log(2.0),),
    Op.LOG: lambda g, z, x: (g / x,),
    Op.LOG2: lambda g, z, x: (g * (1.0 / math.log(2.0)) / x,),
    Op.SIN: lambda g, z, x: (g * unary(Op.COS, x),),
    Op.COS: lambda g, z, x: (-(g * unary(Op.SIN, x)),),
    Op.ATAN: lambda g, z, x: (g / (x * x + 1.0),),
    Op.ERF: lambda g, z, x: (g * unary(Op.EXP, -(x * x)) * (2.0 / math.sqrt(math.pi)),),
    Op.TRUNC: lambda g, z, x: (None,),  # flat almost everywhere
    Op.CAST: lambda g, z, x: (cast(g, x.dtype),),
    Op.ADD: lambda g, z, x, y: (g, g),
    Op.MUL: lambda g, z, x, y: (g * y, g * x),
    Op.DIV: lambda g, z, x, y: (g / y, -(g / y * z)),
    Op.MOD: lambda g, z, x, y: (g, -(g * ((x - z) / y))),  # z = x - y floor(x / y)
    Op.POW: _pow,
    Op.MAX: lambda g, z, x, y: (_if_larger(g, x, y), _if_larger(g, y, x)),
    Op.MIN: lambda g, z, x, y: (_if_larger(g, -x, -y), _if_larger(g, -y, -x)),
    Op.WHERE: _where,
    Op.REDUCE: reduction_rule,
    Op.SCAN: reduction_rule,
    Op.RESHAPE: lambda g, z, x: (reshape(g, x.shape),),
    Op.EXPAND: movement.expand_rule,
    Op.PERMUTE: lambda g, z, x: (permute(g, movement.inverse(z.arg)),),
    Op.PAD: movement.pad_rule,
    Op.SHRINK: movement.shrink_rule,
    Op.FLIP: lambda g, z, x: (flip(g, z.arg),),
    Op.SHEAR: movement.shear_rule,
    Op.GATHER: lambda g, z, x, index: (movement.put(g, index, x.shape, z.arg), None),
    Op.SCATTER: movement.scatter_rule,
    Op.ASSIGN: lambda g, z, old, new: (None, g),
    Op.COPY: _copy,
    Op.CONTIGUOUS: lambda g, z, x: (g,),
    Op.DETACH: lambda g, z, x: (None,),
}

_DISCRETE = (
    Op.NOT, Op.IDIV, Op.LT, Op.EQ, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.ARGSORT,
)  # fmt: skip
NOT_DIFFERENTIABLE: dict[Op, str] = {
    Op.BITCAST: "its bits are read as another dtype",
    **dict.fromkeys(Group.LEAF, "a leaf has no operands"),
    **dict.fromkeys(_DISCRETE, "bools and integers have no derivative"),
    **dict.fromkeys(
        (Op.REAL, Op.IMAG, Op.COMPLEX), "derivatives of complex values are not supported"
    ),
    **dict.fromkeys(Group.KERNEL, "differentiation comes before kernels are made"),
}
