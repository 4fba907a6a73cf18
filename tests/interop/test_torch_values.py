"""Values and derivatives of PyTorch programs at the edges of operations, beside PyTorch's own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the door is for PyTorch: pip install torch==2.13.0")

from torch._functorch import config as functorch  # noqa: E402

from lamina.interop.torch import backend  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Every graph is compiled here."""
    torch.manual_seed(0)
    with functorch.patch(enable_autograd_cache=False):
        yield
    torch._dynamo.reset()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend=backend, fullgraph=True)


def check(function: Callable[..., Any], *arguments: Any) -> None:
    """Values, strides, and derivatives by the arguments that require one, from one seed."""
    outcomes = []
    for run in (function, compiled(function)):
        torch.manual_seed(5)
        copies = [one.detach().clone().requires_grad_(one.requires_grad) for one in arguments]
        results = torch.utils._pytree.tree_leaves(run(*copies))
        smooth = [result for result in results if result.requires_grad]
        if smooth:
            torch.autograd.backward(smooth, [torch.ones_like(result) for result in smooth])
        outcomes.append((results, [one.grad for one in copies]))
    (expected, slopes), (values, gradients) = outcomes
    torch.testing.assert_close(values, expected, equal_nan=True, check_stride=True)
    torch.testing.assert_close(gradients, slopes, equal_nan=True)


def test_the_sign_of_nan_is_zero() -> None:
    """And so is the derivative of its magnitude."""
    x = torch.tensor([math.nan, -3.0, -0.0, 5.0], requires_grad=True)
    check(lambda x: (x.sign(), x.sgn(), x.int().sign(), (x > 0).sign(), x.abs()), x)


@pytest.mark.parametrize("function", [torch.relu, torch.nn.functional.hardtanh])
def test_slopes_of_limits_pass_nan_on(function: Callable[..., Any]) -> None:
    check(function, torch.tensor([-1.0, math.nan, 2.0], requires_grad=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_root_mean_square_is_kept_from_zero_by_what_it_is_computed_in(dtype: Any) -> None:
    """Of half floats in float32, whose epsilon is 1.2e-7, where that of bfloat16 is 0.0078."""
    x = (torch.randn(3, 8) / 10).to(dtype).requires_grad_()
    weight = torch.randn(8).to(dtype).requires_grad_()
    check(lambda x, weight: torch.nn.functional.rms_norm(x, (8,), weight), x, weight)


def test_quotients_of_large_integers_are_exact() -> None:
    x = torch.tensor([2**62 + 1, -(2**62) - 1, 2**53 + 1, 7, -7, 2**63 - 1, -(2**63)])
    y = torch.tensor([1, 1, -1, -2, 2, -1, 3])

    def divide(x: Any, y: Any) -> list[Any]:
        pairs = [(x, y), (x, 3), (x, -3), (x.to(torch.int8), y.to(torch.int8)), (x, 2.5)]
        modes = "trunc", "floor"
        return [torch.div(a, b, rounding_mode=mode) for a, b in pairs for mode in modes]

    check(divide, x, y)


def test_random_numbers_are_pytorchs() -> None:
    def draw(x: Any) -> Any:
        first = torch.nn.functional.dropout(x, 0.3)
        noise = torch.rand_like(x) + torch.randn(x.shape)
        return torch.nn.functional.dropout(first + noise, 0.5)

    check(draw, torch.randn(64))


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1)])
def test_dropout_draws_in_the_order_of_memory(order: tuple[int, int, int]) -> None:
    """As attention has it, whose result is transposed."""
    x = torch.randn(3, 5, 4).permute(order).requires_grad_()
    check(lambda x: torch.nn.functional.dropout(x * 2, 0.5).sin(), x)


@pytest.mark.parametrize("draw", [
    torch.bernoulli, lambda p: torch.normal(p, 1.0), lambda p: torch.multinomial(p, 3, True),
    lambda p: torch.nn.functional.rrelu(p - 0.5, training=True), lambda p: p.clone().exponential_(),
])  # fmt: skip
def test_random_numbers_of_float64_are_pytorchs(draw: Callable[..., Any]) -> None:
    check(draw, torch.rand(64, dtype=torch.float64))


@pytest.mark.parametrize("include_last_offset", [False, True])
@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("sum", {}),
        ("sum", {"padding_idx": 2}),
        ("mean", {}),
        ("mean", {"padding_idx": 2}),
        ("max", {}),
        ("max", {"padding_idx": 2}),
    ],
)  # fmt: skip
def test_bags_of_embeddings(
    mode: str, options: dict[str, Any], include_last_offset: bool
) -> None:
    """An index twice in a bag, a bag of padding alone, and an empty one."""
    indices = torch.tensor([1, 2, 2, 0, 4, 1, 2])
    offsets = torch.tensor([0, 2, 2, 6, 7] if include_last_offset else [0, 2, 2, 6])
    options = options | {"mode": mode, "include_last_offset": include_last_offset}
    weight = torch.randn(5, 3, requires_grad=True)

    def function(weight: Any, factors: Any = None) -> Any:
        bags = torch.nn.functional.embedding_bag(
            indices, weight, offsets, per_sample_weights=factors, **options
        )
        return bags * bags

    check(function, weight)
    check(function, weight.detach())
    if mode == "sum":
        check(function, weight, torch.randn(7, requires_grad=True))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_no_indices(mode: str) -> None:
    indices, offsets = torch.zeros(0, dtype=torch.int64), torch.zeros(2, dtype=torch.int64)
    check(
        lambda weight: torch.nn.functional.embedding_bag(indices, weight, offsets, mode=mode),
        torch.randn(5, 3, requires_grad=True),
    )


def test_frequencies_of_indices_in_bags_divide_derivatives() -> None:
    """As those of embeddings without bags. PyTorch's kernel of bags on a CPU divides the derivative
    of an index by how often another one occurs."""
    indices = torch.tensor([[1, 2, 2], [0, 4, 1]])
    functional = torch.nn.functional
    ours = torch.randn(5, 3, requires_grad=True)
    bags = compiled(
        lambda weight: functional.embedding_bag(indices, weight, scale_grad_by_freq=True)
    )(ours)
    theirs = ours.detach().clone().requires_grad_()
    means = functional.embedding(indices, theirs, scale_grad_by_freq=True).mean(1)
    for result in (bags, means):
        result.square().sum().backward()
    torch.testing.assert_close(bags, means)
    torch.testing.assert_close(ours.grad, theirs.grad)
