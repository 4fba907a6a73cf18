"""The handle that a user holds: a value, named by a graph node, on a device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial, reduce, wraps
from inspect import Signature, signature
from itertools import count
from operator import attrgetter
from threading import get_ident
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard, TypeVar, cast
from weakref import ref

from lamina.core import dtypes
from lamina.core.dtypes import DType, Scalar
from lamina.core.options import current
from lamina.core.shape import Shape, prod
from lamina.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    GradientError,
    JitError,
    LaminaError,
    MissingNameError,
    ShapeError,
    UnknownDeviceError,
    message_of,
)  # fmt: skip
from lamina.explain.origins import ORIGINS
from lamina.frontend import realize as memory
from lamina.frontend.arguments import as_dtype, broadcast_shapes, find_dtype, fitting, promote, weak
from lamina.frontend.foreign import renamed, spelling
from lamina.frontend.mistakes import misfit, shown, through_users_code
from lamina.frontend.session import SESSION, changed, tracers
from lamina.graph.lift_numbers import input_leaf
from lamina.ir import build
from lamina.ir.node import Node, const
from lamina.ir.ops import Op
from lamina.runtime.buffer import heap_of

if TYPE_CHECKING:  # the methods and operators that `lamina.frontend` attaches
    from lamina.frontend.methods import Methods
else:
    Methods = object

__all__ = ["Tensor", "default_device"]

F = TypeVar("F", bound=Callable[..., Any])
Data = Annotated[Any, "what asarray takes"]
_SERIALS = count()
_new = object.__new__
_note, _forget = SESSION.unsettled.add, SESSION.unsettled.discard
_SETTINGS = (bool, int, float, complex, str, range, DType, type(None))  # their text says all
_MISTAKES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_OF_ARGUMENTS = (ArgumentError, DTypeError, GradientError, ShapeError)


class Tensor(Methods):
    """A multidimensional array, computed when somebody looks at it; `Tensor(data)` is `asarray`.
    Two tensors never share a changing value: `assign` and item assignment rebind this handle only.
    """

    __slots__ = (
        "__weakref__", "_grad", "_requires_grad", "assigned", "device", "handle", "node", "serial",
        "target",
    )  # fmt: skip

    __array_ufunc__ = None  # NumPy's operators leave tensors to ours

    node: Node  # what computes the value
    device: str
    _grad: Tensor | None
    _requires_grad: bool
    assigned: int  # the thread that gave it a new value since the last realisation, or 0
    target: Node | None  # the BUFFER that the new value is written to
    serial: int  # tensors are numbered as they are made
    handle: ref[Tensor]  # by which the session knows it

    def __new__(
        cls, data: Any, dtype: DType | None = None, device: str | None = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        wanted = None if dtype is None else as_dtype(dtype)
        if not isinstance(data, Tensor) and has_tensor(data):
            # Derivatives flow, and nothing is computed, as NumPy would have it.
            data = cls._stack(data)
        if isinstance(data, Tensor):
            source = data if device is None else data.to(device)
            node = source.node if wanted is None else source.cast(wanted).node
            self = cls.of(node, source.device)
            self.requires_grad = requires_grad
        else:
            where = check_device(device)
            self = cls.of(memory.upload(*_to_numpy(data, wanted), where), where)
            self._collect(requires_grad)
        return self

    @classmethod
    def of(cls, node: Node, device: str) -> Tensor:
        """A handle to a graph node."""
        self = _new(cls)
        self.node, self.device = node, device
        self._grad = self.target = None
        self._requires_grad, self.assigned = False, 0
        self.serial = next(_SERIALS)
        self.handle = handle = ref(self, _forget)
        _note(handle)
        if ORIGINS.lines is not None:
            ORIGINS.note(node)
        return self

    def _require(self, value: bool) -> None:
        SESSION.change(self)
        if value and not self._requires_grad and self.dtype.is_float:  # others may have its node
            self.node = memory.stored_leaf(self.node, self.device)
        self._collect(value)

    def _collect(self, value: bool) -> None:
        """Say whether this tensor, whose node no other has, requires its derivative."""
        if value and not self.dtype.is_float:
            raise DTypeError(
                f"{self.dtype.name} has no derivative; use a float", operation="requires_grad"
            )
        self._requires_grad = bool(value)
        SESSION.unsettle(self)
        if value:
            SESSION.require(self)

    @property
    def grad(self) -> Tensor | None:
        """The derivative that `backward` adds to."""
        SESSION.change(self)  # whoever asks may depend on it
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        SESSION.change(self, forgets=value is None)
        self._grad = None if value is None else as_tensor(value, self)

    ndim: int = cast(Any, property(lambda x: len(x.node.shape), doc="The number of axes."))
    size: int = cast(Any, property(lambda x: prod(x.node.shape), doc="The number of elements."))
    nbytes: int = cast(Any, property(lambda x: x.size * x.dtype.itemsize, doc="Bytes of them all."))
    # Read at the speed of C.
    shape: Shape = cast(Any, property(attrgetter("node.shape"), doc="The size of each axis."))
    dtype: DType = cast(Any, property(attrgetter("node.dtype"), doc="The element type."))
    requires_grad = property(
        attrgetter("_requires_grad"), _require,
        doc="Is `grad` to be filled? The tensor is a leaf from then on: it has no history, and "
        "what was computed before does not depend on it.",
    )  # fmt: skip

    def is_realized(self) -> bool:
        """Whether the value is in memory."""
        return not self.assigned and memory.home_of(self.node) is not None

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
            raise ShapeError(
                f"{self.shape} is no single element; use tolist() or numpy()", operation="item"
            )
        return memory.native(self).item()

    def tolist(self) -> Any:
        """The values as nested lists of Python scalars."""
        return memory.native(self).tolist()

    def __bool__(self) -> bool:
        return bool(self._single("bool"))

    def __int__(self) -> int:
        return int(self._single("int", self.dtype.is_complex))

    def __float__(self) -> float:
        return float(self._single("float", self.dtype.is_complex))

    def __complex__(self) -> complex:
        return complex(self._single("complex"))

    def __index__(self) -> int:
        return int(self._single("index", not self.dtype.is_int))

    def _single(self, what: str, refused: bool = False) -> Any:
        if refused:
            raise DTypeError(
                f"{self.dtype.name} has no such value; use real() or cast()", operation=what
            )
        if self.ndim:
            raise DTypeError(
                f"{self.shape} is no single value; use item(), any() or all()", operation=what
            )
        return self.item()

    def __len__(self) -> int:
        if not self.ndim:
            raise DTypeError("a tensor of shape () has no rows", operation="len")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        state = "realized" if self.is_realized() else "lazy"
        return f"<Tensor {self.dtype.name}{list(self.shape)} on {self.device}, {state}>"

    def __str__(self) -> str:
        import numpy as np

        return str(np.array2string(memory.native(self), separator=", "))

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}\n{escape(repr(self))}</pre>"

    def detach(self) -> Tensor:
        """The same value, through which no derivative flows."""
        place = None if self.assigned or tracers.get() else memory.home_of(self.node)
        return Tensor.of(Node(Op.DETACH, (place or self.node,)), self.device)

    def __copy__(self) -> Tensor:
        """A leaf with this value; values never change, so nothing is copied."""
        return leaf(self.detach().node, self.device, self.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.__copy__()

    def __reduce__(self) -> Any:
        return Tensor, (self.numpy(), self.dtype, self.device, self.requires_grad)

    def contiguous(self) -> Tensor:
        """The same value, row-major in memory of its own; derivatives flow through."""
        return Tensor.of(Node(Op.CONTIGUOUS, (self.node,)), self.device)

    clone = contiguous

    def cast(self, dtype: DType) -> Tensor:
        """The values converted to `dtype`. Raises DTypeError if imaginary parts would be lost."""
        wanted = as_dtype(dtype)
        if self.dtype.is_complex and wanted.kind in ("int", "uint", "float"):
            raise DTypeError(
                f"{wanted.name} has no imaginary part; take real() or abs()", operation="cast"
            )
        return Tensor.of(build.cast(self.node, wanted), self.device)

    def bitcast(self, dtype: DType) -> Tensor:
        """The bits reinterpreted as a dtype of the same size."""
        return Tensor.of(build.bitcast(self.node, as_dtype(dtype)), self.device)

    def to(self, device: str) -> Tensor:
        """The same value on another device. Raises UnknownDeviceError for what is no device, such
        as a dtype, for which there is `cast`."""
        where = self.device if device == self.device else _known_device(device)
        return self if where == self.device else Tensor.of(memory.copy_to(self, where), where)

    def to_device(self, device: str, /, *, stream: Any = None) -> Tensor:
        """`to`, as the standard names it; no device here has streams."""
        if stream is not None:
            raise ArgumentError(
                f"stream {stream!r} on {device}, which has none", operation="to_device"
            )
        return self.to(device)

    def assign(self, value: Any) -> Tensor:
        """Give this tensor a new value, cast and broadcast to its dtype and shape; realising it
        ends its history, and writes to its own memory if no other tensor's value is there. A tensor
        that requires its derivative has no history from the start."""
        new = as_tensor(value, self, "assign").to(self.device).cast(self.dtype).node
        if broadcast_shapes("assign", self.shape, new.shape) != self.shape:
            raise ShapeError(f"{new.shape} does not broadcast to {self.shape}", operation="assign")
        node = build.expand(new, self.shape)
        self._assign_node(memory.leaf(node, self.device) if self._requires_grad else node)
        return self

    def _assign_node(self, node: Node) -> None:
        """`assign`, of a node of the same shape and dtype on the same device; where this tensor
        requires its derivative, one that no other tensor has."""
        SESSION.overwrite(self)
        if not self.assigned:
            self.target = memory.home_of(self.node)
        self.node, self.assigned = node, get_ident()
        SESSION.unsettle(self)

    def rebind(self, other: Tensor) -> None:
        """Make this handle name the value of `other`, on the device of that. Raises JitError where
        a traced function would move a tensor to another device."""
        if other.device != self.device and changed.get() is not None:
            raise JitError(
                f"rebind: a traced function cannot move a tensor from {self.device} to "
                f"{other.device}; do that outside"
            )
        SESSION.overwrite(self)
        new = other.contiguous() if other.node is self.node else other  # or no trace could tell
        node = memory.stored_leaf(new.node, new.device) if self._requires_grad else new.node
        self.node, self.device, self.assigned, self.target = node, new.device, 0, None
        SESSION.unsettle(self)

    __hash__ = object.__hash__

    if not TYPE_CHECKING:  # a checker that sees it takes every name for an attribute

        def __getattr__(self, name: str) -> Any:
            raise missing("Tensor", name)


def missing(where: str, name: str) -> AttributeError:
    """The error of a name that tensors (`where` is "Tensor") or a module of lamina lack, with
    lamina's spelling of what other libraries call so. Names with an underscore in front, which
    Python and other libraries look for, get Python's plain error."""
    owner = "'Tensor' object" if where == "Tensor" else f"module {where!r}"
    text = f"{owner} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(text)
    advice = spelling(where, name)
    if advice is None and name.endswith("_"):
        advice = _in_place(where, name.removesuffix("_"))
    elif advice is None:
        advice = _elsewhere(where, name)
    return MissingNameError(text if advice is None else f"{text}; in its place: {advice}")


def _in_place(where: str, stem: str) -> str | None:
    """The advice for a name such as ``add_`` or ``clip_grad_norm_``, `stem` and an underscore,
    which elsewhere changes memory."""
    if where not in ("Tensor", "lamina"):
        public = stem in vars(sys.modules[where])
        return f"{where.replace('lamina', 'lm', 1)}.{stem}(...)" if public else None
    value = f"x.{stem}(...)" if hasattr(Tensor, stem) else spelling(where, stem)
    return value and f"x.assign({value})"


def _elsewhere(where: str, name: str) -> str | None:
    """The advice for a function that is no method, or a method that is no function."""
    if where == "lamina":
        return f"x.{name}" if hasattr(Tensor, name) else None
    if where != "Tensor":
        return None
    function = getattr(sys.modules["lamina"], name, None)
    return f"lm.{name}(x, ...)" if isinstance(function, FunctionType) else None


def is_scalar(value: object) -> TypeGuard[Scalar]:
    """Whether `value` is a Python scalar, whose dtype is weak."""
    return isinstance(value, (int, float, complex))


def default_device() -> str:
    """Where new tensors live: the option `device`, LAMINA_DEVICE."""
    return current().device


def check_device(device: str | None) -> str:
    """`device`, by default the option's; raises UnknownDeviceError when there is no such one."""
    return heap_of(default_device() if device is None else device).name


def _known_device(device: str) -> str:
    """`check_device`, whose error for a dtype says how to convert to it."""
    try:
        return check_device(device)
    except UnknownDeviceError:
        dtype = find_dtype(device)
        if dtype is None:
            raise
        raise UnknownDeviceError(
            f"to: {device!r} is a dtype, not a device; x.cast({dtype.name!r}) converts to it"
        ) from None


def leaf(node: Node, device: str | None, requires_grad: bool = False) -> Tensor:
    """A tensor with the value of `node` and an identity of its own."""
    where = check_device(device)
    tensor = Tensor.of(memory.leaf(node, where), where)
    tensor._collect(requires_grad)
    return tensor


def has_tensor(data: Any) -> bool:
    """Whether `data` is a tensor, or nested sequences with one, which are looked at a type at a
    time."""
    if isinstance(data, Tensor):
        return True
    kinds = set(map(type, data)) if isinstance(data, (list, tuple)) else set()
    return Tensor in kinds or (not kinds.isdisjoint((list, tuple)) and any(map(has_tensor, data)))


def _to_numpy(data: Any, dtype: DType | None) -> tuple[Any, DType]:
    """`data` as a NumPy array, and the dtype it has in lamina."""
    import numpy as np

    typed = hasattr(data, "dtype") and hasattr(data, "__array__")
    try:
        wanted = None if dtype is None else dtype.numpy
        array = np.asarray(data) if typed else np.array(data, wanted)
    except OverflowError:
        raise _beyond(np.array(data, object), dtype) from None
    except (RuntimeError, TypeError, ValueError) as error:
        if "sequence" in str(error):
            raise ShapeError(
                "rows of one level must have one length", operation="asarray"
            ) from None
        raise DTypeError(str(error), operation="asarray") from None
    kind = dtype or (as_dtype(array.dtype) if typed else _python_dtype(array, data))
    return array.astype(kind.numpy, copy=False), kind


def _beyond(array: Any, dtype: DType | None) -> DTypeError:
    """The error of an array of Python numbers that `dtype`, by default every integer dtype, is too
    narrow for."""
    kinds = (dtypes.int64, dtypes.uint64) if dtype is None else (dtype,)
    lowest = min(kind.min for kind in kinds)  # type: ignore[type-var]
    highest = max(kind.max for kind in kinds)  # type: ignore[type-var]
    outside = (number for number in array.flat if not lowest <= number <= highest)
    beyond = next(outside, array.flat[0])
    names = " and ".join(kind.name for kind in kinds)
    return DTypeError(
        f"{shown(beyond)} is beyond {names}; give a wider dtype, or a float", operation="asarray"
    )


def _python_dtype(array: Any, data: Any) -> DType:
    """The dtype of nested sequences: of the arrays in them, or the default of their kind."""
    if array.dtype.kind == "O" and all(isinstance(element, (int, float)) for element in array.flat):
        raise _beyond(array, None)
    if array.dtype.kind not in "biufc":
        raise DTypeError(f"{type(data).__name__} is not made of numbers", operation="asarray")
    if not array.size:
        return dtypes.default_float
    while isinstance(data, (list, tuple)):
        data = data[0]
    exact = hasattr(data, "dtype") or array.dtype.kind == "u"  # beyond int64
    return as_dtype(array.dtype if exact else type(array.flat[0].item()))


def as_tensor(value: Any, like: Tensor | None = None, into: str = "") -> Tensor:
    """`value` as a tensor; a Python scalar takes its weak dtype next to `like`, or, where the
    operation `into` writes it there, that of `like`: a leaf of its own, as others may equal it."""
    if isinstance(value, Tensor):
        return value
    if like is not None and is_scalar(value):
        kind = like.dtype if into and not isinstance(value, complex) else weak(value, like.dtype)
        return leaf(const(fitting(into or "asarray", value, kind), kind), like.device)
    return Tensor(value, device=None if like is None else like.device)


@cache
def checked(function: F, name: str = "", is_method: bool = False) -> F:
    """`function`, or what a class does, for users: operands are tensors or what `asarray` takes,
    and errors name what the user called, `name`, the function's own by default.

    An error of Python's becomes a DTypeError or an ArgumentError, which says which argument does
    not fit the annotations, or else shows them all."""
    if isinstance(function, type):
        for method in {"__init__", "__call__"}.intersection(dir(function)):
            setattr(function, method, checked(getattr(function, method), function.__name__, True))
        return function
    name = name or function.__qualname__

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except (*_MISTAKES, LaminaError) as error:
            takes, operands = _parameters(function)
            arguments: dict[Any, Any] = dict(enumerate(args)) | options
            odd = [key for key in operands & arguments.keys()
                   if not isinstance(arguments[key], Tensor | None)]  # fmt: skip
            # A tensor that is asked for what it lacks is an argument of the wrong type.
            typed = isinstance(error, LaminaError) and not isinstance(error, MissingNameError)
            if not odd and not typed:
                raise _explained(error, name, takes, is_method, args, options) from error
            if not odd:
                if isinstance(error, _OF_ARGUMENTS) and not through_users_code(error):
                    error.rename(name)
                raise
        like = next((argument for argument in args if isinstance(argument, Tensor)), None)
        try:
            arguments |= {key: as_tensor(arguments[key], like) for key in odd}
        except _OF_ARGUMENTS as error:
            error.rename(name)
            raise
        # Only calls that need it wait for a second one.
        return called(*[arguments.pop(at) for at in range(len(args))], **arguments)

    return cast(F, called)


def _explained(
    error: Exception, name: str, takes: Signature, is_method: bool, args: Any, options: Any
) -> LaminaError:
    """What Python says, `error`, as an error of the operation `name` with these arguments."""
    try:
        if fault := misfit(takes, args, options):
            return DTypeError(fault, operation=name)
    except TypeError as wrong:  # Python itself counts what no user gave
        names = [*takes.parameters][is_method:]
        advice = [f"{wrong}", f"it takes {', '.join(names)}", *renamed(options, names)]
        error = TypeError("; ".join(advice))
    texts = [*map(shown, args[is_method:])]
    texts += [f"{key}={shown(value)}" for key, value in options.items()]
    of_type = isinstance(error, (AttributeError, TypeError))
    kind = DTypeError if of_type else ArgumentError
    # The user's line is named once.
    return kind(message_of(error), operation=name, arguments=f"({', '.join(texts)})")


@cache
def _parameters(function: Callable[..., Any]) -> tuple[Signature, set[int | str]]:
    """The signature of `function`, and the places and names of its parameters that are operands."""
    takes = signature(function)
    rows = enumerate(takes.parameters.items())
    kinds = (Data, Tensor, Tensor | None)
    operands = [(at, name) for at, (name, parameter) in rows if parameter.annotation in kinds]
    return takes, {key for pair in operands for key in pair}


def once(function: F) -> F:
    """`function`, which runs once for tensors of equal kinds and equal settings: later calls return
    the graph it made then over their own operands. What asks for values runs each time."""

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        arguments: dict[Any, Any] = dict(enumerate(args)) | options
        operands = {key: value for key, value in arguments.items() if isinstance(value, Tensor)}

        def make() -> list[Node]:
            for number, (key, operand) in enumerate(operands.items()):
                arguments[key] = Tensor.of(input_leaf(number, operand.node), operand.device)
            result = function(*[arguments.pop(at) for at in range(len(args))], **arguments)
            return [memory.without_leaves(result.node)]  # it made these itself, such as ranges

        with suppress(LaminaError, TypeError, ValueError):  # it says itself what is wrong
            first, *_ = operands.values()
            key = function, *arguments, *map(_kind, arguments.values())
            nodes: Any = memory.called(key, [operand.node for operand in operands.values()], make)
            return Tensor.of(nodes[0], first.device)
        return function(*args, **options)

    return cast(F, called)


def _kind(value: Any) -> Any:
    """What a graph depends on of an argument; raises TypeError for what may be any data."""
    if isinstance(value, Tensor):
        return value.node.shape, value.node.dtype, value.device
    parts = value if isinstance(value, (list, tuple)) else (value,)
    if not all(isinstance(part, _SETTINGS) for part in parts):
        raise TypeError(value)
    return repr(value)


def common_device(what: str, *tensors: Tensor) -> str:
    """The device of all `tensors`; raises DeviceError when they are two."""
    devices = list(dict.fromkeys(tensor.device for tensor in tensors))
    if len(devices) > 1:
        raise DeviceError(f"{what}: operands on {' and '.join(devices)}; move one by to()")
    return devices[0]


def common_dtype(what: str, *values: Any) -> DType:
    """The promoted dtype of tensors, dtypes and weak Python scalars."""
    arrays = [value for value in values if not is_scalar(value)]
    typed: list[DType] = [getattr(value, "dtype", value) for value in arrays]
    dtype = reduce(partial(promote, what), typed) if typed else dtypes.bool_
    return reduce(lambda kind, value: weak(value, kind), filter(is_scalar, values), dtype)
