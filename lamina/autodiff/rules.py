"""One rule an operation: from the adjoint of the result to a contribution for each operand.

In the formulas g is the adjoint of the node, z its value, x and y its operands, and dx and dy
what they receive. None is a symbolic zero. A rule may assume that g has the node's shape and
dtype; it gives each operand a contribution of that operand's shape and dtype. The sweep drops
what goes to operands that need no derivative.

Every operation is either in `VJP` or, with the reason, in `NOT_DIFFERENTIABLE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lamina.autodiff import movement
from lamina.autodiff.movement import Contributions
from lamina.autodiff.reductions import reduce_rule, scan_rule
from lamina.ir.build import cast, select
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op

Rule = Callable[[Node, Node], Contributions]


def _neg(node: Node, g: Node) -> Contributions:
    """dx = -g."""
    return (-g,)


def _sqrt(node: Node, g: Node) -> Contributions:
    """dx = g / (2 z)."""
    return (g * 0.5 / node,)


def _exp(node: Node, g: Node) -> Contributions:
    """dx = g z."""
    return (g * node,)


def _exp2(node: Node, g: Node) -> Contributions:
    """dx = g z ln 2."""
    return (g * node * math.log(2.0),)


def _log(node: Node, g: Node) -> Contributions:
    """dx = g / x."""
    return (g / node.src[0],)


def _log2(node: Node, g: Node) -> Contributions:
    """dx = g / (x ln 2)."""
    return (g * (1.0 / math.log(2.0)) / node.src[0],)


def _sin(node: Node, g: Node) -> Contributions:
    """dx = g cos x."""
    return (g * Node(Op.COS, node.src),)


def _cos(node: Node, g: Node) -> Contributions:
    """dx = -g sin x."""
    return (-(g * Node(Op.SIN, node.src)),)


def _atan(node: Node, g: Node) -> Contributions:
    """dx = g / (1 + x^2)."""
    (x,) = node.src
    return (g / (x * x + 1.0),)


def _erf(node: Node, g: Node) -> Contributions:
    """dx = g exp(-x^2) 2 / sqrt(pi)."""
    (x,) = node.src
    return (g * Node(Op.EXP, (-(x * x),)) * (2.0 / math.sqrt(math.pi)),)


def _zero(node: Node, g: Node) -> Contributions:
    """dx = 0: steps are flat almost everywhere, and DETACH stops derivatives."""
    return (None,)


def _cast(node: Node, g: Node) -> Contributions:
    """dx = g in x's dtype."""
    return (cast(g, node.src[0].dtype),)


def _add(node: Node, g: Node) -> Contributions:
    """dx = g, dy = g."""
    return g, g


def _mul(node: Node, g: Node) -> Contributions:
    """dx = g y, dy = g x."""
    x, y = node.src
    return g * y, g * x


def _div(node: Node, g: Node) -> Contributions:
    """dx = g / y, dy = -(g / y) z."""
    share = g / node.src[1]
    return share, -(share * node)


def _mod(node: Node, g: Node) -> Contributions:
    """z = x - y floor(x / y), so dx = g and dy = -g floor(x / y) = -g (x - z) / y."""
    x, y = node.src
    return g, -(g * ((x - node) / y))


def _pow(node: Node, g: Node) -> Contributions:
    """dx = g y x^(y - 1) and dy = g z ln x; both are 0 where the limit is: x^0 and 0^y, y >= 0.

    The selections are as narrow as the formulas allow, because a wider one (y = 0, say) would
    make mixed second derivatives wrong.
    """
    x, y = node.src
    zero = x.lift(0.0)
    flat = x.eq(0.0) & y.eq(0.0)
    dx = g * select(flat, zero, y * Node(Op.POW, (x, y - 1.0)))
    dy = g * select(x.eq(0.0) & ~(y < 0.0), zero, node * Node(Op.LOG, (x,)))
    return dx, dy


def _max(node: Node, g: Node) -> Contributions:
    """g to the larger operand, half of it to each of equals (NaN counts as equal)."""
    x, y = node.src
    return _larger(x, y, g), _larger(y, x, g)


def _min(node: Node, g: Node) -> Contributions:
    """g to the smaller operand, half of it to each of equals (NaN counts as equal)."""
    x, y = node.src
    return _larger(-x, -y, g), _larger(-y, -x, g)


def _larger(this: Node, other: Node, g: Node) -> Node:
    """g where `this` exceeds `other`, g / 2 where they are equal, else 0."""
    return select(other < this, g, select(this < other, g.lift(0.0), g * 0.5))


def _where(node: Node, g: Node) -> Contributions:
    """dx = g where the condition holds, dy = g where it does not; zeros elsewhere.

    See `lamina.autodiff.guard` for how the zeros stay zeros further down.
    """
    condition, zero = node.src[0], g.lift(0.0)
    return None, select(condition, g, zero), select(condition, zero, g)


def _assign(node: Node, g: Node) -> Contributions:
    """The buffer's old content is lost, the new value receives g."""
    return None, g


def _copy(node: Node, g: Node) -> Contributions:
    """dx = g on x's device."""
    device = _device_of(node.src[0])
    return (g if device is None else Node(Op.COPY, (g,), device),)


def _device_of(node: Node) -> str | None:
    """Where `node` lives; None for constants, which live anywhere."""
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        if one.op is Op.COPY:
            return str(one.arg)
        if one.op is Op.BUFFER:
            return str(one.arg.device)
        fresh = [operand for operand in one.src if operand not in seen]
        seen.update(fresh)
        stack.extend(fresh)
    return None


def _contiguous(node: Node, g: Node) -> Contributions:
    """dx = g; where the adjoint is kept is the scheduler's own choice."""
    return (g,)


VJP: dict[Op, Rule] = {
    Op.NEG: _neg,
    Op.SQRT: _sqrt,
    Op.EXP: _exp,
    Op.EXP2: _exp2,
    Op.LOG: _log,
    Op.LOG2: _log2,
    Op.SIN: _sin,
    Op.COS: _cos,
    Op.ATAN: _atan,
    Op.ERF: _erf,
    Op.TRUNC: _zero,
    Op.CAST: _cast,
    Op.ADD: _add,
    Op.MUL: _mul,
    Op.DIV: _div,
    Op.MOD: _mod,
    Op.POW: _pow,
    Op.MAX: _max,
    Op.MIN: _min,
    Op.WHERE: _where,
    Op.REDUCE: reduce_rule,
    Op.SCAN: scan_rule,
    Op.RESHAPE: movement.reshape_rule,
    Op.EXPAND: movement.expand_rule,
    Op.PERMUTE: movement.permute_rule,
    Op.PAD: movement.pad_rule,
    Op.SHRINK: movement.shrink_rule,
    Op.FLIP: movement.flip_rule,
    Op.SHEAR: movement.shear_rule,
    Op.GATHER: movement.gather_rule,
    Op.SCATTER: movement.scatter_rule,
    Op.ASSIGN: _assign,
    Op.COPY: _copy,
    Op.CONTIGUOUS: _contiguous,
    Op.DETACH: _zero,
}

_LEAF = "a leaf has no operands"
_DISCRETE = "bools and integers have no derivative"
_COMPLEX = "derivatives of complex values are not supported"
_KERNEL = "differentiation comes before kernels are made"

NOT_DIFFERENTIABLE: dict[Op, str] = {
    Op.BUFFER: _LEAF,
    Op.CONST: _LEAF,
    Op.IOTA: _LEAF,
    Op.VARIABLE: _LEAF,
    Op.HOLE: _LEAF,
    Op.NOT: _DISCRETE,
    Op.IDIV: _DISCRETE,
    Op.LT: _DISCRETE,
    Op.EQ: _DISCRETE,
    Op.AND: _DISCRETE,
    Op.OR: _DISCRETE,
    Op.XOR: _DISCRETE,
    Op.SHL: _DISCRETE,
    Op.SHR: _DISCRETE,
    Op.ARGSORT: _DISCRETE,
    Op.BITCAST: "its bits are read as another dtype",
    Op.REAL: _COMPLEX,
    Op.IMAG: _COMPLEX,
    Op.COMPLEX: _COMPLEX,
} | dict.fromkeys(Group.KERNEL, _KERNEL)
