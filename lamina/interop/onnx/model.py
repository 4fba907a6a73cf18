"""A file of ONNX as protocol buffers and arrays. A file is hostile until it proves otherwise:
sizes, folders and nesting are checked here, before anything is computed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.values import numpy_dtype
from lamina.io.mapped import mapped_bytes

MAX_FILE = 2**31  # bytes; protocol buffers end there, larger models have external data
MAX_NODES = 1_000_000  # of all functions' bodies in place of their calls
MAX_NESTING = 50  # functions and graphs inside of one another
_NEWEST = 2**31 - 1  # version of operators of other domains than ONNX's

Identity = tuple[str, str, str]  # of a function: domain, name, overload

# Element types of less than a byte, as bits; a file packs them.
_PACKED_BITS = {
    onnx.TensorProto.INT4: 4, onnx.TensorProto.UINT4: 4, onnx.TensorProto.FLOAT4E2M1: 4,
    onnx.TensorProto.INT2: 2, onnx.TensorProto.UINT2: 2,
}  # fmt: skip


def read_model(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """The model of a file, without its external data. Raises OnnxError for what is no regular
    file, is too large, or is no model."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise OnnxError(f"{os.fspath(path)}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise OnnxError(f"{os.fspath(path)} is no regular file")
    if status.st_size >= MAX_FILE:
        raise OnnxError(
            f"{os.fspath(path)} has {status.st_size} bytes; protocol buffers have less than "
            f"{MAX_FILE}: save the model with external data"
        )
    return parse_model(Path(path).read_bytes(), os.fspath(path))


def parse_model(content: bytes, name: str) -> onnx.ModelProto:
    """The model that `content` is; `name` stands in errors."""
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
    except Exception as error:  # protobuf's DecodeError, which has another path in each version
        raise OnnxError(f"{name} is no model of ONNX: {error}") from error
    if not model.HasField("graph"):  # no bytes at all are a message without fields
        raise OnnxError(f"{name} is no model of ONNX: there is no graph in {len(content)} bytes")
    return model


class Storage:
    """The files beside a model that hold its large tensors, mapped into memory."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._folder = None if path is None else Path(path).parent
        self._allowed: tuple[Path, ...] = ()
        if path is not None:
            # A cache may be a folder of links to files that lie elsewhere, all in one folder.
            self._allowed = (Path(path).parent.resolve(), Path(path).resolve().parent)
        self._mapped: dict[Path, np.ndarray[Any, Any]] = {}

    def array(self, tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
        """The elements of a tensor; those of an external one are views of the mapped file. Raises
        OnnxError where bytes, sizes and element type do not fit together."""
        try:
            if tensor.data_location != onnx.TensorProto.EXTERNAL:
                array: np.ndarray[Any, Any] = numpy_helper.to_array(tensor)
            else:
                array = self._external(tensor)
        except OnnxError:
            raise
        except Exception as error:
            raise OnnxError(
                f"tensor {tensor.name!r} of sizes {list(tensor.dims)[:8]}: {error}"
            ) from error
        if tensor.data_type == onnx.TensorProto.STRING:
            return np.asarray(array, dtype=object)
        return array

    def _external(self, tensor: onnx.TensorProto) -> np.ndarray[Any, Any]:
        dtype = numpy_dtype(tensor.data_type)
        if tensor.data_type == onnx.TensorProto.STRING:
            raise OnnxError(f"tensor {tensor.name!r}: strings cannot be external")
        if any(size < 0 for size in tensor.dims):
            raise OnnxError(f"tensor {tensor.name!r} has a negative size: {list(tensor.dims)}")
        bits = _PACKED_BITS.get(tensor.data_type, dtype.itemsize * 8)
        needed = (prod(tensor.dims) * bits + 7) // 8
        content = self._bytes(tensor, needed)
        if tensor.data_type not in _PACKED_BITS:
            return content.view(dtype).reshape(tuple(tensor.dims))
        packed = onnx.TensorProto()
        packed.data_type = tensor.data_type
        packed.dims.extend(tensor.dims)
        packed.raw_data = content.tobytes()
        array: np.ndarray[Any, Any] = numpy_helper.to_array(packed)
        return array

    def _bytes(self, tensor: onnx.TensorProto, needed: int) -> np.ndarray[Any, Any]:
        """The `needed` bytes of an external tensor."""
        entries = {entry.key: entry.value for entry in tensor.external_data}
        what = f"tensor {tensor.name!r}"
        content = self._file(text(entries.get("location", "")), what)
        offset = _count(entries.get("offset", "0"), f"offset of {what}")
        length = _count(entries.get("length", str(needed)), f"length of {what}")
        if length != needed:
            raise OnnxError(f"{what} has {needed} bytes by its sizes, and length={length}")
        if offset + length > content.size:
            raise OnnxError(
                f"{what} lies at bytes {offset} to {offset + length} of a file that has "
                f"{content.size}"
            )
        return content[offset : offset + length]

    def _file(self, location: str, what: str) -> np.ndarray[Any, Any]:
        """The bytes of the file at `location`, which has to lie beside the model."""
        if self._folder is None:
            raise OnnxError(f"{what} is in another file: load the model by its path")
        if not location or "\0" in location or os.path.isabs(location):
            raise OnnxError(f"{what} is at {location!r}, which is no path below the model's folder")
        path = (self._folder / location).resolve()
        if not any(path.is_relative_to(folder) for folder in self._allowed):
            raise OnnxError(f"{what} is at {location!r}, outside of the model's folder")
        if path not in self._mapped:
            if not path.is_file():
                raise OnnxError(f"{what} is at {location!r}, which is no file")
            self._mapped[path] = mapped_bytes(path)
        return self._mapped[path]


def _count(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise OnnxError(f"the {what} is {text[:40]!r}, no number of bytes")
    return int(text)


def identity(function: onnx.FunctionProto) -> Identity:
    """By what a node calls a function."""
    return _domain(function.domain), text(function.name), text(function.overload)


def called(node: onnx.NodeProto) -> Identity:
    """The function that a node calls, if the model has it."""
    return _domain(node.domain), text(node.op_type), text(node.overload)


def _domain(name: str | bytes) -> str:
    """ONNX's default domain has two names."""
    return "" if name == "ai.onnx" else text(name)


def copied(message: Any) -> Any:
    """A protocol buffer of its own: a part of a model keeps all of the model's memory."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def detached(node: onnx.NodeProto, with_attributes: bool) -> onnx.NodeProto:
    """A copy of a node, without its attributes where these have been decoded."""
    copy = onnx.NodeProto(name=node.name, op_type=node.op_type, domain=node.domain,
                          overload=node.overload)  # fmt: skip
    copy.input.extend(node.input)
    copy.output.extend(node.output)
    if with_attributes:
        copy.attribute.extend(node.attribute)
    return copy


def text(value: str | bytes) -> str:
    """A text of a file, which protocol buffers give as bytes where it is not of UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "replace")


def versions(imports: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """The version of each operator set by its domain. Raises OnnxError for versions that the
    package onnx does not know."""
    found = {_domain(entry.domain): entry.version for entry in imports}
    for domain, version in found.items():
        newest = onnx.defs.onnx_opset_version() if not domain else _NEWEST
        if not 1 <= version <= newest:
            raise OnnxError(
                f"version {version} of the operators of {domain!r}: onnx {onnx.__version__} has "
                f"versions 1 to {newest}"
            )
    return found


@dataclass(frozen=True)
class _Extent:
    """What nodes are once the functions that they call stand in place of the calls. nesting: the
    functions that are inside of one another."""

    nodes: int
    nesting: int


class _Extents:
    """The extents of a model's functions, each computed once."""

    def __init__(self, functions: Mapping[Identity, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._known: dict[Identity, _Extent] = {}
        self._open: list[Identity] = []

    def of_nodes(self, nodes: Iterable[onnx.NodeProto]) -> _Extent:
        """Raises OnnxError for too many nodes, too many levels, and recursion."""
        count, nesting = 0, 0
        for node in nodes:
            count += 1
            parts = [self.of_nodes(graph.node) for graph in _graphs_of(node)]
            if called(node) in self._functions:
                parts.append(self._of_function(called(node)))
            count += sum(part.nodes for part in parts)
            nesting = max([nesting, *[part.nesting for part in parts]])
            if count > MAX_NODES:
                raise OnnxError(
                    f"the model has more than {MAX_NODES} nodes once its functions stand in place "
                    "of their calls"
                )
        return _Extent(count, nesting)

    def _of_function(self, name: Identity) -> _Extent:
        if name in self._known:
            return self._known[name]
        if name in self._open:
            raise OnnxError(f"function {name[1]!r} calls itself")
        self._open.append(name)
        if len(self._open) > MAX_NESTING:
            raise OnnxError(f"more than {MAX_NESTING} functions call one another")
        body = self.of_nodes(self._functions[name].node)
        self._open.pop()
        extent = _Extent(body.nodes, body.nesting + 1)
        if extent.nesting > MAX_NESTING:
            raise OnnxError(f"more than {MAX_NESTING} functions call one another")
        self._known[name] = extent
        return extent


def _graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def functions_of(model: onnx.ModelProto) -> dict[Identity, onnx.FunctionProto]:
    """The model's functions. Raises OnnxError where they call themselves, or become too many nodes
    in place of their calls: 25 functions of two calls each would be 33,554,432."""
    functions = {identity(function): function for function in model.functions}
    extents = _Extents(functions)
    extents.of_nodes(model.graph.node)
    for function in functions.values():
        extents.of_nodes(function.node)
    return functions
