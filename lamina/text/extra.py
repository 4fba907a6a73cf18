"""The packages of the extra ``text``, loaded when they are first needed."""

from importlib import import_module
from typing import Any

from lamina.errors import MissingPackageError


def package(name: str) -> Any:
    """A module of `tokenizers` or `jinja2`; raises MissingPackageError, which says how to get it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise MissingPackageError(
            f"models that write text need the package {name.partition('.')[0]}: "
            "pip install 'lamina[text]'"
        ) from None
