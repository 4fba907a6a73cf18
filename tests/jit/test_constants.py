"""Captured tensors as constants: what is made of them is kept, and follows every change."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor
from lamina.core.options import using
from lamina.frontend.constants import MAX_CHANGES, kept_bytes
from lamina.frontend.program import Program
from lamina.runtime.profile import counter

pytestmark = pytest.mark.usefixtures("on_cpu")  # GPUs keep nothing from call to call


def drawn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def program_of(function: lm.jit) -> Program:
    (program,) = function._programs.values()
    return program


class Layer:
    """relu(x @ (w * exp(s)) + b), with NumPy's value beside lamina's."""

    def __init__(self) -> None:
        self.w = Tensor(drawn(40, 96, seed=1))
        self.s, self.b = Tensor(drawn(96, seed=2)), Tensor(drawn(96, seed=3))
        self.x = drawn(24, 40, seed=4)
        self.compiled = lm.jit(lambda x: (x @ (self.w * self.s.exp()) + self.b).relu())

    def check(self) -> None:
        w, s, b = (tensor.numpy() for tensor in (self.w, self.s, self.b))
        expected = np.maximum(self.x @ (w * np.exp(s)) + b, 0)
        got = self.compiled(Tensor(self.x)).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_constants_are_computed_once() -> None:
    layer = Layer()
    layer.check()
    x = Tensor(layer.x).realize()
    before = counter.kernels
    layer.compiled(x)
    assert counter.kernels - before == 1  # the scale of the weights is not computed again
    assert program_of(layer.compiled).kept.nbytes >= layer.w.nbytes


def test_a_function_of_constants_alone_packs_nothing_twice() -> None:
    """All but its results is computed once, by a program that has no other arrays to keep. The
    layers have enough rows and columns that products of constants have packed panels."""
    x = drawn(64, 768)
    weights = [drawn(768, 768, seed=seed) / 28 for seed in range(1, 4)]
    gains = [drawn(768, seed=seed) for seed in range(4, 7)]
    captured, *held = map(Tensor, (x, *weights, *gains))
    layers = [*zip(held[:3], held[3:], strict=True)]

    def network() -> Tensor:
        y = captured
        for weight, gain in layers:
            y = (y * gain @ weight).relu()
        return y

    expected = x
    for weight, gain in zip(weights, gains, strict=True):
        expected = np.maximum(expected * gain @ weight, 0)
    function = lm.jit(network)
    for _ in range(2):
        np.testing.assert_allclose(function().numpy(), expected, rtol=1e-3, atol=1e-3)


def assign(layer: Layer) -> None:
    layer.w.assign(layer.w * 2.0)


def assign_realized(layer: Layer) -> None:
    layer.w.assign(layer.w + 1.0).realize()


def write_an_element(layer: Layer) -> None:
    layer.s[3] = 2.0


def assign_in_a_program(layer: Layer) -> None:
    def step() -> None:
        layer.w.assign(layer.w - 0.5)

    lm.jit(step)()


def write_from_outside(layer: Layer) -> None:
    shared = np.from_dlpack(layer.b)  # NumPy itself refuses to write there
    ctypes.c_float.from_address(shared.ctypes.data + 5 * shared.itemsize).value += 7.0


CHANGES = [assign, assign_realized, write_an_element, assign_in_a_program, write_from_outside]


@pytest.mark.parametrize("change", CHANGES)
def test_changed_constants_are_read_anew(change: Any) -> None:
    layer = Layer()
    for _ in range(3):
        layer.check()
    for _ in range(6):  # more often than a program tries to keep anything
        change(layer)
        layer.check()
        layer.check()


def test_constants_that_change_in_each_call_are_constants_no_more() -> None:
    layer = Layer()
    for _ in range(6):
        assign_realized(layer)
        layer.check()
    assert program_of(layer.compiled).kept.nbytes == 0


def test_memory_that_was_shared_before_is_no_constant() -> None:
    layer = Layer()
    outside = drawn(40, 96, seed=7)
    layer.w = lm.from_dlpack(outside)
    layer.check()
    outside[:] = drawn(40, 96, seed=8)
    layer.check()


def test_what_is_kept_is_freed_with_its_program() -> None:
    layer = Layer()
    gc.collect()
    before = lm.memory_stats()["allocated"]
    layer.check()
    gc.collect()
    kept = program_of(layer.compiled).kept.nbytes
    assert lm.memory_stats()["allocated"] >= before + kept > before
    del layer.compiled
    gc.collect()
    assert lm.memory_stats()["allocated"] <= before


def test_many_signatures_keep_few_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four, where what more of them keep would be too much."""
    monkeypatch.setattr("lamina.frontend.jit._MAX_KEPT", 0)
    assert 1 <= _programs_that_keep(calls=10) <= 4


def test_small_arrays_of_many_signatures_are_kept() -> None:
    assert _programs_that_keep(calls=10) > 4


def _programs_that_keep(calls: int) -> int:
    """Of a function that is called with so many signatures."""
    layer = Layer()
    for rows in range(2, 2 + calls):
        layer.x = drawn(rows, 40)
        layer.check()
    return sum(one.kept.nbytes > 0 for one in layer.compiled._programs.values())


def test_what_is_differentiated_is_no_constant() -> None:
    w = Tensor(drawn(40, 96), requires_grad=True)
    x = Tensor(drawn(24, 40))

    @lm.jit
    def slope(x: Tensor) -> Tensor:
        return lm.gradient(((x @ (w * 2.0)) ** 2).sum(), [w])[0]

    expected = 2 * x.numpy().T @ (x.numpy() @ (w.numpy() * 2)) * 2
    np.testing.assert_allclose(slope(x).numpy(), expected, rtol=1e-3, atol=1e-3)
    assert program_of(slope).kept.nbytes == 0


def test_bytes_are_not_kept_as_floats() -> None:
    w = Tensor(np.random.default_rng(0).integers(-9, 9, (1024, 1024)).astype(np.int8))
    scale = Tensor(np.float32(0.1))
    compiled = lm.jit(lambda x: w.cast(lm.float32) * scale @ x)
    x = drawn(1024)
    got = compiled(Tensor(x)).numpy()
    np.testing.assert_allclose(got, w.numpy() * np.float32(0.1) @ x, rtol=1e-3, atol=1e-3)
    assert program_of(compiled).kept.nbytes == w.nbytes  # as bytes, in the order of the loops


def test_masks_of_indices_are_not_kept() -> None:
    w, v = Tensor(drawn(64, 64)), Tensor(drawn(64, 64, seed=1))

    def joined(x: Tensor) -> Tensor:
        return lm.concat([w * x, v * x])

    compiled = lm.jit(joined)
    x = drawn(64)
    expected = np.concatenate([w.numpy() * x, v.numpy() * x])
    np.testing.assert_allclose(compiled(Tensor(x)).numpy(), expected, rtol=1e-6)
    assert program_of(compiled).kept.nbytes == 0


sizes = st.integers(1, 70)


@settings(max_examples=12)
@given(
    rows=sizes, steps=sizes, columns=sizes, images=st.booleans(), transposed=st.booleans(),
    seed=st.integers(0, 9),
)  # fmt: skip
def test_products_with_constants(
    rows: int, steps: int, columns: int, images: bool, transposed: bool, seed: int
) -> None:
    """Every kernel is compared with the reference, which reads the constants themselves."""
    x, w = drawn(rows, steps, seed=seed), drawn(steps, columns, seed=seed + 1)
    weights = Tensor(np.ascontiguousarray(w.T)) if transposed else Tensor(w)
    if images:
        x = np.stack([x, x + 1])

    def product(x: Tensor) -> Tensor:
        return x @ (weights.T if transposed else weights)

    with using(check=True):
        got = lm.jit(product)(Tensor(x)).numpy()
    np.testing.assert_allclose(got, x @ w, rtol=1e-3, atol=1e-3)


@settings(max_examples=12)
@given(
    channels=st.integers(1, 40), filters=st.integers(1, 40), size=st.integers(3, 20),
    window=st.integers(1, 3), stride=st.integers(1, 2),
)  # fmt: skip
def test_convolutions_with_constants(
    channels: int, filters: int, size: int, window: int, stride: int
) -> None:
    x = Tensor(drawn(1, channels, size, size))
    w = Tensor(drawn(filters, channels, window, window, seed=1))
    scale = Tensor(drawn(filters, 1, 1, 1, seed=2))

    def convolved(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
        return lm.conv2d(x, w * scale, stride=stride, padding=1)

    with using(check=True):
        got = lm.jit(lambda x: convolved(x, w, scale))(x).numpy()
    with using(device="interp"):
        same = [Tensor(one.numpy()) for one in (x, w, scale)]
        expected = convolved(*same).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-3)


def test_the_order_of_a_kept_array_is_part_of_the_schedule() -> None:
    w = Tensor(drawn(96, 256))
    function = lm.jit(lambda x: x @ w.T)
    lowered = function.lower(Tensor(drawn(8, 256)))
    assert "keep(%" in lowered.stages["schedule"]
    assert "keep(%" not in lm.jit(lambda x, w: x @ w.T).lower(
        Tensor(drawn(8, 256)), Tensor(drawn(96, 256))
    ).stages["schedule"]  # fmt: skip


@pytest.mark.parametrize("shape", [(512, 1), (1, 320), ()])
@pytest.mark.parametrize("columns", [320, 33])
def test_constants_that_are_scaled_by_an_argument(shape: tuple[int, ...], columns: int) -> None:
    """Of a factor ``w * s`` w alone is kept."""
    x, w = drawn(128, 512, seed=1), drawn(512, columns, seed=2)
    shape = tuple(columns if size == 320 else size for size in shape)
    weights = Tensor(w)
    product = lm.jit(lambda x, s: x @ (weights * s))
    for seed in (3, 4):
        s = drawn(*shape, seed=seed)
        got = product(Tensor(x), Tensor(s)).numpy()
        np.testing.assert_allclose(got, x @ (w * s), rtol=1e-4, atol=1e-3)


def test_constants_at_places_that_are_given() -> None:
    """Beside a product with the same constant: only that is kept."""
    x, w, places = drawn(64, 96, seed=1), drawn(96, 96, seed=2), np.arange(64)[::-1].copy()
    weights = Tensor(w)
    function = lm.jit(lambda x, places: x @ weights + weights[places])
    got = function(Tensor(x), Tensor(places)).numpy()
    np.testing.assert_allclose(got, x @ w + w[places], rtol=1e-4, atol=1e-4)


def test_an_earlier_quick_call_reads_no_memory_of_then() -> None:
    """Of one signature there are calls by tensors and by arrays: both see what has changed."""
    x, w = drawn(24, 40, seed=1), Tensor(drawn(40, 96, seed=2))
    tensor, function = Tensor(x), lm.jit(lambda x: x @ (w * 2.0))
    for _ in range(3):
        function(tensor)
    for factor in (3.0, 5.0):
        w.assign(w * factor)
        want = x @ (w.numpy() * 2.0)
        np.testing.assert_allclose(function(x).numpy(), want, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(function(tensor).numpy(), want, rtol=1e-4, atol=1e-4)


def test_a_result_that_was_assigned_is_not_given_out_again() -> None:
    x = Tensor(drawn(8, 8))
    function = lm.jit(lambda x: x + 1.0)
    first = function(x)
    first.assign(first * 2.0)
    first.realize()
    del first
    np.testing.assert_array_equal(function(x).numpy(), drawn(8, 8) + 1.0)


def test_to_read_a_constant_makes_no_program_anew() -> None:
    """A copy of its values is nobody's way to write to it."""
    w = Tensor(drawn(40, 96, seed=2))
    function = lm.jit(lambda x: x @ (w * 2.0))
    function(drawn(24, 40))
    program = program_of(function)
    np.array(w, copy=True)
    function(drawn(24, 40))
    assert program_of(function) is program


def test_dropped_programs_keep_nothing() -> None:
    w = Tensor(drawn(40, 96, seed=2))
    function = lm.jit(lambda x: x @ (w * 2.0))
    function(drawn(24, 40))
    assert function._keeping == [program_of(function)]
    w.requires_grad = True  # another program is needed
    function(drawn(24, 40))
    assert all(one is program_of(function) for one in function._keeping)


def test_who_gave_up_does_not_begin_again() -> None:
    w = Tensor(drawn(40, 96, seed=2))
    function = lm.jit(lambda x: x @ (w * 2.0))
    for factor in range(MAX_CHANGES + 3):
        w.assign(w + float(factor))
        function(drawn(24, 40))
    assert not program_of(function).has_constants
    w.requires_grad = True
    function(drawn(24, 40))
    assert not program_of(function).has_constants


def arrays_of(function: lm.jit) -> list[set[int]]:
    """What each program of a function keeps."""
    return [{*map(id, one.kept.arrays)} for one in function._programs.values()]


def test_programs_for_other_shapes_share_what_they_keep() -> None:
    layer = Layer()
    layer.check()
    gc.collect()
    before = lm.memory_stats()["allocated"]
    layer.x = drawn(56, 40, seed=5)
    layer.check()
    first, second = arrays_of(layer.compiled)
    assert first == second != set()
    gc.collect()
    assert lm.memory_stats()["allocated"] < before + layer.w.nbytes
    kept = [one.kept for one in layer.compiled._programs.values()]
    assert kept_bytes(kept) == kept[0].nbytes > 0


@pytest.mark.parametrize("change", CHANGES)
def test_shared_arrays_are_of_the_constants_as_they_are(change: Any) -> None:
    layer = Layer()
    for _ in range(3):
        for rows in (24, 56, 8):
            layer.x = drawn(rows, 40, seed=rows)
            layer.check()
        change(layer)


def test_programs_share_just_what_is_equal() -> None:
    """The table's part has as many rows as the argument, and the weights are the same."""
    w, table = drawn(96, 256, seed=1), drawn(64, 96, seed=2)
    weights, rows = Tensor(w), Tensor(table)
    function = lm.jit(lambda x: x @ weights.T + rows[: x.shape[0]].exp())
    for count in (16, 24, 16, 24):
        x = drawn(count, 256, seed=count)
        expected = x @ w.T + np.exp(table[:count])
        np.testing.assert_allclose(function(Tensor(x)).numpy(), expected, rtol=1e-3, atol=1e-3)
    first, second = arrays_of(function)
    assert len(first) == len(second) == 2
    assert len(first & second) == 1


def test_arrays_of_other_constants_are_not_shared() -> None:
    """Equal programs, whose inputs are others, or the same ones in another order."""
    w, v = drawn(96, 256, seed=1), drawn(96, 256, seed=2)
    weights, others = Tensor(w), Tensor(v)
    one = lm.jit(lambda x: (x @ weights.T).exp() - x @ others.T)
    swapped = lm.jit(lambda x: (x @ others.T).exp() - x @ weights.T)
    x = drawn(24, 256, seed=3) * 0.1
    expected = np.exp(x @ w.T) - x @ v.T
    np.testing.assert_allclose(one(Tensor(x)).numpy(), expected, rtol=1e-3, atol=1e-3)
    expected = np.exp(x @ v.T) - x @ w.T
    np.testing.assert_allclose(swapped(Tensor(x)).numpy(), expected, rtol=1e-3, atol=1e-3)
    assert arrays_of(one) == arrays_of(swapped)
    assert len(arrays_of(one)[0]) == 2
