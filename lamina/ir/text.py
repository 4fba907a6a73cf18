"""Graphs and kernels as text. A graph is one line a node, and parses back to the same objects:

    %0 = buffer storage=0 device=cpu : f32[64,32]
    %1 = reduce %0 monoid=ADD axes=(1,) part=0 : f32[64]
    %2 = neg %1 : f32[64]
    return %2

After the operation come its operands, then the parts of its argument that the type on the right
does not say. The last line names the sinks. A ``#`` starts a comment. Buffers come back as numbers
in place of device memory. A kernel ends with its stores; indices are written where they are used:

    kernel p0: f32[6400], p1: f32[6400] written
      %0 = load 100*a0 + r1 parameter=0 : f32[]
      %1 = fold %0, r1 monoid=MAX part=0 : f32[]
      for a0 < 64: p1[a0] = %1
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from lamina.dtypes import BY_SHORT, SHORT, DType
from lamina.errors import FormatError, LaminaError
from lamina.ir.kernel import AnyKernel, SortKernel, Store
from lamina.ir.monoids import MONOIDS
from lamina.ir.node import Node, toposort, type_text
from lamina.ir.ops import Group, Op
from lamina.ir.verify import check_parts
from lamina.shape import prod

T = TypeVar("T")

_OPERANDS = r"((?: %\w+,?)*)"
_NAME = re.compile(r"%\w+")
_LINE = re.compile(rf"(%\w+) = (\w+){_OPERANDS}((?: \w+=\S+)*) : (\w+)\[([\d,]*)\]")
_RETURN = re.compile(rf"return{_OPERANDS}")
_BY_NAME = {op.name.lower(): op for op in Op if op not in Group.FOREIGN}
_UNSAID = ("", "dtype", "shape", "size")


def to_text(sinks: Iterable[Node]) -> str:
    """The graph of `sinks`, operands first; the number of a node is its place."""
    sinks = list(sinks)
    order = toposort(sinks)
    names = {node: f"%{number}" for number, node in enumerate(order)}
    storages = _number_storages(order)
    lines = [_line(node, names, storages) for node in order]
    return "\n".join([*lines, "return " + ", ".join(names[sink] for sink in sinks)])


def _number_storages(order: list[Node]) -> dict[object, object]:
    """Parameters keep their numbers; device buffers take the free ones."""
    storages = dict.fromkeys(node.arg.storage for node in order if node.op is Op.BUFFER)
    free = (number for number in itertools.count() if number not in storages)
    return {one: one if isinstance(one, int) else next(free) for one in storages}


def _line(node: Node, names: Mapping[Node, str], storages: Mapping[object, object]) -> str:
    kind = node.op.value.argument
    parts = {kind: node.arg} if isinstance(kind, str) else node.arg._asdict()
    words = [", ".join(names[one] for one in node.src)] if node.src else []
    for field, value in parts.items():
        if field not in _UNSAID:
            shown = storages[value] if field == "storage" else value
            words.append(f"{field}={str(shown).replace(' ', '')}")
    body = " ".join([node.op.name.lower(), *words])
    return f"{names[node]} = {body} : {type_text(node.dtype, node.shape)}"


def parse(text: str) -> list[Node]:
    """The sinks of a graph in text form. Raises FormatError with the line and what it lacks."""
    names: dict[str, Node] = {}
    sinks: list[Node] | None = None
    for number, line in enumerate(text.splitlines(), 1):
        statement = line.partition("#")[0].strip()
        try:
            if statement and sinks is not None:
                raise FormatError("expected nothing after the line 'return'")
            if returned := _RETURN.fullmatch(statement):
                sinks = _operands(returned[1], names)
            elif statement:
                _parse_node(statement, names)
        except LaminaError as error:
            raise FormatError(f"line {number}: {str(error).splitlines()[0]}") from None
    return sinks or []


def _parse_node(line: str, names: dict[str, Node]) -> None:
    match = _LINE.fullmatch(line)
    if match is None:
        shown = "%name = operation %operand, ... part=value ... : f32[2,3]"
        raise FormatError(f"expected {shown!r}, not {line!r}")
    name, op_name, operands, words, dtype_name, sizes = match.groups()
    if name in names:
        raise FormatError(f"expected a new name, and {name} is defined above")
    op = _known("an operation of the graph", op_name, _BY_NAME)
    dtype = _known("a dtype", dtype_name, BY_SHORT)
    shape = tuple(int(size) for size in sizes.split(",") if size)
    parts = {"dtype": dtype, "shape": shape, "size": prod(shape)}
    for field, _, word in (one.partition("=") for one in words.split()):
        parts[field] = _read(field, word, dtype)
    kind = op.value.argument
    single = isinstance(kind, str)
    arg = parts.get(kind) if single else kind(*(parts.get(field) for field in kind._fields))
    src = tuple(_operands(operands, names))
    check_parts(op, src, arg)
    node = names[name] = Node(op, src, arg)
    given = dict(zip(src, _NAME.findall(operands), strict=True)) | {node: name}
    written = _line(node, given, _number_storages([node]))
    if written != line:  # parts too many, or another type
        raise FormatError(f"expected {written!r}, not {line!r}")


def _operands(words: str, names: Mapping[str, Node]) -> list[Node]:
    return [_known("a node that is defined above", one, names) for one in _NAME.findall(words)]


def _read(field: str, word: str, dtype: DType) -> Any:
    if field in ("name", "device"):
        return word
    if field == "monoid":
        return _known("a monoid", word, MONOIDS | {"None": None})
    typed = field == "value" and dtype.python in (float, complex)  # no literal is inf or nan
    try:
        return dtype.python(word) if typed else ast.literal_eval(word)
    except (ValueError, SyntaxError):
        raise FormatError(f"expected a number or a tuple as {field}, not {word!r}") from None


def _known(what: str, word: str, table: Mapping[str, T]) -> T:
    if word not in table:
        raise FormatError(f"expected {what}, not {word!r}")
    return table[word]


def kernel_text(kernel: AnyKernel) -> str:
    """`kernel` one value a line, operands first."""
    parameters = ", ".join(
        f"p{number}: {SHORT[one.dtype]}[{one.size}]{' written' if one.written else ''}"
        for number, one in enumerate(kernel.parameters)
    )
    if isinstance(kernel, SortKernel):
        return f"sort {parameters}\n  {kernel.rows} rows of {kernel.length}"
    names: dict[Node, str] = {}
    lines = [f"kernel {parameters}"]
    for node in kernel.nodes:
        if node.op in (Op.AXIS, Op.AFFINE, Op.CONST):
            names[node] = _index(node, names)
        else:
            names[node] = f"%{len(lines) - 1}"
            lines.append(_line(node, names, {}))
    return "\n  ".join([*lines, *(_store(store, names) for store in kernel.stores)])


def _index(node: Node, names: Mapping[Node, str]) -> str:
    if node.op is Op.CONST:
        return str(node.arg.value)
    if node.op is Op.AXIS:
        return f"{'r' if node.arg.reduce else 'a'}{node.arg.number}"
    terms = [(names[one], k) for one, k in zip(node.src, node.arg.coefficients, strict=True)]
    text = " + ".join(name if k == 1 else f"{k}*{name}" for name, k in terms)
    return f"{text} + {node.arg.constant}" if node.arg.constant else text


def _store(store: Store, names: Mapping[Node, str]) -> str:
    loops = ", ".join(f"{_index(axis, {})} < {axis.arg.size}" for axis in store.axes)
    guard = "" if store.condition is None else f" if {names[store.condition]}"
    how = "=" if store.monoid is None else f"{store.monoid.name}="
    target = f"p{store.parameter}[{names[store.index]}]"
    return f"for {loops or 'once'}{guard}: {target} {how} {names[store.value]}"
