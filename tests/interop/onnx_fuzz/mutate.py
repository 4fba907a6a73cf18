"""Changes of a model that make it hostile or broken, drawn from a generator of random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import onnx
from onnx import TensorProto, helper

Message = Any  # of protocol buffers

_INTEGERS = (0, 1, -1, 2, 3, 7, 16, 255, 2**15, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -0.0, 1.0, -1.5, 1e-30, 1e30, float("inf"), float("nan"))
_TEXTS = ("", "x0", "y", "w", "../secret", "/etc/hostname", "a" * 300, "(a+)+$", "ij,jk->", "\0",
          "Relu", "Loop", "ai.onnx", "SAME_UPPER", "reflect", "mean", "é")  # fmt: skip
_LOCATIONS = ("weights", "../secret", "link", "pipe", ".", "", "missing", "weights\0", "up/../../"
              "secret", "./weights")  # fmt: skip
_COUNTS = ("0", "4", "1", "63", "64", "-4", "1e3", "0x4", "18446744073709551616", "9" * 40, "")


def mutated(model: onnx.ModelProto, rng: random.Random) -> bytes:
    """The content of a file: `model` with one to four changes."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        rng.choice(_CHANGES)(changed, rng)
    content = changed.SerializeToString()
    return _of_bytes(content, rng) if rng.random() < 0.25 else content


def _of_bytes(content: bytes, rng: random.Random) -> bytes:
    """Bytes that are flipped, left out, repeated or cut off."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place, length = rng.randrange(len(data) + 1), rng.choice((1, 1, 2, 8, 40))
        how = rng.randrange(5)
        if how == 0:
            del data[place : place + length]
        elif how == 1:
            data[place:place] = data[place : place + length]
        elif how == 2:
            data[place:place] = rng.randbytes(length)
        elif how == 3 and place < len(data):
            data[place] ^= 1 << rng.randrange(8)
        elif how == 4 and rng.random() < 0.2:
            del data[place:]
        if not data:
            break
    return bytes(data)


def _messages(message: Message) -> Iterator[Message]:
    """A message and all inside of it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in value if field.is_repeated else [value]:
                yield from _messages(part)


def _some(model: Message, kind: type, rng: random.Random) -> Message | None:
    found = [message for message in _messages(model) if isinstance(message, kind)]
    return rng.choice(found) if found else None


def _value(field: Any, rng: random.Random) -> Any:
    """Some value for a field that is no message."""
    kind = field.cpp_type
    if kind in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice(_FLOATS)
    if kind == field.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    if kind == field.CPPTYPE_STRING:
        text = rng.choice(_TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    integer = rng.choice(_INTEGERS)
    if kind in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32):
        integer = integer % 2**31
    return abs(integer) if kind in (field.CPPTYPE_UINT64, field.CPPTYPE_UINT32) else integer


def _change_field(model: onnx.ModelProto, rng: random.Random) -> None:
    """Another value for a field, one of its elements, or nothing."""
    message = rng.choice(list(_messages(model)))
    fields = message.ListFields()
    if not fields:
        return
    field, value = rng.choice(fields)
    if not field.is_repeated:
        if field.message_type is not None or rng.random() < 0.2:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, _value(field, rng))
        return
    place = rng.randrange(len(value))
    how = rng.randrange(4)
    if how == 0:
        del value[place]
    elif how == 1:
        value.append(value[place])
    elif how == 2 and field.message_type is None:
        value[place] = _value(field, rng)
    elif how == 3 and len(value) > 1:
        other = rng.randrange(len(value))
        if field.message_type is None:
            value[place], value[other] = value[other], value[place]
        else:
            value[place].CopyFrom(value[other])


def _change_sizes(model: onnx.ModelProto, rng: random.Random) -> None:
    tensor = _some(model, onnx.TensorProto, rng)
    if tensor is None:
        return
    if tensor.dims and rng.random() < 0.7:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(_INTEGERS)
    elif rng.random() < 0.5:
        tensor.dims.append(rng.choice(_INTEGERS))
    else:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]


def _change_numbers(model: onnx.ModelProto, rng: random.Random) -> None:
    """Other integers in a constant of shape arithmetic, or in an attribute."""
    tensor = _some(model, onnx.TensorProto, rng)
    if tensor is None or tensor.data_type != TensorProto.INT64 or rng.random() < 0.4:
        attribute = _some(model, onnx.AttributeProto, rng)
        if attribute is not None and attribute.ints:
            attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(_INTEGERS)
        elif attribute is not None:
            attribute.i = rng.choice(_INTEGERS)
        return
    count = len(tensor.raw_data) // 8
    values = [rng.choice(_INTEGERS) for _ in range(count)]
    tensor.raw_data = b"".join(value.to_bytes(8, "little", signed=True) for value in values)


def _change_names(model: onnx.ModelProto, rng: random.Random) -> None:
    """A node reads or writes another name: cycles, and values that come later or never."""
    node = _some(model, onnx.NodeProto, rng)
    other = _some(model, onnx.NodeProto, rng)
    if node is None or other is None:
        return
    names = [*other.input, *other.output, "", "x0"]
    side = rng.choice((node.input, node.output))
    if side and rng.random() < 0.8:
        side[rng.randrange(len(side))] = rng.choice(names)
    else:
        side.append(rng.choice(names))


def _change_operator(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _some(model, onnx.NodeProto, rng)
    if node is not None:
        schemas = _schemas()
        node.op_type = rng.choice(schemas)
        if rng.random() < 0.5:
            del node.attribute[:]


_NAMES: list[str] = []


def _schemas() -> list[str]:
    if not _NAMES:
        _NAMES.extend(sorted({schema.name for schema in onnx.defs.get_all_schemas()}))
    return _NAMES


def _change_attribute(model: onnx.ModelProto, rng: random.Random) -> None:
    """An attribute more, of one of the names that the operator has."""
    node = _some(model, onnx.NodeProto, rng)
    if node is None:
        return
    try:
        schema = onnx.defs.get_schema(node.op_type)
    except onnx.defs.SchemaError:
        return
    names = sorted(schema.attributes)
    if names:
        values = (rng.choice(_INTEGERS), rng.choice(_FLOATS), rng.choice(_TEXTS),
                  [rng.choice(_INTEGERS) for _ in range(rng.randrange(1, 5))])  # fmt: skip
        kind = schema.attributes[name := rng.choice(names)].type.value
        fitting = {1: values[1], 2: values[0], 3: values[2], 7: values[3]}
        value = fitting.get(kind, values[0]) if rng.random() < 0.8 else rng.choice(values)
        node.attribute.append(helper.make_attribute(name, value))


def _change_functions(model: onnx.ModelProto, rng: random.Random) -> None:
    """Functions that call one another twice at each level, or in a circle."""
    levels = rng.choice((1, 2, 3, 12, 25, 60))
    domain, imports = "hostile", [helper.make_opsetid("", 21), helper.make_opsetid("hostile", 1)]
    for level in range(levels):
        last = rng.random() < 0.1  # calls the first level, which calls all others
        name = f"f{level - 1}" if level else ("Neg" if not last else f"f{levels - 1}")
        inner = domain if name.startswith("f") else ""
        calls = [helper.make_node(name, [a], [b], domain=inner) for a, b in ("ab", "bc")]
        model.functions.append(
            helper.make_function(domain, f"f{level}", ["a"], ["c"], calls, imports)
        )
    model.opset_import.add(domain=domain, version=1)
    node = _some(model.graph, onnx.NodeProto, rng)
    if node is not None:
        node.op_type, node.domain = f"f{levels - 1}", domain
        del node.attribute[:]


def _change_location(model: onnx.ModelProto, rng: random.Random) -> None:
    """A tensor that is said to be in another file."""
    tensor = _some(model, onnx.TensorProto, rng)
    if tensor is None:
        return
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=rng.choice(_LOCATIONS))
    for key in ("offset", "length"):
        if rng.random() < 0.5:
            tensor.external_data.add(key=key, value=rng.choice(_COUNTS))


_CHANGES: tuple[Callable[[onnx.ModelProto, random.Random], None], ...] = (
    _change_field, _change_field, _change_field, _change_sizes, _change_numbers, _change_numbers,
    _change_names, _change_operator, _change_attribute, _change_attribute, _change_functions,
    _change_location,
)  # fmt: skip
