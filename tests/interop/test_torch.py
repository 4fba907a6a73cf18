"""PyTorch programs through ``torch.compile(..., backend="lamina")`` beside PyTorch itself."""

from __future__ import annotations

import copy
import linecache
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from inspect import signature
from itertools import permutations
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the door is for PyTorch: pip install torch==2.13.0")

from torch._functorch import config as functorch  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from lamina.interop.torch import (  # noqa: E402
    UnsupportedOperationError,
    backend,
    explain,
    interpret,
)
from lamina.interop.torch.arrays import layout_of  # noqa: E402
from lamina.interop.torch.compiled import Compiled, Fallback  # noqa: E402
from lamina.interop.torch.dynamo import compile_with  # noqa: E402
from lamina.interop.torch.interpret import OF_MEMORY  # noqa: E402
from lamina.interop.torch.plan import HostStep  # noqa: E402
from lamina.interop.torch.rows import ROWS  # noqa: E402
from lamina.runtime.profile import runs  # noqa: E402
from tests.interop.models import Decoder, Images  # noqa: E402

pytestmark = pytest.mark.timeout(300)  # a training step has some ninety kernels to compile


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture(autouse=True)
def _compiling() -> Iterator[None]:
    """Every graph is compiled here; `test_torch_graph_cache` has those that are found on disk."""
    with functorch.patch(enable_autograd_cache=False):
        yield


def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, fullgraph=True, **options)


def check(function: Callable[..., Any], *args: Any, tolerance: float = 1e-5) -> Any:
    """Compile and compare values, dtypes and strides; returns the compiled results."""
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
    expected = function(*copies)
    result = compiled(function)(*args)
    pairs = zip(leaves(result), leaves(expected), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(
            ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=True
        )
    return result


def leaves(tree: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(tree)


def images() -> tuple[Any, ...]:
    return torch.randn(4, 3, 17, 15), torch.randint(0, 10, (4,))


def tokens() -> tuple[Any, ...]:
    return torch.randint(0, 50, (2, 16)), torch.randint(0, 50, (2, 16))


@pytest.mark.parametrize(("model", "data"), [(Decoder, tokens), (Images, images)])
def test_training_steps_are_pytorchs(model: Any, data: Any) -> None:
    """With dropout from the same seed, running statistics, and two steps of an optimiser."""
    arguments = data()
    plain = model()
    ours = copy.deepcopy(plain)
    results = []
    for module, run in ((plain, plain), (ours, compiled(ours))):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        torch.manual_seed(1)
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = run(*arguments)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        gradients = [parameter.grad for parameter in module.parameters()]
        results.append([losses, gradients, list(module.buffers())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-6)


def test_a_training_step_is_two_programs() -> None:
    model = Images()
    explanation = explain(model, *images())
    assert (explanation.graphs, explanation.programs, explanation.left) == (2, 2, ())
    assert explanation.kernels > 10
    assert all(parameter.grad is None for parameter in model.parameters())


def test_calls_in_threads_have_results_of_their_own() -> None:
    run = compiled(lambda x: (x @ x).softmax(-1).sum(0))
    inputs = [torch.randn(48, 48) for _ in range(16)]
    expected = [run(x) for x in inputs]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(run, inputs * 4))
    torch.testing.assert_close(results, expected * 4, rtol=0, atol=0)


@pytest.mark.usefixtures("on_cpu")
def test_calls_are_recorded_for_whoever_asks() -> None:
    run = compiled(lambda x: x * 2 + 1)
    x = torch.randn(8)
    run(x)
    with runs() as records:
        torch.testing.assert_close(run(x), x * 2 + 1)
    assert len(records) == 1


@pytest.mark.usefixtures("on_cpu")
def test_a_whole_program_empties_the_list_of_its_arguments() -> None:
    """So that AOTAutograd keeps no input alive that the program is done with."""
    with FakeTensorMode():
        graph = make_fx(lambda x: [x * 2, x.t() + 1])(torch.empty(3, 4))
    x = torch.randn(3, 4)
    arguments = [x]
    steps = Compiled(graph, Fallback.REFUSED).steps
    assert steps is not None
    doubled, turned = steps.run(arguments)
    assert arguments == []
    torch.testing.assert_close((doubled, turned), (x * 2, x.t() + 1))
    assert turned.stride() == (x.t() + 1).stride()
    text = "".join(linecache.getlines(steps.run.__code__.co_filename))
    assert "a0.data_ptr()" in text  # as tracebacks show it


@pytest.mark.usefixtures("on_cpu")
def test_the_call_of_a_graph_returns_inputs_and_constants_as_they_are() -> None:
    """As forward graphs return what the backward one needs, and backward ones None."""
    with FakeTensorMode():
        graph = make_fx(lambda x: [x * 2, x])(torch.empty(3, 4))
    (output,) = graph.graph.find_nodes(op="output")
    output.args = ([*output.args[0], None],)
    steps = Compiled(graph, Fallback.REFUSED).steps
    assert steps is not None
    x = torch.randn(3, 4)
    doubled, same, nothing = steps.run([x])
    torch.testing.assert_close(doubled, x * 2)
    assert same is x
    assert nothing is None


@pytest.mark.usefixtures("on_cpu")
def test_a_result_that_views_a_whole_tensor_is_made_as_the_view() -> None:
    """Without a call of PyTorch for the view; not where the tensor is returned too, or the view is
    of a part."""
    with FakeTensorMode():
        graph = make_fx(_results_and_views)(torch.empty(3, 4))
    steps = Compiled(graph, Fallback.REFUSED).steps
    assert steps is not None
    x = torch.randn(3, 4)
    results, expected = steps.run([x]), _results_and_views(x)
    torch.testing.assert_close(results, expected)
    assert [one.stride() for one in results] == [one.stride() for one in expected]
    assert len(steps.plan.made_as) == 2
    turned, _, whole, turned_too, _ = results
    assert turned.untyped_storage().nbytes() == x.nbytes
    assert whole.data_ptr() == turned_too.data_ptr()


def _results_and_views(x: Any) -> list[Any]:
    whole = x + 2
    return [(x * 2).t(), (x * 3).view(12), whole, whole.t(), (x * 4)[1:]]


def test_operations_of_pytorch_are_lines_of_the_call() -> None:
    """Numbers, lists and several results of such an operation."""

    def function(x: Any) -> Any:
        square = x @ x.T + torch.eye(3)
        q, r = torch.linalg.qr(square)
        sizes = torch.linalg.vector_norm(torch.fft.fftn(x, s=[2, 5], norm="ortho").abs(), 3.0)
        return q @ r * 2, sizes

    x = torch.randn(3, 4)
    explanation = explain(function, x)
    assert len(explanation.left) >= 2
    ours = torch.compile(function, backend=backend)
    torch.testing.assert_close(ours(x), function(x), rtol=1e-4, atol=1e-4)


def test_assertions_on_tensors_are_pytorchs() -> None:
    """Dynamo makes an operation without a result of each ``assert``, which pytest changes here."""

    def halves(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async(x.isnan().sum() == 0, "not a number")
        return x / 2

    compiled = torch.compile(halves, backend=backend)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 0.5))
    with pytest.raises(RuntimeError, match="not a number"):
        compiled(torch.full((3,), math.nan))


def test_attention_is_part_of_a_program() -> None:
    """PyTorch marks it as random, as it may have dropout."""
    q = torch.randn(2, 2, 5, 8, requires_grad=True)
    explanation = explain(torch.nn.functional.scaled_dot_product_attention, q, q, q)
    assert (explanation.graphs, explanation.programs, explanation.left) == (2, 2, ())


def test_every_row_is_of_an_overload() -> None:
    import torch._inductor.inductor_prims  # registers prims.fma

    missing = []
    for name in ROWS:
        space, operation, overload = name.split(".")
        packet = getattr(getattr(torch.ops, space), operation, None)
        if packet is None or overload not in packet.overloads():
            missing.append(name)
    assert missing == []


def test_every_row_takes_the_arguments_of_its_overload() -> None:
    """All of them, and only those that have no default."""
    import torch._inductor.inductor_prims  # registers prims.fma

    for name, row in ROWS.items():
        space, operation, overload = name.split(".")
        schema = getattr(getattr(getattr(torch.ops, space), operation), overload)._schema
        arguments = [argument for argument in schema.arguments if argument.name not in OF_MEMORY]
        required = [argument for argument in arguments if not argument.has_default_value()]
        for passed in (required, arguments):
            by_place = [argument for argument in passed if not argument.kwarg_only]
            by_name = {argument.name: argument for argument in passed if argument.kwarg_only}
            signature(row).bind(*by_place, **by_name)


def test_a_mistake_in_a_row_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(x: Any) -> Any:
        raise TypeError("a mistake")

    monkeypatch.setattr(interpret, "ROWS", {**ROWS, "aten.exp.default": mistaken})
    with pytest.raises(Exception, match="a mistake") as raised:
        torch.compile(lambda x: torch.exp(x) + 1, backend=backend)(torch.ones(3))
    assert isinstance(raised.value.inner_exception, TypeError)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_with_antialias_has_a_row(mode: str) -> None:
    def shrunk(x: Any) -> Any:
        return torch.nn.functional.interpolate(x, (3, 4), mode=mode, antialias=True)

    x = torch.randn(1, 2, 7, 9)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    results = compiled(shrunk)(ours), shrunk(theirs)
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-5)
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("on_cpu")
def test_indices_by_tensors_are_programs_whatever_the_sizes() -> None:
    """PyTorch marks them as depending on data, as masks do."""
    run = compiled(lambda x, at: x[at] * 2)
    with runs() as programs:
        for size in (3, 5, 8):
            x, at = torch.randn(size, 4), torch.randint(0, size, (size + 2,))
            torch.testing.assert_close(run(x, at), x[at] * 2)
    assert len(programs) == 3


def test_a_compiled_optimizer_changes_parameters_in_place() -> None:
    plain = [torch.randn(5, 7, requires_grad=True), torch.randn(3, requires_grad=True)]
    ours = [one.detach().clone().requires_grad_() for one in plain]
    for parameters in (plain, ours):
        optimizer = torch.optim.AdamW(parameters, lr=0.1)
        step = optimizer.step
        if parameters is ours:
            step = torch.compile(optimizer.step, backend=backend)
        for number in range(3):
            for parameter in parameters:
                parameter.grad = torch.full_like(parameter, 0.5 - number)
            step()
    for theirs, mine in zip(plain, ours, strict=True):
        torch.testing.assert_close(mine, theirs)


# Where the elements are.


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_dense_layout_is_an_order_of_axes(order: tuple[int, ...]) -> None:
    x = torch.empty(2, 3, 4).permute(order).contiguous().permute(*map(order.index, range(3)))
    layout = layout_of(x.shape, x.stride())
    assert layout is not None
    assert layout.order == order


@pytest.mark.parametrize("x", [
    torch.empty(4, 6)[:, ::2], torch.empty(4, 1).expand(4, 3), torch.empty(5, 5)[1:, 1:],
])  # fmt: skip
def test_gaps_and_shared_elements_are_no_layout(x: Any) -> None:
    assert layout_of(x.shape, x.stride()) is None


@pytest.mark.parametrize("make", [
    lambda x: x.to(memory_format=torch.channels_last),
    lambda x: x.permute(3, 1, 0, 2),
    lambda x: x[:, :, ::2],
    lambda x: x[1:, 1:],
    lambda x: x[:1].expand(3, 4, 5, 6),
    lambda x: x.flatten()[3:63].view(3, 4, 5, 1),
])  # fmt: skip
def test_inputs_are_read_as_they_lie(make: Any) -> None:
    x = make(torch.randn(3, 4, 5, 6))
    check(lambda x: (torch.tanh(x) + 1, x.sum(1)), x)


def test_marked_conjugates_and_negatives_are_read() -> None:
    x = torch.randn(5, dtype=torch.complex64).conj()
    check(lambda x: x * 2, x)
    check(lambda x: x * 2, x.imag)
    by_columns = torch.randn(3, 4, dtype=torch.complex64).t().conj()
    check(lambda x: x * 2, by_columns)


def test_results_that_view_an_input_share_its_memory() -> None:
    x = torch.randn(3, 4)
    transposed, row = compiled(lambda x: (x.t(), x[1], x + 1)[:2])(x)
    x[1, 2] = 7.0
    assert transposed[2, 1] == row[2] == 7.0


def test_inputs_are_changed_in_place() -> None:
    def function(x: Any, y: Any) -> Any:
        x.mul_(2)
        y[:, 1] = x.sum(1)
        return x + y

    x, y = torch.randn(3, 4), torch.randn(3, 4)
    copies = x.clone(), y.clone()
    expected = function(*copies)
    torch.testing.assert_close(compiled(function)(x, y), expected)
    torch.testing.assert_close((x, y), copies)


def test_a_view_of_what_an_input_gets_is_returned() -> None:
    def function(state: Any, x: Any) -> Any:
        state.copy_(state * 0.9 + x)
        return state.t()

    state, x = torch.randn(3, 4), torch.randn(3, 4)
    copy = state.clone()
    expected = function(copy, x)
    torch.testing.assert_close(compiled(function)(state, x), expected)
    torch.testing.assert_close(state, copy)


def _averaged(x: Any, mean: Any, count: Any) -> Any:
    mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
    count.add_(1)
    return x - mean


def test_a_program_writes_the_inputs_that_it_changes() -> None:
    """Twice, as the second call reads what the first has written."""
    seen: list[Compiled] = []

    def compiler(module: torch.fx.GraphModule) -> Compiled:
        seen.append(Compiled(module, Fallback.REFUSED))
        return seen[-1]

    ours = torch.compile(_averaged, backend=lambda *graph: compile_with(*graph, compiler))
    arguments = [torch.randn(4, 3), torch.randn(3), torch.randn(())]
    expected = [one.clone() for one in arguments]
    for _ in range(2):
        torch.testing.assert_close(ours(*arguments), _averaged(*expected))
        torch.testing.assert_close(arguments, expected)
    (steps,) = seen[0].versions
    assert not any(isinstance(step, HostStep) for step in steps.plan.steps)


@pytest.mark.usefixtures("on_cpu")
def test_a_value_that_is_returned_too_is_copied_to_an_input() -> None:
    def keep(x: Any, state: Any) -> Any:
        new = state + x
        state.copy_(new)
        return [new]

    with FakeTensorMode():
        graph = make_fx(keep)(torch.empty(4, 3), torch.empty(4, 3))
    steps = Compiled(graph, Fallback.REFUSED).steps
    assert steps is not None
    x, state = torch.randn(4, 3), torch.randn(4, 3)
    expected = x + state
    (result,) = steps.run([x, state])
    torch.testing.assert_close((result, state), (expected, expected))
    assert result.data_ptr() != state.data_ptr()
    assert sum(isinstance(step, HostStep) for step in steps.plan.steps) == 1


def test_results_may_be_the_same_tensor_twice_and_constants() -> None:
    check(lambda x: (x * 2, x, None, 3, x * 2), torch.randn(4))


def test_gradients_of_one_tensor_in_many_places() -> None:
    def attend(x: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)

    x = torch.randn(2, 2, 5, 8, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    attend(x).sum().backward()
    compiled(attend)(y).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)


# Dtypes, sizes, random numbers.


@pytest.mark.parametrize("dtype", [
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool,
])  # fmt: skip
def test_dtypes(dtype: Any) -> None:
    x = torch.randint(0, 3, (4, 5)).to(dtype)
    check(lambda x: (x + x, x * 1.5, x.sum(0), x.cumsum(1), x > 1, x.max(1)), x, tolerance=1e-2)


def test_a_tensor_of_shape_nothing_does_not_widen() -> None:
    scalar = torch.tensor(2.0, dtype=torch.float64)
    check(lambda x, s: (x * s, x + 1, torch.where(x > 0, x, s)), torch.randn(3), scalar)


def test_other_sizes_compile_again() -> None:
    run = compiled(lambda x: (x.softmax(-1) @ x.mT) / x.shape[0])
    for size in (3, 5, 8, 5):
        x = torch.randn(size, 4, size + 1)
        torch.testing.assert_close(run(x), (x.softmax(-1) @ x.mT) / size)


def test_autocast_and_checkpoints() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8))

    def step(x: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return checkpoint(layers, x, use_reentrant=False).float().sum()

    x = torch.randn(4, 8)
    expected = torch.autograd.grad(step(x), list(layers.parameters()))
    gradients = torch.autograd.grad(compiled(step)(x), list(layers.parameters()))
    torch.testing.assert_close(gradients, expected, rtol=2e-2, atol=2e-2)


# What is left to PyTorch.


def through_qr(x: Any) -> Any:
    q, r = torch.linalg.qr(torch.tanh(x))
    return (q * 2) @ r.abs()


def test_an_operation_without_a_row_runs_between_two_programs() -> None:
    x = torch.randn(5, 3)
    torch.testing.assert_close(torch.compile(through_qr, backend=backend)(x), through_qr(x))
    explanation = explain(through_qr, x)
    assert explanation.programs == 2
    (left,) = explanation.left
    assert left.startswith("aten.linalg_qr.default (test_torch.py:")
    assert "q, r = torch.linalg.qr(torch.tanh(x))" in left
    assert "left to PyTorch:\n  aten.linalg_qr" in str(explanation)


def test_an_operation_of_pytorchs_reads_a_result_whose_elements_share_memory() -> None:
    def of_rows(x: Any) -> Any:
        return torch.linalg.qr(torch.tanh(x).expand(4, 3)).R

    x = torch.randn(1, 3)
    torch.testing.assert_close(torch.compile(of_rows, backend=backend)(x), of_rows(x))


@torch.library.custom_op("lamina_tests::by_columns", mutates_args=())
def by_columns(x: torch.Tensor) -> torch.Tensor:
    """x, whose memory is ordered by columns, which its description below does not say."""
    return x.t().clone(memory_format=torch.contiguous_format).t()


@by_columns.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def test_results_of_pytorchs_may_be_described_and_missing() -> None:
    """The memory that a recurrent layer keeps for its derivative is not there in inference."""
    layer, x = torch.nn.LSTM(3, 4).eval(), torch.randn(5, 2, 3)
    with torch._dynamo.config.patch(allow_rnn=True), torch.no_grad():
        torch.testing.assert_close(torch.compile(layer, backend=backend)(x), layer(x))


def test_results_of_pytorchs_may_lie_otherwise_than_described() -> None:
    x = torch.randn(3, 4)
    run = torch.compile(lambda x: by_columns(x * 2) + 1, backend=backend)
    torch.testing.assert_close(run(x), x * 2 + 1)


@pytest.mark.parametrize("options", [{"fullgraph": True}, {"options": {"fallback": False}}])
def test_who_wants_no_fallback_is_told(options: Any) -> None:
    run = torch.compile(through_qr, backend=backend, **options)
    with pytest.raises(Exception, match=r"aten\.linalg_qr\.default") as raised:
        run(torch.randn(5, 3))
    assert isinstance(raised.value.inner_exception, UnsupportedOperationError)


def test_a_row_that_refuses_arguments_leaves_the_operation_to_pytorch() -> None:
    def put(x: Any, mask: Any, values: Any) -> Any:
        return torch.index_put(x * 2, (mask,), values) + 1

    x, mask = torch.zeros(4), torch.tensor([True, False, True, False])
    values = torch.tensor([3.0, 4.0])
    run = torch.compile(put, backend=backend)
    torch.testing.assert_close(run(x, mask, values), put(x, mask, values))


def test_shapes_that_depend_on_data_run_in_pytorch() -> None:
    def choose(x: Any) -> Any:
        return torch.masked_select(x, x > 0).sum() + 1

    x = torch.randn(20)
    torch.testing.assert_close(torch.compile(choose, backend=backend)(x), choose(x))


def test_pytorch_finds_the_backend_by_name() -> None:
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="torch_dynamo_backends")}
    assert points["lamina"].load() is backend
