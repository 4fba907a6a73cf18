"""Programs on disk: found by later processes, and only where all is as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, pipeline, stored
from lamina.core.options import current, using
from lamina.errors import DeviceError
from lamina.explain.report import profile
from lamina.frontend import realize
from lamina.frontend.session import SESSION
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op, Ranks
from lamina.runtime.cache import DiskCache
from lamina.runtime.cpu import disk_cache
from lamina.runtime.devices import target_of
from tests.noted import noted_calls

X = np.linspace(-1.0, 1.0, 24, dtype=np.float32).reshape(4, 6)
W = np.sin(np.arange(36, dtype=np.float32)).reshape(6, 6)


def layers(x: Tensor, w: Tensor, count: int) -> Tensor:
    """Many nodes, and few different kernels."""
    for _ in range(count):
        x = (x @ w).tanh()
    return x


def wanted(count: int) -> np.ndarray:
    x = X.astype(np.float64)
    for _ in range(count):
        x = np.tanh(x @ W)
    return x


LAYERS = 20


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of the disk cache."""
    with using(device="cpu", cache_dir=str(tmp_path)):
        yield tmp_path / "cpu"


def run(count: int = LAYERS) -> None:
    """Compile and run, as a new process does."""
    SESSION.reset()
    ours = lm.jit(lambda x, w: layers(x, w, count))(Tensor(X), Tensor(W)).numpy()
    np.testing.assert_allclose(ours, wanted(count), atol=1e-3)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that the passes run on."""
    return noted_calls(monkeypatch, pipeline, "compile_source")


def test_a_later_process_runs_no_passes(compiled: list[Any], folder: Path) -> None:
    run()
    assert len(compiled) == 1
    assert len([*folder.glob("*.json")]) == 1
    run()
    assert len(compiled) == 1


def test_programs_with_collectives_are_not_stored() -> None:
    """Their steps ask an engine, and the file of a program has no steps."""
    x = build.iota(8, lm.int64)
    gathered = Node(Op.ALL_GATHER, (x,), Ranks(2, 1))
    options = current()
    assert stored.key_of([x + 1], options, target_of(options))
    assert stored.key_of([gathered], options, target_of(options)) is None


def test_other_options_and_other_compilers_are_other_programs(
    compiled: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited compiler writes over what it wrote before, so that the folder grows no further."""
    run()
    with using(threads=1):
        run()
    assert len(compiled) == 2
    files = {path.name for path in folder.iterdir()}
    monkeypatch.setattr(stored, "compiler", lambda: "edited")
    for _ in range(2):
        run()
        assert len(compiled) == 3
    assert {path.name for path in folder.iterdir()} == files


def test_equal_functions_share_a_program_from_disk(compiled: list[Any]) -> None:
    run()
    SESSION.reset()
    functions = [lm.jit(lambda x, w: layers(x, w, LAYERS)) for _ in range(2)]
    programs = []
    for function in functions:
        function(Tensor(X), Tensor(W))
        programs += [program.compiled for program in function._programs.values()]
    first, second = programs
    assert first is second
    assert len(compiled) == 1


def test_functions_and_operations_share_a_program(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the process that compiles it, and in a later one, which reads it once."""
    x = Tensor(X).realize()
    read: list[str] = []
    load = stored.load

    def noted(key: str, options: Any) -> Any:
        read.append(key)
        return load(key, options)

    monkeypatch.setattr(stored, "load", noted)
    for process in (1, 2):
        SESSION.forget()
        function = lm.jit(lambda x: lm.tanh(x) * 2.0)
        np.testing.assert_array_equal(function(x).numpy(), (lm.tanh(x) * 2.0).numpy())
        assert len(compiled) == 1
        assert len(read) == process


def test_a_program_runs_though_no_folder_takes_its_file(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = DiskCache.store

    def store(cache: DiskCache, name: str, content: bytes) -> Path:
        if name.endswith((".json", ".name")):
            raise DeviceError(f"{name} cannot be written")
        return write(cache, name, content)

    monkeypatch.setattr(DiskCache, "store", store)
    for _ in range(2):
        run()
    assert len(compiled) == 2


@pytest.mark.parametrize("content", [None, [1], {}, {"steps": 1, "outputs": [["a"]]}])
@pytest.mark.parametrize("names_compiler", [True, False])
def test_a_damaged_file_is_written_again(
    content: Any, names_compiler: bool, compiled: list[Any], folder: Path
) -> None:
    run()
    (path,) = folder.glob("*.json")
    whole = path.read_bytes()
    written = {"compiler": stored.compiler(), "content": content} if names_compiler else content
    damaged = json.dumps(written).encode()
    path.write_bytes(damaged)  # its digest does not fit
    run()
    assert len(compiled) == 2
    assert path.read_bytes() == whole
    disk_cache(current()).store(path.name, damaged)  # its digest fits
    run()
    assert len(compiled) == 3
    assert path.read_bytes() == whole


def test_reports_know_the_kernels_of_a_stored_program() -> None:
    run()
    SESSION.forget()
    function = lm.jit(lambda x, w: layers(x, w, LAYERS))
    x, w = Tensor(X), Tensor(W)
    function(x, w).numpy()
    with profile() as records:
        function(x, w).numpy()
    assert records
    assert all(one.name and one.bytes for one in records)


@lm.jit
def part(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Two results with one value, and one of its own, of calls that are built once."""
    y = x
    for _ in range(LAYERS):
        y = lm.silu(lm.softmax(y @ w, axis=-1))
    return y, y + 0.0, y * 2.0


def test_calls_of_a_stored_program_are_not_opened(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = [one.numpy() for one in part(Tensor(X), Tensor(W))]
    part._programs.clear()
    SESSION.reset()

    def refused(sinks: Any) -> Any:
        raise AssertionError(f"{len(sinks)} sinks were opened")

    monkeypatch.setattr(realize, "opened", refused)
    again = [one.numpy() for one in part(Tensor(X), Tensor(W))]
    assert len(compiled) == 1
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again[2], again[0] * 2)


def test_graphs_whose_calls_differ_are_other_programs(compiled: list[Any]) -> None:
    """Nodes and operands are the same in both, but for what the calls compute."""
    x, w = Tensor(X), Tensor(W)
    for activation in (lm.silu, lm.gelu, lm.silu):
        SESSION.reset()

        @lm.jit
        def run_layers(x: Tensor, w: Tensor, activation: Any = activation) -> Tensor:
            for _ in range(LAYERS):
                x = activation(x @ w)
            return x

        value = x.numpy().astype(np.float64)
        for _ in range(LAYERS):
            value = activation(Tensor(value @ W)).numpy().astype(np.float64)
        np.testing.assert_allclose(run_layers(x, w).numpy(), value, rtol=1e-3, atol=1e-5)
    of_layers = [sink for (sink,) in compiled if sink.dtype == lm.float32]
    assert len(of_layers) == 2


_PROCESS = """
import sys
import numpy as np
import lamina as lm

def function(x):
    return lm.tanh(x) + x.sum()

x = lm.Tensor(np.ones(4, np.float32), device="cpu")
result = ROAD(x).numpy()
print(result[0] > 1, "lamina.pipeline" in sys.modules)
"""


@pytest.mark.parametrize("road", ["function", "lm.jit(function)"])
def test_a_later_process_does_not_load_the_passes(road: str, tmp_path: Path) -> None:
    environment = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path)}

    def output() -> list[str]:
        command = [sys.executable, "-c", _PROCESS.replace("ROAD", road)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert output() == ["True", "True"]
    assert output() == ["True", "False"]
