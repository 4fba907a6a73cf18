"""Programs for a GPU on disk. No GPU is needed: a fake driver notes what it is asked."""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina import pipeline, stored
from lamina.compiled import Planned, planned_of, stored_of
from lamina.core import dtypes
from lamina.core.options import current, using
from lamina.core.target import DEFAULT_CUDA
from lamina.frontend.execution import compile_sinks
from lamina.frontend.session import SESSION
from lamina.fuse.launch import Program
from lamina.graph.split_complex import split_complex
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import BufferRef, Op
from lamina.runtime import cuda
from lamina.runtime.buffer import Launch, TensorMap
from lamina.runtime.cpu import disk_cache
from lamina.runtime.source import Source
from tests.generators import leaf
from tests.programs import random_program
from tests.replay.programs import gpu_cases, networks
from tests.runtime.test_cuda_errors import Code, FakeDriver

GPU = "cuda:0"
STREAM = 77


def read_again(compiled: Planned) -> stored.StoredProgram:
    """What a later process reads of a program."""
    return stored.read(json.loads(json.dumps(stored.parts_of(stored_of(compiled)))))


def assert_reads_the_same(compiled: Planned, read: stored.StoredProgram) -> None:
    """Everything but the kernels of steps, which the passes alone look at."""
    assert compiled.source == read.source
    assert compiled.launches == read.launches
    steps = ((),) * len(compiled.program.steps)
    once = read.once
    assert replace(compiled.program, steps=steps, once=None) == replace(read.program, once=None)
    assert (compiled.once is None) == (once is None)
    if compiled.once is not None and once is not None:
        assert read.program.once is once.program
        assert_reads_the_same(compiled.once, once)


class Description:
    """An enumeration of the driver or a member of one: equal to another of the same name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Description:
        return Description(f"{self.name}.{name}")

    def __repr__(self) -> str:
        return self.name


class NotingDriver(FakeDriver):
    """Notes the modules, the attributes of functions and the launches that it is asked for, with
    what is at an address, or what a tensor map describes, in place of the address."""

    def __init__(self, launches: Sequence[Launch]) -> None:
        super().__init__()
        self.notes: list[Any] = []
        self.maps: list[Any] = []  # the number of each is where a kernel finds it
        self._arguments = {one.name: (len(one.arguments), len(one.maps)) for one in launches}
        self._functions: dict[str, Any] = {
            "cuModuleLoadData": self._load,
            "cuModuleGetFunction": self._get_function,
            "cuFuncSetAttribute": self._set,
            "cuTensorMapEncodeTiled": lambda *array: self._map("tiled", array),
            "cuTensorMapEncodeIm2col": lambda *array: self._map("im2col", array),
            "cuLaunchKernelEx": self._launch,
            "cuuint64_t": int,
            "cuuint32_t": int,
            "CUstream": lambda stream: ("stream", stream),
            "CUlaunchConfig": SimpleNamespace,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self._functions:
            return self._functions[name]
        is_described = name.startswith("CU") and name != "CUlaunchAttribute"
        return Description(name) if is_described else super().__getattr__(name)

    def _load(self, cubin: bytes) -> tuple[Any, ...]:
        self.notes.append(("module", cubin))
        name, _, _ = cubin.partition(b" ")
        return Code(0), name.decode()

    def _get_function(self, module: str, symbol: bytes) -> tuple[Any, ...]:
        self.notes.append((module, symbol))
        return Code(0), module

    def _set(self, function: str, attribute: object, value: int) -> tuple[Any, ...]:
        self.notes.append((function, repr(attribute), value))
        return (Code(0),)

    def _map(self, kind: str, array: Sequence[Any]) -> tuple[Any, ...]:
        number = len(self.maps)
        self.maps.append((kind, repr(array)))
        return Code(0), SimpleNamespace(getPtr=lambda: number)

    def _launch(self, to: Any, function: str, table: int, extra: object) -> tuple[Any, ...]:
        arguments, maps = self._arguments[function]
        pointers = _words_at(table, arguments + maps)
        values = [_words_at(pointer, 1)[0] for pointer in pointers[:arguments]]
        described = [self.maps[number] for number in pointers[arguments:]]
        config = {name: value for name, value in vars(to).items() if name != "attrs"}
        self.notes.append((function, config, values, described))
        return (Code(0),)


def _words_at(pointer: int, count: int) -> list[int]:
    return list((ctypes.c_uint64 * count).from_address(pointer))


def asked_of_driver(program: Program, source: Source, launches: Sequence[Launch]) -> list[Any]:
    """What a loaded program asks of the driver as it is loaded and in a run. A cubin is the name
    and the text of its kernel here, a module and a function are the name."""
    driver = NotingDriver(launches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(driver=driver))
        patch.setattr(cuda, "target_of", lambda device: DEFAULT_CUDA)
        device = cuda.Device(0)
        patch.setattr(cuda, "heap_of", lambda name: device)
        patch.setattr(cuda, "build", lambda source, *_: {
            name: f"{name} {source.prelude}{text}".encode()
            for name, text in source.kernels.items()
        })  # fmt: skip
        loaded = cuda.CudaProgram(source, launches, replace(current(), device=GPU))
        buffers = 1 + max((number for one in launches for number, _ in one.arguments), default=0)
        places = tuple(1 << 20 + number for number in range(buffers))
        loaded.run_on(STREAM, places, is_captured=True)  # kernel by kernel
    launched = [note for note in driver.notes if len(note) == 4]
    assert len(launched) == len(launches)
    return driver.notes


def assert_loads_the_same(compiled: Planned, read: stored.StoredProgram) -> None:
    assert compiled.source is not None
    found = planned_of(read, None)
    assert found.source is not None
    first = asked_of_driver(compiled.program, compiled.source, compiled.launches)
    again = asked_of_driver(found.program, found.source, found.launches)
    assert first == again


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Planned]:
    """The programs that the passes make."""
    made: list[Planned] = []
    compile_source = pipeline.compile_source

    def noted(*arguments: Any) -> Planned:
        made.append(compile_source(*arguments))
        return made[-1]

    monkeypatch.setattr(pipeline, "compile_source", noted)
    return made


def on_gpu(family: Callable[[], Any]) -> list[Callable[[], object]]:
    return [compile_ for name, compile_ in family() if name.startswith("GPU") or GPU in name]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("family", [gpu_cases, networks])
def test_programs_are_read_as_they_were_written(
    family: Callable[[], Any], compiled: list[Planned]
) -> None:
    """Among them are products in tiles, attention, convolutions, scatters and sorts, of inference
    and of training."""
    kinds = set[str]()
    for compile_ in on_gpu(family):
        compile_()
        program = compiled.pop()
        read = read_again(program)
        assert_reads_the_same(program, read)
        assert_loads_the_same(program, read)
        for launch in read.launches:
            kinds |= {"im2col" if one.corners else "tiled" for one in launch.maps}
            kinds |= {"shared"} if launch.shared else set()
    assert kinds == {"im2col", "tiled", "shared"}


@given(st.integers(0, 1 << 32))
def test_random_programs_are_read_as_they_were_written(seed: int) -> None:
    program = random_program(random.Random(seed), 12)
    sinks = split_complex(tuple(program.sinks))
    compiled = pipeline.compile_source(sinks, replace(current(), device=GPU))
    assert_reads_the_same(compiled, read_again(compiled))


_COUNTS = st.integers(0, 1 << 40)
_SHAPES = st.lists(_COUNTS, max_size=5).map(tuple)
_MAPS = st.builds(
    TensorMap, _COUNTS, st.text(), _COUNTS, _SHAPES, _SHAPES, _SHAPES,
    st.lists(_SHAPES, max_size=3).map(tuple),
)  # fmt: skip
_LAUNCHES = st.builds(
    Launch, st.text(), _COUNTS, _COUNTS,
    st.lists(st.tuples(_COUNTS, _COUNTS), max_size=4).map(tuple), _COUNTS,
    st.lists(_MAPS, max_size=3).map(tuple),
)  # fmt: skip


@given(st.lists(_LAUNCHES, max_size=3).map(tuple))
def test_any_launches_are_read_as_they_were_written(launches: tuple[Launch, ...]) -> None:
    program = Program((), (), 0, 0)
    written = stored.StoredProgram(program, Source(), launches)
    read = stored.read(json.loads(json.dumps(stored.parts_of(written))))
    assert read.launches == launches
    assert hash(read.launches) == hash(launches)  # tuples in tuples, as the driver's maps are kept


def test_what_runs_once_is_read_as_it_was_written() -> None:
    weight = Node(Op.BUFFER, (), BufferRef(0, (64, 64), dtypes.float32, "cpu", constant=True))
    x = leaf(1, (64, 64), dtypes.float32)
    sums = build.reduce(ADD, [0], weight * 3.0)  # of the constant alone
    result = x + build.expand(build.reshape(sums, (1, 64)), (64, 64))
    compiled = pipeline.compile_source((result,), replace(current(), device=GPU))
    assert compiled.once is not None
    assert compiled.once.launches
    read = read_again(compiled)
    assert_reads_the_same(compiled, read)
    assert read.once is not None
    assert_loads_the_same(compiled.once, read.once)


# Names.


def deep(count: int) -> tuple[Node, ...]:
    x = leaf(0, (64, 64), dtypes.float32)
    for _ in range(count):
        x = Node(Op.EXP, (x,)) + 1.0
    return (x,)


def test_each_fact_of_a_gpu_is_part_of_the_name() -> None:
    sinks, options = deep(3), replace(current(), device=GPU)
    others = {"kind": "metal", "arch": "sm_80", "engines": frozenset({"tma"}),
              "adds_atomically": False}  # fmt: skip
    names = {stored.key_of(sinks, options, DEFAULT_CUDA)}
    for field in fields(DEFAULT_CUDA):
        changed = others.get(field.name, getattr(DEFAULT_CUDA, field.name))
        if field.name not in others:
            changed += 1
        target = replace(DEFAULT_CUDA, **{field.name: changed})
        names.add(stored.key_of(sinks, options, target))
    for changes in ({"device": "cuda:1"}, {"tf32": True}, {"arch": "sm_80"}):
        names.add(stored.key_of(sinks, replace(options, **changes), DEFAULT_CUDA))
    assert None not in names
    assert len(names) == 1 + len(fields(DEFAULT_CUDA)) + 3


def test_every_text_that_kernels_begin_with_is_part_of_the_name(tmp_path: Path) -> None:
    for name in ("printer.py", "gpu.c", "prelude.cu", "prelude.metal"):
        before = list(stored._files_of(str(tmp_path)))
        (tmp_path / name).write_text("")
        assert list(stored._files_of(str(tmp_path))) != before
    before = list(stored._files_of(str(tmp_path)))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "printer.pyc").write_text("")
    assert list(stored._files_of(str(tmp_path))) == before


# Later processes.


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[Any, ...]]]:
    """What a GPU was given to load; a cache of its own."""
    given_to_load: list[tuple[Any, ...]] = []

    def load(source: Source, launches: Sequence[Launch], options: Any) -> Any:
        given_to_load.append((source, tuple(launches)))
        return SimpleNamespace()

    from lamina import compiled

    row = replace(compiled.RUNNERS["cuda"], load=load)
    monkeypatch.setitem(compiled.RUNNERS, "cuda", row)
    with using(device=GPU, cache_dir=str(tmp_path)):
        yield given_to_load


def test_a_later_process_runs_no_passes(
    loads: list[tuple[Any, ...]], compiled: list[Planned]
) -> None:
    sinks = deep(3)
    for _ in range(2):
        SESSION.forget()
        compile_sinks(sinks, current())
    assert len(compiled) == 1
    assert len(loads) == 2
    assert loads[0] == loads[1] == (compiled[0].source, compiled[0].launches)


@pytest.mark.parametrize("damage", [
    lambda parts: parts.pop("launches"),
    lambda parts: parts["launches"].append("map0"),
    lambda parts: parts["launches"][0].pop("maps"),
    lambda parts: parts["launches"][0].pop("blocks"),
    lambda parts: parts["launches"][0]["maps"].append({"parameter": 0}),
    lambda parts: parts["launches"][0].update(clusters=2),
])  # fmt: skip
def test_a_damaged_file_is_written_again(
    damage: Callable[[Any], object], loads: list[tuple[Any, ...]], compiled: list[Planned]
) -> None:
    sinks, options = deep(3), current()
    SESSION.forget()
    compile_sinks(sinks, options)
    name = f"{stored.key_of(sinks, options, DEFAULT_CUDA)}.json"
    path = disk_cache(options).load(name)
    assert path is not None
    whole = path.read_bytes()
    written = json.loads(whole)
    damage(written["content"])
    disk_cache(options).store(name, json.dumps(written).encode())  # its digest fits
    SESSION.forget()
    compile_sinks(sinks, options)
    assert len(compiled) == 2
    assert path.read_bytes() == whole
    assert loads[0] == loads[1]


_PROCESS = """
import ctypes
import sys
from types import SimpleNamespace
from tests.runtime.test_cuda_errors import Code, FakeDriver

driver, held = FakeDriver(), []

def allocate(size):
    held.append((ctypes.c_char * (size + 64))())
    return Code(0), -(-ctypes.addressof(held[-1]) // 64) * 64

driver.cuMemAllocHost = allocate
driver.cuEventQuery = lambda event: (Code(0),)
sys.modules["cuda.bindings"] = SimpleNamespace(driver=driver)

import lamina as lm
from lamina.core.target import DEFAULT_CUDA
from lamina.runtime import buffer, cuda

cuda.target_of = lambda device: DEFAULT_CUDA
cuda.build = lambda source, arch, options: dict.fromkeys(source.kernels, b"cubin")
launched = []
cuda.CudaProgram._launch_kernel = lambda self, function, launch, *_: launched.append(launch)
buffer._heaps["cuda:0"] = cuda.Device(0)

def deep(x):
    return lm.tanh(x) + x.sum()

lm.jit(deep)(lm.Tensor([1.0, 2.0], device="cuda:0"))
print("lamina.pipeline" in sys.modules, *launched, sep="|")
"""


def test_a_later_process_does_not_load_the_passes(tmp_path: Path) -> None:
    root = str(Path(__file__).parent.parent)
    environment = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path), "PYTHONPATH": root}

    def output() -> list[str]:
        command = [sys.executable, "-c", _PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout.split("|")

    first, again = output(), output()
    assert (first[0], again[0]) == ("True", "False")
    assert len(first) > 1
    assert first[1:] == again[1:]
