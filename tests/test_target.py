"""Facts of devices: which rows there are, who asks for them, and what reads them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

import lamina as lm
from lamina import backends, pipeline
from lamina.core.options import current, kind_of, using
from lamina.core.target import CUDA, DEFAULT_CUDA, METAL, cpu_target, cuda_target
from lamina.errors import UnknownDeviceError
from lamina.ir import build
from lamina.ir.kernel import Kernel
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.loops.moves import apply
from lamina.loops.text import parse
from lamina.runtime import cpu, cuda
from lamina.runtime.devices import target_of
from lamina.schedule.cpu.planner import CpuPlanner
from lamina.schedule.gpu.loops import schedule_for_gpu
from lamina.schedule.knobs import CpuKnobs, GpuKnobs
from lamina.targets.cuda.printer import CudaPrinter
from tests.generators import leaf


def test_every_kind_of_device_has_a_target_and_a_backend() -> None:
    for name, kind in {"cpu": "cpu", "interp": "cpu", "cuda:3": "cuda", "metal": "metal"}.items():
        options = replace(current(), device=name)
        assert target_of(options).kind == kind
        assert backends.backend(options) is backends.BACKENDS[kind]


@pytest.mark.parametrize("name", ["", "gpu", "cudax", "cpu:1", "cuda:"])
def test_an_unknown_kind_is_refused(name: str) -> None:
    with pytest.raises(UnknownDeviceError, match=f"no device '{name}'"):
        kind_of(name)


def test_rows_are_plausible() -> None:
    for arch, row in {**CUDA, "": METAL}.items():
        assert row.arch == arch
        counts = [getattr(row, one.name) for one in fields(row) if one.type == "int"]
        assert all(count > 0 for count in counts)


def test_a_cpu_has_as_many_cores_as_the_user_lets_it_have() -> None:
    with using(device="cpu", threads=3) as options:
        assert target_of(options).multiprocessors == 3


class FakeDriver:
    """A driver whose GPU is no row of the table."""

    facts: ClassVar[dict[str, int]] = {
        "COMPUTE_CAPABILITY_MAJOR": 8, "COMPUTE_CAPABILITY_MINOR": 6,
        "MULTIPROCESSOR_COUNT": 20, "WARP_SIZE": 32,
        "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 99 << 10,
        "L2_CACHE_SIZE": 2 << 20,
    }  # fmt: skip
    CUdevice_attribute = SimpleNamespace(  # its numbers here are the answers
        **{f"CU_DEVICE_ATTRIBUTE_{name}": value for name, value in facts.items()}
    )

    @staticmethod
    def cuDeviceGet(number: int) -> tuple[int, int]:  # noqa: N802
        return 0, number

    @staticmethod
    def cuDeviceGetAttribute(attribute: int, handle: int) -> tuple[int, int]:  # noqa: N802
        return 0, attribute


@pytest.fixture
def small_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with one GPU of 20 multiprocessors."""
    bindings = SimpleNamespace(driver=FakeDriver)
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(cuda, "names", lambda: ["cuda:0"])
    cuda.target_of.cache_clear()
    yield
    cuda.target_of.cache_clear()


@pytest.mark.usefixtures("small_gpu")
def test_a_gpu_is_asked_for_its_facts() -> None:
    facts = cuda.target_of("cuda:0")
    assert (facts.arch, facts.multiprocessors, facts.shared_bytes) == ("sm_86", 20, 99 << 10)
    assert facts.l2_bytes == 2 << 20
    assert facts.engines == {"tensor_cores"}
    assert cuda.target_of("cuda") == facts
    assert cuda.target_of("cuda:1") == DEFAULT_CUDA  # which this machine does not have


def test_a_gpu_without_a_row_has_the_facts_of_the_newest_one_before_it() -> None:
    assert cuda_target("sm_89") == replace(CUDA["sm_86"], arch="sm_89")
    assert cuda_target("sm_100").shared_bytes == CUDA["sm_90a"].shared_bytes
    assert cuda_target("sm_100").engines == {"tensor_cores", "tma"}


def column_sum(columns: int) -> Node:
    return build.reduce(ADD, [0], leaf(0, (1024, columns), lm.float32))


def test_schedules_depend_on_the_number_of_multiprocessors() -> None:
    """1024 columns in blocks of 8 threads with 4 columns each are 32 blocks: enough for 2
    multiprocessors, and too few for 132, which get blocks of 2 such threads."""
    options = replace(current(), device="cuda:0")
    (launch,) = pipeline.compile_source([column_sum(1024)], options).program.launches
    assert isinstance(launch.kernel, Kernel)
    few = replace(DEFAULT_CUDA, multiprocessors=2)
    on_few, on_many = (
        schedule_for_gpu(launch.kernel, target, "f32", GpuKnobs()) for target in (few, DEFAULT_CUDA)
    )
    assert on_few != on_many


def test_the_second_level_cache_is_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sysconf", lambda name: {"SC_LEVEL2_CACHE_SIZE": 3 << 20}[name])
    cpu.l2_bytes.cache_clear()
    assert cpu.l2_bytes() == 3 << 20
    cpu.l2_bytes.cache_clear()


def test_a_system_that_knows_no_cache_has_that_of_the_common_cpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def unknown(name: str) -> int:
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", unknown)
    monkeypatch.setattr(cpu, "_L2_SIZE", str(tmp_path / "size"))
    cpu.l2_bytes.cache_clear()
    assert cpu.l2_bytes() == 1 << 20
    (tmp_path / "size").write_text("2048K\n")
    cpu.l2_bytes.cache_clear()
    assert cpu.l2_bytes() == 2 << 20
    cpu.l2_bytes.cache_clear()


@pytest.mark.parametrize("mebibytes", [1, 2])
def test_what_stays_in_the_cache_follows_its_size(mebibytes: int) -> None:
    """Half of it, in elements of float32."""
    options = replace(current(), device="cpu")
    (launch,) = pipeline.compile_source([column_sum(1024)], options).program.launches
    target = cpu_target(64, 2, l2_bytes=mebibytes << 20)
    assert isinstance(launch.kernel, Kernel)
    assert CpuPlanner(launch.kernel, target, CpuKnobs()).cached == mebibytes << 17


@pytest.mark.parametrize("warp", [32, 64])
def test_a_block_has_whole_warps_of_the_target(warp: int) -> None:
    """Rows of 5 numbers: a block has one warp at least."""
    total = build.reduce(ADD, [1], leaf(0, (1024, 5), lm.float32))
    planned = pipeline.compile_source([total], replace(current(), device="cuda:0"))
    (launch,) = planned.program.launches
    assert isinstance(launch.kernel, Kernel)
    nest = apply(launch.kernel, parse("bind(a1, thread)")[""])
    assert CudaPrinter(nest, "sum", replace(DEFAULT_CUDA, warp=warp)).threads.per_block == warp


_FACTS = """
from lamina.core.target import cpu_target
print(cpu_target(64, 2, engines=frozenset({"unsigned_by_signed", "byte_tiles", "others"})).facts)
"""


def test_the_text_of_all_facts_is_that_of_every_process() -> None:
    """Python hashes strings with another seed in each process, which orders sets."""

    def facts(seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        command = [sys.executable, "-c", _FACTS]
        return subprocess.check_output(command, env=environment, text=True)

    assert len({facts(seed) for seed in range(1, 6)}) == 1
