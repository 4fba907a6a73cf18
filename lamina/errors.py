"""The exceptions lamina raises, as one tree below LaminaError.

Every message names the operation and both shapes or dtypes, and ends with the line of the
user's program that asked for it.
"""

import contextlib
import linecache
import os
import sys
from pathlib import Path
from traceback import walk_stack

_INNER = f"{Path(__file__).parent}{os.sep}", contextlib.__file__, "<"


def user_line() -> str | None:
    """Where the user's program called lamina: ``"train.py:12: logits = a @ b"``, or None."""
    for frame, number in walk_stack(sys._getframe()):
        name = frame.f_code.co_filename
        if not name.startswith(_INNER):
            text = linecache.getline(name, number).strip()
            return f"{Path(name).name}:{number}: {text}".rstrip(": ")
    return None


class LaminaError(Exception):
    """The base of everything lamina raises on purpose."""

    def __init__(self, message: str) -> None:
        super().__init__("\n  at ".join(filter(None, (message, user_line()))))


class ShapeError(LaminaError, ValueError):
    """Sizes or ranks that do not fit together."""


class AxisError(ShapeError, IndexError):
    """An axis or an index that is out of range."""


class DTypeError(LaminaError, TypeError):
    """Dtypes that do not mix, or that the operation does not take."""


class ArgumentError(LaminaError, ValueError):
    """An argument or an option whose value is none of those that make sense."""


class GradientError(LaminaError, ValueError):
    """A derivative that does not exist or was not asked for properly."""


class JitError(LaminaError, RuntimeError):
    """A function that cannot be traced, or a traced value that was read."""


class FormatError(LaminaError, ValueError):
    """A file that is not what its format promises, or a schedule that does not fit its kernel."""


class VerifyError(LaminaError):
    """A program that breaks an invariant of its dialect, or rewrite rules that lead to no end;
    never the fault of whoever called."""


class DeviceError(LaminaError, RuntimeError):
    """Something below the program went wrong: a device, a compiler, memory."""


class UnknownDeviceError(DeviceError):
    """A device name that does not exist on this machine."""


class CompilerNotFoundError(DeviceError):
    """No C compiler was found, or the one that was named does not work."""


class CompileError(DeviceError):
    """The compiler refused generated source; the message holds its first complaint."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device has no room for a buffer."""
