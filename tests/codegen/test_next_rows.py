"""What a register tile of a product asks for ahead, and the order of its steps."""

from __future__ import annotations

import re

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor
from lamina.graph import index as ix
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.targets.c import prefetches

pytestmark = pytest.mark.usefixtures("on_cpu")

RANDOM = np.random.default_rng(3)


def drawn(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RANDOM.standard_normal(shape, dtype=np.float32)


@pytest.mark.parametrize("steps", [15, 16, 48, 200])
def test_the_next_rows_of_a_large_array_are_asked_for(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(prefetches, "SECOND_CACHE", 64)
    a, b = drawn(64, steps), drawn(steps, 64)
    found = (lm.asarray(a) @ lm.asarray(b)).numpy()
    np.testing.assert_allclose(found, a @ b, atol=1e-4)
    (text,) = texts
    asked = re.findall(rf"AHEAD\(p0 .* \+ {steps - 1} \* \(k & 15\), (\d+), 3\)", text)
    if steps < 16:  # fewer than a line has
        assert asked == []
    else:
        assert asked
        assert all(int(elements) % steps == 0 for elements in asked)


def test_the_next_rows_of_a_small_array_are_not_asked_for(texts: list[str]) -> None:
    (lm.asarray(drawn(64, 48)) @ lm.asarray(drawn(48, 64))).numpy()
    (text,) = texts
    assert "AHEAD" not in text


@pytest.mark.parametrize(
    ("steps", "columns", "are_asked_for"),
    [
        (128, 32, True),
        (128, 256, True),
        (128, 1024, False),  # read 16 times or more
        (21, 32, False),  # 8064 elements, which the nearest cache holds
    ],
)
def test_the_next_rows_of_constants_are_asked_for(
    texts: list[str], steps: int, columns: int, *, are_asked_for: bool
) -> None:
    """Scalars of a weight, which other kernels have displaced since the call before."""
    w, x = drawn(384, steps), drawn(columns, steps)
    weights = lm.asarray(w)
    found = lm.jit(lambda x: weights @ x.T)(lm.asarray(x)).numpy()
    np.testing.assert_allclose(found, w @ x.T, atol=1e-3)
    (text,) = texts
    asked = re.findall(rf"AHEAD\(p\d .* \+ {steps - 1} \* \(.* & 15\), \d+, 3\)", text)
    assert bool(asked) == are_asked_for


def test_rows_a_page_apart_leave_the_nearest_cache_to_those_of_the_tile(
    texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetches, "SECOND_CACHE", 64)
    a, b = drawn(32, 1024), drawn(1024, 32)
    found = (lm.asarray(a) @ lm.asarray(b)).numpy()
    np.testing.assert_allclose(found, a @ b, atol=1e-3)
    (text,) = texts
    nearest = re.findall(r"AHEAD\(.*1023 \* \(\w+ & 15\), \d+, (\d)\)", text)
    assert nearest
    assert set(nearest) == {"2"}


@pytest.mark.parametrize(("rows", "columns"), [(260, 40), (250, 40), (700, 20), (700, 90)])
def test_steps_that_lie_far_apart_are_asked_for(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, rows: int, columns: int
) -> None:
    """Single numbers of the gradient of a weight, from rows of 1 KiB on, 16 steps ahead."""
    monkeypatch.setattr(prefetches, "SECOND_CACHE", 64)
    a, b = drawn(96, rows), drawn(96, columns)
    found = (lm.asarray(a).T @ lm.asarray(b)).numpy()
    np.testing.assert_allclose(found, a.T @ b, atol=1e-3)
    text = texts[-1]
    asked = re.findall(rf"AHEAD\(p\d \+ .*, {16 * rows}, 3\)", text)
    assert bool(asked) == (rows >= 256)


def two_convolutions(x: Tensor, first: Tensor, second: Tensor) -> Tensor:
    return lm.conv2d(lm.relu(lm.conv2d(x, first)), second, padding=1)


SHAPES = [(2, 16, 20, 20), (32, 16, 1, 1), (48, 32, 3, 3)]


def test_neighbouring_channels_are_neighbouring_steps() -> None:
    """A convolution of images with their channels last."""
    lowered = lm.jit(two_convolutions).lower(*map(lm.TensorSpec, SHAPES), device="cpu")
    nests = [plan.nest for plan in lowered.planned.plans.values()]
    of_windows = [
        nest
        for nest in nests
        if isinstance(nest, Nest) and len([axis for axis in nest.order if axis.arg.reduce]) == 3
    ]
    assert of_windows
    for nest in of_windows:
        loads = [node for node in nest.kernel.nodes if node.op is Op.LOAD]
        image = max(loads, key=lambda load: nest.kernel.parameters[load.arg.parameter].size)
        strides, _ = ix.terms_of(image.src[0])
        steps = [strides[axis] for axis in nest.order if axis.arg.reduce]
        assert steps == sorted(steps, reverse=True)
        assert steps[-1] == 1


@pytest.mark.parametrize("least", [64, 1 << 20])
def test_convolutions_agree_with_pytorch(
    texts: list[str], monkeypatch: pytest.MonkeyPatch, least: int
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(prefetches, "SECOND_CACHE", least)
    x, first, second = (drawn(*shape) for shape in SHAPES)
    found = lm.jit(two_convolutions)(*map(lm.asarray, (x, first, second)))
    inside = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(first)).relu()
    wanted = torch.nn.functional.conv2d(inside, torch.from_numpy(second), padding=1)
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=2e-3)
