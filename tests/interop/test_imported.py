"""PyTorch's modules as functions of lamina's tensors, beside PyTorch itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the door is for PyTorch: pip install torch==2.13.0")

from torch.utils import _pytree as pytree  # noqa: E402

import lamina as lm  # noqa: E402
from lamina.errors import ArgumentError  # noqa: E402
from lamina.interop.torch import (  # noqa: E402
    UnsupportedOperationError,
    from_exported,
    from_module,
    imported,
)
from lamina.io import safetensors  # noqa: E402
from tests.interop.models import Decoder, Images  # noqa: E402

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def numpy_of(tensor: Any) -> Any:
    return tensor.detach().numpy()


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        np.asarray(ours), numpy_of(theirs), rtol=tolerance, atol=tolerance
    )


def images() -> tuple[Any, ...]:
    return torch.randn(4, 3, 17, 15), torch.randint(0, 10, (4,))


def ours_of(arguments: tuple[Any, ...]) -> list[Any]:
    return [lm.asarray(one.numpy()) for one in arguments]


def test_a_module_in_training_has_pytorchs_derivatives_and_statistics() -> None:
    module = Images()
    function = from_module(module)
    arguments = images()
    loss = function(*ours_of(arguments))
    loss.backward()
    expected = module(*arguments)
    expected.backward()
    assert_close(loss, expected)
    for name, parameter in module.named_parameters():
        assert function[name].grad is not None
        assert_close(function[name].grad, parameter.grad, 1e-4)
    for name, buffer in module.named_buffers():
        assert_close(function[name], buffer)


@pytest.mark.parametrize("make", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_are_their_steps(make: Any) -> None:
    """PyTorch marks them as random, as they may have dropout."""
    module = make(3, 4, bidirectional=True, batch_first=True)
    x = torch.randn(2, 3, 3)
    expected = module(x)[0]
    expected.sum().backward()
    with lm.using(device="interp"):
        function = from_module(module)
        result = function(*ours_of((x,)))[0]
        result.sum().backward()
        assert_close(result, expected)
        for name, parameter in module.named_parameters():
            assert_close(function[name].grad, parameter.grad)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True, "proj_size": 2}),
        (torch.nn.LSTM, {"num_layers": 3, "bias": False}),
        (torch.nn.LSTM, {"bias": False, "proj_size": 2}),
        (torch.nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
        (torch.nn.GRU, {"bias": False}),
        (torch.nn.RNN, {"nonlinearity": "relu", "num_layers": 2}),
    ],
)  # fmt: skip
def test_states_of_recurrent_layers_go_in_and_out(make: Any, options: dict[str, Any]) -> None:
    module = make(3, 4, **options)
    ways = 2 if module.bidirectional else 1
    rows = module.num_layers * ways
    x, h = torch.randn(2, 5, 3), torch.randn(rows, 5, module.proj_size or 4)
    if module.batch_first:
        x = x.transpose(0, 1)
    state: Any = (h, torch.randn(rows, 5, 4)) if make is torch.nn.LSTM else h
    arguments = pytree.tree_leaves((x, state))
    for argument in arguments:
        argument.requires_grad_()
    expected = pytree.tree_leaves(module(x, state))
    sum(result.square().sum() for result in expected).backward()
    with lm.using(device="interp"):
        ours = [lm.asarray(argument.detach().numpy()) for argument in arguments]
        for one in ours:
            one.requires_grad = True
        state = tuple(ours[1:]) if make is torch.nn.LSTM else ours[1]
        function = from_module(module)
        results = pytree.tree_leaves(function(ours[0], state))
        sum(lm.sum(result * result) for result in results).backward()
        for result, wanted in zip(results, expected, strict=True):
            assert_close(result, wanted)
        for one, argument in zip(ours, arguments, strict=True):
            assert_close(one.grad, argument.grad)
        for name, parameter in module.named_parameters():
            assert_close(function[name].grad, parameter.grad)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (torch.nn.LSTMCell, {}),
        (torch.nn.GRUCell, {}),
        (torch.nn.RNNCell, {}),
        (torch.nn.RNNCell, {"nonlinearity": "relu"}),
    ],
)  # fmt: skip
def test_steps_of_recurrent_layers(make: Any, options: dict[str, Any], bias: bool) -> None:
    module = make(3, 4, bias=bias, **options)
    x, h = torch.randn(5, 3), torch.randn(5, 4)
    state: Any = (h, torch.randn(5, 4)) if make is torch.nn.LSTMCell else h
    expected = pytree.tree_leaves(module(x, state))
    sum(result.square().sum() for result in expected).backward()
    with lm.using(device="interp"):
        function = from_module(module)
        ours = pytree.tree_map(lambda one: lm.asarray(one.numpy()), (x, state))
        results = pytree.tree_leaves(function(*ours))
        sum(lm.sum(result * result) for result in results).backward()
        for result, wanted in zip(results, expected, strict=True):
            assert_close(result, wanted)
        for name, parameter in module.named_parameters():
            assert_close(function[name].grad, parameter.grad)


def test_a_recurrent_layer_is_one_operation_until_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch takes long for the operations of the steps."""
    names = []

    def recorded(node: Any, values: Any) -> Any:
        names.append(str(node.target))
        return result(node, values)

    result = imported._result
    monkeypatch.setattr(imported, "_result", recorded)
    with lm.using(device="interp"):
        from_module(torch.nn.LSTM(3, 4, num_layers=2))(lm.zeros((20, 2, 3)))
    assert names.count("aten.lstm.input") == 1
    assert len(names) < 10


def test_dropout_between_recurrent_layers_is_in_training_alone() -> None:
    module = torch.nn.LSTM(3, 4, num_layers=2, dropout=1.0)
    x = torch.randn(2, 5, 3)
    with lm.using(device="interp"):
        function = from_module(module)
        assert_close(function(*ours_of((x,)))[0], module(x)[0])
        lm.nn.eval(function)
        assert_close(function(*ours_of((x,)))[0], module.eval()(x)[0])


def test_a_recurrent_layer_may_be_exported_for_any_batch() -> None:
    module = torch.nn.GRU(3, 4).eval()
    batch = torch.export.Dim("batch", max=50)
    program = torch.export.export(
        module, (torch.randn(2, 5, 3),), dynamic_shapes=({1: batch},)
    )
    x = torch.randn(2, 7, 3)
    with lm.using(device="interp"):
        assert_close(from_exported(program)(*ours_of((x,)))[0], module(x)[0])


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"scale_grad_by_freq": True}])
def test_rows_of_an_embedding_have_pytorchs_derivatives(options: dict[str, Any]) -> None:
    module = torch.nn.Embedding(5, 3, **options)
    indices = torch.tensor([[0, 1, 1], [2, 2, 2]])
    expected = module(indices)
    expected.square().sum().backward()
    with lm.using(device="interp"):
        function = from_module(module)
        result = function(*ours_of((indices,)))
        lm.sum(result * result).backward()
        assert_close(result, expected)
        assert_close(function["weight"].grad, module.weight.grad)


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("sum", {}),
        ("sum", {"padding_idx": 2, "include_last_offset": True}),
        ("mean", {"padding_idx": 2}),
        ("max", {"padding_idx": 2}),
        ("max", {"include_last_offset": True}),
    ],
)  # fmt: skip
def test_bags_of_embeddings_have_pytorchs_derivatives(mode: str, options: dict[str, Any]) -> None:
    """With an empty bag and a bag of padding alone; sums have factors, too."""
    module = torch.nn.EmbeddingBag(5, 3, mode=mode, **options)
    last = [7] if module.include_last_offset else []
    arguments = [torch.tensor([1, 2, 2, 0, 4, 1, 2]), torch.tensor([0, 2, 2, 6, *last])]
    if mode == "sum":
        arguments.append(torch.randn(7, requires_grad=True))
    expected = module(*arguments)
    expected.square().sum().backward()
    with lm.using(device="interp"):
        function = from_module(module)
        ours = [lm.asarray(argument.detach().numpy()) for argument in arguments]
        if mode == "sum":
            ours[2].requires_grad = True
        result = function(*ours)
        lm.sum(result * result).backward()
        assert_close(result, expected)
        assert_close(function["weight"].grad, module.weight.grad)
        if mode == "sum":
            assert_close(ours[2].grad, arguments[2].grad)


def test_bags_of_equal_length_are_rows() -> None:
    module = torch.nn.EmbeddingBag(5, 3)
    indices = torch.tensor([[1, 2, 2], [0, 4, 1]])
    with lm.using(device="interp"):
        assert_close(from_module(module)(*ours_of((indices,))), module(indices))


def test_frequencies_of_indices_in_bags_divide_derivatives() -> None:
    """As those of embeddings without bags: PyTorch's kernel of bags divides by others."""
    module = torch.nn.EmbeddingBag(5, 3, scale_grad_by_freq=True)
    indices = torch.tensor([[1, 2, 2], [0, 4, 1]])
    rows = torch.nn.functional.embedding(indices, module.weight, scale_grad_by_freq=True)
    rows.mean(1).square().sum().backward()
    with lm.using(device="interp"):
        function = from_module(module)
        result = function(*ours_of((indices,)))
        lm.sum(result * result).backward()
        assert_close(function["weight"].grad, module.weight.grad)


def test_sparse_derivatives_of_bags_are_refused() -> None:
    module = torch.nn.EmbeddingBag(5, 3, mode="sum", sparse=True)
    with pytest.raises(UnsupportedOperationError, match="sparse=False"):
        from_module(module)(lm.asarray([[1, 2]]))


def test_the_mode_is_set_as_of_a_layer() -> None:
    module = Decoder()
    function = lm.nn.eval(from_module(module))
    arguments = torch.randint(0, 50, (2, 16)), torch.randint(0, 50, (2, 16))
    in_training = lm.nn.train(from_module(module))(*ours_of(arguments))
    assert module.training
    result = function(*ours_of(arguments))
    assert_close(result, module.eval()(*arguments))
    assert float(in_training) != float(result)  # it has dropout


def test_parameters_are_saved_by_pytorchs_names(tmp_path: Path) -> None:
    function = from_module(Images())
    assert [*lm.nn.state_dict(function)] == [*Images().state_dict()]
    assert len(lm.nn.parameters(function)) == len(list(Images().parameters()))
    safetensors.save(tmp_path / "weights.safetensors", function)
    other = from_module(Images())
    lm.nn.load_state_dict(other, safetensors.load(tmp_path / "weights.safetensors"))
    arguments = ours_of(images())
    assert float(lm.nn.eval(other)(*arguments)) == float(lm.nn.eval(function)(*arguments))


def test_a_function_is_compiled_whole() -> None:
    module = Decoder().eval()
    function = from_module(module)
    compiled = lm.jit(lambda tokens, target: function(tokens, target))
    arguments = torch.randint(0, 50, (2, 16)), torch.randint(0, 50, (2, 16))
    assert_close(compiled(*ours_of(arguments)), module(*arguments))


class Nested(torch.nn.Module):  # type: ignore[misc]
    """Shared weights, a buffer that is not saved, constants, no_grad, and results in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.full((3,), 2.0), persistent=False)

    def forward(self, x: Any, times: int = 1) -> dict[str, Any]:
        with torch.no_grad():
            doubled = x * 2
        y = self.second(self.first(x)) * self.scale + x.detach() * times
        constant = torch.tensor([1.0, 2.0, 3.0])
        return {"sum": y + doubled + constant, "rows": [x[:1], x.double()], "doubled": doubled}


def test_nested_results_constants_and_shared_weights() -> None:
    module = Nested()
    function = from_module(module)
    assert function["first.weight"] is function["second.weight"]
    x = torch.randn(2, 3, requires_grad=True)
    ours = lm.Tensor(numpy_of(x), requires_grad=True)
    for times in (1, 3):
        result, expected = function(ours, times=times), module(x, times=times)
        assert_close(result["sum"], expected["sum"])
        assert_close(result["rows"][0], expected["rows"][0])
        assert_close(result["doubled"], expected["doubled"])
        assert result["rows"][1].dtype is lm.float64
    x.grad = None
    (result["sum"] + result["doubled"]).sum().backward()
    (expected["sum"] + expected["doubled"]).sum().backward()
    assert_close(ours.grad, x.grad)
    assert_close(function["first.weight"].grad, module.first.weight.grad)


def test_an_exported_program_takes_what_it_was_exported_for() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh()).eval()
    function = from_exported(torch.export.export(module, (torch.zeros(2, 4),)))
    x = torch.randn(2, 4)
    assert_close(function(lm.asarray(x.numpy())), module(x))
    with pytest.raises(ArgumentError, match=r"argument 0 has shape \(3, 4\), not \(2, 4\)"):
        function(lm.zeros((3, 4)))
    with pytest.raises(ArgumentError, match=r"not a tensor of torch.float32"):
        function(lm.zeros((2, 4), dtype=lm.float64))


def test_a_dynamic_axis_has_any_size_of_its_range() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Flatten(0), torch.nn.Tanh())
    size = torch.export.Dim("size", min=2, max=8)
    program = torch.export.export(module, (torch.zeros(3, 4),), dynamic_shapes=({0: size},))
    function = from_exported(program)
    for count in (2, 5):
        x = torch.randn(count, 4)
        assert_close(function(lm.asarray(x.numpy())), module(x))
    with pytest.raises(ArgumentError, match=r"argument 0 has shape \(9, 4\)"):
        function(lm.zeros((9, 4)))


class Solver(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.linalg.qr(x).R


def test_an_operation_without_a_row_is_named() -> None:
    with pytest.raises(UnsupportedOperationError, match=r"aten\.linalg_qr\.default \(test_impo"):
        from_module(Solver())(lm.zeros((3, 3)))


class Attention(torch.nn.Module):  # type: ignore[misc]
    """Eight heads of queries, of which each four share one of keys."""

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        attention = torch.nn.functional.scaled_dot_product_attention
        return attention(query, key, value, is_causal=True, scale=0.3, enable_gqa=True)


def test_exported_attention_of_shared_keys() -> None:
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 8, 5, 16, generator=generator)
    key, value = (torch.randn(2, 2, 5, 16, generator=generator) for _ in range(2))
    exported = torch.export.export(Attention(), (query, key, value))
    names = [str(node.target) for node in exported.graph.nodes]
    assert "aten.scaled_dot_product_attention.default" in names
    got = from_exported(exported)(*[lm.asarray(one.numpy()) for one in (query, key, value)])
    expected = Attention()(query, key, value).numpy()
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_exported_attention_of_matrices() -> None:
    """Of two axes, which PyTorch's own kernels do not take."""
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(6, 8, generator=generator) for _ in range(3)]

    class Plain(torch.nn.Module):  # type: ignore[misc]
        def forward(self, query: Any, key: Any, value: Any) -> Any:
            return torch.nn.functional.scaled_dot_product_attention(query, key, value)

    exported = torch.export.export(Plain(), tuple(tensors))
    got = from_exported(exported)(*[lm.asarray(one.numpy()) for one in tensors])
    np.testing.assert_allclose(got.numpy(), Plain()(*tensors).numpy(), rtol=1e-4, atol=1e-5)
