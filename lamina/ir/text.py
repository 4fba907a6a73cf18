"""Graphs and kernels as text. A graph is one line a node, and says all that the node is:

    %0 = buffer storage=0 device=cpu : f32[64,32]
    %1 = reduce %0 monoid=ADD axes=(1,) component=0 : f32[64]
    %2 = neg %1 : f32[64]
    return %2

After the operation come its operands, then the parts of its argument that the type on the right
does not say. The last line names the sinks. A kernel ends with its stores; indices are written
where they are used:

    kernel p0: f32[6400], p1: f32[6400] written
      %0 = load 100*a0 + r1 parameter=0 : f32[]
      %1 = loop_reduce %0, r1 monoid=MAX component=0 : f32[]
      for a0 < 64: p1[a0] = %1
"""

from collections.abc import Callable, Iterable, Mapping

from lamina.core.dtypes import SHORT
from lamina.ir.kernel import TRUE, AnyKernel, BinKernel, Collective, SortKernel, Store, terms_of
from lamina.ir.node import Node, toposort, type_text
from lamina.ir.ops import Op

_UNSAID = ("", "dtype", "shape", "size")


Names = Mapping[Node, str]


def line_of(node: Node, names: Names) -> str:
    """The line of one node."""
    kind = node.op.value.argument
    parts = {kind: node.arg} if isinstance(kind, str) else node.arg._asdict()
    words = [node.op.name.lower()]
    if node.src:
        words.append(", ".join(names[operand] for operand in node.src))
    for field, part in parts.items():
        is_said = part if field == "constant" else field not in _UNSAID
        if is_said:
            words.append(f"{field}={part}".replace(" ", ""))
    body = " ".join(words)
    return f"{names[node]} = {body} : {type_text(node.dtype, node.shape)}"


def to_text(sinks: Iterable[Node], line: Callable[[Node, Names], str] = line_of) -> str:
    """The graph of `sinks`, operands first; the number of a node is its place. line: the line
    of a node, another than `line_of` for texts that nobody parses."""
    sinks = list(sinks)
    names = {node: f"%{number}" for number, node in enumerate(toposort(sinks))}
    lines = [line(node, names) for node in names]
    return "\n".join([*lines, "return " + ", ".join(names[sink] for sink in sinks)])


def kernel_text(kernel: AnyKernel) -> str:
    """`kernel` one value a line, operands first."""
    parameters = ", ".join(
        f"p{number}: {SHORT[parameter.dtype]}[{parameter.size}]"
        f"{' written' if parameter.written else ''}"
        for number, parameter in enumerate(kernel.parameters)
    )
    if isinstance(kernel, SortKernel):
        size = f"{kernel.rows} rows of {kernel.length}, {kernel.left} kernels left"
        way = "descending" if kernel.order.descending else "ascending"
        ranks = f"{way}, ranks {kernel.order.first} to {kernel.order.last}"
        if kernel.apart > 1:
            ranks += f", {kernel.apart} apart"
        return f"sort {parameters}\n  {size}, {ranks}"
    if isinstance(kernel, BinKernel):
        base, places, updates = kernel.operands
        size = f"{kernel.bins} bins, {kernel.left} kernels left"
        return f"bin_sum {parameters}\n  p{base} + p{updates} at p{places}, {size}"
    if isinstance(kernel, Collective):
        return f"collective {parameters}\n  {kernel.exchange}"
    names: dict[Node, str] = {}
    lines = [f"kernel {parameters}"]
    for node in kernel.nodes:
        if node.op in (Op.AXIS, Op.AFFINE, Op.CONST):
            names[node] = _index(node, names)
        else:
            names[node] = f"%{len(lines) - 1}"
            lines.append(line_of(node, names))
    return "\n  ".join([*lines, *(_store(store, names) for store in kernel.stores)])


def _index(node: Node, names: Names) -> str:
    if node.op is Op.AXIS:
        return f"{'r' if node.arg.reduce else 'a'}{node.arg.number}"
    terms, constant = terms_of(node)
    parts = [names[term] if k == 1 else f"{k}*{names[term]}" for term, k in terms.items()]
    return " + ".join([*parts, str(constant)] if constant or not parts else parts)


def _store(store: Store, names: Names) -> str:
    loops = ", ".join(f"{_index(axis, {})} < {axis.arg.size}" for axis in store.axes)
    guard = "" if store.condition is TRUE else f" if {names[store.condition]}"
    how = "=" if store.monoid is None else f"{store.monoid.name}="
    if store.atomic:
        how = f"atomic {how}"
    target = f"p{store.parameter}[{names[store.index]}]"
    return f"for {loops or 'once'}{guard}: {target} {how} {names[store.value]}"
