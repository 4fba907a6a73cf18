"""Asking Linux for the tile registers of a processor, which no process has at first."""

import ctypes
import functools
import platform
import sys

# Of Linux on x86-64: the system call `arch_prctl`, its request ARCH_REQ_XCOMP_PERM, and the number
# of the state of tiles (Documentation/arch/x86/xstate.rst).
_ARCH_PRCTL, _REQUEST, _TILES = 158, 0x1023, 18


@functools.cache
def may_use_tiles() -> bool:
    """Ask that this process may use tile registers; whether it may. Without leave an instruction on
    tiles ends the process. Leave stays until the process ends, for all of its threads."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    status: int = ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST, _TILES)
    return status == 0
