"""Making tensors (array API, "creation functions"), and exchange with other libraries.

Every tensor made here is a leaf of its own, so that derivatives tell two equal ones apart; a
constant still takes no memory until somebody looks at it.

NumPy reads and writes the structures of DLPack (dlpack.h, version 1.0). It lacks bfloat16, which
therefore passes through NumPy as uint16 with the type code of the structure changed.
"""

import ctypes
import math
from types import SimpleNamespace
from typing import Any

from lamina.core import dtypes
from lamina.core.dtypes import Scalar, default_float
from lamina.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from lamina.frontend import gpu_dlpack
from lamina.frontend import realize as memory
from lamina.frontend.arguments import as_dtype, fitting, integer, sizes_of
from lamina.frontend.functions.elementwise import named
from lamina.frontend.functions.movement import broadcast_arrays, broadcast_to, reshape
from lamina.frontend.functions.spatial import Sizes, resized
from lamina.frontend.tensor import Data, Tensor, as_tensor, check_device, is_scalar, leaf
from lamina.ir import build
from lamina.runtime.buffer import HOST_DEVICES, Buffer, heap_of

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

_CPU = 1
_UINT, _BFLOAT = 1, 4  # type codes
# Where DLManagedTensorVersioned and DLManagedTensor, the form before version 1, have the code.
_OFFSETS = {b"dltensor_versioned": 52, b"dltensor": 20}


def asarray(
    obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None
) -> Tensor:
    """A tensor from numbers, nested sequences, a NumPy array or any DLPack producer, which are
    copied, or from a tensor. Raises ArgumentError when ``copy=False`` and a copy is needed."""
    foreign = hasattr(obj, "__dlpack__") and not hasattr(obj, "__array__")
    source = from_dlpack(obj, device=device, copy=True) if foreign else obj
    found = Tensor(source, dtype, device)
    same = isinstance(obj, Tensor) and found.node is obj.node
    if copy is False and not same:
        raise ArgumentError(
            f"{type(obj).__name__} needs a copy; drop copy=False", operation="asarray"
        )
    return as_tensor(obj) if same and not copy else found


def full(
    shape: Sizes, fill_value: Scalar | Tensor, *, dtype: Any = None, device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor filled with one value, whose kind decides the dtype when none is given."""
    sizes = sizes_of("full", shape)
    if not is_scalar(fill_value):
        filling = broadcast_to(as_tensor(fill_value), sizes)
        return Tensor(filling, dtype, device, requires_grad)
    kind = as_dtype(type(fill_value) if dtype is None else dtype)
    return leaf(build.full(sizes, fitting("full", fill_value, kind), kind), device, requires_grad)


def _constant(
    what: str, value: int, shape: Sizes, *, dtype: Any = None, device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    kind = dtype or default_float
    return full(shape, value, dtype=kind, device=device, requires_grad=requires_grad)


zeros = named("zeros", "Zeros, of the default float dtype when none is given.", _constant, 0)
ones = named("ones", "Ones, of the default float dtype when none is given.", _constant, 1)


def full_like(
    x: Tensor, /, fill_value: Scalar, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """A tensor like x, filled with one value."""
    return full(x.shape, fill_value, dtype=dtype or x.dtype, device=device or x.device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros in the shape and dtype of x."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones in the shape and dtype of x."""
    return full_like(x, 1, dtype=dtype, device=device)


empty, empty_like = zeros, zeros_like  # any content would do


def arange(
    start: int | float, /, stop: int | float | None = None, step: int | float = 1, *,
    dtype: Any = None, device: str | None = None,
) -> Tensor:  # fmt: skip
    """start, start + step, ... before stop, floats computed as Python would; ``arange(n)`` counts
    from 0."""
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ArgumentError("the step is 0", operation="arange")
    count = max(0, math.ceil((last - first) / step))
    wanted = as_dtype(dtype or (int if hasattr(first + last + step, "__index__") else float))
    line = build.iota(count, dtypes.int64 if wanted.is_int else dtypes.float64)
    if step != 1:
        line = line * step
    if first != 0:
        line = line + first
    return leaf(build.cast(line, wanted), device)


def linspace(
    start: Scalar, stop: Scalar, /, num: int, *, dtype: Any = None, device: str | None = None,
    endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """`num` evenly spaced values from start to stop; the end is exact when it is included."""
    sizes = sizes_of("linspace", num)
    span = stop - start
    default = dtypes.default_complex if isinstance(span, complex) else default_float
    wanted = default if dtype is None else as_dtype(dtype)
    wide = dtypes.complex128 if wanted.is_complex else dtypes.float64
    gap = span / max(num - 1 if endpoint else num, 1)
    line = build.cast(build.iota(num, dtypes.float64), wide) * gap + start
    if endpoint and num > 1:
        at_end = build.iota(num, dtypes.int64).eq(num - 1)
        line = build.select(at_end, build.full(sizes, stop, wide), line)
    return leaf(build.cast(line, wanted), device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None,
    device: str | None = None,
) -> Tensor:  # fmt: skip
    """A matrix with ones on diagonal k and zeros elsewhere."""
    shape = sizes_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    rows, columns = (build.broadcasted_iota(shape, axis) for axis in (0, 1))
    on_diagonal = (rows + integer("eye", k)).eq(columns)
    return leaf(build.cast(on_diagonal, as_dtype(dtype or default_float)), device)


def _triangle(what: str, upper: bool, x: Data, /, k: int = 0) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"{x.shape} is no matrix; two axes at least are needed", operation=what)
    # The diagonal itself belongs to both triangles.
    row, column = (build.broadcasted_iota(x.shape, x.ndim - back) for back in (2, 1))
    low = column < row + integer(what, k) + (0 if upper else 1)
    parts = (x.node.lift(0), x.node) if upper else (x.node, x.node.lift(0))
    return Tensor.of(build.select(low, *parts), x.device)


tril = named("tril", "The matrices with zeros above diagonal k.", _triangle, False)
triu = named("triu", "The matrices with zeros below diagonal k.", _triangle, True)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Tensor]:
    """The coordinates of a grid: one array an axis, "xy" with the first two axes swapped."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f"indexing={indexing!r}; it is 'xy' or 'ij'", operation="meshgrid")
    axes = list(range(len(arrays)))
    if indexing == "xy":
        axes[:2] = axes[:2][::-1]
    ones = (1,) * len(arrays)
    lines = (resized(ones, axis, -1) for axis in axes)
    return broadcast_arrays(*map(reshape, map(as_tensor, arrays), lines))


def _type_code(capsule: Any) -> ctypes.c_uint8:
    """The code of the dtype in the structure that `capsule` holds."""
    api = ctypes.pythonapi
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    for name, offset in _OFFSETS.items():
        if api.PyCapsule_IsValid(ctypes.py_object(capsule), name):
            pointer = api.PyCapsule_GetPointer(ctypes.py_object(capsule), name)
            return ctypes.c_uint8.from_address(pointer + offset)
    raise BufferError("from_dlpack: the capsule was consumed already")


def dlpack_device(x: Tensor) -> tuple[int, int]:
    """DLPack's numbers for the device of x."""
    numbers = heap_of(x.device).dlpack
    if numbers is None:
        raise DeviceError(f"dlpack: the memory of {x.device} cannot be shared; move it to cpu")
    return numbers


def to_dlpack(
    x: Tensor, *, stream: Any = None, max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None, copy: bool | None = None,
) -> Any:  # fmt: skip
    """A DLPack capsule over the memory of x, which is computed first. stream: on a GPU the
    consumer's, which waits for that: the address of a CUDA stream, 1 or None for the legacy default
    stream, 2 for that of the thread, -1 for no waiting; elsewhere None."""
    if x.dtype in dtypes.STORAGE_ONLY:
        raise DTypeError(f"{x.dtype.name} cannot be exported; cast it first", operation="dlpack")
    device = dlpack_device(x)
    if dl_device not in (None, device):
        raise BufferError(f"__dlpack__: {x.device} cannot export to device {dl_device}")
    if device[0] == gpu_dlpack.CUDA:
        return gpu_dlpack.exported(x, device, stream, max_version, copy)
    if stream not in (None, -1):
        raise ArgumentError(
            f"stream {stream!r} on {x.device}, which has none", operation="__dlpack__"
        )
    if not copy:
        memory.memory_of(x).export()
    array = memory.download(x)
    if x.dtype is not dtypes.bfloat16:
        return array.__dlpack__(max_version=max_version, copy=copy)
    capsule = array.view("uint16").__dlpack__(max_version=max_version, copy=copy)
    _type_code(capsule).value = _BFLOAT
    return capsule


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of a DLPack producer, such as a NumPy, PyTorch or CuPy array:
    whoever writes to it changes this tensor too. What is on an NVIDIA GPU stays there unless
    `device` says otherwise. It is copied if `copy` says so, it is not contiguous or `device` has
    other memory; raises BufferError if ``copy=False`` forbids that."""
    where = check_device(device)
    if isinstance(x, Tensor):
        moved = x if device is None else x.to(where)
        return moved.clone() if copy else moved
    kind, number = x.__dlpack_device__()
    if kind == gpu_dlpack.CUDA:
        return _from_gpu(x, number, None if device is None else where, copy)
    if kind != _CPU:
        raise DeviceError(f"from_dlpack: device kind {kind} cannot be read; move it to the CPU")
    array = _borrowed(x)
    dtype = as_dtype(array.dtype)
    if copy or where not in HOST_DEVICES or not array.flags.c_contiguous:
        if copy is False:
            what = f"strides {array.strides} of {array.shape}"
            raise BufferError(f"from_dlpack: {what} need a copy for {where}")
        return Tensor(array, dtype, where)
    buffer = Buffer.wrap(array.ctypes.data, array.nbytes, where, owner=array)
    shared = Tensor.of(memory.buffer_node(buffer, array.shape, dtype), where)
    buffer.export()
    return shared


def _from_gpu(x: Any, number: int, wanted: str | None, copy: bool | None) -> Tensor:
    """As `from_dlpack` of a producer on the GPU of that number; `wanted`: a device, if named."""
    where = wanted or f"cuda:{number}"
    if copy is False and where != f"cuda:{number}":
        raise BufferError(f"from_dlpack: memory of cuda:{number} needs a copy for {where}")
    shared = gpu_dlpack.borrowed(x, number, may_copy=copy is not False).to(where)
    return shared.clone() if copy else shared


def _borrowed(x: Any) -> Any:
    """A NumPy array over the memory of a producer."""
    import numpy as np

    try:
        capsule = x.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer older than version 1
        capsule = x.__dlpack__()
    code = _type_code(capsule)
    is_bfloat = code.value == _BFLOAT
    if is_bfloat:
        code.value = _UINT
    producer = SimpleNamespace(
        __dlpack__=lambda **options: capsule, __dlpack_device__=lambda: (_CPU, 0)
    )
    try:
        array = np.from_dlpack(producer)
    except (BufferError, RuntimeError) as error:
        raise DTypeError(str(error), operation="from_dlpack") from None
    return array.view(dtypes.bfloat16.numpy) if is_bfloat else array


def to_numpy(x: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """The values as a NumPy array: of their memory, which is then never overwritten, or a copy."""
    import numpy as np

    if not copy:
        memory.memory_of(x).export()
    array = memory.download(x)
    array.flags.writeable = False
    return np.array(array, dtype, copy=copy)
