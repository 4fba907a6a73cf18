"""What is wrong with the arguments of a call, as the annotations of the function tell it."""

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from reprlib import Repr
from traceback import walk_tb
from typing import Annotated, Any, Union, get_args, get_origin

from lamina.core.dtypes import DType
from lamina.errors import is_inner

_show = Repr()
_show.maxother = 80  # characters of a tensor

_NAMES: dict[Any, str] = {
    int: "an integer", float: "a number", complex: "a number", str: "a string",
    types.NoneType: "None", Callable: "a function",
}  # fmt: skip
_SEQUENCES = (tuple, list, Sequence, Iterable)
# Anything is true or false, and names of dtypes will do.
_OPEN = (Any, Annotated, Parameter.empty, bool, object, DType)
# Python's numbers are told by what they can become, as NumPy's are numbers too.
_CONVERSIONS: dict[Any, tuple[str, ...]] = {
    int: ("__index__",), float: ("__float__", "__index__"),
    complex: ("__complex__", "__float__", "__index__"),
}  # fmt: skip


def shown(value: Any) -> str:
    """A short text for `value`, on one line."""
    return " ".join(_show.repr(value).split())


def through_users_code(error: BaseException) -> bool:
    """Whether a function of the user's stands between whoever catches `error` and where it was
    raised, as one does that lamina was asked to call."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    inner = [is_inner(frame.f_code.co_filename) for frame in frames]
    while inner and not inner[-1]:  # libraries that lamina calls
        inner.pop()
    return not all(inner)


def misfit(takes: Signature, args: Sequence[Any], options: Mapping[str, Any]) -> str | None:
    """The first argument that its annotation refuses, such as "lr='a' is of type str; a number or a
    function is needed". None if the annotations refuse none."""
    for name, value in takes.bind(*args, **options).arguments.items():
        parameter = takes.parameters[name]
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        kind = parameter.annotation
        if not _accepts(kind, value):
            what = f"{name}={shown(value)} is of type {type(value).__name__}"
            return f"{what}; {_needed(kind)} is needed"
    return None


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The members of a union; a tuple of `kind` itself if it is none."""
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _accepts(kind: Any, value: Any) -> bool:
    """Whether `value` may be what an annotation asks for; True where that is not known."""
    if len(members := _alternatives(kind)) > 1:
        return any(_accepts(member, value) for member in members)
    if kind in _CONVERSIONS:
        return any(hasattr(value, method) for method in _CONVERSIONS[kind])
    origin = get_origin(kind) or kind
    if origin is Callable:
        return callable(value)
    if origin in _SEQUENCES:
        iterates = isinstance(value, Iterable) and not isinstance(value, str)
        return iterates and _accepts_elements(kind, value)
    if origin in _OPEN or not isinstance(origin, type):
        return True
    return isinstance(value, origin)


def _accepts_elements(kind: Any, values: Iterable[Any]) -> bool:
    wanted = [element_kind for element_kind in get_args(kind) if element_kind is not Ellipsis]
    if not isinstance(values, (list, tuple)) or not wanted:
        return True
    return all(any(_accepts(element_kind, value) for element_kind in wanted) for value in values)


def _needed(kind: Any) -> str:
    """What an annotation asks for, in words: "a number or None"."""
    *others, last = dict.fromkeys(map(_name, _alternatives(kind)))
    return f"{', '.join(others)} or {last}" if others else last


def _name(kind: Any) -> str:
    origin = get_origin(kind) or kind
    if origin in _SEQUENCES:
        return "a sequence"
    return _NAMES.get(origin) or f"a {getattr(origin, '__name__', str(origin)).lower()}"
