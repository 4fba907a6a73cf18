"""Packages whose public names load when one of them is first asked for (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence, Set
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from lamina.frontend.tensor import checked, missing


def names_of(
    package: str, parts: Sequence[str], unchecked: Set[str] = frozenset(), more: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:  # fmt: skip
    """``__getattr__`` and ``__dir__`` of `package`. Its public names are those of its modules
    `parts`, and its modules `more`; all load at once. Who needs one module alone imports that.

    unchecked: names that users get as they are, not `checked`, and modules of such names."""
    namespace = vars(sys.modules[package])

    def load() -> None:
        names = list[str](more)
        for part in (*more, *parts):
            module = import_module(f"{package}.{part}")
            for name in module.__all__:
                if unchecked.isdisjoint((part, name)):
                    setattr(module, name, checked(getattr(module, name)))
        for part in parts:
            module = sys.modules[f"{package}.{part}"]
            namespace.update({name: getattr(module, name) for name in module.__all__})
            names += module.__all__
        namespace["__all__"] = names

    def get(name: str) -> Any:
        if name.startswith("_") and name != "__all__":  # what Python itself asks modules for
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        is_module = name in (*parts, *more) or (
            name.isidentifier() and bool(find_spec(f"{package}.{name}"))
        )
        if is_module and name not in more:
            return import_module(f"{package}.{name}")
        if "__all__" not in namespace:
            load()
        if name in namespace:
            return namespace[name]
        raise missing(package, name)

    def names() -> list[str]:
        get("__all__")
        return sorted(namespace)

    return get, names
