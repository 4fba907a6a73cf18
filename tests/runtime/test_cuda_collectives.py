"""Programs with collectives on a GPU: what goes to which stream, and in which order. Fake ones
stand in for the driver and for the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lamina.core import dtypes
from lamina.core.exchange import Exchange
from lamina.errors import DeviceError, RankError
from lamina.runtime import collectives, cuda
from lamina.runtime.buffer import Buffer, Launch
from lamina.runtime.collectives import GroupPart, Places, Window
from lamina.runtime.source import Source
from tests.runtime.test_cuda_errors import OPTIONS, SOURCE, FakeDriver, driver

__all__ = ["driver"]  # the fixture

SUM = Exchange("all_reduce", "ADD", dtypes.float32, (4,), 2, 1)
GATHER = Exchange("all_gather", "", dtypes.float32, (4,), 2, 1)
# Kernel a, a sum of its result, kernel b beside it, a gathering, b again, and kernel c, which reads
# what both have brought.
LAUNCHES = [
    Launch("map0_64", 1, 256, ((0, 0),)),
    Launch("all_reduce1", 0, 0, ((0, 0), (0, 64)), exchange=0),
    Launch("reduce1_64", 2, 128, ((1, 0),), 2048),
    Launch("all_gather2", 0, 0, ((1, 0), (1, 64)), exchange=1),
    Launch("reduce1_64", 2, 128, ((1, 0),), 2048),
    Launch("map0_64", 1, 256, ((0, 64),), after=1),
]
PLACES = (1 << 10, 1 << 20)
Noted = list[tuple[Any, ...]]


class FakeEngine:
    """Notes what it is asked."""

    kind, rank, size = "cuda", 0, 2

    def __init__(self, noted: Noted) -> None:
        self._noted = noted
        self.of_part: dict[int, Window] = {}  # by the ranks of its groups

    def make_group(self, ranks: int, stride: int) -> None: ...

    def compare(self, parts: Any) -> None:
        self._noted.append(("compare", parts[0].lines))

    def run(self, exchange: Exchange, operand: int, result: int, stream: int = 0) -> None:
        self._noted.append((exchange.operation, operand, result, stream))

    def window(self, part: GroupPart, places: Places, nbytes: int) -> Window | None:
        return self.of_part.get(part.ranks)

    def gather(self, exchange: Exchange, operand: bytes) -> list[bytes]:
        raise NotImplementedError


class Stream(int):
    """A stream, by its address."""


@pytest.fixture
def noted(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Noted:
    """The calls that give a stream work or order, by name, and the engine's, in one order. The
    device's own stream is 1, the one that records graphs 2, and that of collectives 3."""
    calls: Noted = []
    call = cuda.Device.call_for_all
    made = iter(range(100))

    def noting(self: cuda.Device, function: str, *arguments: Any, about: object = "") -> Any:
        call(self, function, *arguments, about=about)
        if function == "cuLaunchKernelEx":
            calls.append(("kernel", int(arguments[0].hStream), bool(arguments[0].numAttrs)))
        elif function == "cuMemcpyAsync":
            calls.append(("MemcpyAsync", *map(int, arguments)))
        elif function in ("cuEventRecord", "cuStreamWaitEvent"):
            calls.append((function.removeprefix("cu"), *map(int, arguments[:2])))
        elif function == "cuGraphLaunch":
            calls.append(("graph", int(arguments[1])))
        elif function == "cuEventCreate":
            return [Stream(next(made))]
        elif function == "cuStreamCreateWithPriority":
            return [Stream(3)]
        elif function == "cuCtxGetStreamPriorityRange":
            return [0, -5]
        return [1 << 20]

    monkeypatch.setattr(cuda.Device, "call_for_all", noting)
    monkeypatch.setattr(collectives, "_engines", [FakeEngine(calls)])
    return calls


@pytest.fixture(params=[True, False], ids=["sm_90", "before"])
def program(noted: Noted, request: pytest.FixtureRequest) -> cuda.CudaProgram:
    """On a GPU whose kernels may begin while others end, as they can from sm_90 on, and on one
    before."""
    source = Source("", SOURCE.kernels, exchanges=(SUM, GATHER))
    made = cuda.CudaProgram(source, LAUNCHES, OPTIONS)
    made.device.stream, made.device.recorder = Stream(1), Stream(2)
    made.device.engine = request.param
    noted.clear()
    return made


def test_collectives_run_beside_kernels_and_in_the_graph(
    program: cuda.CudaProgram, noted: Noted
) -> None:
    """Recorded on the first run, as it would be on other ranks, whatever they ran before."""
    program.call(PLACES)
    a, b = PLACES
    may_begin_early = program.device.engine
    assert noted == [
        ("kernel", 2, may_begin_early),
        ("EventRecord", 0, 2),
        ("StreamWaitEvent", 3, 0),
        ("all_reduce", a, a + 64, 3),
        ("EventRecord", 1, 3),
        ("kernel", 2, may_begin_early),  # while the one before ends
        ("EventRecord", 2, 2),
        ("StreamWaitEvent", 3, 2),
        ("all_gather", b, b + 64, 3),
        ("EventRecord", 3, 3),
        ("kernel", 2, may_begin_early),
        ("StreamWaitEvent", 2, 3),
        ("kernel", 2, False),  # which may not begin before both are done
        ("graph", 1),
        ("compare", (str(SUM), str(GATHER))),  # while the GPU works
    ]
    noted.clear()
    program.call(PLACES)
    assert noted == [("graph", 1), ("compare", (str(SUM), str(GATHER)))]


def called(noted: Noted, launches: list[Launch], exchanges: tuple[Exchange, ...]) -> Noted:
    """What the first call of another program notes, up to its launch."""
    program = cuda.CudaProgram(Source("", SOURCE.kernels, exchanges=exchanges), launches, OPTIONS)
    noted.clear()
    program.call(PLACES)
    assert noted.pop()[0] == "compare"
    return noted


def test_what_comes_after_a_program_waits_for_its_collectives(
    noted: Noted, program: cuda.CudaProgram
) -> None:
    ends_beside_a_kernel = called(noted, LAUNCHES[:3], (SUM,))
    assert ends_beside_a_kernel[-2:] == [("StreamWaitEvent", 2, 1), ("graph", 1)]


def test_a_collective_that_nothing_runs_beside_is_on_the_stream_of_kernels(
    noted: Noted, program: cuda.CudaProgram
) -> None:
    """The gathering, after the sum, which kernel b runs beside; and a sum at the end."""
    a, b = PLACES
    first, gathering, last = LAUNCHES[:3], LAUNCHES[3], LAUNCHES[5]
    is_early = program.device.engine
    assert called(noted, [*first, gathering, last], (SUM, GATHER))[-6:] == [
        ("EventRecord", 1, 3),
        ("kernel", 2, is_early),
        ("StreamWaitEvent", 2, 1),
        ("all_gather", b, b + 64, 2),
        ("kernel", 2, is_early),
        ("graph", 1),
    ]
    assert called(noted, LAUNCHES[:2], (SUM,))[-2:] == [
        ("all_reduce", a, a + 64, 2),
        ("graph", 1),
    ]


OWN_MEMORY = "memory of the program alone"


@pytest.fixture
def engine(
    program: cuda.CudaProgram, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> FakeEngine:
    """That of the program, whose windows a test gives it."""
    made = FakeEngine(noted)
    monkeypatch.setattr(collectives, "_engines", [made])
    monkeypatch.setattr(cuda, "Buffer", lambda nbytes, device: OWN_MEMORY)
    return made


def test_scratch_memory_is_the_window_of_its_places(
    program: cuda.CudaProgram, engine: FakeEngine
) -> None:
    """Of the sum's arrays the scratch memory has both, of the gathering's none."""
    memory = Buffer.wrap(1 << 24, 128, "cuda", None)
    engine.of_part[2] = Window(memory, ((0, 64), (-1, -1)))
    assert program.arena(128) is memory
    assert program.arena(129) == OWN_MEMORY


def test_collectives_run_in_a_window_of_other_places(
    program: cuda.CudaProgram, engine: FakeEngine, noted: Noted
) -> None:
    window, (a, b) = 1 << 24, PLACES
    engine.of_part[2] = Window(Buffer.wrap(window, 1024, "cuda", None), ((512, 256), (-1, 0)))
    assert program.arena(128) == OWN_MEMORY
    program.call(PLACES)
    moved = [one for one in noted if one[0] in ("MemcpyAsync", "all_reduce", "all_gather")]
    assert moved == [
        ("MemcpyAsync", window + 512, a, 16, 3),
        ("all_reduce", window + 512, window + 256, 3),
        ("MemcpyAsync", a + 64, window + 256, 16, 3),
        ("all_gather", b, b + 64, 3),
    ]


def test_groups_of_two_kinds_have_no_window_in_common(
    program: cuda.CudaProgram, engine: FakeEngine, noted: Noted
) -> None:
    """Their collectives run in those that programs of one group have agreed on."""
    memory = Buffer.wrap(1 << 24, 1024, "cuda", None)
    engine.of_part[4] = Window(memory, ((0, 64),))
    of_four = Exchange("all_reduce", "ADD", dtypes.float32, (4,), 4, 1)
    source = Source("", SOURCE.kernels, exchanges=(of_four, GATHER))
    made = cuda.CudaProgram(source, LAUNCHES, OPTIONS)
    assert made.arena(128) == OWN_MEMORY
    made.call(PLACES)
    assert ("all_reduce", memory.pointer, memory.pointer + 64, 3) in noted


def test_steps_that_are_timed_run_one_after_the_other(
    program: cuda.CudaProgram, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "Buffer", lambda *_: type("Other", (), {"pointer": 0, "nbytes": 0}))
    list(program._launched(PLACES, program.device.stream, overlaps=False))
    kinds = [(name, *rest[-1:]) for name, *rest in noted]
    may_begin_early = program.device.engine
    assert kinds == [
        ("kernel", may_begin_early), ("all_reduce", 1),
        ("kernel", may_begin_early), ("all_gather", 1),
        ("kernel", may_begin_early), ("kernel", may_begin_early),
    ]  # fmt: skip


def test_an_engine_of_cpus_is_refused(
    program: cuda.CudaProgram, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = FakeEngine(noted)
    engine.kind = "cpu"
    monkeypatch.setattr(collectives, "_engines", [engine])
    with pytest.raises(DeviceError, match="on cuda, and the processes of this run exchange arrays"):
        program.call(PLACES)


def test_who_waits_for_the_gpu_waits_for_the_other_processes(program: cuda.CudaProgram) -> None:
    def guard(is_idle: Callable[[], bool], is_all: bool) -> None:
        assert is_idle()
        assert is_all
        raise RankError("rank 1 failed")

    program.device.guard = guard
    with pytest.raises(RankError, match="rank 1 failed"):
        program.device.synchronize()
