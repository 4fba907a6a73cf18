"""Kernels as text, for debug output and for reading.

    kernel p0: f32[6400], p1: f32[6400] written
      %0 = load p0[100*a0 + r1]
      %1 = fold %0 monoid=MAX over r1
      ...
      for a0 < 64, a2 < 100: p1[100*a0 + a2] = %9
"""

from __future__ import annotations

from lamina.dtypes import SHORT
from lamina.ir.kernel import AnyKernel, Kernel, SortKernel, Store, roots_of
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op


def kernel_text(kernel: AnyKernel) -> str:
    """`kernel` one value a line, operands first."""
    parameters = ", ".join(
        f"p{number}: {SHORT[one.dtype]}[{one.size}]{' written' if one.written else ''}"
        for number, one in enumerate(kernel.parameters)
    )
    if isinstance(kernel, SortKernel):
        return f"sort {parameters}\n  {kernel.rows} rows of {kernel.length}"
    return "\n".join([f"kernel {parameters}", *("  " + line for line in _lines(kernel))])


def _lines(kernel: Kernel) -> list[str]:
    names: dict[Node, str] = {}
    lines: list[str] = []
    for node in toposort(root for store in kernel.stores for root in roots_of(store)):
        if _is_index(node):
            names[node] = _index(node, names)
            continue
        names[node] = f"%{len(lines)}"
        lines.append(f"{names[node]} = {_operation(node, names)}")
    return lines + [_store(store, names) for store in kernel.stores]


def _is_index(node: Node) -> bool:
    return node.op in (Op.AXIS, Op.AFFINE, Op.CONST)


def _index(node: Node, names: dict[Node, str]) -> str:
    if node.op is Op.CONST:
        return str(node.arg.value)
    if node.op is Op.AXIS:
        return f"{'r' if node.arg.reduce else 'a'}{node.arg.number}"
    terms = zip(node.src, node.arg.coefficients, strict=True)
    parts = [names[one] if k == 1 else f"{k}*{names[one]}" for one, k in terms]
    return " + ".join([*parts, *([str(node.arg.constant)] if node.arg.constant else [])])


def _operation(node: Node, names: dict[Node, str]) -> str:
    operands = [names[one] for one in node.src]
    if node.op is Op.LOAD:
        condition = f" if {operands[1]}" if len(operands) > 1 else ""
        return f"load p{node.arg.parameter}[{operands[0]}]{condition}"
    if node.op in (Op.FOLD, Op.PREFIX):
        parts = node.arg.monoid.arity
        part = f" part={node.arg.part}" if parts > 1 else ""
        return (
            f"{node.op.name.lower()} {', '.join(operands[:parts])} monoid={node.arg.monoid.name}"
            f"{part} over {', '.join(operands[parts:])}"
        )
    argument = f" {SHORT[node.arg]}" if node.op in (Op.CAST, Op.BITCAST) else ""
    return f"{node.op.name.lower()} {', '.join(operands)}{argument}"


def _store(store: Store, names: dict[Node, str]) -> str:
    loops = ", ".join(f"{names.get(axis, _index(axis, names))} < {axis.arg.size}"
                      for axis in store.axes)  # fmt: skip
    guard = "" if store.condition is None else f" if {names[store.condition]}"
    how = "=" if store.monoid is None else f"{store.monoid.name}="
    target = f"p{store.parameter}[{names[store.index]}]"
    return f"for {loops or 'once'}{guard}: {target} {how} {names[store.value]}"
