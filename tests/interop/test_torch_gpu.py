"""Programs over PyTorch's tensors on a GPU, as far as that can be seen without one.

Graphs have FakeTensors on ``cuda:0``, programs are compiled to CUDA C++ and not loaded: in place of
the driver, `Emulated` takes the table of addresses and lets the interpreter write the results,
while PyTorch makes tensors for the GPU in the host's memory. tests/cuda has a GPU's part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the programs are PyTorch's: pip install torch==2.13.0")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

import lamina as lm  # noqa: E402
from lamina import pipeline  # noqa: E402
from lamina.frontend import execution  # noqa: E402
from lamina.interop.torch.compiled import Fallback, Steps  # noqa: E402
from lamina.interop.torch.draws import dropout_mask  # noqa: E402
from lamina.interop.torch.plan import Plan, make_plan  # noqa: E402
from lamina.ir.node import toposort  # noqa: E402
from lamina.ir.ops import Op  # noqa: E402
from lamina.runtime import buffer as buffers  # noqa: E402
from lamina.runtime.buffer import Buffer, Heap  # noqa: E402

GPU = torch.device("cuda", 0)
STREAM = 77


def graph_of(function: Callable[..., Any], *examples: Any) -> Any:
    """The graph of a function of tensors on the GPU, but those of shape (), which are the CPU's."""
    with FakeTensorMode():
        fakes = [
            torch.empty_strided(one.shape, one.stride(), dtype=one.dtype,
                                device=GPU if one.ndim else "cpu")
            for one in examples
        ]  # fmt: skip
        return make_fx(lambda *args: list(function(*args)))(*fakes)


def plan_of(function: Callable[..., Any], *examples: Any) -> Plan:
    return make_plan(graph_of(function, *examples).graph, {})


class HostMemory(TorchFunctionMode):
    """What PyTorch makes on the GPU is made in the host's memory."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        def there(value: Any) -> Any:
            return torch.device("cpu") if value == GPU else value

        kwargs = {name: there(value) for name, value in (kwargs or {}).items()}
        return function(*[there(value) for value in args], **kwargs)


class Emulated:
    """A loaded program. streams: those that it was launched on, and whether they were recorded."""

    def __init__(self, sinks: Any) -> None:
        self.sinks = sinks
        self.streams: list[tuple[int, bool]] = []

    def run_on(self, stream: int, places: tuple[int, ...], is_captured: bool) -> None:
        """places: scratch memory, the results, which are the memory of inputs, then the inputs."""
        self.streams.append((stream, is_captured))
        holes = [node for node in toposort(self.sinks) if node.op is Op.BUFFER]
        inputs = places[1 + len(self.sinks) :]
        held = [
            Buffer.wrap(pointer, _bytes_of(holes, number), "interp", None)
            for number, pointer in enumerate(inputs)
        ]
        assert all(one.pointer % 64 == 0 for one in held)
        targets = [held[sink.src[0].arg.storage].pointer for sink in self.sinks]
        assert targets == list(places[1 : 1 + len(self.sinks)])
        execution.execute(self.sinks, held, "interp")


def _bytes_of(holes: Any, number: int) -> int:
    """Of an input, by its number; 0 where nothing reads it."""
    return sum(prod(one.shape) * one.dtype.itemsize for one in holes if one.arg.storage == number)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Emulated]]:
    """The programs that were loaded."""
    programs: list[Emulated] = []
    compile_source = pipeline.compile_source

    def compile_sinks(sinks: Any, options: Any) -> Any:
        assert options.device == "cuda:0"
        programs.append(Emulated(sinks))
        return replace(compile_source(sinks, options), code=programs[-1])

    compile_sinks.drop = lambda *_: None  # type: ignore[attr-defined]
    monkeypatch.setitem(buffers._heaps, "cuda:0", Heap(0, "cuda:0"))
    monkeypatch.setattr(execution, "compile_sinks", compile_sinks)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: STREAM, raising=False
    )
    with lm.using(device="cpu"):
        yield programs


def run(function: Callable[..., Any], *tensors: Any) -> list[Any]:
    """Compile for a GPU, and run on the host's memory."""
    steps = Steps(graph_of(function, *tensors), Fallback.REFUSED)
    with HostMemory():
        return steps.run(list(tensors))


def test_a_program_runs_on_pytorchs_stream_and_memory(loaded: list[Emulated]) -> None:
    x, w = torch.randn(8, 5), torch.randn(5, 3)

    def function(x: Any, w: Any) -> Any:
        return torch.relu(x @ w), x.sum(1), torch.arange(5, device=x.device) + x

    torch.testing.assert_close(run(function, x, w), list(function(x, w)))
    (program,) = loaded
    assert program.streams == [(STREAM, False)]


def test_tensors_of_the_cpu_without_axes_are_moved(loaded: list[Emulated]) -> None:
    x, factor = torch.randn(8, 5), torch.tensor(3.0)
    torch.testing.assert_close(run(lambda x, s: (x * s,), x, factor), [x * 3])
    assert len(loaded) == 1


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("view", [
    lambda x: x[1:], lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[:1].expand(4, 16),
])  # fmt: skip
def test_inputs_are_read_wherever_they_are(view: Callable[[Any], Any]) -> None:
    x = view(torch.randn(5, 16))
    torch.testing.assert_close(run(lambda x: (x * 2 + 1,), x), [x * 2 + 1])


def test_a_recorded_stream_is_told(
    loaded: list[Emulated], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    run(lambda x: (x + 1,), torch.randn(4))
    assert loaded[0].streams == [(STREAM, True)]


def test_tensors_elsewhere_are_left_to_pytorch() -> None:
    x = torch.randn(4, 3)
    plan = plan_of(lambda x: (x * 2, x.cpu() + 1), x)
    reasons = {left.operation: left.reason for left in plan.left}
    assert reasons.keys() == {"aten._to_copy.default", "aten.add.Tensor"}
    assert reasons["aten.add.Tensor"] == "it has a tensor on cpu, and the programs run on cuda:0"
    assert [segment.place for segment in plan.segments] == [GPU]


def test_the_interpreter_runs_nothing_of_a_gpu() -> None:
    with lm.using(device="interp"):
        plan = plan_of(lambda x: (x * 2,), torch.randn(4, 3))
    assert plan.segments == []
    assert [left.operation for left in plan.left] == ["aten.mul.Tensor"]


def test_masks_of_dropout_are_drawn_on_the_device_by_its_own_kernel() -> None:
    with FakeTensorMode():
        mask = dropout_mask([4, 3], [1, 4], 0.5, torch.bfloat16, GPU)
    assert (mask.device, mask.dtype, tuple(mask.shape)) == (GPU, torch.bool, (4, 3))
    assert mask.stride() == (1, 4)


@pytest.mark.parametrize("size", [3, 7])
def test_small_windows_find_their_maxima_again(size: int, loaded: list[Emulated]) -> None:
    """A GPU takes longer to add at the places that a pool says; of large windows it does add."""
    options = [size, size], [2, 2], [size // 2, size // 2], [1, 1], False
    x = torch.randn((2, 3, 20, 24), requires_grad=True)
    y, places = torch.nn.functional.max_pool2d(x, size, 2, size // 2, return_indices=True)
    upstream = torch.randn(y.shape)
    y.backward(upstream)

    def slope(upstream: Any, x: Any, places: Any) -> tuple[Any]:
        return (torch.ops.aten.max_pool2d_with_indices_backward(upstream, x, *options, places),)

    (found,) = run(slope, upstream, x.detach(), places)
    assert torch.allclose(found, x.grad, atol=1e-5)
    adds_at_places = any(node.op is Op.SCATTER for node in toposort(loaded[0].sinks))
    assert adds_at_places == (size == 7)
