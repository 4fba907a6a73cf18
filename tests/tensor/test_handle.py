"""What a handle promises: laziness, value semantics under assignment, derivatives afterwards."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor
from lamina.errors import DeviceError, DTypeError, GradientError, ShapeError
from lamina.frontend import execution
from lamina.frontend import realize as memory
from lamina.ir import build
from lamina.ir.ops import Op


def address(x: Tensor) -> int:
    return memory.memory_of(x).pointer


def test_nothing_runs_before_somebody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []
    execute = execution.execute
    monkeypatch.setattr(
        execution, "execute", lambda sinks, *rest: ran.append(len(sinks)) or execute(sinks, *rest)
    )
    x = Tensor([1.0, 2.0])
    y = (x * 2).sum()
    assert "lazy" in repr(y)
    assert not ran
    assert y.item() == 6
    assert "realized" in repr(y)
    assert y.item() == 6
    assert ran == [1]


def test_derivatives_flow_through_sequences_of_tensors() -> None:
    def squares(x: Tensor) -> Tensor:
        return (Tensor([[x[1], 3.0], (x[0], x[1])]) ** 2).sum() + lm.maximum(x, [x[0]] * 2).sum()

    x = Tensor([1.0, 2.0])
    assert lm.grad(squares)(x).tolist() == [3.0, 9.0]
    assert lm.jit(lm.grad(squares))(x).tolist() == [3.0, 9.0]
    assert "lazy" in repr(lm.asarray([x[0], x[1]]))


def test_realize_runs_everything_in_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    sinks = []
    execute = execution.execute
    monkeypatch.setattr(
        execution, "execute", lambda some, *rest: sinks.append(len(some)) or execute(some, *rest)
    )
    x = Tensor([1.0, 2.0])
    lm.realize(x + 1, x + 2, x)
    assert sinks == [2]


def test_the_graph_is_cut_at_computed_values(monkeypatch: pytest.MonkeyPatch) -> None:
    y = Tensor([1.0, 2.0]).exp()
    y.realize()
    seen = []
    execute = execution.execute
    monkeypatch.setattr(
        execution, "execute", lambda given, *rest: seen.extend(given) or execute(given, *rest)
    )
    z = (y + 1).realize()
    assert [operand.op for operand in seen[0].src] == [Op.BUFFER, Op.EXPAND]
    assert np.allclose(z.numpy(), np.exp([1, 2]) + 1)


def test_assign_keeps_the_memory_beside_tensors_that_only_read_it() -> None:
    x = Tensor([1.0, 2.0])
    before = address(x)
    view, lazy = x[::-1], x * 10
    computed = (x + 1).realize()
    x.assign(x * 3)
    assert x.tolist() == [3, 6]
    assert address(x) == before
    assert (view.tolist(), lazy.tolist(), computed.tolist()) == ([2, 1], [10, 20], [2, 3])


def test_assign_keeps_everyone_elses_value() -> None:
    x = Tensor([1.0, 2.0])
    alias, view, lazy = x.detach(), x[::-1], x * 10
    same = Tensor.of(x.node, x.device)
    computed = (x + 1).realize()
    x.assign(x * 3)
    assert not x.is_realized()
    assert x.tolist() == [3, 6]
    assert (alias.tolist(), view.tolist(), lazy.tolist()) == ([1, 2], [2, 1], [10, 20])
    assert (same.tolist(), computed.tolist()) == ([1, 2], [2, 3])


def test_swap_reads_old_values() -> None:
    a, b = Tensor([1.0]), Tensor([2.0])
    new_a, new_b = b + 0, a + 0
    a.assign(new_a)
    b.assign(new_b)
    lm.realize(a, b)
    assert (a.item(), b.item()) == (2, 1)


def test_swap_reads_old_values_one_at_a_time() -> None:
    a, b = Tensor([1.0]), Tensor([2.0])
    new_a, new_b = b * 1, a * 1
    a.assign(new_a)
    b.assign(new_b)
    a.realize()
    assert (a.item(), b.item()) == (2, 1)


def test_two_assignments_to_one_memory() -> None:
    a = Tensor([1.0])
    b = Tensor.of(a.node, a.device)
    a.assign(a + 1)
    b.assign(b + 10)
    lm.realize(a, b)
    assert (a.item(), b.item()) == (2, 11)


def test_assign_twice_before_realising() -> None:
    x = Tensor([1.0, 2.0])
    before = address(x)
    x.assign(x + 1)
    x.assign(x * 2)
    assert x.tolist() == [4, 6]
    assert address(x) == before


def test_assign_to_a_leaf_of_an_expression_that_is_computed_later() -> None:
    x = Tensor([1.0, 2.0])
    y = lm.full((2,), x.sum())
    x.assign(lm.asarray([5.0, 5.0]))
    x.realize()
    assert y.tolist() == [3, 3]


@pytest.mark.parametrize("write", [lambda x: x.assign(1.0), lambda x: x.__setitem__(..., 1.0)])
def test_a_number_that_is_written_is_not_one_of_a_formula(write: Callable[..., None]) -> None:
    """The formula of a sigmoid has many a 1."""
    x = lm.asarray([3.0, 4.0])
    write(x)
    (slope,) = lm.gradient((x.sigmoid() + 1.0 / x).sum(), [x])
    np.testing.assert_allclose(slope.numpy(), [-0.80338806] * 2, rtol=1e-6)


def test_assign_casts_and_broadcasts() -> None:
    x = lm.zeros((2, 2), dtype=lm.int32)
    x.assign(lm.asarray([1.7, 2.2]))
    assert x.dtype is lm.int32
    assert x.tolist() == [[1, 2], [1, 2]]
    with pytest.raises(ShapeError, match="assign"):
        x.assign(lm.zeros((3, 2, 2)))


def test_assign_cuts_history() -> None:
    m = lm.zeros(2)
    first = weakref.ref(m.node)
    for _ in range(3):
        m.assign(m * 0.5 + 1)
        m.realize()
    gc.collect()
    assert first() is None
    assert m.node.op is Op.BUFFER
    assert m.tolist() == [1.75, 1.75]


def test_exported_memory_is_never_overwritten() -> None:
    x = Tensor([1.0, 2.0])
    array = np.asarray(x)
    x.assign(x + 1)
    assert x.tolist() == [2, 3]
    assert array.tolist() == [1, 2]


@given(st.lists(st.sampled_from(["assign", "alias", "lazy", "item", "realize"]), max_size=12))
def test_assignment_is_like_rebinding(steps: list[str]) -> None:
    tensors, values = [Tensor([1.0, 2.0])], [np.array([1.0, 2.0])]
    for number, step in enumerate(steps):
        place = number % len(tensors)
        if step == "assign":
            other = (number * 7) % len(tensors)
            tensors[place].assign(tensors[place] + tensors[other] * 2)
            values[place] = values[place] + values[other] * 2
        elif step == "alias":
            tensors.append(Tensor.of(tensors[place].node, tensors[place].device))
            values.append(values[place])
        elif step == "lazy":
            tensors.append(tensors[place][::-1] - 1)
            values.append(values[place][::-1] - 1)
        elif step == "item":
            assert tensors[place].tolist() == values[place].tolist()
        else:
            lm.realize(*tensors[place:])
    for tensor, value in zip(tensors, values, strict=True):
        assert tensor.tolist() == value.tolist()


def test_rebinding_takes_the_device_of_the_value() -> None:
    x = Tensor([1.0, 2.0], device="cpu", requires_grad=True)
    x.rebind(x.detach().to("interp"))
    assert x.device == "interp"
    assert (x * Tensor([3.0, 4.0], device="interp")).tolist() == [3, 8]
    assert x.to("cpu").device == "cpu"


def test_gradient_after_realising() -> None:
    x = Tensor([1.0, 2.0])
    y = (x * x).realize()
    loss = y.sum().realize()
    (dx,) = lm.gradient(loss, [x])
    assert dx.tolist() == [2, 4]


def test_gradient_of_an_overwritten_value_is_refused() -> None:
    x, w = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    y = (x * w).realize()
    x.assign(x + 1)
    x.realize()
    (dw,) = lm.gradient(y.sum(), [w])
    with pytest.raises(GradientError, match="overwritten"):
        dw.realize()
    assert "lazy" in repr(dw)
    x.assign(x + 1)
    assert x.tolist() == [3, 4]


def test_equal_constants_have_their_own_derivatives() -> None:
    x, y = lm.ones(2), lm.ones(2)
    dx, dy = lm.gradient((x * y * 3 + y).sum(), [x, y])
    assert (dx.tolist(), dy.tolist()) == ([3, 3], [4, 4])
    one = lm.asarray(1.0)
    (d,) = lm.gradient(one * 1.0 + 1.0, [one])
    assert d.item() == 1


def test_derivatives_flow_through_a_filling() -> None:
    x = Tensor(3.0)
    (d,) = lm.gradient(lm.full((2, 2), x).sum(), [x])
    assert d.item() == 4


def test_gradient_for_one_tensor_is_that_of_a_list() -> None:
    w = Tensor([1.0, 2.0])
    (found,) = lm.gradient((w * w).sum(), w)  # not for its rows, which the sum ignores
    assert found.tolist() == [2.0, 4.0]


def test_backward_adds_up() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    other = lm.ones(2, requires_grad=True)
    (w * w).sum().backward()
    (w * 2).sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4, 6]
    assert other.grad is None
    with pytest.raises(GradientError, match="requires_grad"):
        lm.ones(()).backward()
    with pytest.raises(GradientError, match="sum it to"):
        (w * 2).backward()


def test_grad_of_containers() -> None:
    parameters = {"w": Tensor([1.0, 2.0]), "b": [lm.asarray(1.0), (lm.asarray(2),)]}

    def loss(p: dict, x: Tensor) -> tuple[Tensor, str]:
        return (p["w"] * x).sum() * p["b"][0] + p["b"][1][0], "extra"

    (value, extra), grads = lm.value_and_grad(loss, has_aux=True)(parameters, Tensor([3.0, 4.0]))
    assert (value.item(), extra) == (13, "extra")
    assert grads["w"].tolist() == [3, 4]
    assert grads["b"][0].item() == 11
    assert grads["b"][1] == (None,)


def test_grad_of_arrays_and_numbers_in_containers() -> None:
    given = {"w": np.array([1.0, 2.0], np.float32), "scale": 3.0, "power": 2, "name": "x"}
    slopes = lm.grad(lambda p: (p["w"] ** p["power"] * p["scale"]).sum())(given)
    assert slopes["w"].tolist() == [6, 12]
    assert slopes["scale"].item() == 5
    assert (slopes["power"], slopes["name"]) == (None, None)
    assert lm.grad(lambda x, n: x**n)(2.0, 3).item() == 12


def test_grad_sees_only_its_own_argument() -> None:
    x = Tensor([1.0, 2.0])
    assert lm.grad(lambda a: (a * x).sum())(x).tolist() == [1, 2]
    first, second = lm.grad(lambda a, b: (a * b * b).sum(), argnums=(0, 1))(x, x)
    assert (first.tolist(), second.tolist()) == ([1, 4], [2, 8])


def test_grad_of_grad_and_values_looked_at_inside() -> None:
    def cube(a: Tensor) -> Tensor:
        y = a * a * a
        assert y.item() == pytest.approx(8)
        return y

    assert lm.grad(cube)(lm.asarray(2.0)).item() == 12
    assert lm.grad(lm.grad(cube))(lm.asarray(2.0)).item() == 12
    assert lm.grad(lambda a: lm.grad(lambda b: b * b * a)(a) * a)(2.0).item() == 24


@pytest.mark.parametrize(
    "unchanged",
    [
        lambda x: lm.roll(x, 3), lm.clip, lm.nan_to_num,
        lambda x: lm.dropout(x, 0.0), lambda x: lm.dropout(x, training=False), lm.flip,
    ],
)  # fmt: skip
def test_a_result_is_a_handle_of_its_own(unchanged: Callable[..., Tensor]) -> None:
    x = Tensor([1, 1, 1])
    y = unchanged(x)
    y[0] = 5
    assert x.tolist() == [1, 1, 1]
    assert y.tolist() == [5, 1, 1]


def test_scalars_and_their_errors() -> None:
    assert (float(Tensor(1.5)), int(Tensor(7)), bool(Tensor(False))) == (1.5, 7, False)
    assert complex(Tensor(1 + 2j)) == 1 + 2j
    assert [10, 20, 30][Tensor(1)] == 20
    assert f"{Tensor(1.25):.1f}" == "1.2"
    with pytest.raises(DTypeError, match="index"):
        [1][Tensor(0.0)]
    with pytest.raises(DTypeError, match="bool"):
        bool(Tensor([1, 2]))
    with pytest.raises(ShapeError, match="item"):
        Tensor([1, 2]).item()


def test_devices() -> None:
    x = Tensor([1.0, 2.0])
    y = x.to("cpu")
    assert (y.device, y.tolist()) == ("cpu", [1, 2])
    with pytest.raises(DeviceError, match=f"{x.device} and cpu"):
        x + y
    with pytest.raises(DeviceError, match="nowhere"):
        x.to("nowhere")


def test_equal_constants_have_memory_on_each_device() -> None:
    line = build.cast(build.iota(5, lm.int64), lm.float32)
    tensors = [Tensor.of(line, device) for device in ("interp", "cpu", "interp")]
    for x in tensors:
        x.realize()
        assert memory.memory_of(x).device == x.device
    for x in tensors:
        assert (x + 1.0).tolist() == [1, 2, 3, 4, 5]


def test_copies_and_pickles() -> None:
    x = Tensor([1.0, 2.0], dtype=lm.bfloat16, requires_grad=True)
    for y in (copy.copy(x), copy.deepcopy({"x": x})["x"], pickle.loads(pickle.dumps(x))):
        assert y.requires_grad
        assert y.dtype is lm.bfloat16
        y.assign(y + 1)
        assert (y.tolist(), x.tolist()) == ([2, 3], [1, 2])
    y = Tensor(x, requires_grad=True)
    (x * y * y).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (x.grad.tolist(), y.grad.tolist()) == ([1, 4], [2, 8])


def test_text() -> None:
    x = lm.asarray([[1.5, 2.0]])
    assert str(x) == "[[1.5, 2. ]]"
    assert "<pre>[[1.5" in x._repr_html_()
    assert repr(x) == f"<Tensor float32[1, 2] on {lm.default_device()}, realized>"
    assert str(lm.asarray([1.5], dtype=lm.bfloat16)) == "[1.5]"
