"""Graphs that PyTorch's cache holds: a later process neither traces nor compiles them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch compiles: pip install torch==2.13.0")

from torch._inductor import codecache  # noqa: E402

import lamina as lm  # noqa: E402
from lamina.interop.torch import backend, dynamo  # noqa: E402
from lamina.runtime.profile import runs  # noqa: E402

graph_cache = dynamo._graph_cache()
if graph_cache is None:
    pytest.skip("PyTorch's cache has room for Inductor's results alone", allow_module_level=True)


class CompiledError(Exception):
    """A graph was compiled that was to be found."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty cache."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with lm.using(device="cpu"):
        yield
    torch._dynamo.reset()


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on nothing may be compiled, and Dynamo has forgotten everything."""

    def forbidden(*_: Any) -> None:
        raise CompiledError

    def call() -> None:
        torch._dynamo.reset()
        monkeypatch.setattr(graph_cache, "Compiled", forbidden)

    return call


def call(function: Callable[..., Any], *tensors: Any, **options: Any) -> list[Any]:
    """The result of a compiled function and the derivatives of its sum of squares."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    result = torch.compile(function, backend=backend, **options)(*leaves)
    result.square().sum().backward()
    return [result.detach(), *[leaf.grad for leaf in leaves]]


def test_a_training_step_is_found(forbid: Callable[[], None]) -> None:
    def function(x: Any, w: Any) -> Any:
        return torch.nn.functional.gelu(x @ w) * 3

    x, w = torch.randn(5, 7), torch.randn(7, 4)
    call(function, x, w)
    forbid()
    x, w = torch.randn(5, 7), torch.randn(7, 4)
    found = call(function, x, w)
    leaves = [x.requires_grad_(), w.requires_grad_()]
    expected = function(*leaves)
    slopes = torch.autograd.grad(expected.square().sum(), leaves)
    torch.testing.assert_close(found, [expected.detach(), *slopes], rtol=1e-4, atol=1e-4)


def test_views_copies_and_operations_of_pytorch_are_found(forbid: Callable[[], None]) -> None:
    def function(x: Any) -> Any:
        q, r = torch.linalg.qr(x[:, ::2])
        return (q @ r).t(), x[1:], torch.full((2,), 0.5) + r[0, 0], r.expand(2, 3, 3)

    x = torch.randn(4, 6)
    torch.compile(function, backend=backend)(x)
    forbid()
    results = torch.compile(function, backend=backend)(x)
    torch.testing.assert_close(results, function(x), rtol=1e-4, atol=1e-4)
    assert [one.stride() for one in results] == [one.stride() for one in function(x)]


def test_updates_of_buffers_are_found(forbid: Callable[[], None]) -> None:
    def steps() -> list[Any]:
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
        result = torch.compile(module, backend=backend)(torch.randn(8, 3))
        result.sum().backward()
        return [result.detach(), *module.state_dict().values()]

    first = steps()
    forbid()
    torch.testing.assert_close(steps(), first, rtol=0, atol=0)


def test_other_options_shapes_and_modes_are_other_graphs(forbid: Callable[[], None]) -> None:
    def function(x: Any) -> Any:
        return x.exp() + 1

    x = torch.randn(6)
    call(function, x)
    forbid()
    call(function, x)
    torch._dynamo.reset()
    with lm.using(threads=1), pytest.raises(Exception, match="CompiledError"):
        call(function, x)
    for arguments, options in (((torch.randn(7),), {}), ((x,), {"fullgraph": True})):
        torch._dynamo.reset()
        with pytest.raises(Exception, match="CompiledError"):
            call(function, *arguments, **options)


def test_what_is_found_loads_neither_code_generators_nor_decompositions(
    forbid: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Any) -> Any:
        return torch.nn.functional.silu(x) + 1

    x = torch.randn(6)
    first = call(function, x)
    forbid()
    for owner, name in (
        (codecache, "init_backend_registration"),
        (codecache.CacheBase, "get_system"),  # reads all files of Triton
        (dynamo, "decompositions"),
    ):
        monkeypatch.setattr(owner, name, graph_cache.Compiled)
    torch.testing.assert_close(call(function, x), first, rtol=0, atol=0)


def test_settings_of_other_code_generators_do_not_hide_an_entry(
    forbid: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: Any) -> Any:
        return torch.nn.functional.silu(x) + 2

    x = torch.randn(6)
    first = call(function, x)
    forbid()
    monkeypatch.setitem(codecache.custom_backend_passes, "another", None)
    torch.testing.assert_close(call(function, x), first, rtol=0, atol=0)


def test_graphs_that_somebody_looks_at_are_compiled(forbid: Callable[[], None]) -> None:
    def function(x: Any) -> Any:
        return x.exp() + 1

    x = torch.randn(6)
    call(function, x)
    forbid()
    with runs() as records:
        call(function, x)
    assert len(records) == 2
    assert all(planned.program.launches for planned, _, _ in records)


def test_sizes_that_are_symbols_are_compiled_anew() -> None:
    run = torch.compile(lambda x: x.sin() * x.shape[0], backend=backend, dynamic=True)
    for size in (3, 4, 5):
        x = torch.randn(size, requires_grad=True)
        run(x).sum().backward()
        torch.testing.assert_close(x.grad, x.detach().cos() * size)
