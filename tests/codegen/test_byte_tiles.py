"""Products of 8-bit integers by instructions on tiles, against NumPy, which is exact.

A CPU without such instructions runs the same texts: `lamina/targets/c/byte_tiles.c` says in C what
they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor, backends, pipeline
from lamina.core.options import using
from lamina.core.target import cpu_target
from lamina.errors import FormatError
from lamina.ir.node import toposort
from lamina.ir.ops import Op
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.targets import texts

pytestmark = pytest.mark.usefixtures("on_cpu")
NARROW = st.sampled_from([np.uint8, np.int8])
WITHOUT_TILES = frozenset({"unsigned_by_signed"})
WITH_TILES = WITHOUT_TILES | {"byte_tiles"}


@pytest.fixture(scope="module", autouse=True)
def _a_cpu_with_tiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """With a cache of its own, so that the plans of all programs are made here."""
    with using(cache_dir=str(tmp_path_factory.mktemp("cache"))), pytest.MonkeyPatch.context() as it:
        _use(WITH_TILES, it)
        yield


def _use(engines: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make programs for a CPU with these engines."""
    target = cpu_target(vector_bytes=64, cores=2, engines=engines)
    for module in (backends, pipeline):
        monkeypatch.setattr(module, "target_of", lambda options: target)


def _bytes(dtype: type, shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8).view(dtype)


def _product(x: Tensor, w: Tensor) -> Tensor:
    return x.cast(lm.int32) @ w.cast(lm.int32)


def _transposed(x: Tensor, w: Tensor) -> Tensor:
    return x.cast(lm.int32) @ w.T.cast(lm.int32)


def _text(function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> str:
    """The kernels of a function of int8 arrays."""
    specs = [lm.TensorSpec(shape, lm.int8) for shape in shapes]
    return "".join(kernel.source for kernel in lm.jit(function).lower(*specs).kernels)


@settings(deadline=None, max_examples=25)
@given(
    NARROW, NARROW, st.integers(40, 100), st.integers(16, 70), st.integers(60, 210), st.booleans()
)
@example(np.int8, np.int8, 65, 33, 64 * 3 + 4 * 5 + 2, True)
def test_products_are_exact(
    left: type, right: type, rows: int, columns: int, steps: int, is_transposed: bool
) -> None:
    """Whatever rows, columns, words and bytes are left over."""
    a = _bytes(left, (rows, steps), 1)
    b = _bytes(right, (columns, steps) if is_transposed else (steps, columns), 2)
    multiply = lm.jit(_transposed if is_transposed else _product)
    got = multiply(lm.asarray(a), lm.asarray(b)).numpy()
    want = a.astype(np.int32) @ (b.T if is_transposed else b).astype(np.int32)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("steps", [256, 270])
def test_a_constant_factor_and_what_follows(steps: int) -> None:
    """The kept panel of a captured factor is read by tiles; a scale and a tanh follow."""
    a, b = _bytes(np.int8, (70, steps), 3), _bytes(np.int8, (steps, 48), 4)
    weight = lm.asarray(b)
    function = lm.jit(lambda x: lm.tanh(_product(x, weight).cast(lm.float32) * 1e-4))
    sums = (a.astype(np.int32) @ b.astype(np.int32)).astype(np.float32)
    np.testing.assert_allclose(function(lm.asarray(a)).numpy(), np.tanh(sums * 1e-4), atol=1e-6)


def test_c_says_what_the_instructions_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same kernel without AMX, as any other processor runs it."""
    read = Path.read_text

    def without_instructions(path: Path, *args: str, **named: str) -> str:
        text = read(path, *args, **named)
        return text.replace("defined __AMX_INT8__", "0") if path.name == "byte_tiles.c" else text

    a, b = _bytes(np.int8, (72, 331), 5), _bytes(np.uint8, (331, 53), 6)
    with monkeypatch.context() as patch:
        patch.setattr(texts.Path, "read_text", without_instructions)
        got = lm.jit(_product)(lm.asarray(a), lm.asarray(b)).numpy()
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("function", [_product, _transposed])
def test_many_rows_take_one_kernel_of_tiles(function: Callable[..., Tensor]) -> None:
    """No byte is flipped, and no row summed for that."""
    text = _text(function, (96, 320), (320, 64) if function is _product else (64, 320))
    assert text.count("KERNEL(") == 1
    assert "TILE_DOT(0, i8, 4, i8, 5)" in text
    assert "^" not in text


@pytest.mark.parametrize(
    ("rows", "steps"),
    [(8, 320), (96, 48)],  # rows that fill no tile; fewer bytes than a row of a tile has
)
def test_others_take_words(rows: int, steps: int) -> None:
    assert "TILE_DOT" not in _text(_product, (rows, steps), (steps, 64))


@pytest.mark.parametrize("shape", [(32, 0, 48), (0, 128, 48), (32, 128, 0)], ids=str)
def test_products_of_nothing(shape: tuple[int, int, int]) -> None:
    rows, steps, columns = shape
    left, right = np.ones((rows, steps), np.int8), np.ones((steps, columns), np.uint8)
    product = Tensor(left).cast(lm.int32) @ Tensor(right).cast(lm.int32)
    np.testing.assert_array_equal(product.numpy(), left.astype(np.int32) @ right.astype(np.int32))


def test_rows_that_lie_apart_take_words() -> None:
    """The bytes of a row of a tile are read at once, which these are not neighbours for."""
    text = _text(lambda x, w: _product(x.T, w), (320, 96), (320, 64))
    assert "TILE_DOT" not in text


def test_tiles_are_predicted_to_take_less(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = [lm.TensorSpec(shape, lm.int8) for shape in ((512, 2048), (2048, 256))]
    tiles = lm.jit(_product).lower(*shapes).cost
    _use(WITHOUT_TILES, monkeypatch)
    words = lm.jit(_product).lower(*shapes).cost
    assert tiles.bound <= tiles.seconds < words.seconds / 2


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("split(a2, 16) -> a3, a4; bind(a4, tile)", "no words of four bytes"),
        (
            "split(a2, 4) -> a3, a4; split(a3, 32) -> a5, a6; bind(a4, dot); bind(a6, tile)",
            "32 words",
        ),
    ],
)
def test_a_row_of_a_tile_is_words(schedule: str, problem: str) -> None:
    x, w = Tensor(_bytes(np.uint8, (32, 256), 7)), Tensor(_bytes(np.int8, (256, 32), 8))
    with using(schedule=schedule), pytest.raises(FormatError, match=problem):
        _product(x, w).numpy()


def test_a_plan_names_its_tiles() -> None:
    specs = [lm.TensorSpec(shape, lm.int8) for shape in ((100, 300), (300, 64))]
    lowered = lm.jit(_product).lower(*specs)
    ((_, plan),) = lowered.planned.plans.items()
    assert isinstance(plan, Plan)
    assert isinstance(plan.nest, Nest)
    assert [axis.arg.size for axis, to in plan.nest.binding.items() if to == "tile"] == [16]


@pytest.mark.parametrize("engines", [WITHOUT_TILES, WITH_TILES], ids=["words", "tiles"])
@pytest.mark.parametrize(("rows", "columns"), [(24, 40), (17, 100), (20, 333)])
def test_bytes_in_several_rows_are_packed_for_few_rows(
    rows: int, columns: int, engines: frozenset[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are made once of the factor whose bytes lie apart, which has the lanes."""
    _use(engines, monkeypatch)
    steps = 900 + len(engines)  # plans of other engines are of other shapes
    specs = [lm.TensorSpec(shape, lm.int8) for shape in ((rows, steps), (steps, columns))]
    *_, plan = lm.jit(_product).lower(*specs).planned.plans.values()
    staged = [fill.value for fill in plan.nest.fills]
    loads = [node.arg.parameter for node in toposort(staged) if node.op is Op.LOAD]
    assert loads == [1]
    a, b = _bytes(np.int8, (rows, steps), 9), _bytes(np.int8, (steps, columns), 10)
    got = lm.jit(_product)(lm.asarray(a), lm.asarray(b)).numpy()
    np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
