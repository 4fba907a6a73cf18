"""Every family of kernels is free of data races and of accesses out of bounds; planted ones are
found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.metal.families import FAMILIES, Prepared, agrees, prepared
from tests.msl.emulator import Library, MslError, run_apart


@pytest.fixture(scope="module")
def every() -> Prepared:
    """The program of all families."""
    return prepared(*FAMILIES.values())


@pytest.fixture(scope="module")
def rows() -> Prepared:
    """A sum that four simdgroups share."""
    return prepared(FAMILIES["whole"])


@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_every_family_is_clean(every: Prepared, sanitizer: str) -> None:
    assert agrees(every, run_apart(every.source, every.arrays, every.jobs, sanitizer))


def run(given: Prepared, source: str, seed: int = 0) -> list[np.ndarray]:
    """What the arrays hold after a run in this process."""
    library, arrays = Library(source), [one.copy() for one in given.arrays]
    for name, groups, threads, arguments in given.jobs:
        bound = {at: arrays[which].ctypes.data + offset
                 for at, (which, offset) in enumerate(arguments)}  # fmt: skip
        library.launch(name, bound, groups, threads, seed)
    return arrays


def changed(source: str, old: str, new: str, count: int = 1) -> str:
    """`source` with a defect; the text it replaces must be there."""
    assert old in source
    return source.replace(old, new, count)


BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


@pytest.mark.parametrize("which", ["before", "after"])
def test_a_removed_barrier(rows: Prepared, which: str) -> None:
    first, second = (match.start() for match in re.finditer(re.escape(BARRIER), rows.source))
    at = first if which == "before" else second
    source = rows.source[:at] + rows.source[at + len(BARRIER) :]
    with pytest.raises(MslError, match="data race"):
        run_apart(source, rows.arrays, rows.jobs, "thread")
    if which == "after":  # threads read what is not there yet
        assert not all(agrees(rows, run(rows, source, seed)) for seed in range(4))


def test_an_index_one_too_far(rows: Prepared) -> None:
    end, last = re.search(r"\(thread_in_row, (\(i32\)(\d+))\)", rows.source).groups()
    source = rows.source.replace(end, f"(i32){int(last) + 1}")
    with pytest.raises(MslError, match="heap-buffer-overflow"):
        run_apart(source, rows.arrays, rows.jobs, "address")


def test_a_store_that_another_thread_does_as_well(rows: Prepared) -> None:
    source = changed(rows.source, "if (THREAD < 1)", "if (THREAD < 2)")
    with pytest.raises(MslError, match="data race"):
        run_apart(source, rows.arrays, rows.jobs, "thread")


def test_a_divergent_barrier(rows: Prepared) -> None:
    text = BARRIER + "\n    return all"
    with pytest.raises(MslError, match="barrier"):
        run(rows, changed(rows.source, text, f"if (number < 100) {text}"))


def test_divergent_exchanges_of_a_simdgroup(rows: Prepared) -> None:
    text = "if (step < 32) return"
    source = changed(rows.source, text, "if (number % 32 == 5) return mine;\n    " + text)
    with pytest.raises(MslError, match=r"has ended|divergent|never"):
        run(rows, source)


def test_too_much_threadgroup_memory(rows: Prepared) -> None:
    source = changed(rows.source, "shared[threads];", "shared[5120];")
    with pytest.raises(MslError, match=r"40960 bytes of threadgroup memory; there are 32768"):
        Library(source)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("(threadgroup T *)shared", "(device T *)shared", "address space"),
        ("threadgroup T *all = (threadgroup T *)", "T *all = (T *)", "names no address space"),
        ("device kind *p##number [[buffer", "kind *p##number [[buffer", "names no address space"),
        ("POINTER(const f32, ", "POINTER(f32, ", None),
        ("EACH_BLOCK(u32", "EACH_BLOCK(double", "Metal has no 'double'"),
        ("typedef long i64", "typedef long long i64", "Metal has no 'long long'"),
        ("/* The kernels. */", "int counter = 0;", "not constant"),
        ("/* The kernels. */", "constant int counter = 0;", None),
        ("EACH_BLOCK(u32", "half h = 1; bfloat b = 1; f32 both = h * b; EACH_BLOCK(u32",
         "mixes half and bfloat"),
        ("EACH_BLOCK(u32", "const i64 more = 1LL; EACH_BLOCK(u32", "no such suffix"),
        ("EACH_BLOCK(u32", "static int kept; EACH_BLOCK(u32", "static"),
        ("#include <metal_stdlib>", "#include <cmath>", "metal_stdlib alone"),
        ("EACH_BLOCK(u32", "EACH_BLOCC(u32", r"kernel \w+:\d+:\d+: error"),
    ],
)  # fmt: skip
def test_what_metal_does_not_have(
    rows: Prepared, old: str, new: str, complaint: str | None
) -> None:
    source = changed(rows.source, old, new)
    if complaint is None:
        Library(source)
        return
    with pytest.raises(MslError, match=complaint):
        Library(source)
