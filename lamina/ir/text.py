"""The text form of a graph: one line a node, which parses back to the same objects.

    %0 = buffer 0 cpu : f32[64,32]
    %1 = reduce %0 monoid=ADD axes=(1,) part=0 : f32[64]
    %2 = const 0.5 : f32[]
    %3 = expand %2 : f32[64]
    %4 = mul %1, %3 : f32[64]    # train.py:12

After the operation come its operands, then its argument. What the type on the right says already
is not said twice: the shape of RESHAPE and EXPAND, the dtype of CAST and BITCAST, the size of
IOTA. The sinks are the nodes that nothing uses; a last line ``return %4, %1`` names them where
that is not so. A ``#`` starts a comment. Buffers come back as numbers in place of device memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from lamina.dtypes import BY_SHORT, SHORT, DType
from lamina.errors import FormatError, LaminaError
from lamina.ir.lines import line_of
from lamina.ir.monoids import MONOIDS
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.verify import ARGUMENT, FOREIGN, complaint
from lamina.shape import Shape, prod

T = TypeVar("T")

_LINE = re.compile(r"%(\w+) = (\w+)(?: (.*?))? : (\w+)\[([\d,]*)\]")
_OPERANDS = re.compile(r"%\w+(?:, %\w+)*")
_BY_NAME = {op.name.lower(): op for op in Op if op not in FOREIGN}


class _Type(NamedTuple):
    dtype: DType
    shape: Shape

    def __str__(self) -> str:
        return f"{SHORT[self.dtype]}[{','.join(map(str, self.shape))}]"


class _MalformedError(Exception):
    """What was expected; `parse` adds the line number."""


_WORDS: dict[Op, str] = {
    Op.BUFFER: "{storage} {device}",
    Op.CONST: "{value}",
    Op.VARIABLE: "{name} minimum={minimum} maximum={maximum}",
    Op.REDUCE: "monoid={monoid} axes={axes} part={part}",
    Op.SCAN: "monoid={monoid} axes={axes} part={part}",
    Op.PERMUTE: "axes={axes}",
    Op.PAD: "before={before} after={after} value={value}",
    Op.SHRINK: "start={start} stop={stop} step={step}",
    Op.FLIP: "axes={axes}",
    Op.SHEAR: "axis={axis} by={by} step={step}",
    Op.GATHER: "axis={axis}",
    Op.SCATTER: "axis={axis} monoid={monoid}",
    Op.COPY: "{device}",
}
"""How the argument of an operation is written, but for what the type says."""


def _write(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"({value[0]},)" if len(value) == 1 else f"({','.join(map(str, value))})"
    return value if isinstance(value, str) else repr(value)


def _read(field: str, word: str, type_: _Type) -> Any:
    """The value that a word stands for. Raises ValueError if there is none."""
    if field in ("name", "device"):
        return word
    if field == "monoid":
        return None if word == "none" else _known("a monoid", word, MONOIDS)
    kind = type_.dtype.kind if field == "value" else "ints"
    if kind == "bool":
        return _known("a bool", word, {"true": True, "false": False})
    if kind == "ints" and word.startswith("("):
        return tuple(int(one) for one in word.strip("()").split(",") if one)
    return {"float": float, "complex": complex}.get(kind, int)(word)


def _known(what: str, word: str, table: Mapping[str, T]) -> T:
    if word not in table:
        raise _MalformedError(f"expected {what} ({', '.join(table)}), not {word!r}")
    return table[word]


def to_text(sinks: Iterable[Node]) -> str:
    """The graph of `sinks`, operands first; the number of a node is its place."""
    sinks = list(sinks)
    order = toposort(sinks)
    numbers = {node: number for number, node in enumerate(order)}
    storages = _number_storages(order)
    lines = [_print_node(node, numbers, storages) for node in order]
    if sinks != _unused(order):
        lines.append("return " + ", ".join(f"%{numbers[sink]}" for sink in sinks))
    return "\n".join(lines)


def _number_storages(order: list[Node]) -> dict[object, int]:
    """Parameters keep their numbers; device buffers take the free ones."""
    storages = list(dict.fromkeys(node.arg.storage for node in order if node.op is Op.BUFFER))
    numbers = {storage: storage for storage in storages if isinstance(storage, int)}
    free = (number for number in range(len(storages)) if number not in numbers)
    return {storage: numbers[storage] if storage in numbers else next(free)
            for storage in storages}  # fmt: skip


def _unused(order: Iterable[Node]) -> list[Node]:
    nodes = list(dict.fromkeys(order))
    used = {operand for node in nodes for operand in node.src}
    return [node for node in nodes if node not in used]


def _print_node(node: Node, numbers: dict[Node, int], storages: dict[object, int]) -> str:
    words = [", ".join(f"%{numbers[operand]}" for operand in node.src)] if node.src else []
    arg = node.arg
    if node.op is Op.BUFFER:
        arg = arg._replace(storage=storages[arg.storage])
    if node.op in FOREIGN:  # scalars of kernels and combines are printed for the eye only
        words.append(repr(arg))
    elif node.op in _WORDS:
        alone = dict.fromkeys(("axes", "axis", "device"), arg)
        fields = arg._asdict() if hasattr(arg, "_asdict") else alone
        words.append(_WORDS[node.op].format_map({k: _write(v) for k, v in fields.items()}))
    body = " ".join([f"%{numbers[node]} = {node.op.name.lower()}", *words])
    line = line_of(node)
    comment = f"    # {line.partition(': ')[0]}" if line is not None else ""
    return f"{body} : {_Type(node.dtype, node.shape)}{comment}"


def parse(text: str) -> list[Node]:
    """The sinks of a graph in text form.

    Raises FormatError, with the number of the line and what was expected there.
    """
    names: dict[str, Node] = {}
    sinks: list[Node] | None = None
    for number, line in _statements(text):
        try:
            if sinks is not None:
                raise _MalformedError("expected nothing after the line 'return'")
            if line.startswith("return"):
                sinks = _operands(line.removeprefix("return").strip(), names)
            else:
                name, node = _parse_node(line, names)
                names[name] = node
        except _MalformedError as error:
            raise FormatError(f"line {number}: {error}") from None
    return _unused(names.values()) if sinks is None else sinks


def _statements(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        statement = line.partition("#")[0].strip()
        if statement:
            yield number, statement


def _operands(words: str, names: dict[str, Node]) -> list[Node]:
    if words and not _OPERANDS.fullmatch(words):
        raise _MalformedError(f"expected operands such as '%0, %1', not {words!r}")
    given = [word.strip()[1:] for word in words.split(",")] if words else []
    for name in given:
        if name not in names:
            raise _MalformedError(f"expected a node that is defined above, not %{name}")
    return [names[name] for name in given]


def _parse_node(line: str, names: dict[str, Node]) -> tuple[str, Node]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise _MalformedError(
            f"expected '%name = operation operands argument : f32[2,3]', not {line!r}"
        )
    name, op_name, body, dtype_name, sizes = match.groups()
    if name in names:
        raise _MalformedError(f"expected a new name, and %{name} is defined above")
    if op_name not in _BY_NAME:
        raise _MalformedError(f"expected an operation of the graph, not {op_name!r}")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    type_ = _Type(_known("a dtype", dtype_name, BY_SHORT), shape)
    return name, _build(_BY_NAME[op_name], body or "", type_, names)


def _build(op: Op, body: str, type_: _Type, names: dict[str, Node]) -> Node:
    listed = _OPERANDS.match(body)
    src = tuple(_operands(listed.group(), names)) if listed else ()
    rest = body[listed.end() :] if listed else body
    arg = _argument(op, rest.split(), type_)
    problem = complaint(op, src, arg)
    if problem is not None:
        raise _MalformedError(f"{op.name.lower()}: {problem}")
    try:
        node = Node(op, src, arg)
    except LaminaError as error:
        raise _MalformedError(str(error).partition("\n")[0]) from None
    found = _Type(node.dtype, node.shape)
    if found != type_:
        raise _MalformedError(f"expected the type {found}, not {type_}")
    return node


def _argument(op: Op, words: list[str], type_: _Type) -> Any:
    pattern = _WORDS.get(op, "").split()
    prefixes = [one.partition("{")[0] for one in pattern]
    if len(words) != len(prefixes) or not all(map(str.startswith, words, prefixes)):
        raise _MalformedError(
            f"expected {' '.join(one + '...' for one in prefixes) or 'no argument'} after "
            f"{op.name.lower()} and its operands, not {' '.join(words)!r}"
        )
    if op is Op.IOTA and len(type_.shape) != 1:
        raise _MalformedError(f"expected a type of one axis for iota, not {type_}")
    given: dict[str, Any] = {}
    for one, prefix, word in zip(pattern, prefixes, words, strict=True):
        field = one[len(prefix) + 1 : -1]
        try:
            given[field] = _read(field, word.removeprefix(prefix), type_)
        except ValueError:
            raise _MalformedError(f"expected a number, not {word!r}") from None
    kind: Any = ARGUMENT.get(op)
    if hasattr(kind, "_fields"):
        known = {"shape": type_.shape, "dtype": type_.dtype, "size": prod(type_.shape)} | given
        return kind(*(known[field] for field in kind._fields))
    from_type = None if kind is None else type_.dtype if kind is DType else type_.shape
    return next(iter(given.values()), from_type)
