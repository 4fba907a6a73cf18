"""`lm.jit`: the same results as without it, from one program, through every kind of state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import nn
from lamina.errors import JitError
from lamina.explain.report import profile
from lamina.runtime.profile import counter


def test_results_keep_their_structure_and_follow_the_arguments() -> None:
    calls = []

    @lm.jit
    def function(pair: tuple[lm.Tensor, lm.Tensor], scale: float, *, names: dict[str, Any]) -> Any:
        calls.append(scale)
        a, b = pair
        return {"sum": a + b * scale, "rest": [names["c"].exp(), scale, (a,)]}

    rng = np.random.default_rng(0)
    for _ in range(3):
        a, b, c = rng.standard_normal((3, 4, 5)).astype(np.float32)
        found = function((lm.asarray(a), b), 2.0, names={"c": lm.asarray(c)})
        np.testing.assert_allclose(found["sum"].numpy(), a + b * 2.0, rtol=1e-6)
        np.testing.assert_allclose(found["rest"][0].numpy(), np.exp(c), rtol=1e-6)
        np.testing.assert_array_equal(found["rest"][2][0].numpy(), a)
        assert found["rest"][1] == 2.0
    assert calls == [2.0]
    function((lm.asarray(a), b), 3.0, names={"c": lm.asarray(c)})
    assert calls == [2.0, 3.0]


def test_a_call_is_one_program_and_results_are_not_overwritten() -> None:
    double = lm.jit(lambda x: (x * 2.0).sum(axis=0))
    first = double(lm.ones((4, 3)))
    before = counter.kernels
    second = double(lm.full((4, 3), 5.0).realize())
    assert counter.kernels == before + 2  # the argument's own, and one
    np.testing.assert_array_equal(first.numpy(), np.full(3, 8.0))
    np.testing.assert_array_equal(second.numpy(), np.full(3, 40.0))
    with profile() as records:
        double(second.expand((4, 3)).contiguous().realize())
    assert len(records) == 2


def test_results_go_over_earlier_ones_only_when_nobody_has_them() -> None:
    scale = lm.jit(lambda x, y: x * 2.0 + y)
    zero, held = lm.zeros((8,)).realize(), []
    for number in range(6):
        result = scale(lm.full((8,), float(number)).realize(), zero)
        held += [(number, part) for part in (result, result.numpy(), result[2:], result.detach())]
        if result.device == "cpu":  # DLPack shares no memory of a GPU
            held.append((number, np.from_dlpack(result)))
    del result
    before = lm.memory_stats()["allocated"]
    for _ in range(6):
        assert scale(lm.full((8,), 3.0).realize(), zero).tolist() == [6.0] * 8
    assert lm.memory_stats()["allocated"] <= before + 64  # of the last result
    for number, part in held:
        np.testing.assert_array_equal(np.asarray(part), 2.0 * number)
    chained = scale(held[0][1], zero)
    for _ in range(4):
        chained = scale(chained, zero)
    assert chained.tolist() == [0.0] * 8
    written = scale(lm.ones((8,)).realize(), zero)
    lm.jit(lambda one: one.assign(one + 1.0))(written)
    assert scale(zero, zero.clone().realize()).tolist() == [0.0] * 8
    assert written.tolist() == [3.0] * 8


def test_equal_calls_are_told_from_those_that_only_look_alike() -> None:
    slope = lm.jit(lambda a, b: lm.gradient((a * b).sum(), [a])[0])
    x, y = lm.full((3,), 2.0).realize(), lm.full((3,), 5.0).realize()
    for _ in range(3):
        assert slope(x, y).tolist() == [5.0] * 3
        assert slope(x, x).tolist() == [4.0] * 3
        assert slope(y, np.full(3, 7.0, np.float32)).tolist() == [7.0] * 3
        with lm.using(threads=1):
            assert slope(x, y).tolist() == [5.0] * 3
        assert lm.gradient(slope(x, y).sum(), [y])[0].tolist() == [0.0] * 3
    y.requires_grad = True
    assert slope(x, y).tolist() == [5.0] * 3
    y.grad = lm.ones((3,))
    assert slope(x, y).tolist() == [5.0] * 3
    with profile() as records:
        slope(y, x)
        slope(y, x)
    assert len(records) == 2


def test_assigned_state_is_written_in_place_and_old_values_survive() -> None:
    state = lm.zeros((3,))

    @lm.jit
    def step(x: lm.Tensor) -> lm.Tensor:
        state.assign(state + x)
        return state * 2.0

    one = lm.ones((3,)).realize()
    for count in range(1, 4):
        assert step(one).tolist() == [2.0 * count] * 3
        assert state.tolist() == [float(count)] * 3
    address = state.realize().node.arg.storage.pointer
    lazy, kept, copy = state + 0.5, state.detach(), state.numpy()
    step(one)
    assert state.tolist() == [4.0] * 3
    assert lazy.tolist() == [3.5] * 3
    assert kept.tolist() == copy.tolist() == [3.0] * 3
    step(one)
    assert state.node.arg.storage.pointer == address


@pytest.mark.usefixtures("on_cpu")
def test_memory_of_a_consumer_outside_is_not_written() -> None:
    state = lm.zeros((3,)).realize()
    step = lm.jit(lambda x: state.assign(state + x))
    step(lm.ones((3,)))
    exported = np.from_dlpack(state)
    step(lm.ones((3,)))
    assert exported.tolist() == [1.0] * 3
    assert state.tolist() == [2.0] * 3


def test_later_assignments_of_captured_tensors_are_seen() -> None:
    weight = lm.full((2,), 3.0)
    scaled = lm.jit(lambda x: x * weight)
    x = lm.ones((2,)).realize()
    assert scaled(x).tolist() == [3.0, 3.0]
    weight.assign(lm.full((2,), 4.0))
    assert scaled(x).tolist() == [4.0, 4.0]
    weight.rebind(lm.full((2,), 5.0))
    assert scaled(x).tolist() == [5.0, 5.0]
    weight.rebind(lm.full((1,), 6.0))
    assert scaled(x).tolist() == [6.0, 6.0]


def test_an_argument_may_be_assigned_and_may_alias_state() -> None:
    @lm.jit
    def bump(x: lm.Tensor) -> lm.Tensor:
        x.assign(x + 1.0)
        return x

    value = lm.zeros((2,)).realize()
    for count in range(1, 4):
        assert bump(value).tolist() == [float(count)] * 2
        assert value.tolist() == [float(count)] * 2
    state = lm.full((2,), 1.0)

    @lm.jit
    def shift(x: lm.Tensor) -> lm.Tensor:
        state.assign(state.flip())
        return x - state

    state.assign(lm.asarray([1.0, 2.0]))
    assert shift(lm.zeros((2,))).tolist() == [-2.0, -1.0]
    assert shift(state).tolist() == [1.0, -1.0]
    assert shift(state).tolist() == [-1.0, 1.0]


def test_draws_differ_between_calls_and_follow_the_seed() -> None:
    draw = lm.jit(lambda: lm.random.uniform((4,)))
    draw()
    lm.random.manual_seed(5)
    first, second = draw().tolist(), draw().tolist()
    lm.random.manual_seed(5)
    assert draw().tolist() == first != second


class _Net:
    """Without a bias before the norm: Adam would enlarge the rounding noise of its derivative."""

    def __init__(self) -> None:
        self.first, self.last = nn.Linear(6, 8, bias=False), nn.Linear(8, 3)
        self.norm = nn.BatchNorm(8)
        self.dropout = nn.Dropout(0.0)

    def __call__(self, x: lm.Tensor) -> lm.Tensor:
        return self.last(self.dropout(self.norm(self.first(x)).relu()))


def _losses(compiled: bool, make: Any, clear_first: bool) -> tuple[list[float], list[Any]]:
    lm.random.manual_seed(1)
    model = _Net()
    optimizer = make(nn.parameters(model))

    def step(x: lm.Tensor, target: lm.Tensor) -> lm.Tensor:
        if clear_first:
            optimizer.zero_grad()
        loss = lm.cross_entropy(model(x), target)
        loss.backward()
        nn.optim.clip_grad_norm(optimizer.parameters, 1.0)
        optimizer.step()
        if not clear_first:
            optimizer.zero_grad()
        return loss

    run = lm.jit(step) if compiled else step
    rng = np.random.default_rng(2)
    losses = []
    for count in range(6):
        x = lm.asarray(rng.standard_normal((10, 6), np.float32))
        losses.append(run(x, lm.asarray(rng.integers(0, 3, 10))).item())
        if count == 3:
            optimizer.lr = 1e-3
    return losses, [one.numpy() for one in nn.state_dict(model).values()]


@pytest.mark.parametrize("clear_first", [False, True])
@pytest.mark.parametrize("name", ["SGD", "AdamW", "Muon"])
def test_training_is_the_same_as_without(name: str, clear_first: bool) -> None:
    def make(parameters: list[lm.Tensor]) -> nn.optim.Optimizer:
        chosen = [one for one in parameters if name != "Muon" or one.ndim == 2]
        return getattr(nn.optim, name)(chosen, lr=0.05)  # type: ignore[no-any-return]

    losses, state = _losses(False, make, clear_first)
    jitted_losses, jitted_state = _losses(True, make, clear_first)
    np.testing.assert_allclose(jitted_losses, losses, rtol=1e-5)
    for got, want in zip(jitted_state, state, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-6)


def test_derivatives_left_behind_accumulate() -> None:
    weight = lm.ones((2,), requires_grad=True)

    @lm.jit
    def backward(x: lm.Tensor) -> None:
        (weight * x).sum().backward()

    for count in range(1, 5):
        backward(lm.asarray([1.0, 2.0]))
        assert weight.grad is not None
        assert weight.grad.tolist() == [1.0 * count, 2.0 * count]
    weight.grad = None
    backward(lm.asarray([1.0, 2.0]))
    assert weight.grad.tolist() == [1.0, 2.0]  # type: ignore[attr-defined]


def test_what_was_forgotten_unseen_is_no_part_of_a_signature() -> None:
    weight, traces = lm.ones((2,), requires_grad=True).realize(), list[str]()

    @lm.jit
    def slope(x: lm.Tensor, name: str) -> lm.Tensor:
        traces.append(name)
        seen = name == "asks" and weight.grad is not None
        weight.grad = None
        (weight * weight * x).sum().backward()
        if name == "drops":
            weight.grad = None
        return x + float(seen)

    for name in ("keeps", "drops"):
        for count, there in enumerate((False, True, False, True, True), 1):
            weight.grad = lm.full((2,), 7.0) if there else None
            before = weight.grad
            assert slope(lm.full((2,), float(count)), name).tolist() == [count] * 2
            if name == "drops":
                assert weight.grad is None
            else:
                assert weight.grad is not None
                assert weight.grad.tolist() == [2.0 * count] * 2
            assert before is None or before.tolist() == [7.0] * 2  # whoever has it keeps it
    assert traces == ["keeps", "drops"]
    for there in (False, True, True, False):  # here it decides what is computed
        weight.grad = lm.ones((2,)) if there else None
        assert slope(lm.zeros((2,)), "asks").tolist() == [float(there)] * 2
    assert traces[2:] == ["asks"] * 2  # once with a gradient and once without


@pytest.mark.parametrize("compiled", [(True, True), (False, True), (True, False)])
def test_gradients_pass_from_one_function_to_another(compiled: tuple[bool, bool]) -> None:
    """Each step has others: tensors of their own, which a program must not hold on to."""

    def trained(*functions: bool) -> tuple[list[float], Any]:
        weights = [lm.asarray([1.0, 2.0]), lm.asarray([3.0, 4.0]), lm.asarray([5.0, 6.0])]
        for one in weights:
            one.requires_grad = True
        optimizer = nn.optim.SGD(weights, lr=0.1, momentum=0.5)

        def add(x: lm.Tensor, all_of_them: bool) -> lm.Tensor:
            loss = ((weights[0] + weights[1]) * x).square().sum()  # their gradients are one node
            loss = loss + (weights[2] * x).sum() if all_of_them else loss
            loss.backward()
            return loss

        def update() -> lm.Tensor:
            norm = nn.optim.clip_grad_norm(weights, 30.0)
            optimizer.step()
            optimizer.zero_grad()
            return norm

        both = [lm.jit(one) if jit else one for one, jit in zip((add, update), functions,
                                                                strict=True)]  # fmt: skip
        found, old = [], []
        for count in range(6):
            for part in range(2):
                found.append(both[0](lm.full((2,), 1.0 + count + part), count > 2).item())
                old.append((weights[0].grad, weights[0].grad.numpy()))  # type: ignore[union-attr]
            found.append(both[1]().item())
        for held, values in old:  # whoever has an old one keeps it
            np.testing.assert_array_equal(held.numpy(), values)
        return found, [one.numpy() for one in weights]

    (found, weights), (wanted, exact) = trained(*compiled), trained(False, False)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(weights, exact, rtol=1e-5)


def test_derivatives_by_arguments_fill_their_grad() -> None:
    @lm.jit
    def backward(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        loss = (x * y * y).sum()
        loss.backward()
        return loss

    for start in (1.0, 2.0):
        x = lm.Tensor([start, 3.0], requires_grad=True)
        y = lm.asarray([2.0, 5.0])
        for count in range(1, 4):
            assert backward(x, y).item() == 4.0 * start + 75.0
            assert x.grad is not None
            assert x.grad.tolist() == [4.0 * count, 25.0 * count]
            assert y.grad is None
        x.grad = None
        backward(x, y)
        assert x.grad.tolist() == [4.0, 25.0]  # type: ignore[attr-defined]

    @lm.jit
    def clear(x: lm.Tensor) -> None:
        x.grad = None

    clear(x)
    assert x.grad is None


def test_derivatives_are_taken_inside_and_through() -> None:
    inside = lm.jit(lm.grad(lambda x: (x**3).sum()))
    assert inside(lm.asarray([1.0, 2.0])).tolist() == [3.0, 12.0]
    through = lm.grad(lambda x: lm.jit(lambda y: (y * y).sum())(x * 3.0))
    assert through(lm.asarray([1.0, 2.0])).tolist() == [18.0, 36.0]


def test_a_step_with_dropout_drops_other_elements_each_time() -> None:
    weight = lm.ones((64,)).realize()
    weight.requires_grad = True

    @lm.jit
    def step(x: lm.Tensor) -> lm.Tensor:
        weight.grad = None
        lm.dropout(weight * x, 0.5).sum().backward()
        assert weight.grad is not None
        return weight.grad

    first, second = (step(lm.full((64,), 3.0)).numpy() for _ in range(2))
    assert {*first, *second} == {0.0, 6.0}
    assert (first != second).any()


def test_methods_and_nested_functions() -> None:
    class Scaled:
        def __init__(self, factor: float) -> None:
            self.factor = lm.full((), factor)

        @lm.jit
        def __call__(self, x: lm.Tensor) -> lm.Tensor:
            return lm.jit(lambda y: y + 1.0)(x) * self.factor

    assert Scaled(2.0)(lm.ones((2,))).tolist() == [4.0, 4.0]
    assert Scaled(3.0)(lm.ones((2,))).tolist() == [6.0, 6.0]


def test_the_programs_of_an_object_go_with_it() -> None:
    import gc
    import weakref

    class Model:
        def __init__(self) -> None:
            self.weight = lm.asarray([2.0])

        @lm.jit
        def scaled(self, x: lm.Tensor) -> lm.Tensor:
            return x * self.weight

    x = lm.ones((1,))
    kept = Model()
    kept.scaled(x)
    weights = []
    for _ in range(3):
        model = Model()
        assert model.scaled(x).tolist() == [2.0]
        weights.append(weakref.ref(model.weight))
        del model
        gc.collect()
    assert [one() is None for one in weights] == [True, True, False]  # the last waits for another
    before = counter.kernels
    kept.scaled(x)
    assert counter.kernels == before + 1


@pytest.mark.parametrize(
    "read",
    [lambda x: x.item(), lambda x: x.sum().tolist(), lambda x: bool(x.sum() > 0), lambda x: str(x)],
)
def test_a_traced_value_cannot_be_read(read: Any) -> None:
    function = lm.jit(read)
    x = lm.ones((1,))
    with pytest.raises(JitError, match="traced") as caught:
        function(x)
    assert "test_jit.py" in str(caught.value)
    assert (x + 1.0).tolist() == [2.0]  # nothing is left behind


def test_what_cannot_be_part_of_a_signature_is_named() -> None:
    with pytest.raises(JitError, match="a bytearray cannot be part of a signature"):
        lm.jit(lambda x: x)(bytearray(3))


def test_what_is_no_function_is_refused_at_once() -> None:
    nothing: Any = 3
    with pytest.raises(JitError, match="3 is no function"):
        lm.jit(nothing)


def test_every_compilation_has_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    function = lm.jit(lambda x, flag: x + 1.0 if flag else x)
    with lm.using(debug=1):
        function(lm.ones((2,)), True)
        function(lm.ones((2,)), True)
        function(lm.ones((3,)), True)
        function(lm.ones((3,)), False)
    lines = [one for one in capsys.readouterr().err.splitlines() if one.startswith("jit ")]
    assert len(lines) == 3
    assert "first call" in lines[0]
    assert "argument 0 is ((3,)" in lines[1]
    assert "argument 1" in lines[2]
    assert "argument 0" not in lines[2]


def test_every_thread_may_call() -> None:
    from concurrent.futures import ThreadPoolExecutor

    total = lm.jit(lambda x: (x * x).sum())
    inputs = [lm.full((64,), float(i)).realize() for i in range(16)]
    with ThreadPoolExecutor(4) as pool:
        found = [one.item() for one in pool.map(total, inputs)]
    assert found == [64.0 * i * i for i in range(16)]


def test_one_tensor_given_twice_is_one_tensor() -> None:
    @lm.jit
    def bump(x: lm.Tensor, y: lm.Tensor) -> lm.Tensor:
        x.assign(x.flip() + 1.0)
        return x + y

    for _ in range(2):
        x, y = lm.asarray([1.0, 2.0]), lm.asarray([5.0, 5.0])
        assert bump(x, y).tolist() == [8.0, 7.0]
        assert bump(x, x).tolist() == [6.0, 8.0]
        assert x.tolist() == [3.0, 4.0]
        assert bump(x, x.detach()).tolist() == [8.0, 8.0]


@pytest.mark.parametrize("zeros", [lambda: lm.zeros((2,)), lambda: lm.arange(2) * 0.0])
def test_captured_tensors_in_one_memory_are_told_apart(zeros: Any) -> None:
    import copy

    first, second, third = (zeros() for _ in range(3))

    @lm.jit
    def step(x: lm.Tensor) -> tuple[lm.Tensor, ...]:
        first.assign(first + x)
        second.assign(second - x)
        return first, second, third

    x = lm.ones((2,)).realize()
    for count in (1.0, 2.0, 3.0):
        assert [one.tolist()[0] for one in step(x)] == [count, -count, 0.0]
        assert [one.tolist()[0] for one in (first, second, third)] == [count, -count, 0.0]
    trained = lm.asarray([1.0, 2.0])
    frozen, viewed = copy.deepcopy(trained), trained.detach()
    read = lm.jit(lambda x: x + frozen + viewed)
    write = lm.jit(lambda x: trained.assign(trained.flip() + x) + viewed.flip())
    for _ in range(3):
        assert read(x).tolist() == [3.0, 5.0]
        write(x)
        trained.assign(trained + 1.0).realize()
        assert viewed.tolist() == [1.0, 2.0]
    assert trained.tolist() == [8.0, 7.0]


def test_memory_that_an_argument_and_a_captured_tensor_share_is_not_overwritten() -> None:
    state = lm.asarray([1.0, 2.0])

    @lm.jit
    def bump(x: lm.Tensor) -> lm.Tensor:
        x.assign(x.flip() + 1.0)
        return x + state.flip()

    for _ in range(3):
        assert bump(state.detach()).tolist() == [5.0, 3.0]
        assert state.tolist() == [1.0, 2.0]


def test_items_are_assigned_like_tensors() -> None:
    state = lm.zeros((3,))

    @lm.jit
    def write(x: lm.Tensor, at: int) -> lm.Tensor:
        state[at] = x[0]
        x[1:] = state[:2]
        return state.sum()

    for at in (0, 1, 2):
        x = lm.asarray([at + 1.0, 0.0, 0.0])
        old = state.tolist()
        assert write(x, at).item() == sum(old) + at + 1.0
        assert state.tolist() == [*old[:at], at + 1.0, *old[at + 1 :]]
        assert x.tolist() == [at + 1.0, *state.tolist()[:2]]


def test_signatures_know_zeros_nan_and_requires_grad() -> None:
    calls = []

    @lm.jit
    def scale(x: lm.Tensor, factor: float) -> lm.Tensor:
        calls.append(factor)
        return x * (factor if x.requires_grad else -factor)

    x = lm.asarray([1.0])
    signs = [bool(lm.signbit(scale(x, one)).item()) for one in (0.0, -0.0)]
    assert signs == [True, False]
    for _ in range(3):
        scale(x, float("nan"))
    assert len(calls) == 3
    assert scale(lm.Tensor([1.0], requires_grad=True), 2.0).tolist() == [2.0]
    assert scale(x, 2.0).tolist() == [-2.0]


def test_a_copied_model_has_its_own_programs() -> None:
    import copy

    class Model:
        def __init__(self) -> None:
            self.weight = lm.asarray([2.0])
            self.run = lm.jit(self.scaled)

        def scaled(self, x: lm.Tensor) -> lm.Tensor:
            return x * self.weight

    model = Model()
    assert model.run(lm.ones((1,))).tolist() == [2.0]
    other = copy.deepcopy(model)
    other.weight.assign(lm.asarray([3.0]))
    assert other.run(lm.ones((1,))).tolist() == [3.0]
    assert model.run(lm.ones((1,))).tolist() == [2.0]


def test_another_thread_draws_while_a_function_is_traced() -> None:
    from concurrent.futures import ThreadPoolExecutor

    drawn: list[list[float]] = []

    @lm.jit
    def function(x: lm.Tensor) -> lm.Tensor:
        with ThreadPoolExecutor(1) as pool:
            drawn.append(pool.submit(lambda: lm.random.uniform((2,)).tolist()).result())
        return x + lm.random.uniform((2,))

    function(lm.ones((2,)))
    assert len(drawn[0]) == 2


@pytest.mark.filterwarnings("error")
def test_an_assignment_leaves_no_reference_to_a_place_behind() -> None:
    x = lm.Tensor([1.0, 2.0, 3.0]).realize()
    for _ in range(3):
        x[1] = x.sum()
        x.realize()
    np.testing.assert_array_equal(x.numpy(), [1.0, 14.0, 3.0])


@pytest.mark.parametrize("device", ["cpu", "interp"])
@pytest.mark.parametrize("outer", [lambda f: f, lm.jit], ids=["alone", "nested"])
def test_a_result_is_a_tensor_of_its_own(device: str, outer: Any) -> None:
    state, same = lm.Tensor([2.0], device=device), lm.jit(lambda x: (x, state))

    def function(x: lm.Tensor) -> lm.Tensor:
        first, second = same(x)
        first.assign([7.0])
        second[0] = 8.0
        return lm.stack([x, state, first, second])

    for _ in range(3):
        assert outer(function)(lm.Tensor([1.0], device=device)).tolist() == [[1], [2], [7], [8]]
