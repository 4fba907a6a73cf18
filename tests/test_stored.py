"""Large programs on disk: found by later processes, and only where all is as it was."""

from __future__ import annotations

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
from lamina.explain.report import profile
from lamina.frontend import realize
from lamina.frontend.session import SESSION
from lamina.ir import build
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Ranks
from lamina.runtime.cpu import disk_cache
from lamina.runtime.devices import target_of

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


LARGE, SMALL = 20, 1  # layers of a graph of more than MIN_NODES nodes, and of less
MIN_NODES = 100


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the disk cache; graphs are large from MIN_NODES nodes on, so that tests are quick."""
    monkeypatch.setattr(stored, "MIN_NODES", MIN_NODES)
    with using(device="cpu", cache_dir=str(tmp_path)):
        yield tmp_path / "cpu"


def run(count: int = LARGE) -> None:
    """Compile and run, as a new process does."""
    SESSION.reset()
    ours = lm.jit(lambda x, w: layers(x, w, count))(Tensor(X), Tensor(W)).numpy()
    np.testing.assert_allclose(ours, wanted(count), atol=1e-3)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that the passes run on."""
    graphs: list[Any] = []
    compile_source = pipeline.compile_source

    def noted(sinks: Any, options: Any) -> Any:
        graphs.append(sinks)
        return compile_source(sinks, options)

    monkeypatch.setattr(pipeline, "compile_source", noted)
    return graphs


def large(graphs: list[Any]) -> int:
    return sum(len(toposort(sinks)) >= MIN_NODES for sinks in graphs)


def test_a_later_process_runs_no_passes(compiled: list[Any], folder: Path) -> None:
    run()
    assert large(compiled) == 1
    assert len([*folder.glob("*.json")]) == 1
    run()
    assert large(compiled) == 1


def test_programs_with_collectives_are_not_stored() -> None:
    """Their steps ask an engine, and the file of a program has no steps."""
    x = build.iota(8, lm.int64)
    for _ in range(MIN_NODES):
        x = x * x + 1
    gathered = Node(Op.ALL_GATHER, (x,), Ranks(2, 1))
    options = current()
    assert stored.key_of([x], options, target_of(options))
    assert stored.key_of([gathered], options, target_of(options)) is None


def test_small_programs_are_not_stored(folder: Path) -> None:
    run(SMALL)
    assert not [*folder.glob("*.json")]


def test_other_options_and_other_compilers_are_other_programs(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    with using(threads=1):
        run()
    assert large(compiled) == 2
    monkeypatch.setattr(stored, "compiler", lambda: "edited")
    run()
    assert large(compiled) == 3


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"steps": 1, "outputs": [["a"]]}'])
def test_a_damaged_file_is_written_again(content: bytes, compiled: list[Any], folder: Path) -> None:
    run()
    (path,) = folder.glob("*.json")
    whole = path.read_bytes()
    path.write_bytes(content)  # its digest does not fit
    run()
    assert large(compiled) == 2
    assert path.read_bytes() == whole
    disk_cache(current()).store(path.name, content)  # its digest fits
    run()
    assert large(compiled) == 3
    assert path.read_bytes() == whole


def test_reports_know_the_kernels_of_a_stored_program() -> None:
    run()
    SESSION.forget()
    function = lm.jit(lambda x, w: layers(x, w, LARGE))
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
    for _ in range(LARGE):
        y = lm.silu(lm.softmax(y @ w, axis=-1))
    return y, y + 0.0, y * 2.0


def test_calls_of_a_stored_program_are_not_opened(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "MIN_NODES", 2 * LARGE)
    first = [one.numpy() for one in part(Tensor(X), Tensor(W))]
    part._programs.clear()
    SESSION.reset()

    def refused(sinks: Any) -> Any:
        raise AssertionError(f"{len(sinks)} sinks were opened")

    monkeypatch.setattr(realize, "opened", refused)
    again = [one.numpy() for one in part(Tensor(X), Tensor(W))]
    assert large(compiled) == 1
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
            for _ in range(LARGE):
                x = activation(x @ w)
            return x

        value = x.numpy().astype(np.float64)
        for _ in range(LARGE):
            value = activation(Tensor(value @ W)).numpy().astype(np.float64)
        np.testing.assert_allclose(run_layers(x, w).numpy(), value, rtol=1e-3, atol=1e-5)
    assert large(compiled) == 2


_PROCESS = """
import sys
import numpy as np
import lamina as lm

def deep(x):
    for _ in range(300):
        x = lm.tanh(x) + x.sum()
    return x

result = lm.jit(deep)(lm.Tensor(np.ones(4, np.float32), device="cpu")).numpy()
print(result[0] > 1, "lamina.pipeline" in sys.modules)
"""


def test_a_later_process_does_not_load_the_passes(tmp_path: Path) -> None:
    environment = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path)}

    def output() -> list[str]:
        command = [sys.executable, "-c", _PROCESS]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert output() == ["True", "True"]
    assert output() == ["True", "False"]
