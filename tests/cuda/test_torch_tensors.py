"""PyTorch's tensors on a GPU: shared with DLPack, and through ``torch.compile``."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import lamina as lm
from lamina.frontend import realize as memory
from lamina.runtime import cuda

torch = pytest.importorskip("torch", reason="the tensors are PyTorch's: pip install torch==2.13.0")

from lamina.interop.torch import backend, explain  # noqa: E402

GPU = "cuda:0"
LONG = 200_000_000  # cycles, about 0.1 seconds: whoever does not wait reads what was there before


@pytest.fixture(autouse=True)
def pytorch(device: cuda.Device) -> None:
    if not torch.cuda.is_available():
        pytest.skip("PyTorch has no CUDA")
    torch.manual_seed(0)
    torch._dynamo.reset()


def late(*shape: int) -> Any:
    """Random numbers that are written after a while, on the current stream, over zeros."""
    x, values = torch.zeros(shape, device=GPU), torch.randn(shape, device=GPU)
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG)
    return x.copy_(values)


# DLPack.


def test_a_tensor_of_laminas_is_pytorchs_without_a_copy() -> None:
    x = lm.arange(1000, dtype=lm.float32, device=GPU) * 2
    there = torch.from_dlpack(x)
    assert (there.device, there.data_ptr()) == (torch.device(GPU), memory.memory_of(x).pointer)
    torch.testing.assert_close(there.cpu(), torch.arange(1000.0) * 2)


@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool,
    torch.complex64,
])  # fmt: skip
def test_dtypes_go_both_ways(dtype: Any) -> None:
    x = torch.randint(0, 3, (4, 5), device=GPU).to(dtype)
    shared = lm.from_dlpack(x)
    assert (shared.device, memory.memory_of(shared).pointer) == (GPU, x.data_ptr())
    torch.testing.assert_close(torch.from_dlpack(shared), x)


@pytest.mark.parametrize("view", [
    lambda x: x.t(), lambda x: x[::2], lambda x: x[1:], lambda x: x[:1].expand(3, 8),
])  # fmt: skip
def test_views_are_read(view: Callable[[Any], Any]) -> None:
    x = view(torch.randn(4, 8, device=GPU))
    torch.testing.assert_close(torch.from_dlpack(lm.from_dlpack(x) + 0), x.contiguous())


@pytest.mark.parametrize("is_default", [True, False])
def test_laminas_kernels_wait_for_pytorchs(is_default: bool) -> None:
    stream = torch.cuda.default_stream() if is_default else torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = late(1000, 1000)
        ours = (lm.from_dlpack(x) * 2).numpy()
    torch.testing.assert_close(torch.tensor(ours), x.cpu() * 2)


@pytest.mark.parametrize("is_default", [True, False])
def test_pytorchs_kernels_wait_for_laminas(is_default: bool) -> None:
    stream = torch.cuda.default_stream() if is_default else torch.cuda.Stream()
    with torch.cuda.stream(stream):
        x = lm.from_dlpack(late(1000, 1000))
        there = torch.from_dlpack(x * 2) + 1
        torch.testing.assert_close(there, torch.from_dlpack(x) * 2 + 1)


def test_memory_is_not_reused_while_pytorch_reads_it() -> None:
    want = torch.arange(1 << 20, device=GPU).float()
    there = torch.from_dlpack(lm.arange(1 << 20, dtype=lm.float32, device=GPU) + 0)
    torch.cuda._sleep(LONG)
    result = there * 1
    del there
    others = [lm.full((1 << 20,), 7.0, device=GPU) + 0 for _ in range(4)]
    lm.realize(*others)
    torch.testing.assert_close(result, want)


@pytest.mark.parametrize("name", ["cupy", "jax.numpy"])
def test_other_libraries_share_memory_too(name: str) -> None:
    library = pytest.importorskip(name, reason=f"the arrays are of {name}")
    x = lm.arange(1000, dtype=lm.float32, device=GPU) * 2
    there = library.from_dlpack(x)
    back = lm.from_dlpack(there + 1)
    assert back.device == GPU
    assert back.tolist() == [2.0 * number + 1 for number in range(1000)]


# Compiled programs.


class Block(torch.nn.Module):
    """A layer of a transformer, with dropout."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide = torch.nn.Linear(width, 4 * width)
        self.narrow = torch.nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, length, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        hidden = torch.nn.functional.gelu(self.wide(self.second(x)))
        return x + torch.nn.functional.dropout(self.narrow(hidden), 0.1, self.training)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 4e-2)])
def test_a_training_step_is_eager_pytorchs(dtype: Any, tolerance: float) -> None:
    plain = Block().to(GPU, dtype)
    ours = copy.deepcopy(plain)
    x = torch.randn(2, 32, 64, device=GPU, dtype=dtype)
    results = []
    for module, run in ((plain, plain), (ours, torch.compile(ours, backend=backend))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = run(x).square().mean()
            loss.backward()
            optimizer.step()
        gradients = [parameter.grad for parameter in module.parameters()]
        results.append([loss.detach(), *gradients, *[one.detach() for one in module.parameters()]])
    torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kernel", ["FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_is_part_of_a_program(kernel: str, is_causal: bool) -> None:
    def attend(q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    tensors = [
        torch.randn(2, 4, 32, 64, device=GPU, dtype=torch.bfloat16, requires_grad=True)
        for _ in range(3)
    ]
    with torch.nn.attention.sdpa_kernel(getattr(torch.nn.attention.SDPBackend, kernel)):
        explanation = explain(attend, *tensors)
        results = []
        for run in (attend, torch.compile(attend, backend=backend)):
            result = run(*tensors)
            results.append([result, *torch.autograd.grad(result.square().sum(), tensors)])
    assert (explanation.programs, explanation.left) == (2, ())
    torch.testing.assert_close(results[1], results[0], rtol=4e-2, atol=4e-2)


def test_programs_are_in_order_with_pytorchs_stream() -> None:
    run = torch.compile(lambda x: (x * 2).sum(1), backend=backend, fullgraph=True)
    run(torch.ones(1000, 1000, device=GPU))
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x = late(1000, 1000)
            torch.testing.assert_close(run(x) + 1, (x * 2).sum(1) + 1, rtol=1e-4, atol=1e-4)


def test_results_are_in_memory_of_pytorchs_allocator() -> None:
    run = torch.compile(lambda x: x * 2, backend=backend, fullgraph=True)
    x = torch.randn(1 << 20, device=GPU)
    run(x)
    before = torch.cuda.memory_allocated()
    result = run(x)
    assert torch.cuda.memory_allocated() - before >= result.nbytes


def test_a_graph_of_pytorchs_records_programs() -> None:
    def function(x: Any, w: Any) -> Any:
        return torch.relu(x @ w).softmax(-1)

    run = torch.compile(function, backend=backend, fullgraph=True)
    x, w = torch.randn(64, 32, device=GPU), torch.randn(32, 16, device=GPU)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(x, w)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run(x, w)
    for _ in range(3):
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.testing.assert_close(result, function(x, w), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("view", [
    lambda x: x[1:], lambda x: x[:, ::2], lambda x: x.t(), lambda x: x[:1].expand(4, 33),
])  # fmt: skip
def test_inputs_are_read_wherever_they_are(view: Callable[[Any], Any]) -> None:
    x = view(torch.randn(5, 33, device=GPU))
    run = torch.compile(lambda x: x * 2 + 1, backend=backend, fullgraph=True)
    torch.testing.assert_close(run(x), x * 2 + 1)


def test_dropout_draws_what_pytorch_draws() -> None:
    x = torch.randn(1000, device=GPU)
    results = []
    for run in (torch.nn.functional.dropout,
                torch.compile(torch.nn.functional.dropout, backend=backend)):  # fmt: skip
        torch.manual_seed(3)
        results.append(run(x, 0.3))
    torch.testing.assert_close(*results)


def test_inputs_are_changed_in_place_and_scalars_moved() -> None:
    def function(x: Any, factor: Any) -> Any:
        x.mul_(factor)
        return x.sum()

    x = torch.randn(8, 8, device=GPU)
    y, factor = x.clone(), torch.tensor(3.0)
    expected = function(y, factor)
    run = torch.compile(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(run(x, factor), expected)
    torch.testing.assert_close(x, y)


def test_an_optimizers_step_is_compiled() -> None:
    plain = [torch.randn(5, 7, device=GPU, requires_grad=True) for _ in range(3)]
    ours = [one.detach().clone().requires_grad_() for one in plain]
    for parameters in (plain, ours):
        optimizer = torch.optim.AdamW(parameters, lr=0.1, foreach=False)
        step = optimizer.step
        if parameters is ours:
            step = torch.compile(optimizer.step, backend=backend)
        for number in range(3):
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 0.5 - number)
            step()
    torch.testing.assert_close(ours, plain)
