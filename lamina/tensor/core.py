"""The handle that a user holds: a value, named by a graph node, on a device."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeGuard

from lamina import dtypes
from lamina.dtypes import DType, Scalar, as_dtype
from lamina.errors import ArgumentError, DeviceError, DTypeError, ShapeError, UnknownDeviceError
from lamina.ir import build
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.options import current
from lamina.runtime import device_names
from lamina.shape import Shape, broadcast_shapes, prod
from lamina.tensor import realize as memory

_numbers = itertools.count()
_SCALARS = (bool, int, float, complex)


class Tensor:
    """A multidimensional array: a value, computed when somebody looks at it.

    `Tensor(data)` is `asarray(data)`. Two tensors never share a changing value: `assign` and
    item assignment rebind this handle only, whatever happens to the memory below.
    """

    __slots__ = (
        "__weakref__", "_node", "_requires_grad", "assigned", "device", "grad", "number", "target",
    )  # fmt: skip

    __array_priority__ = 1000
    __array_ufunc__ = None  # NumPy's operators leave tensors to ours

    _node: Node
    _requires_grad: bool
    assigned: bool  # the value is new since the last realisation, and its history ends there
    device: str
    grad: Tensor | None
    number: int  # the order of creation
    target: Node | None  # the BUFFER that the new value is written to

    def __init__(
        self,
        data: Any,
        dtype: DType | None = None,
        device: str | None = None,
        requires_grad: bool = False,
    ) -> None:
        node, where = to_node(data, None if dtype is None else as_dtype(dtype), device)
        if requires_grad and isinstance(data, Tensor):
            node = memory.leaf(node, where)  # the derivatives of `data` stay its own
        self._set(node, where)
        self.requires_grad = requires_grad

    def _set(self, node: Node, device: str) -> None:
        self._node = node
        self._requires_grad = False
        self.assigned = False
        self.device = device
        self.grad = None
        self.number = next(_numbers)
        self.target = None
        memory.register(self)

    @classmethod
    def of(cls, node: Node, device: str) -> Tensor:
        """A handle to a graph node."""
        self = cls.__new__(cls)
        self._set(node, device)
        return self

    @property
    def node(self) -> Node:
        """The graph node that computes this value."""
        return self._node

    @node.setter
    def node(self, node: Node) -> None:
        self._node = node

    @property
    def shape(self) -> Shape:
        """The size of each axis."""
        return self._node.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self._node.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def requires_grad(self) -> bool:
        """Whether `backward` fills `grad`."""
        return self._requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and not self.dtype.is_float:
            raise DTypeError(f"requires_grad: {self.dtype.name} has no derivative; use a float")
        if value and self._node.op is not Op.BUFFER:
            self._node = memory.leaf(self._node, self.device)
        self._requires_grad = bool(value)

    # Looking at the value.

    def is_realized(self) -> bool:
        """Whether the value is in memory."""
        return not self.assigned and memory.stored(self._node) is not None

    def realize(self) -> Tensor:
        """Compute the value now; returns this tensor."""
        memory.realize(self)
        return self

    def numpy(self) -> Any:
        """A NumPy array with a copy of the values."""
        return memory.download(self).copy()

    def item(self) -> Any:
        """The only element, as a Python scalar. Raises ShapeError when there are more."""
        if self.size != 1:
            raise ShapeError(f"item: a tensor of shape {self.shape} has {self.size} elements; "
                             "use tolist() or numpy()")  # fmt: skip
        value = memory.download(self).reshape(()).item()
        return value if isinstance(value, _SCALARS) else float(value)  # bfloat16 is no float

    def tolist(self) -> Any:
        """The values as nested lists of Python scalars."""
        if not self.ndim:
            return self.item()
        array = memory.download(self)
        return (array.astype("float32") if self.dtype.bits < 32 and self.dtype.is_float
                else array).tolist()  # fmt: skip

    def __bool__(self) -> bool:
        return bool(self._single("bool"))

    def __int__(self) -> int:
        value = self._single("int")
        if isinstance(value, complex):
            raise DTypeError(f"int: a {self.dtype.name} tensor has no integer value")
        return int(value)

    def __float__(self) -> float:
        value = self._single("float")
        if isinstance(value, complex):
            raise DTypeError(f"float: a {self.dtype.name} tensor has no real value; use real()")
        return float(value)

    def __complex__(self) -> complex:
        return complex(self._single("complex"))

    def __index__(self) -> int:
        if not self.dtype.is_int:
            raise DTypeError(f"index: a {self.dtype.name} tensor is no integer")
        return int(self._single("index"))

    def _single(self, what: str) -> Any:
        if self.ndim:
            raise DTypeError(f"{what}: a tensor of shape {self.shape} is no single value; "
                             "use item(), any() or all()")  # fmt: skip
        return self.item()

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("len: a tensor of shape () has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self.ndim:
            raise DTypeError("iter: a tensor of shape () has no rows")
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self) -> str:
        state = "realized" if self.is_realized() else "lazy"
        return f"<Tensor {self.dtype.name}{list(self.shape)} on {self.device}, {state}>"

    def __str__(self) -> str:
        import numpy as np

        array = memory.download(self)
        if self.dtype.is_float and self.dtype.bits < 32:
            array = array.astype(np.float32)
        return str(np.array2string(array, separator=", "))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}\n{escape(repr(self))}</pre>"

    # Copies and changes.

    def detach(self) -> Tensor:
        """The same value, through which no derivative flows."""
        place = None if self.assigned else memory.stored(self._node)
        return Tensor.of(Node(Op.DETACH, (place or self._node,)), self.device)

    def clone(self) -> Tensor:
        """The same value in memory of its own; derivatives flow through."""
        return self.contiguous()

    def __copy__(self) -> Tensor:
        return Tensor(self, requires_grad=self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A leaf with this value; values never change, so nothing is copied."""
        copy = Tensor.of(memory.leaf(self.detach().node, self.device), self.device)
        copy.requires_grad = self.requires_grad
        return copy

    def __reduce__(self) -> Any:
        return Tensor, (self.numpy(), self.dtype, self.device, self.requires_grad)

    def contiguous(self) -> Tensor:
        """The same value, stored row-major in a buffer of its own."""
        return Tensor.of(Node(Op.CONTIGUOUS, (self._node,)), self.device)

    def cast(self, dtype: DType) -> Tensor:
        """The values converted to `dtype`."""
        return Tensor.of(build.cast(self._node, as_dtype(dtype)), self.device)

    def bitcast(self, dtype: DType) -> Tensor:
        """The bits reinterpreted as a dtype of the same size."""
        return Tensor.of(build.bitcast(self._node, as_dtype(dtype)), self.device)

    def to(self, device: str) -> Tensor:
        """The same value on another device."""
        check_device(device)
        if device == self.device:
            return self
        return Tensor.of(memory.copy_to(self, device), device)

    def to_device(self, device: str, /, *, stream: Any = None) -> Tensor:
        """`to`, as the standard names it; no device here has streams."""
        if stream is not None:
            raise ArgumentError(f"to_device: stream {stream!r} on {device}, which has none")
        return self.to(device)

    def assign(self, value: Any) -> Tensor:
        """Give this tensor a new value, in its own memory once it is realised.

        `value` is cast and broadcast to this tensor's dtype and shape. Other tensors keep their
        values, and the new value has no history: derivatives stop at it once it is realised.
        """
        source = as_tensor(value, self)
        if source.device != self.device:
            source = source.to(self.device)
        new = build.cast(source.node, self.dtype)
        if broadcast_shapes("assign", self.shape, new.shape) != self.shape:
            raise ShapeError(f"assign: {new.shape} does not broadcast to {self.shape}")
        if not self.assigned:
            self.target = memory.stored(self._node)
            self.assigned = True
        self._node = build.expand(new, self.shape)
        return self

    def rebind(self, other: Tensor) -> None:
        """Make this handle name the value of `other`."""
        self._node = other.node
        self.assigned = False
        self.target = None

    __hash__ = object.__hash__

    if TYPE_CHECKING:
        # Operators and most methods are functions of other modules, attached in
        # `lamina/tensor/__init__.py`; a checker is told about the operators here.

        def __getattr__(self, name: str) -> Any: ...
        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __lshift__(self, other: Any) -> Tensor: ...
        def __rlshift__(self, other: Any) -> Tensor: ...
        def __rshift__(self, other: Any) -> Tensor: ...
        def __rrshift__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __getitem__(self, key: Any) -> Tensor: ...
        def __setitem__(self, key: Any, value: Any) -> None: ...


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Whether `value` is a Python scalar, whose dtype is weak."""
    return isinstance(value, _SCALARS)


def default_device() -> str:
    """Where new tensors live: the option `device`, LAMINA_DEVICE."""
    return current().device


def check_device(device: str) -> str:
    """`device` itself; raises UnknownDeviceError when this machine has no such device."""
    if device not in device_names():
        raise UnknownDeviceError(f"no device {device!r}; there are {', '.join(device_names())}")
    return device


def to_node(data: Any, dtype: DType | None, device: str | None) -> tuple[Node, str]:
    """The graph node and the device of a tensor made from `data`; see `asarray`."""
    if isinstance(data, Tensor):
        moved = data if device is None else data.to(device)
        return (moved.node if dtype is None else build.cast(moved.node, dtype)), moved.device
    where = check_device(default_device() if device is None else device)
    array, kind = _to_numpy(data, dtype)
    return memory.upload(array, kind, where), where


def _to_numpy(data: Any, dtype: DType | None) -> tuple[Any, DType]:
    """`data` as a NumPy array, and the dtype it has in lamina."""
    import numpy as np

    own = getattr(data, "dtype", None)
    if own is not None and hasattr(data, "__array__"):
        array = np.asarray(data)
        kind = as_dtype(array.dtype) if dtype is None else dtype
        return (array if array.dtype == kind.numpy else array.astype(kind.numpy)), kind
    try:
        array = np.array(_plain_data(data), None if dtype is None else dtype.numpy)
    except ValueError as error:
        if "sequence" in str(error):
            raise ShapeError("asarray: rows of one level must have one length") from None
        raise DTypeError(f"asarray: {error}") from None
    kind = _python_dtype(array, data) if dtype is None else dtype
    return array.astype(kind.numpy), kind


def _python_dtype(array: Any, data: Any) -> DType:
    """The default dtype of Python data's kind."""
    defaults = {"b": dtypes.bool_, "i": dtypes.default_int, "u": dtypes.uint64,
                "f": dtypes.default_float, "c": dtypes.default_complex}  # fmt: skip
    if array.dtype.kind not in defaults:
        raise DTypeError(f"asarray: {type(data).__name__} is not made of numbers")
    if not array.size:
        return dtypes.default_float
    if _holds_arrays(data):
        return as_dtype(array.dtype)
    return defaults[array.dtype.kind]


def _holds_arrays(data: Any) -> bool:
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return hasattr(data, "dtype")


def _plain_data(data: Any) -> Any:
    """Nested lists with their tensors as NumPy arrays."""
    if isinstance(data, Tensor):
        return memory.download(data)
    if isinstance(data, (list, tuple)):
        return [_plain_data(one) for one in data]
    return data


def as_tensor(value: Any, like: Tensor | None = None) -> Tensor:
    """`value` as a tensor; a Python scalar takes its weak dtype next to `like`."""
    if isinstance(value, Tensor):
        return value
    if like is not None and is_scalar(value):
        return Tensor.of(const(value, dtypes.weak(value, like.dtype)), like.device)
    return Tensor(value, device=None if like is None else like.device)


def common_device(what: str, *tensors: Tensor) -> str:
    """The device of all `tensors`; raises DeviceError when they are on two."""
    device = tensors[0].device
    for tensor in tensors:
        if tensor.device != device:
            raise DeviceError(
                f"{what}: operands on {device} and {tensor.device}; move one with to({device!r})"
            )
    return device


def common_dtype(what: str, *values: Tensor | Scalar) -> DType:
    """The promoted dtype of tensors and weak Python scalars."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = dtypes.promote(what, dtype, tensor.dtype)
    for value in values:
        if not isinstance(value, Tensor):
            dtype = dtypes.weak(value, dtype)
    return dtype


def operands(what: str, *values: Any, dtype: DType | None = None) -> tuple[list[Node], str]:
    """`values` as nodes of one dtype and one shape, and their device.

    `dtype` replaces the promoted dtype. Python scalars become constants without a buffer;
    anything else that is not a tensor goes through `asarray`.
    """
    like = next((value for value in values if isinstance(value, Tensor)), None)
    if like is None:
        like = Tensor(values[0])
        values = (like, *values[1:])
    given = [value if is_scalar(value) else as_tensor(value, like) for value in values]
    tensors = [value for value in given if isinstance(value, Tensor)]
    device = common_device(what, *tensors)
    if dtype is None:
        dtype = common_dtype(what, *given)
    shape = broadcast_shapes(what, *(tensor.shape for tensor in tensors))
    nodes = [
        build.expand(build.cast(value.node, dtype), shape)
        if isinstance(value, Tensor)
        else build.full(shape, value, dtype)
        for value in given
    ]
    return nodes, device


def elementwise(
    what: str, rule: Callable[..., Node], *values: Any, dtype: DType | None = None
) -> Tensor:
    """`rule` applied to the nodes of `values` after promotion and broadcasting."""
    nodes, device = operands(what, *values, dtype=dtype)
    return Tensor.of(rule(*nodes), device)
