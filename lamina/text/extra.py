"""The packages of the extras ``text`` and ``json``, loaded when they are first needed."""

from importlib import import_module
from typing import Any

from lamina.errors import MissingPackageError

_PURPOSES = {"text": "models that write text need", "json": "texts that fit a JSON schema need"}


def package(name: str, extra: str = "text") -> Any:
    """A module of a package that `extra` brings; raises MissingPackageError, which says how to get
    it."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"{_PURPOSES[extra]} the package {name.partition('.')[0]}: "
            f"pip install 'lamina[{extra}]'"
        ) from None
