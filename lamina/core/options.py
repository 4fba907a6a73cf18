"""Every option lamina has, in one frozen object that is part of the key of each compilation.

Only this file reads lamina's variables of the environment.
"""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from lamina.errors import ArgumentError, UnknownDeviceError

if TYPE_CHECKING:
    from pathlib import Path

HOST_DEVICES = ("cpu", "interp")
GPU_KINDS = ("cuda", "metal")  # whose devices have numbers: "cuda" is the first, "cuda:1" the next


@dataclass(frozen=True, slots=True)
class Options:
    """The settings of one compilation; each is read from ``LAMINA_<FIELD>``."""

    device: str = "cpu"  # where new tensors live: "cpu", "cuda:0", "metal", "interp"
    debug: int = 0  # 1: a line a kernel; 2: and schedules; 3: and passes; 4: and the source
    check: bool = False  # verify every pass; compare every kernel with the reference interpreter
    # Moves in place of the heuristic's, one a line or with ";" between: those after a line
    # ``[name]`` are for the kernel of that name, those before any such line for all others.
    schedule: str = ""
    search: int = 0  # schedules to measure for each kernel; the best one is kept on disk
    tf32: bool = False  # round factors of float32 to 11 bits where a GPU has units for these
    threads: int = 0  # workers of the CPU device; 0: one a core
    cc: str = ""  # the C compiler; empty: clang, gcc, then the ziglang package
    # The architecture whose facts CUDA programs are made for, such as sm_80; empty: the GPU's own.
    arch: str = ""
    cache_dir: str = ""  # where compiled kernels are kept; empty: the platform's cache folder

    def __post_init__(self) -> None:
        kind_of(self.device)

    @property
    def kind(self) -> str:
        """The kind of `device`: "cpu", "interp", "cuda" or "metal"."""
        return kind_of(self.device)


def kind_of(name: str) -> str:
    """The kind of a device, "cuda" for "cuda:1". Raises UnknownDeviceError where no machine has a
    device of that name. Whether this one has it is asked when the device is first used: that loads
    its driver."""
    kind, _, number = name.partition(":")
    numbered = kind in GPU_KINDS and number.isdecimal()
    if name not in (*HOST_DEVICES, *GPU_KINDS) and not numbered:
        known = ", ".join((*HOST_DEVICES, *GPU_KINDS, *(f"{kind}:NUMBER" for kind in GPU_KINDS)))
        raise UnknownDeviceError(f"no device {name!r} (option device, LAMINA_DEVICE): use {known}")
    return kind


def _read(name: str, default: Any) -> Any:
    variable = f"LAMINA_{name.upper()}"
    text = os.environ.get(variable)
    if not text or isinstance(default, str):
        return text or default
    most, wanted = (1, "1 or 0") if isinstance(default, bool) else (1 << 31, "an integer from 0")
    if not text.isdecimal() or int(text) > most:
        raise ArgumentError(f"{variable}={text!r}: {wanted} is needed")
    return type(default)(int(text))


def from_environment() -> Options:
    """Read every option from its ``LAMINA_*`` variable. Raises ArgumentError and UnknownDeviceError
    for values that no machine takes."""
    return Options(**{field.name: _read(field.name, field.default) for field in fields(Options)})


_process = from_environment()
_block: ContextVar[Options | None] = ContextVar("_block", default=None)  # of `using`


def current() -> Options:
    return _block.get() or _process


def set_options(**changes: Any) -> None:
    """Change options for the rest of the process, in a `using` block for the rest of that. Raises
    ArgumentError for what is none of them, UnknownDeviceError for a device of no known kind."""
    global _process
    kinds = {field.name: type(field.default) for field in fields(Options)}
    for name, value in changes.items():
        if not isinstance(value, kinds.get(name, ())) or (type(value) is int and value < 0):
            known = ", ".join(f"{one}: {kind.__name__}" for one, kind in kinds.items())
            raise ArgumentError(
                f"{name}={value!r} is none of {known}; counts start at 0", operation="options"
            )
    new = replace(current(), **changes)
    if _block.get():
        _block.set(new)
    else:
        _process = new


@contextlib.contextmanager
def using(**changes: Any) -> Iterator[Options]:
    """Change options for the length of a block, in this thread: ``with using(tf32=True): ...``"""
    token = _block.set(current())
    try:
        set_options(**changes)
        yield current()
    finally:
        _block.reset(token)


def cache_folder(options: Options) -> "Path":
    """The folder of the disk cache; it need not exist yet."""
    from pathlib import Path

    import platformdirs

    return Path(options.cache_dir or platformdirs.user_cache_dir("lamina")).expanduser()
