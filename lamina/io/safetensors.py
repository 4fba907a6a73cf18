"""Reading and writing tensors in the safetensors format.

A file is eight bytes with the length of a header, the header as JSON, and the tensors' bytes.
Files come from strangers: the format's own package checks that the tensors fill the file without
gaps or overlaps, each with exactly the bytes its shape needs. Nothing in a file is ever executed.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lamina import dtypes
from lamina.errors import DTypeError, FormatError
from lamina.runtime.buffer import HOST_DEVICES, Buffer
from lamina.runtime.cache import replacing
from lamina.shape import prod
from lamina.tensor import realize as memory
from lamina.tensor.core import Tensor, as_tensor, check_device, checked

__all__ = ["load", "metadata", "save"]

_DTYPES = {
    dtypes.SHORT[dtype].upper().removesuffix("FN"): dtype
    for dtype in dtypes.ALL if dtype is not dtypes.complex128
}  # fmt: skip


@checked
def save(
    path: str | os.PathLike[str], tensors: Mapping[str, Tensor],
    metadata: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Write `tensors` to `path`; an error or a kill on the way leaves what was there before. Raises
    DTypeError for a dtype that the format lacks."""
    from safetensors.numpy import save_file

    tensors = {name: as_tensor(one) for name, one in tensors.items()}
    for name, tensor in tensors.items():
        if name == "__metadata__":
            raise FormatError(f"save: {name!r} is reserved by the format; rename the tensor")
        if tensor.dtype not in _DTYPES.values():
            raise DTypeError(f"save: {name}: safetensors has no {tensor.dtype.name}; cast it first")
    memory.realize(*tensors.values())
    with replacing(Path(path)) as file:
        arrays = {name: memory.download(tensor) for name, tensor in tensors.items()}
        save_file(arrays, file.name, dict(metadata) if metadata else None)
        os.fsync(file.fileno())


@checked
def load(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name, in the order of their bytes. On host devices they are private,
    copy-on-write views of the mapped file: nothing is read yet, and writing to one never changes
    the file. Raises FormatError when the file is not what the format asks for."""
    import numpy as np

    file, where, tensors = _opened(path), check_device(device), dict[str, Tensor]()
    content = np.memmap(path, np.uint8, "c")
    at = 8 + int.from_bytes(content[:8].tobytes(), "little")
    for name in file.offset_keys():
        part = file.get_slice(name)
        kind, shape = part.get_dtype(), part.get_shape()
        if kind not in _DTYPES:
            raise FormatError(f"{path}: {name!r} has dtype {kind}; known are {', '.join(_DTYPES)}")
        dtype = _DTYPES[kind]
        stop = at + prod(shape) * dtype.itemsize
        values: Any = content[at:stop].view(dtype.numpy).reshape(shape)
        pointer, at = int(values.ctypes.data), stop
        if where not in HOST_DEVICES or pointer % dtype.itemsize or not values.size:
            tensors[name] = Tensor(values, dtype, where)
        else:
            buffer = Buffer.wrap(pointer, values.nbytes, where, owner=values)
            tensors[name] = Tensor.of(memory.buffer_node(buffer, values.shape, dtype), where)
    return tensors


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The free text that a file carries beside its tensors."""
    return _opened(path).metadata() or {}


def _opened(path: str | os.PathLike[str]) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise FormatError(f"{path}: not a whole safetensors file: {error}") from None
