"""Facts of devices, as data: what schedules and kernels are made for.

`lamina/runtime/devices.py` asks a device for them. A program for a GPU that this machine does not
have is made for a row of the tables here.
"""

import re
from dataclasses import dataclass, replace

from lamina.errors import ArgumentError


@dataclass(frozen=True)
class Target:
    """One device.

    kind: "cpu", "cuda" or "metal"
    arch: what its compiler calls it, such as "sm_90a"; "" where that is not asked for
    multiprocessors: how many run blocks of threads side by side; of a CPU, its cores
    warp: threads that run in step and exchange registers; 1 on a CPU
    shared_bytes: memory that the threads of a block can share; 0 on a CPU
    l2_bytes: the second-level cache: of a core of a CPU, of a whole GPU
    vector_bytes: a vector register, or the widest access of a GPU's thread to memory
    engines: units for special work: "tensor_cores" multiply tiles of 16-bit floats and of tf32
        (those before sm_80 lack most of this), "wgmma" has them do so while threads do other work,
        "tma" copies tiles; of a CPU, "unsigned_by_signed" multiplies bytes of these kinds and adds
        up four products in one instruction, and "byte_tiles" multiplies tiles of 16 rows of 64
        bytes (Intel's AMX-INT8)
    adds_atomically: whether threads can combine integers of 32 and 64 bits at one place in memory,
        in any order, each by one instruction
    """

    kind: str
    arch: str
    multiprocessors: int
    warp: int
    shared_bytes: int
    l2_bytes: int
    vector_bytes: int
    engines: frozenset[str] = frozenset()
    adds_atomically: bool = False

    @property
    def facts(self) -> str:
        """All of it as text, which is the same in every process: the order of a set is not."""
        return repr({**vars(self), "engines": sorted(self.engines)})

    @property
    def has_tile_programs(self) -> bool:
        """Whether kernels with products are printed from tile programs (lamina/tiles/): only
        CUDA C++ is."""
        return self.kind == "cuda"


# NVIDIA's data sheets; shared memory is what one block can opt in to.
CUDA = {
    row.arch: row
    for row in (
        Target(
            "cuda", "sm_75", multiprocessors=40, warp=32, shared_bytes=64 << 10,
            l2_bytes=4 << 20, vector_bytes=16, adds_atomically=True,
        ),
        Target(
            "cuda", "sm_80", multiprocessors=108, warp=32, shared_bytes=163 << 10,
            l2_bytes=40 << 20, vector_bytes=16, engines=frozenset({"tensor_cores"}),
            adds_atomically=True,
        ),
        Target(
            "cuda", "sm_86", multiprocessors=84, warp=32, shared_bytes=99 << 10,
            l2_bytes=6 << 20, vector_bytes=16, engines=frozenset({"tensor_cores"}),
            adds_atomically=True,
        ),
        Target(
            "cuda", "sm_90a", multiprocessors=132, warp=32, shared_bytes=227 << 10,
            l2_bytes=50 << 20, vector_bytes=16, engines=frozenset({"tensor_cores", "tma", "wgmma"}),
            adds_atomically=True,
        ),
    )
}  # fmt: skip
DEFAULT_CUDA = CUDA["sm_90a"]  # an H100 SXM or H200


def cuda_engines(arch: str) -> frozenset[str]:
    """The units of a GPU of an architecture. Later ones lack `wgmma` (PTX ISA, wgmma.mma_async)."""
    first_with = {"tensor_cores": 80, "tma": 90}
    number = _arch_number(arch)
    engines = {name for name, first in first_with.items() if number >= first}
    if arch == "sm_90a":
        engines.add("wgmma")
    return frozenset(engines)


def cuda_target(arch: str) -> Target:
    """The facts of a GPU of an architecture: for one without a row in the table, those of the
    newest row that is no newer, or of the first one, with its own engines. Raises ArgumentError for
    what is no architecture."""
    if arch in CUDA:
        return CUDA[arch]
    number = _arch_number(arch)
    first, *later = sorted(CUDA.values(), key=lambda row: _arch_number(row.arch))
    older = [row for row in later if _arch_number(row.arch) <= number]
    nearest = older[-1] if older else first
    return replace(nearest, arch=arch, engines=cuda_engines(arch))


def _arch_number(arch: str) -> int:
    """90 for "sm_90a"."""
    digits = re.fullmatch(r"sm_(\d+)[a-z]?", arch)
    if digits is None:
        raise ArgumentError(f"arch {arch!r}: an architecture of CUDA is named like sm_80 or sm_90a")
    return int(digits[1])


# Metal tells no number of cores, and no Mac has measured which number suits the heuristics: it is
# that of DEFAULT_CUDA. The cache is the last one of an M1.
METAL = Target(
    "metal", "", multiprocessors=132, warp=32, shared_bytes=32 << 10, l2_bytes=8 << 20,
    vector_bytes=16,
)  # fmt: skip


def cpu_target(
    vector_bytes: int, cores: int, engines: frozenset[str] = frozenset(), l2_bytes: int = 1 << 20
) -> Target:
    """A CPU with vector registers of so many bytes: 64 with AVX-512, 32 with AVX2, or else 16; by
    default with the second-level cache of `COMMON_CPU` (`lamina/core/rates.py`)."""
    return Target(
        "cpu", "", multiprocessors=cores, warp=1, shared_bytes=0, l2_bytes=l2_bytes,
        vector_bytes=vector_bytes, engines=engines,
    )  # fmt: skip
