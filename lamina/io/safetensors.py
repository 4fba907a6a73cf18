"""Reading and writing tensors in the safetensors format.

A file is eight bytes with the length of a header, the header as JSON, and the tensors' bytes:

    {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, "__metadata__": {...}}

Files come from strangers: the format's own package checks that the tensors fill the file without
gaps or overlaps, each with exactly the bytes its shape needs. Nothing in a file is ever executed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamina import dtypes
from lamina.errors import DTypeError, FormatError
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime.buffer import HOST_DEVICES, Buffer
from lamina.runtime.cache import replacing
from lamina.shape import prod
from lamina.tensor.core import Tensor, check_device
from lamina.tensor.realize import realize

__all__ = ["load", "metadata", "save"]

_LENGTH_BYTES = 8
_ALIGNMENT = 8  # of the header's end, as other writers do it
_METADATA = "__metadata__"
_NAMES = {
    dtype: dtypes.SHORT[dtype].upper().removesuffix("FN")
    for dtype in dtypes.ALL
    if dtype is not dtypes.complex128
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write `tensors` to `path`, all or nothing.

    The file is written beside its destination and renamed, so an error or a kill on the way
    leaves what was there before. Raises DTypeError for a dtype that the format lacks.
    """
    realize(*tensors.values())
    # Wide elements first, so that every tensor is aligned to its own element.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header = _header({name: tensors[name] for name in order}, metadata)
    with replacing(Path(path)) as file:
        file.write(len(header).to_bytes(_LENGTH_BYTES, "little"))
        file.write(header)
        for name in order:
            file.write(tensors[name].numpy().tobytes())
        file.flush()
        os.fsync(file.fileno())


def _header(tensors: dict[str, Tensor], metadata: Mapping[str, str] | None) -> bytes:
    fields: dict[str, Any] = {}
    if metadata:
        fields[_METADATA] = {str(key): str(value) for key, value in metadata.items()}
    at = 0
    for name, tensor in tensors.items():
        if name == _METADATA:
            raise FormatError(f"save: {name!r} is reserved by the format; rename the tensor")
        if tensor.dtype not in _NAMES:
            raise DTypeError(f"save: {name}: safetensors has no {tensor.dtype.name}; cast it first")
        place = [at, at + tensor.nbytes]
        at += tensor.nbytes
        fields[name] = {"dtype": _NAMES[tensor.dtype], "shape": tensor.shape, "data_offsets": place}
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-(len(text) + _LENGTH_BYTES) % _ALIGNMENT)


def load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name, in the order of their bytes.

    On host devices nothing is read yet: the tensors are private, copy-on-write views of the
    mapped file, so loading takes no time and writing to a tensor never changes the file. Raises
    FormatError, naming what is wrong, when the file is not what the format asks for.
    """
    import numpy as np

    where = check_device(device)
    tensors = {}
    file = _opened(path)
    content = np.memmap(path, np.uint8, "c")
    at = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES].tobytes(), "little")
    for name in file.offset_keys():
        part = file.get_slice(name)
        kind, shape = part.get_dtype(), part.get_shape()
        if kind not in _DTYPES:
            known = ", ".join(_DTYPES)
            raise FormatError(f"{path}: {name!r} has dtype {kind}; known are {known}")
        stop = at + prod(shape) * _DTYPES[kind].itemsize
        values = content[at:stop].view(_DTYPES[kind].numpy).reshape(shape)
        tensors[name] = _tensor(values, where)
        at = stop
    return tensors


def _tensor(values: Any, device: str) -> Tensor:
    """A view of the array's memory where that is possible, or else a copy."""
    dtype, pointer = dtypes.as_dtype(values.dtype), int(values.ctypes.data)
    if device not in HOST_DEVICES or pointer % dtype.itemsize or not values.size:
        return Tensor(values, dtype, device)
    buffer = Buffer.wrap(pointer, values.nbytes, device, owner=values)
    return Tensor.of(Node(Op.BUFFER, (), BufferRef(buffer, values.shape, dtype, device)), device)


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The free text that a file carries beside its tensors."""
    return _opened(path).metadata() or {}


def _opened(path: str | os.PathLike[str]) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise FormatError(f"{path}: not a whole safetensors file: {error}") from None
