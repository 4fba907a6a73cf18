"""Every option lamina has, in one frozen object that is part of every cache key.

Only this file reads the environment.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from lamina.errors import ArgumentError


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one compilation; each field's environment variable is in `_VARIABLES`.

    device: where new tensors live ("cpu", "cuda:0", "metal", "interp").
    debug: 1 prints a line a kernel, 2 adds the schedule, 3 the IR after each pass that changed
        it, 4 the source.
    check: verify after every pass and compare every kernel with the reference interpreter.
    schedule: moves in place of the heuristic's, one a line or with ";" between: those after a line
        ``[name]`` for the kernel of that name, those before any such line for all others.
    threads: worker threads of the CPU device; 0 means one a core.
    cc: the C compiler to use; empty means clang, gcc, then the ziglang package.
    cache_dir: where compiled kernels are kept; empty means the platform's cache folder.
    """

    device: str = "cpu"
    debug: int = 0
    check: bool = False
    schedule: str = ""
    threads: int = 0
    cc: str = ""
    cache_dir: str = ""


_VARIABLES = {field.name: f"LAMINA_{field.name.upper()}" for field in fields(Options)}


def _read(name: str, default: Any) -> Any:
    text = os.environ.get(_VARIABLES[name])
    if text is None:
        return default
    if isinstance(default, bool):
        if text not in ("", "0", "1"):
            raise ArgumentError(f"{_VARIABLES[name]}={text!r}: 1 or 0 is needed")
        return text == "1"
    if isinstance(default, int):
        if not (text or "0").isdecimal():
            raise ArgumentError(f"{_VARIABLES[name]}={text!r}: an integer from 0 is needed")
        return int(text or "0")
    return text


def from_environment() -> Options:
    """Read every option from its ``LAMINA_*`` variable."""
    return Options(**{field.name: _read(field.name, field.default) for field in fields(Options)})


_current = from_environment()


def current() -> Options:
    """The options in force."""
    return _current


def _changed(before: Options, changes: dict[str, Any]) -> Options:
    for name in changes:
        if name not in _VARIABLES:
            raise ArgumentError(f"options: {name!r} is none of {', '.join(_VARIABLES)}")
    return replace(before, **changes)


def set_options(**changes: Any) -> None:
    """Change options for the rest of the process. Raises ArgumentError for an unknown name."""
    global _current
    _current = _changed(_current, changes)


@contextlib.contextmanager
def using(**changes: Any) -> Iterator[Options]:
    """Change options for the length of a ``with`` block.

    >>> with using(device="interp"):
    ...     ...
    """
    global _current
    before = _current
    _current = _changed(before, changes)
    try:
        yield _current
    finally:
        _current = before


def cache_folder(options: Options) -> Path:
    """The folder of the disk cache; it need not exist yet."""
    if options.cache_dir:
        return Path(options.cache_dir).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("lamina"))
