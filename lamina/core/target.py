"""Facts of devices, as data: what schedules and kernels are made for.

`lamina/runtime/devices.py` asks a device for them. A program for a GPU that this machine does not
have is made for a row of the tables here.
"""

from dataclasses import dataclass

from lamina.core.dtypes import ALL, STORAGE_ONLY, DType, complex128, float64

COMPUTED = frozenset(ALL) - frozenset(STORAGE_ONLY)


@dataclass(frozen=True)
class Target:
    """One device.

    kind: "cpu", "cuda" or "metal"
    arch: what its compiler calls it, such as "sm_90a"; "" where that is not asked for
    multiprocessors: how many run blocks of threads side by side; of a CPU, its cores
    warp: threads that run in step and exchange registers; 1 on a CPU
    max_threads: largest block of threads; 1 on a CPU
    shared_bytes: memory that the threads of a block can share; 0 on a CPU
    registers: 32-bit registers of a multiprocessor; of a CPU, its vector registers
    l2_bytes: the second-level cache; of a CPU, that of one core
    vector_bytes: a vector register, or the widest access of a GPU's thread to memory
    dtypes: what it computes with
    engines: units for special work: "tensor_cores" multiply tiles, "wgmma" larger ones straight
        from shared memory, "tma" copies tiles
    """

    kind: str
    arch: str
    multiprocessors: int
    warp: int
    max_threads: int
    shared_bytes: int
    registers: int
    l2_bytes: int
    vector_bytes: int
    dtypes: frozenset[DType] = COMPUTED
    engines: frozenset[str] = frozenset()


# NVIDIA's data sheets; shared memory is what one block can opt in to.
CUDA = {
    row.arch: row
    for row in (
        Target(
            "cuda", "sm_80", multiprocessors=108, warp=32, max_threads=1024, registers=65536,
            shared_bytes=163 << 10, l2_bytes=40 << 20, vector_bytes=16,
            engines=frozenset({"tensor_cores"}),
        ),
        Target(
            "cuda", "sm_90a", multiprocessors=132, warp=32, max_threads=1024, registers=65536,
            shared_bytes=227 << 10, l2_bytes=50 << 20, vector_bytes=16,
            engines=frozenset({"tensor_cores", "wgmma", "tma"}),
        ),
    )
}  # fmt: skip
DEFAULT_CUDA = CUDA["sm_90a"]  # an H100 SXM or H200

# Metal tells neither cores nor registers, and no Mac has measured these: they are the numbers of
# DEFAULT_CUDA where a heuristic reads them.
METAL = Target(
    "metal", "", multiprocessors=132, warp=32, max_threads=1024, registers=65536,
    shared_bytes=32 << 10, l2_bytes=50 << 20, vector_bytes=16,
    dtypes=COMPUTED - {float64, complex128},
)  # fmt: skip


def cpu_target(vector_bytes: int, cores: int) -> Target:
    """A CPU with vector registers of so many bytes. AVX-512 has 32 of them, AVX2 16, and NEON 32 of
    16 bytes; SSE has 16 of these. Its second-level cache is taken to be 1 MiB a core."""
    return Target(
        "cpu", "", multiprocessors=cores, warp=1, max_threads=1, shared_bytes=0,
        registers=16 if vector_bytes == 32 else 32, l2_bytes=1 << 20, vector_bytes=vector_bytes,
    )  # fmt: skip
