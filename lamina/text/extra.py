"""The packages of the extras ``text``, ``json`` and ``hub``, loaded when they are first needed."""

from importlib import import_module
from typing import Any

from lamina.errors import MissingPackageError

_PURPOSES = {
    "text": "models that write text need",
    "json": "texts that fit a JSON schema need",
    "hub": "a name that is no path here, but may be of the Hugging Face hub, needs",
}


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
