"""The exceptions lamina raises, as one tree.

    LaminaError
    |-- ShapeError (ValueError)          sizes or ranks that do not fit
    |-- AxisError (ShapeError, IndexError)  an axis or an index out of range
    |-- DTypeError (TypeError)           dtypes that do not mix or are not allowed
    |-- ArgumentError (ValueError)       an argument or option whose value makes no sense
    |-- GradientError (ValueError)       a derivative that does not exist
    |-- FormatError (ValueError)         a file that is not what it claims to be
    |-- VerifyError                      a compiler pass broke an invariant of its dialect
    |-- RuleError                        a rewrite rule that is malformed or does not end
    `-- DeviceError (RuntimeError)       the machine below the program
        |-- UnknownDeviceError           no such device name
        |-- CompilerNotFoundError        no compiler, or one that does not run
        |-- CompileError                 the compiler refused the generated source
        `-- OutOfMemoryError (MemoryError)  an allocation failed

Every message names the operation and both shapes or dtypes, and ends with the line of the
user's program that asked for it.
"""

from __future__ import annotations

import linecache
import os
import sys
from pathlib import Path

_PACKAGE = f"{Path(__file__).parent}{os.sep}"


def user_line(depth: int = 1) -> str | None:
    """Where the user's program called lamina: ``"train.py:12: logits = a @ b"``, or None."""
    frame = sys._getframe(depth)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith((_PACKAGE, "<")):
            text = linecache.getline(name, frame.f_lineno).strip()
            return f"{Path(name).name}:{frame.f_lineno}: {text}".rstrip(": ")
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


class LaminaError(Exception):
    """The base of everything lamina raises on purpose."""

    def __init__(self, message: str) -> None:
        line = user_line(2)
        super().__init__(message if line is None else f"{message}\n  at {line}")


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


class FormatError(LaminaError, ValueError):
    """A file whose content is not what its format promises."""


class VerifyError(LaminaError):
    """A program that breaks an invariant of its dialect; always a defect of lamina."""


class RuleError(LaminaError):
    """A rewrite rule that is malformed, or a set of rules that does not reach an end."""


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
