"""Kernels of products keep all they have in registers, on GPUs with and without each engine."""

from __future__ import annotations

import struct

import pytest

import lamina as lm
from lamina.frontend.lowered import Lowered
from lamina.runtime.nvrtc import compile_source
from lamina.runtime.source import KERNELS

# Of `.nv.info` of a cubin, as `cuobjdump -elf` prints it: the format of an attribute that has a
# size and as many bytes, and the attribute of a function's bytes of stack.
EIFMT_SVAL = 0x04
EIATTR_FRAME_SIZE = 0x11
SHT_NOBITS = 8  # a section without bytes in the file


def section(elf: bytes, wanted: str) -> bytes:
    """The bytes of a section of a 64-bit ELF file, by its name."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_bytes, count, names_number = struct.unpack_from("<HHH", elf, 58)
    # name, type, flags, address, offset, size, ...
    headers = [
        struct.unpack_from("<IIQQQQ", elf, table + number * entry_bytes) for number in range(count)
    ]
    names = headers[names_number][4]
    for name, kind, _, _, offset, size in headers:
        start = names + name
        if kind != SHT_NOBITS and elf[start : elf.index(b"\0", start)].decode() == wanted:
            return elf[offset : offset + size]
    raise AssertionError(f"no section {wanted}")


def frame_bytes(cubin: bytes) -> int:
    """The bytes of stack of the function with most."""
    attributes = section(cubin, ".nv.info")
    frames = []
    at = 0
    while at < len(attributes):
        form, attribute, size = struct.unpack_from("<BBH", attributes, at)
        at += 4
        if form == EIFMT_SVAL:
            if attribute == EIATTR_FRAME_SIZE:
                _, frame = struct.unpack_from("<II", attributes, at)
                frames.append(frame)
            at += size
    assert frames
    return max(frames)


def sum_of_three(arch: str) -> Lowered:
    """A product with a bias and a residual, in bfloat16."""
    matrix, vector = lm.TensorSpec((4096, 4096), "bfloat16"), lm.TensorSpec((4096,), "bfloat16")
    return lm.jit(lambda a, b, bias, residual: a @ b + bias + residual).lower(
        matrix, matrix, vector, matrix, device="cuda:0", arch=arch
    )


@pytest.mark.parametrize(("arch", "most"), [("sm_80", 0), ("sm_100a", 32)])
@pytest.mark.usefixtures("nvrtc")
def test_an_epilogue_keeps_no_results_on_the_stack(arch: str, most: int) -> None:
    """NVRTC 13.0 keeps 32 bytes there on sm_100a, later ones none; 128 results are 512."""
    (cubin,) = sum_of_three(arch).compile().values()
    assert frame_bytes(cubin) <= most


@pytest.mark.usefixtures("nvrtc")
def test_a_stack_is_found() -> None:
    """An array that is indexed by data is in memory: 4000 bytes of it at least."""
    text = (
        'extern "C" __global__ void f(int *p) {\n'
        "    int all[1000];\n"
        "    for (int i = 0; i < 1000; i++) all[p[i]] = i;\n"
        "    p[0] = all[p[1]];\n"
        "}"
    )
    assert frame_bytes(compile_source(text, "sm_80")) >= 4000


@pytest.mark.parametrize(
    ("arch", "overlaps"), [("sm_80", False), ("sm_90a", True), ("sm_90", False), ("sm_100a", False)]
)
def test_epilogues_are_cut_where_they_overlap(arch: str, overlaps: bool) -> None:
    """It takes products that run while threads store, and threads that fill tiles meanwhile."""
    lowered = sum_of_three(arch)
    _, _, kernels = lowered.source.partition(KERNELS)
    (launch,) = lowered.planned.launches
    assert ("KeptSums kept;" in kernels) is overlaps
    assert launch.threads == (384 if overlaps else 256)
