"""The stub `lamina/frontend/methods.pyi`: what editors and type checkers know of `Tensor`."""

from __future__ import annotations

from types import ModuleType

from lamina import frontend
from lamina.frontend import METHODS, OPERATORS
from lamina.frontend.functions import inspection

HEAD = '''"""The methods and operators that `lamina.frontend` attaches to `Tensor`, for editors and
type checkers. Generated: pytest tests/test_methods.py --refresh-golden writes it."""

from typing import Any

'''
UNARY = ("__neg__", "__pos__", "__abs__", "__invert__")
SPECIAL = {
    "__getitem__": "def __getitem__(self, key: Any) -> Tensor: ...",
    "__setitem__": "def __setitem__(self, key: Any, value: Any) -> None: ...",
    "_stack": "@staticmethod\n    def _stack(data: Any) -> Tensor: ...",
    "__array__": "def __array__(self, dtype: Any = None, copy: Any = None) -> Any: ...",
    "__array_namespace__": "def __array_namespace__(self, /, *, api_version: str | None = None)"
    " -> Any: ...",
    "__dlpack__": "def __dlpack__(self, **options: Any) -> Any: ...",
    "__dlpack_device__": "def __dlpack_device__(self) -> tuple[Any, int]: ...",
}


def methods_stub() -> str:
    """The text of the stub, from the tables that `lamina.frontend` attaches."""
    modules = (*frontend.MODULES, inspection)
    homes = {name: module for module in modules[::-1] for name in module.__all__}
    lines = [_method(name, homes) for name in sorted(METHODS)]
    lines += [_operator(name) for name in sorted(OPERATORS)]
    names = sorted(module.__name__.rpartition(".")[2] for module in modules)
    # Under other names: a method may have the name of its module.
    imports = [f"from lamina.frontend.functions import {name} as _{name}\n" for name in names]
    return (
        f"{HEAD}from lamina.frontend import differentiate as _differentiate\n"
        + "".join(imports)
        + "from lamina.frontend.tensor import Tensor\n\nclass Methods:\n"
        + "".join(f"    {line}\n" for line in lines)
    )


def _method(name: str, homes: dict[str, ModuleType]) -> str:
    if isinstance(METHODS[name], property):
        ignored = "  # noqa: N802" if name in ("T", "mT") else ""
        return f"@property\n    def {name}(self) -> Tensor: ...{ignored}"
    if name == "backward":
        return "backward = _differentiate.backward"
    return f"{name} = _{homes[name].__name__.rpartition('.')[2]}.{name}"


def _operator(name: str) -> str:
    if name in SPECIAL:
        return SPECIAL[name]
    if name in UNARY:
        return f"def {name}(self) -> Tensor: ..."
    ignored = "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
    return f"def {name}(self, other: Any, /) -> Tensor: ...{ignored}"
