"""Products of one vector with constants that are decoded from bytes: vectors along rows, over
arrays that are kept in the order of the loops."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, backends
from lamina.core.target import cpu_target
from lamina.io.blocks import BLOCK_TYPES, BlockType, Packed
from lamina.ir.kernel import Store, points
from lamina.loops.moves import Keep, Plan, Stage
from lamina.loops.nest import Nest
from lamina.schedule.cpu.register_tiles import COMPUTED_TILES, cycles_of

reference = pytest.importorskip("gguf")
pytestmark = pytest.mark.usefixtures("on_cpu")  # GPUs keep nothing from call to call


@pytest.fixture(scope="module")
def large() -> Tensor:
    """A constant that fills all caches. Beside it, numbers of 4 bits stay in bytes; those of a
    small weight alone would be kept as floats."""
    return Tensor(np.zeros(33 << 20, np.uint8))


@pytest.fixture
def common_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs for vectors of 64 bytes, and a second-level cache of 1 MiB."""
    target = cpu_target(vector_bytes=64, cores=2)
    monkeypatch.setattr(backends, "target_of", lambda options: target)


def drawn_blocks(kind: BlockType, rows: int, blocks: int) -> np.ndarray:
    """Random bytes whose scales are finite."""
    random = np.random.default_rng(rows + blocks)
    while True:
        data = random.integers(0, 256, (rows, blocks, kind.nbytes), np.uint8)
        data[..., ::2] &= 0x1F  # halves of either byte order then have exponents below the largest
        data[..., 1::2] &= 0x1F
        if np.isfinite(decoded(kind, data)).all():
            return data


def decoded(kind: BlockType, data: np.ndarray) -> np.ndarray:
    code = reference.GGMLQuantizationType[kind.name]
    wanted: np.ndarray = reference.quants.dequantize(data.reshape(len(data), -1), code)
    return wanted.astype(np.float64)


def plans_of(function: Callable[[Tensor], Tensor], x: Tensor) -> list[Plan]:
    """Of what every call runs."""
    return list(lm.jit(function).lower(x).planned.plans.values())


def keeps(plan: Plan) -> int:
    return sum(isinstance(move, Keep) for move in plan.moves)


CASES = [(kind, 37) for kind in BLOCK_TYPES.values()] + [
    (BLOCK_TYPES[3], 16),
    (BLOCK_TYPES[3], 200),
]


@pytest.mark.parametrize(("kind", "rows"), CASES, ids=lambda one: getattr(one, "name", str(one)))
def test_products_with_one_vector(kind: BlockType, rows: int, large: Tensor) -> None:
    data = drawn_blocks(kind, rows, 3)
    packed = Packed(kind, Tensor(data))
    x = np.random.default_rng(rows).standard_normal((1, 1, packed.shape[1]), dtype=np.float32)
    product = lm.jit(lambda x: x @ packed.decode().T + large[0].cast(lm.float32))
    got = product(Tensor(x)).numpy()
    wanted = x.astype(np.float64) @ decoded(kind, data).T
    np.testing.assert_allclose(got, wanted, atol=2e-6 * np.abs(wanted).max())


def block_type(name: str) -> BlockType:
    return next(kind for kind in BLOCK_TYPES.values() if kind.name == name)


@pytest.mark.parametrize("kind", BLOCK_TYPES.values(), ids=lambda kind: kind.name)
@pytest.mark.parametrize(("rows", "columns"), [(2, 37), (7, 128), (15, 144), (33, 200)])
def test_products_with_several_vectors(
    kind: BlockType, rows: int, columns: int, large: Tensor
) -> None:
    data = drawn_blocks(kind, columns, 3)
    packed = Packed(kind, Tensor(data))
    x = np.random.default_rng(rows).standard_normal((rows, packed.shape[1]), dtype=np.float32)
    product = lm.jit(lambda x: x @ packed.decode().T + large[0].cast(lm.float32))
    got = product(Tensor(x)).numpy()
    wanted = x.astype(np.float64) @ decoded(kind, data).T
    np.testing.assert_allclose(got, wanted, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(("rows", "is_computed_first"), [(4, False), (32, True), (128, True)])
@pytest.mark.usefixtures("common_cpu")
@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_tiles_of_rows_share_a_panel_of_floats(
    name: str, rows: int, large: Tensor, *, is_computed_first: bool
) -> None:
    kind = block_type(name)
    packed = Packed(kind, Tensor(drawn_blocks(kind, 256, 18)))
    x = lm.ones((rows, packed.shape[1])).realize()
    (plan,) = plans_of(lambda x: x @ packed.decode().T + large[0].cast(lm.float32), x)
    assert keeps(plan) == (3 if name == "Q4_1" else 2)  # no floats lie in the program's memory
    assert isinstance(plan.nest, Nest)
    floats = [fill for fill in plan.nest.fills if fill.value.dtype is lm.float32]
    assert sum(isinstance(move, Stage) for move in plan.moves) == is_computed_first
    assert [points(fill.axes) for fill in floats] == [576 * 128] * is_computed_first


@pytest.mark.parametrize(
    ("rows", "cycles"),
    [
        (32, [16.5, 16.0]),  # 5 tiles of 6 and one of 2; 4 of 8
        (12, [6.0, 6.0]),  # 2 tiles of 6
        (17, [8.5, 8.5]),  # 2 tiles of 6 and one of 5
        (7, [3.5, 3.5]),  # one of 4 and one of 3, which takes no less than its vectors; one of 7
    ],
)
def test_cycles_of_tiles_of_rows(rows: int, cycles: list[float]) -> None:
    assert [cycles_of(tile, rows) for tile in COMPUTED_TILES[64]] == cycles


@pytest.mark.parametrize(
    ("columns", "blocks", "panel"),
    [
        (512, 18, 128),
        (576, 18, 96),  # six panels, three for each of two threads; 128 would leave one of 64
        (584, 18, 64),  # nothing divides these but single tiles
        (512, 48, 64),  # 1536 steps of 64 columns are 384 KiB of a cache of 1 MiB
    ],
)
@pytest.mark.usefixtures("common_cpu")
def test_columns_of_a_panel_of_floats(
    columns: int, blocks: int, panel: int, large: Tensor
) -> None:
    packed = Packed(block_type("Q4_0"), Tensor(drawn_blocks(block_type("Q4_0"), columns, blocks)))
    x = lm.ones((32, packed.shape[1])).realize()
    (plan,) = plans_of(lambda x: x @ packed.decode().T + large[0].cast(lm.float32), x)
    assert isinstance(plan.nest, Nest)
    assert [points(fill.axes) for fill in plan.nest.fills] == [packed.shape[1] * panel]


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_lanes_are_rows_and_bytes_stay_bytes(name: str, large: Tensor) -> None:
    kind = block_type(name)
    packed = Packed(kind, Tensor(drawn_blocks(kind, 256, 18)))
    x = lm.ones((1, packed.shape[1])).realize()
    (plan,) = plans_of(lambda x: x @ packed.decode().T + large[0].cast(lm.float32), x)
    assert keeps(plan) == (3 if name == "Q4_1" else 2)  # numbers, scales, and minima
    assert isinstance(plan.nest, Nest)
    (lane,) = [axis for axis, bound in plan.nest.binding.items() if bound == "vector"]
    assert not lane.arg.reduce
    numbers = 32 if name == "Q8_0" else 16  # bytes of a block of 32
    assert {fill.value.dtype.name for fill in plan.nest.kept} <= {"uint8", "int8", "float16"}
    assert max(len_of(fill) for fill in plan.nest.kept) == 256 * 18 * numbers


def len_of(fill: Store) -> int:
    """The elements of an array that is kept."""
    return points(fill.axes)


@pytest.mark.parametrize(("blocks", "is_asked"), [(2, False), (18, True)])
def test_numbers_are_asked_for_two_pages_ahead(blocks: int, is_asked: bool) -> None:
    """Each cache line once; those of 16 KiB are still in the nearest cache."""
    kind = BLOCK_TYPES[8]
    packed = Packed(kind, Tensor(drawn_blocks(kind, 256, blocks)))
    x = lm.ones((1, packed.shape[1])).realize()
    text = lm.jit(lambda x: x @ packed.decode().T).lower(x).source
    places = re.findall(r"AHEAD\((.*), 8192, 3\);", text)
    assert bool(places) == is_asked
    assert len({*places}) == len(places)
    offsets = [int(place.rpartition(" + ")[2]) for place in places if re.search(r"\+ \d+$", place)]
    assert all(offset % 64 == 0 for offset in offsets)


@pytest.mark.parametrize(("rows", "is_asked"), [(4, False), (32, True)])
@pytest.mark.parametrize("name", ["Q4_1", "Q8_0"])
@pytest.mark.usefixtures("common_cpu")
def test_numbers_of_the_next_panel_are_asked_for_beside_products(
    name: str, rows: int, large: Tensor, *, is_asked: bool
) -> None:
    """Panels of 128 columns; two numbers of 4 bits are in a byte."""
    packed = Packed(block_type(name), Tensor(drawn_blocks(block_type(name), 256, 18)))
    x = lm.ones((rows, packed.shape[1])).realize()
    text = lm.jit(lambda x: x @ packed.decode().T + large[0].cast(lm.float32)).lower(x).source
    places = re.findall(r"AHEAD\((p\d+) .*, (\d+), 2\);", text)
    panel = 128 * 576 // (2 if name == "Q4_1" else 1)
    assert {int(ahead) for _, ahead in places} == ({panel} if is_asked else set())
    assert len({array for array, _ in places}) == is_asked  # the scales of blocks are few


def test_what_is_kept_is_one_block_of_memory(large: Tensor) -> None:
    """Which may have large pages, though each array is small."""
    kind = BLOCK_TYPES[8]
    packed = Packed(kind, Tensor(drawn_blocks(kind, 256, 18)))
    product = lm.jit(lambda x: x @ packed.decode().T + large[0].cast(lm.float32))
    product(lm.ones((1, packed.shape[1]))).realize()
    (program,) = product._programs.values()
    owners = {id(array.owner) for array in program.kept.arrays}
    assert len(program.kept.arrays) > 1
    assert len(owners) == 1


def test_two_products_share_their_loops() -> None:
    """As the two of a gated layer do, each with scales and sums of its own."""
    kind = BLOCK_TYPES[3]
    blocks = [drawn_blocks(kind, rows, 18)[:4096] for rows in (4096, 4097)]
    gate, up = (Packed(kind, Tensor(data)) for data in blocks)
    x = np.random.default_rng(0).standard_normal((1, 576), dtype=np.float32)

    def gated(x: Tensor) -> Tensor:
        return lm.silu(x @ gate.decode().T) * (x @ up.decode().T)

    a, b = (x.astype(np.float64) @ decoded(kind, data).T for data in blocks)
    wanted = a / (1 + np.exp(-a)) * b
    np.testing.assert_allclose(
        lm.jit(gated)(Tensor(x)).numpy(), wanted, atol=2e-6 * np.abs(wanted).max()
    )
    assert max(map(keeps, plans_of(gated, Tensor(x)))) == 6


@pytest.mark.parametrize("dtype", [lm.float16, lm.float32])
def test_wider_weights_stay_where_they_are(dtype: lm.DType) -> None:
    w = Tensor(np.random.default_rng(0).standard_normal((4096, 64))).cast(dtype).realize()
    (plan,) = plans_of(lambda x: x @ w.cast(lm.float32).T, lm.ones((1, 64)).realize())
    assert not keeps(plan)


def test_sums_of_integers_stay_sums_of_words() -> None:
    w = Tensor(np.random.default_rng(0).integers(-9, 9, (4096, 64), np.int8)).realize()
    x = Tensor(np.random.default_rng(1).integers(-9, 9, (1, 64), np.int8)).realize()
    function = lm.jit(lambda x: (x.cast(lm.int32) * w.cast(lm.int32)).sum(axis=1))
    np.testing.assert_array_equal(
        function(x).numpy(), (x.numpy().astype(int) * w.numpy()).sum(axis=1)
    )
    assert not any(map(keeps, plans_of(function.function, x)))


def test_a_weight_that_is_an_argument_is_not_kept() -> None:
    data = Tensor(drawn_blocks(BLOCK_TYPES[8], 4096, 4))
    lowered = lm.jit(lambda x, data: x @ Packed(BLOCK_TYPES[8], data).decode().T).lower(
        lm.ones((1, 128)).realize(), data
    )
    assert not any(map(keeps, lowered.planned.plans.values()))
