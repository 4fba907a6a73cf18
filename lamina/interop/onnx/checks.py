"""What ONNX's definition of an operator says of a node, checked before a row runs: a row meets the
attributes, inputs and dtypes that it is written for, so that a TypeError in it is lamina's defect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, defs, helper

from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.values import dtype_of

_SINGLE = defs.OpSchema.FormalParameterOption.Single

# The Python values of attributes that a function's call gives; other kinds come from files alone.
_IS_OF: Mapping[int, Callable[[Any], bool]] = {
    AttributeProto.FLOAT: lambda value: isinstance(value, float),
    AttributeProto.INT: lambda value: isinstance(value, int),
    AttributeProto.STRING: lambda value: isinstance(value, str),
    AttributeProto.TENSOR: lambda value: isinstance(value, np.ndarray),
    AttributeProto.FLOATS: lambda value: _is_list_of(value, float),
    AttributeProto.INTS: lambda value: _is_list_of(value, int),
    AttributeProto.STRINGS: lambda value: _is_list_of(value, str),
}


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(part, kind) for part in value)


@dataclass(frozen=True)
class Formal:
    """An input in an operator's definition. types: those that it may have, in ONNX's words, such
    as ``tensor(float)``."""

    name: str
    is_required: bool
    types: frozenset[str]

    @property
    def takes_nothing(self) -> bool:
        """Whether the input may be absent, or an optional value without an element."""
        return not self.is_required or any(kind.startswith("optional(") for kind in self.types)

    @property
    def takes_sequences(self) -> bool:
        return any(kind.startswith(("seq(", "optional(seq(")) for kind in self.types)

    def check(self, value: Any) -> None:
        """Raises OnnxError for a value of another type."""
        if value is None:
            if not self.takes_nothing:
                raise OnnxError(f"input {self.name!r} is absent")
        elif isinstance(value, list):
            if not self.takes_sequences:
                raise OnnxError(f"input {self.name!r} is a sequence")
        elif isinstance(value, (Tensor, np.ndarray, np.generic)):
            kind = _tensor_type(dtype_of(value))
            if kind not in self.types and f"optional({kind})" not in self.types:
                raise OnnxError(f"input {self.name!r} has elements of {dtype_of(value)}")
        else:
            raise OnnxError(f"input {self.name!r} is of type {type(value).__name__}")


@lru_cache
def _tensor_type(dtype: np.dtype[Any]) -> str:
    """A dtype as ONNX's definitions have it: ``tensor(float8e4m3fn)``."""
    if dtype.kind in "OUST":
        return "tensor(string)"
    number = helper.np_dtype_to_tensor_dtype(dtype)
    return f"tensor({TensorProto.DataType.Name(number).lower()})"


@dataclass(frozen=True)
class Definition:
    """An operator in a version of its operator set. attributes: their types by name. A variadic
    operator repeats its last input."""

    inputs: Sequence[Formal]
    is_variadic: bool
    least: int  # inputs
    attributes: Mapping[str, int]

    def check_attributes(self, node: NodeProto) -> None:
        """Raises OnnxError for attributes that the definition lacks, or has of another type."""
        for attribute in node.attribute:
            if attribute.name not in self.attributes:
                raise OnnxError(f"it has no attribute {attribute.name!r}")
            expected = self.attributes[attribute.name]
            if attribute.type != expected and not attribute.ref_attr_name:
                raise OnnxError(
                    f"attribute {attribute.name!r} is of type {_type_name(attribute.type)}, not "
                    f"{_type_name(expected)}"
                )

    def check_references(self, values: Mapping[str, Any], names: Sequence[str]) -> None:
        """Raises OnnxError where an attribute that refers to a function's has another type."""
        for name in names:
            is_of = _IS_OF.get(self.attributes.get(name, 0))
            if is_of is not None and name in values and not is_of(values[name]):
                expected = _type_name(self.attributes[name])
                raise OnnxError(f"attribute {name!r} of the call is not of type {expected}")

    def check_inputs(self, values: Sequence[Any]) -> None:
        """Raises OnnxError for inputs that are missing, too many, or of other types."""
        for number, value in enumerate(values):
            self._formal(number).check(value)
        if len(values) < self.least:
            raise OnnxError(f"it has {len(values)} inputs, not {self.least} or more")
        for formal in self.inputs[len(values) :]:
            if formal.is_required:
                raise OnnxError(f"input {formal.name!r} is absent")

    def _formal(self, number: int) -> Formal:
        if number < len(self.inputs):
            return self.inputs[number]
        if not self.is_variadic:
            raise OnnxError(f"it has more than {len(self.inputs)} inputs")
        return self.inputs[-1]


def _type_name(number: int) -> str:
    """An attribute's type in ONNX's words, such as INTS."""
    known = AttributeProto.AttributeType.values()
    return str(AttributeProto.AttributeType.Name(number)) if number in known else str(number)


@lru_cache(4096)
def definition_of(operator: str, version: int, domain: str) -> Definition | None:
    """None for an operator that ONNX does not define, of another domain's for instance."""
    try:
        schema = defs.get_schema(operator, version, domain)
    except defs.SchemaError:
        return None
    inputs = [
        Formal(formal.name, formal.option == _SINGLE, frozenset(formal.types))
        for formal in schema.inputs
    ]
    variadic = defs.OpSchema.FormalParameterOption.Variadic
    is_variadic = bool(inputs) and schema.inputs[-1].option == variadic
    attributes = {name: formal.type.value for name, formal in schema.attributes.items()}
    return Definition(inputs, is_variadic, schema.min_input, attributes)
