"""Containers: lists and dicts, whose layers and tensors are found as those of attributes are."""

from collections.abc import Iterable, Mapping
from typing import Any

from lamina.errors import DTypeError
from lamina.frontend.tensor import Tensor

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class Sequential(list[Any]):
    """Layers and functions applied one after another; a list, and slices can be called as well."""

    _fields = ()  # like a named tuple's: what is made of other parts gets them one by one

    def __init__(self, *layers: Any) -> None:
        super().__init__(layers)

    def __getitem__(self, at: Any) -> Any:
        layers = super().__getitem__(at)
        return Sequential(*layers) if isinstance(at, slice) else layers

    def __call__(self, x: Any) -> Any:
        for layer in self:
            if not callable(layer):
                raise DTypeError(
                    f"{layer!r} is no layer; give them one by one", operation="Sequential"
                )
            x = layer(x)
        return x


class ModuleList(list[Any]):
    """A list of layers, which an attribute of a layer may be as well."""

    def __init__(self, modules: Iterable[Any] = ()) -> None:
        super().__init__(modules)

    def __getitem__(self, at: Any) -> Any:
        selected = super().__getitem__(at)
        return ModuleList(selected) if isinstance(at, slice) else selected


class ModuleDict(dict[str, Any]):
    """Layers by name; a dict."""

    def __init__(self, modules: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        super().__init__(modules)


class ParameterList(list[Tensor]):
    """A list of parameters. Values without `requires_grad` become parameters of their own."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__(map(_as_parameter, values))


class ParameterDict(dict[str, Tensor]):
    """Parameters by name. Values without `requires_grad` become parameters of their own."""

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        values = dict(parameters)
        super().__init__((name, _as_parameter(value)) for name, value in values.items())


def _as_parameter(value: Any) -> Tensor:
    if isinstance(value, Tensor) and value.requires_grad:
        return value
    return Tensor(value, requires_grad=True)
