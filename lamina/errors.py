"""The exceptions lamina raises, as one tree below LaminaError.

Every message names the operation and both shapes or dtypes, and ends with the line of the
user's program that asked for it.
"""

import contextlib
import copy
import linecache
import os
import sys
from types import FrameType

_INNER = f"{os.path.dirname(__file__)}{os.sep}", contextlib.__file__, copy.__file__, "<"


def is_inner(filename: str) -> bool:
    """Whether a frame of this file is lamina's own, and no line of the user's."""
    return filename.startswith(_INNER)


def user_line() -> str | None:
    """Where the user's program called lamina: ``"train.py:12: logits = a @ b"``, or None."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        name, number = frame.f_code.co_filename, frame.f_lineno
        if not is_inner(name):
            text = linecache.getline(name, number).strip()
            return f"{os.path.basename(name)}:{number}: {text}".rstrip(": ")
        frame = frame.f_back
    return None


class LaminaError(Exception):
    """The base of everything lamina raises on purpose.

    problem: what is wrong. operation: what the user called, or the part of lamina that refused.
    arguments: those of the operation as a text in brackets, where the problem does not name them.
    remedy: what to do, if that is apart from the problem. line: of the user's program, or None.
    """

    def __init__(
        self, problem: str, *, operation: str = "", arguments: str = "", remedy: str = ""
    ) -> None:
        super().__init__(problem)
        self.operation, self.problem, self.remedy = operation, problem, remedy
        self.arguments = arguments
        self.line = user_line()

    def rename(self, operation: str) -> None:
        """Name what the user called in place of the operation inside that refused, which is still
        named if its arguments are."""
        if self.arguments:
            self.problem = f"{self.operation}{self.arguments}: {self.problem}"
            self.arguments = ""
        self.operation = operation

    @property
    def message(self) -> str:
        """All but the line: ``operation(arguments): problem; remedy``."""
        place = f"{self.operation}{self.arguments}: " if self.operation else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{place}{self.problem}{remedy}"

    def __str__(self) -> str:
        return self.message if self.line is None else f"{self.message}\n  at {self.line}"


def message_of(error: Exception) -> str:
    """What `error` says, without the line of the user's program."""
    return error.message if isinstance(error, LaminaError) else str(error)


class ShapeError(LaminaError, ValueError):
    """Sizes or ranks that do not fit together."""


class AxisError(ShapeError, IndexError):
    """An axis or an index that is out of range."""


class DTypeError(LaminaError, TypeError):
    """Dtypes that do not mix, or that the operation does not take."""


class MissingNameError(LaminaError, AttributeError):
    """A name that lamina does not have; one of another library is said in lamina's words."""


class ArgumentError(LaminaError, ValueError):
    """An argument or an option whose value is none of those that make sense."""


class GradientError(LaminaError, ValueError):
    """A derivative that does not exist or was not asked for properly."""


class JitError(LaminaError, RuntimeError):
    """A function that cannot be traced, or a traced value that was read."""


class FormatError(LaminaError, ValueError):
    """A file that is not what its format promises, or a schedule that does not fit its kernel."""


class MissingPackageError(LaminaError, ImportError):
    """A package that one of lamina's extras brings, which is not installed."""


class VerifyError(LaminaError):
    """A program that breaks an invariant of its dialect, or rewrite rules that lead to no end;
    never the fault of whoever called."""


class DeviceError(LaminaError, RuntimeError):
    """Something below the program went wrong: a device, a compiler, memory."""


class UnknownDeviceError(DeviceError):
    """A device name that does not exist on this machine."""


class RankError(DeviceError):
    """A process of several ended, failed or is late, so that a collective could not be finished;
    the message names the operation and the rank."""


class ProgramsDifferError(RankError):
    """The processes of a run are about to exchange different things."""


class CompilerNotFoundError(DeviceError):
    """No C compiler was found, or the one that was named does not work."""


class CompileError(DeviceError):
    """The compiler refused generated source; the message holds its first complaint."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device has no room for a buffer."""
