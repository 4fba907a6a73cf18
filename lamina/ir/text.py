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
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from lamina.dtypes import BY_SHORT, SHORT, DType, Scalar
from lamina.errors import FormatError, LaminaError
from lamina.ir.lines import line_of
from lamina.ir.monoids import MONOIDS, Monoid
from lamina.ir.node import Node, toposort
from lamina.ir.ops import (
    BufferRef,
    Const,
    Iota,
    Op,
    Pad,
    Reduce,
    Scatter,
    Shear,
    Shrink,
    Variable,
)
from lamina.ir.verify import FOREIGN, complaint
from lamina.shape import Shape

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


# Words of an argument, each with its reader. A reader raises _MalformedError or ValueError.


def _print_scalar(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _scalar(word: str, type_: _Type) -> Scalar:
    kind = type_.dtype.kind
    if kind == "bool":
        if word not in ("true", "false"):
            raise _MalformedError(f"expected true or false, not {word!r}")
        return word == "true"
    if kind == "float":
        return float(word)
    return complex(word) if kind == "complex" else int(word)


def _print_ints(value: tuple[int, ...]) -> str:
    return f"({value[0]},)" if len(value) == 1 else f"({','.join(map(str, value))})"


def _ints(word: str, type_: _Type) -> tuple[int, ...]:
    if not re.fullmatch(r"\(((-?\d+,)+(-?\d+)?)?\)", word):
        raise _MalformedError(f"expected integers in parentheses such as (1,), not {word!r}")
    return tuple(int(one) for one in word[1:-1].split(",") if one)


def _int(word: str, type_: _Type) -> int:
    return int(word)


def _monoid(word: str, type_: _Type) -> Monoid | None:
    if word == "none":
        return None
    if word not in MONOIDS:
        raise _MalformedError(f"expected a monoid ({', '.join(MONOIDS)}), not {word!r}")
    return MONOIDS[word]


def _word(word: str, type_: _Type) -> str:
    return word


class _Field(NamedTuple):
    """A part of an argument: ``name=word``, or the bare word where the name is empty."""

    name: str
    read: Callable[[str, _Type], Any]
    write: Callable[[Any], str] = str


def _fields(read: Callable[[str, _Type], Any], *names: str) -> tuple[_Field, ...]:
    write = _print_ints if read is _ints else str
    return tuple(_Field(name, read, write) for name in names)


class _Syntax(NamedTuple):
    """How an argument is written: the words of `fields`, from which `build` makes it again."""

    fields: tuple[_Field, ...]
    build: Callable[[list[Any], _Type], Any]
    values: Callable[[Any], tuple[Any, ...]] = tuple


def _one(*fields: _Field) -> _Syntax:
    return _Syntax(fields, lambda values, type_: values[0], lambda arg: (arg,))


def _named(kind: Any, *fields: _Field) -> _Syntax:
    return _Syntax(fields, lambda values, type_: kind(*values))


def _from_type(build: Callable[[_Type], Any]) -> _Syntax:
    return _Syntax((), lambda values, type_: build(type_), lambda arg: ())


_MONOID = _Field("monoid", _monoid, lambda monoid: "none" if monoid is None else monoid.name)
_REDUCTION = _named(Reduce, _MONOID, *_fields(_ints, "axes"), *_fields(_int, "part"))
_SHAPE = _from_type(lambda type_: type_.shape)
_DTYPE = _from_type(lambda type_: type_.dtype)

_SYNTAX: dict[Op, _Syntax] = {
    Op.BUFFER: _Syntax(
        (_Field("", _int), _Field("", _word)),
        lambda values, type_: BufferRef(values[0], type_.shape, type_.dtype, values[1]),
        lambda arg: (arg.storage, arg.device),
    ),
    Op.CONST: _Syntax(
        (_Field("", _scalar, _print_scalar),),
        lambda values, type_: Const(values[0], type_.dtype),
        lambda arg: (arg.value,),
    ),
    Op.IOTA: _from_type(lambda type_: Iota(type_.shape[0], type_.dtype)),
    Op.VARIABLE: _named(Variable, _Field("", _word), *_fields(_int, "minimum", "maximum")),
    Op.CAST: _DTYPE,
    Op.BITCAST: _DTYPE,
    Op.REDUCE: _REDUCTION,
    Op.SCAN: _REDUCTION,
    Op.RESHAPE: _SHAPE,
    Op.EXPAND: _SHAPE,
    Op.PERMUTE: _one(*_fields(_ints, "axes")),
    Op.PAD: _named(
        Pad, *_fields(_ints, "before", "after"), _Field("value", _scalar, _print_scalar)
    ),
    Op.SHRINK: _named(Shrink, *_fields(_ints, *Shrink._fields)),
    Op.FLIP: _one(*_fields(_ints, "axes")),
    Op.SHEAR: _named(Shear, *_fields(_int, *Shear._fields)),
    Op.GATHER: _one(*_fields(_int, "axis")),
    Op.SCATTER: _named(Scatter, *_fields(_int, "axis"), _MONOID),
    Op.COPY: _one(_Field("device", _word)),
}
_NO_ARGUMENT = _from_type(lambda type_: None)
# Scalars of kernels and combines are printed for the eye only.
_SYNTAX.update(dict.fromkeys(FOREIGN, _one(_Field("", _word, repr))))


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
    syntax = _SYNTAX.get(node.op, _NO_ARGUMENT)
    for field, value in zip(syntax.fields, syntax.values(arg), strict=True):
        words.append(f"{field.name}={field.write(value)}" if field.name else field.write(value))
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
    if dtype_name not in BY_SHORT:
        raise _MalformedError(f"expected a dtype ({', '.join(BY_SHORT)}), not {dtype_name!r}")
    shape = tuple(int(size) for size in sizes.split(",") if size)
    return name, _build(_BY_NAME[op_name], body or "", _Type(BY_SHORT[dtype_name], shape), names)


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
    syntax = _SYNTAX.get(op, _NO_ARGUMENT)
    wanted = " ".join(f"{field.name}=..." if field.name else "..." for field in syntax.fields)
    prefixes = [f"{field.name}=" if field.name else "" for field in syntax.fields]
    if len(words) != len(prefixes) or not all(map(str.startswith, words, prefixes)):
        raise _MalformedError(
            f"expected {wanted or 'no argument'} after {op.name.lower()} and its operands, "
            f"not {' '.join(words)!r}"
        )
    if op is Op.IOTA and len(type_.shape) != 1:
        raise _MalformedError(f"expected a type of one axis for iota, not {type_}")
    values = []
    for field, prefix, word in zip(syntax.fields, prefixes, words, strict=True):
        try:
            values.append(field.read(word.removeprefix(prefix), type_))
        except ValueError:
            raise _MalformedError(f"expected a number, not {word!r}") from None
    return syntax.build(values, type_)
