"""Read the text form of graphs (`lamina.ir.text`) back.

Parsing the text of a graph returns the same node objects. A ``#`` starts a comment.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from lamina.core.dtypes import SHORT, DType
from lamina.core.shape import prod
from lamina.errors import FormatError, LaminaError
from lamina.ir import monoids
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op
from lamina.ir.text import line_of
from lamina.ir.verify import check_parts

T = TypeVar("T")

_OPERANDS = r"((?: %\w+,?)*)"
_NAME = re.compile(r"%\w+")
_LINE = re.compile(rf"(%\w+) = (\w+){_OPERANDS}((?: \w+=\S+)*) : (\w+)\[([\d,]*)\]")
_RETURN = re.compile(rf"return{_OPERANDS}")
_BY_NAME = {op.name.lower(): op for op in Op if op not in Group.KERNEL}
MONOIDS = {
    value.name: value for value in vars(monoids).values() if isinstance(value, monoids.Monoid)
}
BY_SHORT = {name: dtype for dtype, name in SHORT.items()}


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
            raise FormatError(f"line {number}: {error.message}") from None
    return sinks or []


def _parse_node(line: str, names: dict[str, Node]) -> None:
    match = _LINE.fullmatch(line)
    if match is None:
        shown = "%name = operation %operand, ... component=value ... : f32[2,3]"
        raise FormatError(f"expected {shown!r}, not {line!r}")
    name, op_name, operands, words, dtype_name, sizes = match.groups()
    if name in names:
        raise FormatError(f"expected a new name, and {name} is defined above")
    op = _known("an operation of the graph", op_name, _BY_NAME)
    dtype = _known("a dtype", dtype_name, BY_SHORT)
    shape = tuple(int(size) for size in sizes.split(",") if size)
    parts: dict[str, Any] = {
        "dtype": dtype, "shape": shape, "size": prod(shape), "constant": False
    }  # fmt: skip
    for assignment in words.split():
        field, _, word = assignment.partition("=")
        parts[field] = _read(field, word, dtype)
    kind = op.value.argument
    single = isinstance(kind, str)
    arg = parts.get(kind) if single else kind(*(parts.get(field) for field in kind._fields))
    src = tuple(_operands(operands, names))
    check_parts(op, src, arg)
    node = names[name] = Node(op, src, arg)
    known = dict(zip(src, _NAME.findall(operands), strict=True)) | {node: name}
    written = line_of(node, known)
    if written != line:  # parts too many, or another type
        raise FormatError(f"expected {written!r}, not {line!r}")


def _operands(words: str, names: Mapping[str, Node]) -> list[Node]:
    return [_known("a node that is defined above", name, names) for name in _NAME.findall(words)]


def _read(field: str, word: str, dtype: DType) -> Any:
    if field == "device":
        return word
    if field == "monoid":
        return _known("a monoid", word, MONOIDS | {"None": None})
    if field == "ranges":
        bounds = re.findall(r"range(\(.*?\))", word)
        return tuple(range(*ast.literal_eval(numbers)) for numbers in bounds)
    typed = field == "value" and dtype.python in (float, complex)  # no literal is inf or nan
    try:
        return dtype.python(word) if typed else ast.literal_eval(word)
    except (ValueError, SyntaxError):
        raise FormatError(f"expected a number or a tuple as {field}, not {word!r}") from None


def _known(what: str, word: str, table: Mapping[str, T]) -> T:
    if word not in table:
        raise FormatError(f"expected {what}, not {word!r}")
    return table[word]
