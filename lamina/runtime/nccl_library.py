"""The functions of NVIDIA's NCCL that lamina calls, by ctypes: arguments are plain integers.

The library, `libnccl.so.2`, is that of the package nvidia-nccl-cu13, or else of the system. The
numbers are those of `nccl.h` since NCCL 2.10.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lamina.errors import DeviceError, MissingPackageError

ID_BYTES = 128
SUCCESS, IN_PROGRESS = 0, 7
DTYPES = {
    "int8": 0, "uint8": 1, "int32": 2, "uint32": 3, "int64": 4, "uint64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
COMBINES = {"ADD": 0, "MUL": 1, "MAX": 2, "MIN": 3}

# Each process records graphs of its own: one may find one recorded that others record. So buffers
# are not registered with others as a graph is recorded. And all connections are made at once, not
# when a graph is being recorded.
VARIABLES = {"NCCL_GRAPH_REGISTER": "0", "NCCL_RUNTIME_CONNECT": "0"}

_POINTER, _SIZE, _INT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int


class UniqueId(ctypes.Structure):
    """What the processes of a communicator have in common."""

    _fields_ = [("content", ctypes.c_byte * ID_BYTES)]


COPY_ENGINES = 2  # NCCL_CTA_POLICY_ZERO
CONFIG_VERSION, CONFIG_MAGIC = 22700, 0xCAFEBEEF
UNDEFINED = -(2**31)  # NCCL_CONFIG_UNDEF_INT
LEFT_TO_NCCL = (
    "blocking", "cluster_size", "min_blocks", "max_blocks", "split_share", "traffic_class",
    "collnet_enable", "shrink_share", "multicast_blocks",
)  # fmt: skip


class Config(ctypes.Structure):
    """How a communicator works: ncclConfig_t of NCCL 2.27, which later versions read as well."""

    _fields_ = [
        ("size", _SIZE), ("magic", ctypes.c_uint), ("version", ctypes.c_uint),
        ("blocking", _INT), ("cluster_size", _INT), ("min_blocks", _INT), ("max_blocks", _INT),
        ("net_name", ctypes.c_char_p), ("split_share", _INT), ("traffic_class", _INT),
        ("name", ctypes.c_char_p), ("collnet_enable", _INT), ("block_policy", _INT),
        ("shrink_share", _INT), ("multicast_blocks", _INT),
    ]  # fmt: skip

    @classmethod
    def of_copies(cls) -> Config:
        """Collectives take no multiprocessor where that can be, all else as NCCL chooses."""
        config = cls(size=ctypes.sizeof(cls), magic=CONFIG_MAGIC, version=CONFIG_VERSION)
        for name in LEFT_TO_NCCL:
            setattr(config, name, UNDEFINED)
        config.block_policy = COPY_ENGINES
        return config


# The types of the arguments, as in nccl.h; each returns an error code.
FUNCTIONS: dict[str, list[Any]] = {
    "ncclGetVersion": [ctypes.POINTER(_INT)],
    "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
    "ncclCommInitRank": [ctypes.POINTER(_POINTER), _INT, UniqueId, _INT],
    "ncclCommSplit": [_POINTER, _INT, _INT, ctypes.POINTER(_POINTER), _POINTER],
    "ncclCommGetAsyncError": [_POINTER, ctypes.POINTER(_INT)],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclAllReduce": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclReduceScatter": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclAllGather": [_POINTER, _POINTER, _SIZE, _INT, _POINTER, _POINTER],
    "ncclBroadcast": [_POINTER, _POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclSend": [_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
    "ncclRecv": [_POINTER, _SIZE, _INT, _INT, _POINTER, _POINTER],
}  # fmt: skip
WINDOW_FUNCTIONS: dict[str, list[Any]] = {  # since NCCL 2.27
    "ncclMemAlloc": [ctypes.POINTER(_POINTER), _SIZE],
    "ncclCommWindowRegister": [_POINTER, _POINTER, _SIZE, ctypes.POINTER(_POINTER), _INT],
}
FIRST_WITH_WINDOWS = 22703
FIRST_WITH_COPY_ENGINES = 22800
SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC: arrays begin at the same places on all ranks


def path_of_library() -> str:
    """Where the library is: in the package, if it is installed."""
    try:
        package = find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        package = None
    for folder in (package.submodule_search_locations or []) if package else []:
        path = Path(folder) / "lib" / "libnccl.so.2"
        if path.exists():
            return str(path)
    return "libnccl.so.2"


class Library:
    """NCCL, loaded. Raises MissingPackageError where it is not installed."""

    def __init__(self) -> None:
        for name, value in VARIABLES.items():
            os.environ.setdefault(name, value)
        path = path_of_library()
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise MissingPackageError(
                f"collectives among GPUs need NCCL: pip install 'lamina[nccl]' ({error})"
            ) from None
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        self._library.ncclGetLastError.restype = ctypes.c_char_p
        self._library.ncclGetLastError.argtypes = [_POINTER]
        self._declare(FUNCTIONS)
        self.has_windows = self.version >= FIRST_WITH_WINDOWS
        if self.has_windows:
            self._declare(WINDOW_FUNCTIONS)
        self.has_copy_engines = self.version >= FIRST_WITH_COPY_ENGINES

    def _declare(self, functions: Mapping[str, Sequence[Any]]) -> None:
        for name, arguments in functions.items():
            getattr(self._library, name).argtypes = arguments

    @property
    def version(self) -> int:
        """22703 is 2.27.3."""
        number = _INT()
        self.call("ncclGetVersion", ctypes.byref(number))
        return number.value

    def unique_id(self) -> bytes:
        """Of a communicator that is to be made."""
        made = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(made))
        return bytes(made)

    def communicator(self, size: int, unique_id: bytes, rank: int) -> int:
        """A communicator of `size` processes, which all make it at one time."""
        made = _POINTER()
        same = UniqueId.from_buffer_copy(unique_id)
        self.call("ncclCommInitRank", ctypes.byref(made), size, same, rank)
        return made.value or 0

    def split(self, communicator: int, color: int, key: int, *, copies: bool = False) -> int:
        """That of the processes with one color, in the order of their keys. copies: arrays in
        windows are gathered by the copy engines of the GPUs, where these have some."""
        made = _POINTER()
        config = ctypes.byref(Config.of_copies()) if copies else None
        self.call("ncclCommSplit", communicator, color, key, ctypes.byref(made), config)
        return made.value or 0

    def allocate(self, nbytes: int) -> int:
        """The address of memory on the GPU of the calling thread, of a kind that can be registered.
        """
        made = _POINTER()
        self.call("ncclMemAlloc", ctypes.byref(made), nbytes)
        return made.value or 0

    def register(self, communicator: int, pointer: int, nbytes: int) -> None:
        """Let all ranks of a communicator, which call it at one time, reach such memory of each
        other. Where GPUs do not reach each other's memory this does nothing."""
        window = _POINTER()
        self.call(
            "ncclCommWindowRegister", communicator, pointer, nbytes, ctypes.byref(window), SYMMETRIC
        )

    def async_error(self, communicator: int) -> str:
        """What went wrong since it was made, such as on the way to another machine; "" if nothing.
        """
        code = _INT()
        self.call("ncclCommGetAsyncError", communicator, ctypes.byref(code))
        return "" if code.value in (SUCCESS, IN_PROGRESS) else self._text(code.value)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the table. Raises DeviceError with what NCCL says."""
        code: int = getattr(self._library, function)(*arguments)
        if code != SUCCESS:
            last = (self._library.ncclGetLastError(None) or b"").decode(errors="replace")
            what = f"{function}: {self._text(code)}: {last.strip()}"
            raise DeviceError(f"{what}; NCCL_DEBUG=INFO lets NCCL say more")

    def _text(self, code: int) -> str:
        text: bytes = self._library.ncclGetErrorString(code)
        return text.decode(errors="replace")
