"""Graphs of a GPU that PyTorch's cache holds, as far as that can be seen without one.

Dynamo traces FakeTensors on ``cuda:0``. Programs are not loaded: `Loaded` stands in for them. It
notes what it is made of, and the addresses that it is called with.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch compiles: pip install torch==2.13.0")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

import lamina as lm  # noqa: E402
from lamina import compiled  # noqa: E402
from lamina.core.target import DEFAULT_CUDA  # noqa: E402
from lamina.interop.torch import dynamo  # noqa: E402
from lamina.interop.torch.compiled import Fallback, Steps  # noqa: E402
from lamina.interop.torch.runners import OnGpu  # noqa: E402
from lamina.runtime import buffer as buffers  # noqa: E402
from lamina.runtime import cuda  # noqa: E402
from lamina.runtime.buffer import Heap, Launch  # noqa: E402
from lamina.runtime.source import Source  # noqa: E402
from tests.interop.test_torch_gpu import GPU, STREAM, HostMemory, graph_of  # noqa: E402
from tests.noted import noted_calls  # noqa: E402

graph_cache = dynamo._graph_cache()
if graph_cache is None:
    pytest.skip("PyTorch's cache has room for Inductor's results alone", allow_module_level=True)


class Loaded:
    """A program that is not loaded. calls: the addresses of each."""

    def __init__(self, source: Source, launches: Sequence[Launch], options: Any) -> None:
        assert options.device == "cuda:0"
        self.source, self.launches = source, tuple(launches)
        self.calls: list[tuple[int, ...]] = []

    def run_on(self, stream: int, places: tuple[int, ...], is_captured: bool) -> None:
        assert (stream, is_captured) == (STREAM, False)
        self.calls.append(places)


@pytest.fixture(autouse=True)
def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Loaded]]:
    """The programs that a GPU was given, with an empty cache."""
    programs: list[Loaded] = []

    def load(source: Source, launches: Sequence[Launch], options: Any) -> Any:
        programs.append(Loaded(source, launches, options))
        return programs[-1]

    row = replace(compiled.RUNNERS["cuda"], load=load)
    monkeypatch.setitem(compiled.RUNNERS, "cuda", row)
    monkeypatch.setitem(buffers._heaps, "cuda:0", Heap(0, "cuda:0"))
    monkeypatch.setattr(cuda, "target_of", lambda device: DEFAULT_CUDA)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: STREAM, raising=False
    )
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with lm.using(device="cpu", cache_dir=str(tmp_path)):
        yield programs
    torch._dynamo.reset()


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that were compiled, which were in no cache."""
    return noted_calls(monkeypatch, graph_cache, "Compiled")


def compiled_call(function: Callable[..., Any], *tensors: Any) -> Callable[..., Any]:
    """What a new process would compile or find for tensors like these on the GPU."""
    torch._dynamo.reset()
    made: list[Any] = []

    def backend(graph: Any, examples: Sequence[Any]) -> Any:
        made.append(dynamo.backend(graph, examples))
        return graph.forward

    with FakeTensorMode():
        fakes = [torch.empty(one.shape, dtype=one.dtype, device=GPU) for one in tensors]
        torch.compile(function, backend=backend)(*fakes)
    (call,) = made

    def run(*arguments: Any) -> Any:
        with HostMemory():
            return call(*arguments)

    return run


def layers(x: Any, w: Any) -> Any:
    for _ in range(3):
        x = torch.nn.functional.gelu(x @ w)
    return x, x.sum(1)


def test_a_graph_of_a_gpu_is_found(loaded: list[Loaded], traced: list[Any]) -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    for count in (1, 2):
        results = compiled_call(layers, x, w)(x, w)
        assert len(traced) == 1
        assert len(loaded) == count
        (places,) = loaded[-1].calls
        _, *rest = places
        written = [one.data_ptr() for one in results]
        assert rest[:2] == written
        assert set(rest[2:]) == {x.data_ptr(), w.data_ptr(), *written}
    first, again = loaded
    assert first is not again
    assert first.launches
    assert (first.source, first.launches) == (again.source, again.launches)


@pytest.mark.parametrize("end", [0, -1])
def test_a_graph_whose_entry_is_damaged_is_compiled_again(
    end: int, traced: list[Any], tmp_path: Path
) -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    compiled_call(layers, x, w)
    entries = [path for path in (tmp_path / "aotautograd").rglob("*") if path.is_file()]
    assert entries
    for path in entries:
        path.write_bytes(path.read_bytes()[:end])
    for _ in range(2):
        compiled_call(layers, x, w)(x, w)
        assert len(traced) == 2


def test_other_facts_of_a_gpu_are_other_graphs(
    traced: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 16)
    compiled_call(layers, x, w)
    other = replace(DEFAULT_CUDA, multiprocessors=114)
    monkeypatch.setattr(cuda, "target_of", lambda device: other)
    compiled_call(layers, x, w)
    assert len(traced) == 2


def test_the_facts_of_a_gpu_are_in_the_keys_of_graphs_that_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys: list[str] = []

    def backend(graph: Any, examples: Sequence[Any]) -> Any:
        keys.append(graph_cache.key_of(graph, Fallback.ALLOWED))
        return graph.forward

    def add(function: Callable[[Any], Any]) -> None:
        torch._dynamo.reset()
        with FakeTensorMode():
            torch.compile(function, backend=backend)(torch.empty(4))

    functions = (lambda x: x + 1, lambda x: (x + 1, torch.arange(3, device=GPU) * 2))
    for target in (DEFAULT_CUDA, replace(DEFAULT_CUDA, l2_bytes=1)):
        monkeypatch.setattr(cuda, "target_of", lambda device, target=target: target)
        for function in functions:
            add(function)
    of_cpu, of_gpu, of_cpu_again, of_other = keys
    assert of_cpu == of_cpu_again
    assert len({of_cpu, of_gpu, of_other}) == 3


@pytest.mark.parametrize("device", ["cpu", "cuda", "meta"])
def test_graphs_of_cpus_and_gpus_are_kept(device: str) -> None:
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    with FakeTensorMode():
        example = torch.empty(3, device=device)
    assert graph_cache.can_keep(graph, [example]) == (device != "meta")


def test_numbers_that_differ_are_read_with_a_program(loaded: list[Loaded]) -> None:
    """They are inputs of the program, whose memory is the GPU's."""
    x = torch.randn(8, 16)
    programs: list[OnGpu] = []
    for factor in (0.3, 0.7, 0.9):
        steps = Steps(graph_of(lambda x, by=factor: (x * by,), x), Fallback.REFUSED)
        programs += [one for one in steps.text.names.values() if isinstance(one, OnGpu)]
    written = programs[-1]
    assert written._constants
    before = len(loaded)
    read = pickle.loads(pickle.dumps(written))
    assert len(loaded) == before + 1
    assert (loaded[-1].source, loaded[-1].launches) == (loaded[-2].source, loaded[-2].launches)
    assert read.kernels == written.kernels
    for one, other in zip(written._constants, read._constants, strict=True):
        assert one.device == other.device == "cuda:0"
        assert one.pointer != other.pointer
        assert bytes(one.view()) == bytes(other.view())
    results = [torch.empty(8, 16), torch.empty(8, 16)]
    for program, result in zip((written, read), results, strict=True):
        with HostMemory():
            program([x, result])
    _, *places = loaded[-1].calls[0]
    constants = [one.pointer for one in read._constants]
    assert places == [results[1].data_ptr(), x.data_ptr(), results[1].data_ptr(), *constants]
