"""Formulas, derivatives and steps that differ from earlier ones in their leaves alone are built
once, and must be those of their own shapes, dtypes, constants and state, and keep nothing alive."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor, nn
from lamina.errors import GradientError, LaminaError
from lamina.frontend import realize
from lamina.frontend.realize import cut, opened_as_computed
from lamina.frontend.tensor import once
from lamina.graph import autodiff
from lamina.ir.ops import Op
from lamina.runtime.buffer import heap_of

Array = np.ndarray[Any, Any]


def array(shape: tuple[int, ...], seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def plainly(y: Tensor, *wrt: Tensor) -> list[Any]:
    """The adjoints as nodes, without what was built before."""
    first, *others = opened_as_computed([one.node for one in (y, *wrt)], {})
    return autodiff.gradient(first, others)


CHANGES: list[Callable[[Tensor, float], Tensor]] = [
    lambda x, c: x * c,
    lambda x, c: x + c,
    lambda x, c: x ** int(c),
    lambda x, c: lm.exp(x).detach() * x + c,
    lambda x, c: lm.exp(x) * x.detach() + c,
    lambda x, c: x[: int(c)],
    lambda x, c: x.cast(lm.float64) * c,
    lambda x, c: lm.where(x > c, x, 0.0),
]


@given(
    st.lists(st.tuples(st.sampled_from(CHANGES), st.sampled_from([1.0, 2.0, 3.0])), max_size=3),
    st.sampled_from([(3,), (4,), (3, 2)]), st.sampled_from([lm.float32, lm.float64]),
    st.integers(0, 3),
)  # fmt: skip
def test_a_derivative_is_that_of_its_own_graph(
    changes: list[tuple[Any, float]], shape: tuple[int, ...], dtype: Any, seed: int
) -> None:
    x = Tensor(array(shape, seed), dtype, requires_grad=True)
    y = x
    for change, constant in changes:
        y = change(y, constant)
    loss = (y * y).sum()
    (found,), (wanted,) = lm.gradient(loss, [x]), plainly(loss, x)
    exact = lm.zeros(x.shape, dtype) if wanted is None else Tensor.of(wanted, x.device)
    assert (found.dtype, found.shape) == (x.dtype, x.shape)
    np.testing.assert_allclose(found.numpy(), exact.numpy(), rtol=1e-6)


def test_a_function_runs_once_for_equal_kinds_and_settings() -> None:
    calls: list[Tensor] = []

    @once
    def formula(x: Tensor, y: Tensor, factor: Any = 1.0, *, axes: Any = ()) -> Tensor:
        calls.append((x.shape, y.dtype, factor, axes))
        return x * factor + y

    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 5.0])
    for first, second in ((x, y), (y, x), (x, x), (x + y, y * 2.0)):
        found = formula(first, second, 3.0)
        assert found.node.op is Op.CALL
        np.testing.assert_array_equal(found.numpy(), first.numpy() * 3 + second.numpy())
    assert len(calls) == 1
    others: list[Any] = [3, 0.0, -0.0, True, 1, 1.0]
    for factor in others:
        formula(x, y, factor)
        formula(x, y, factor=factor)
    assert len(calls) == 1 + 2 * len(others)
    formula(x, y, axes=(1, 2)), formula(x, y, axes=(1.0, 2)), formula(x, y, axes=[1, 2])
    formula(x, Tensor([[1.0], [2.0]])), formula(x, Tensor([1, 2])), formula(y=y, x=x)
    assert len(calls) == 7 + 2 * len(others)


def test_signs_of_zeros_and_kinds_of_scalars_are_settings() -> None:
    x, n = Tensor([2.0, -2.0]), Tensor([7, 8])
    for _ in range(2):
        assert np.signbit((x * 0.0).numpy()).tolist() == [False, True]
        assert np.signbit((x * -0.0).numpy()).tolist() == [True, False]
        assert [(n + one).dtype for one in (True, 1, 1.0)] == [lm.int64, lm.int64, lm.float32]
        assert (n**2).tolist() == [49, 64]
        with pytest.raises(LaminaError, match="add: a number is beyond int64"):
            n + 10**5000


def test_settings_that_are_arrays_are_looked_at() -> None:
    x = Tensor(array((2, 3)))
    for axis in (0, 1, 0):
        wanted = x.numpy().sum(axis)
        for one in (axis, Tensor([axis]), [Tensor(axis)], np.int64(axis), (axis,)):
            np.testing.assert_allclose(lm.sum(x, axis=one).numpy(), wanted, rtol=1e-6)


def test_data_beside_tensors_is_its_own_and_not_kept() -> None:
    x, taken = Tensor(array((2, 3))), []
    for step in range(6):
        data = array((3, 4), step)
        for one in (data, data.tolist(), tuple(map(tuple, data.tolist()))):
            np.testing.assert_allclose(lm.matmul(x, one).numpy(), x.numpy() @ data, rtol=1e-5)
        np.testing.assert_allclose((x.T + data[:, :2]).numpy(), x.numpy().T + data[:, :2])
        gc.collect()
        taken.append(heap_of(x.device).allocated)
    assert len(set(taken[1:])) == 1


def test_errors_of_functions_name_the_call_alone() -> None:
    x = Tensor([1.0, 2.0])
    wrong: list[Callable[[], Any]] = [
        lambda: x @ Tensor([1.0, 2.0, 3.0]), lambda: lm.sum(x, axis=3), lambda: lm.sum(x, odd=1),
        lambda: lm.softmax(x, "last"), lambda: x + Tensor([1.0, 2.0, 3.0]),
    ]  # fmt: skip
    for call in wrong:
        texts = []
        for _ in range(2):
            with pytest.raises(LaminaError, match=r"at test_repetition\.py") as caught:
                call()
            assert not isinstance(caught.value.__context__, LaminaError)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]


def test_the_second_derivative_of_new_leaves_is_one_node() -> None:
    found = []
    for seed in range(2):
        x, w = Tensor(array((4, 3), seed)), Tensor(array((3,), seed), requires_grad=True)
        loss = lm.tanh(x * w).sum()
        (slope,) = lm.gradient(loss, [w])
        assert slope.node.op is Op.CALL
        assert cut([slope.node], {}) == cut(plainly(loss, w), {})  # the program is the same
        found.append((slope.node, slope.numpy(), x.numpy(), w.numpy()))
    assert found[0][0].arg is found[1][0].arg
    for _, slope, x, w in found:
        np.testing.assert_allclose(slope, (x / np.cosh(x * w) ** 2).sum(0), rtol=1e-4)


def test_derivatives_of_derivatives_see_what_they_are_of() -> None:
    values = array((3,)).astype(np.float64)
    for scale in (1.0, 2.0):  # the second time everything is known
        x = Tensor(values * scale, requires_grad=True)
        (first,) = lm.gradient((x**4).sum(), [x])
        (second,) = lm.gradient((first * first).sum(), [x])
        (third,) = lm.gradient(second.sum(), [x])
        for found, wanted in ((first, 4 * x**3), (second, 96 * x**5), (third, 480 * x**4)):
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-12)
        (by_first,) = lm.gradient((first * first).sum(), [first])
        np.testing.assert_allclose(by_first.numpy(), 2 * first.numpy(), rtol=1e-12)
        (later,) = lm.gradient((first * first).sum(), [x])  # though it is computed by now
        np.testing.assert_allclose(later.numpy(), second.numpy(), rtol=1e-12)


def test_a_derivative_that_requires_one_has_no_history() -> None:
    x = Tensor([3.0], requires_grad=True)
    (slope,) = lm.gradient((x * x).sum(), [x])
    slope.requires_grad = True
    (slope * slope).sum().backward()
    assert x.grad is None
    assert slope.grad is not None
    assert slope.grad.tolist() == [12.0]


def test_a_derivative_inside_a_traced_function() -> None:
    w = Tensor(array((3,)), requires_grad=True)
    (outside,) = lm.gradient((w**3).sum(), [w])

    @lm.jit
    def step(x: Tensor) -> Tensor:
        (inside,) = lm.gradient((x * w * w).sum(), [w])
        (through,) = lm.gradient((outside * x).sum(), [w])
        return inside + through

    for seed in range(3):
        x = array((3,), seed)
        np.testing.assert_allclose(step(Tensor(x)).numpy(), 8 * x * w.numpy(), rtol=1e-5)
    slope = lm.grad(lambda v: (outside * v).sum())(w)
    np.testing.assert_allclose(slope.numpy(), 3 * w.numpy() ** 2, rtol=1e-5)


def test_what_is_in_memory_is_read_from_there() -> None:
    raw, w = Tensor(array((4, 3))), Tensor(array((3,)), requires_grad=True)
    x = (raw * 2.0).realize()  # no derivative flows through it: it is a leaf
    hidden = lm.exp(x * w)
    for looks in (False, True):
        if looks:
            hidden.realize()
        inputs: dict[Any, int] = {}
        (slope,) = lm.gradient((hidden * hidden).sum(), [w])
        cut([slope.node], inputs)
        assert raw.node.arg.storage not in inputs
        assert (len(inputs) == 2) is (not looks) or w.node.arg.storage not in inputs
        wanted = (2 * x.numpy() * np.exp(x.numpy() * w.numpy()) ** 2).sum(0)
        np.testing.assert_allclose(slope.numpy(), wanted, rtol=1e-4)


def test_errors_come_with_the_call_each_time() -> None:
    for _ in range(2):
        x, n = Tensor([1.0, 2.0], requires_grad=True), Tensor([1, 2])
        with pytest.raises(GradientError, match="not a float"):
            lm.gradient((x * x).sum(), [x, n])
        with pytest.raises(GradientError, match="sum it to"):
            lm.gradient(x * x, [x])
        with pytest.raises(GradientError, match="has no derivative"):
            lm.gradient(lm.real(x.cast(lm.complex64)).sum(), [x])


@pytest.mark.parametrize("kind", [nn.optim.SGD, nn.optim.Adam, nn.optim.Lamb, nn.optim.RMSprop])
def test_steps_keep_nothing_alive(kind: Any) -> None:
    w = Tensor(array((64, 64)), requires_grad=True)
    optimizer = kind([w])
    taken = []
    for step in range(8):
        x = Tensor(array((32, 64), step))
        optimizer.step(lm.gradient(lm.tanh(x @ w).sum(), [w]))
        del x
        gc.collect()
        taken.append(heap_of(w.device).allocated)
    assert len(set(taken[3:])) == 1


def test_steps_look_at_no_graph_of_what_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses that somebody keeps cost a step little."""
    w = Tensor([1.0], requires_grad=True)
    optimizer = nn.optim.SGD([w])
    kept = [Tensor([float(at)]) * 2.0 for at in range(50)]
    lm.realize(*kept)
    asked, pending = list[Any](), realize.pending

    def watched(nodes: Any) -> Any:
        asked.extend(nodes := list(nodes))
        return pending(nodes)

    monkeypatch.setattr(realize, "pending", watched)
    optimizer.step([Tensor([1.0])])
    assert not {one.node for one in kept}.intersection(asked)


def test_steps_of_the_packages_optimisers_build_their_graph_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = Tensor([1.0, -2.0, 3.0, 0.5, 7.0], requires_grad=True)
    optimizer = nn.optim.Adam([w], lr=0.0625, eps=0.1234)
    calls, direction = list[int](), nn.optim.Adam._direction

    def watched(self: Any, index: int, gradient: Tensor) -> Tensor:
        calls.append(index)
        return direction(self, index, gradient)

    monkeypatch.setattr(nn.optim.Adam, "_direction", watched)
    for _ in range(3):
        optimizer.step([Tensor([1.0, 2.0, 3.0, 4.0, 5.0])])
    assert calls == [0]


class Alternating(nn.optim.SGD):
    """Looks at a number that no setting tells."""

    def _direction(self, index: int, gradient: Tensor) -> Tensor:
        return gradient * (-1.0) ** self.count


def test_a_class_from_elsewhere_may_look_at_the_count() -> None:
    w = Tensor([0.0], requires_grad=True)
    optimizer = Alternating([w], lr=1.0)
    found = []
    for _ in range(4):
        optimizer.step([Tensor([1.0])])
        found.append(w.item())
    assert found == [-1.0, 0.0, -1.0, 0.0]


def test_settings_gradients_and_tied_parameters_may_change_between_steps() -> None:
    torch = pytest.importorskip("torch")
    values = [array((3,), 1), array((3,), 2)]
    ours = [Tensor(one, requires_grad=True) for one in values]
    theirs = [torch.tensor(one, requires_grad=True) for one in values]
    mine, other = nn.optim.Adam(ours, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for step in range(12):
        if step == 4:
            mine.eps = other.param_groups[0]["eps"] = 1e-2
        if step == 8:
            mine.betas = other.param_groups[0]["betas"] = (0.5, 0.9)
        mine.lr = other.param_groups[0]["lr"] = 0.1 / (step + 1)
        given = [array((3,), 3 + step), array((3,), 30 + step)]
        for one, gradient in zip(theirs, given, strict=True):
            one.grad = torch.tensor(gradient)
        other.step()
        slopes = [Tensor(one) for one in given]
        if step % 3 == 1:
            slopes = [one.realize() * 1.0 for one in slopes]
        if step % 3 == 2:
            slopes[0] = lm.clip(slopes[0], -9.0, 9.0).realize()
        mine.step(slopes)
        for one, wanted in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one.numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_a_gradient_may_be_the_parameter_or_shared() -> None:
    v, w = (Tensor([float(n), 1.0], requires_grad=True) for n in (2, 4))
    optimizer = nn.optim.SGD([v, w], lr=0.5)
    for factor in (1, 2, 4):
        optimizer.step([v.detach(), v])
        halves = [2.0 / (2 * factor), 1.0 / (2 * factor)]
        assert v.tolist() == halves
    shared = Tensor([1.0, 1.0])
    before = v.numpy(), w.numpy()
    for count in (1, 2, 3):
        optimizer.step([shared, shared])
        for one, start in zip((v, w), before, strict=True):
            np.testing.assert_allclose(one.numpy(), start - 0.5 * count)


def test_what_ends_a_function_ends_it_at_once() -> None:
    calls: list[Tensor] = []

    @once
    def failing(x: Tensor) -> Tensor:
        calls.append(x)
        raise MemoryError

    with pytest.raises(MemoryError):
        failing(Tensor([1.0]))
    assert len(calls) == 1
