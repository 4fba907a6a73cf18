"""Sums of products from tiles that the threads of a block share: what they compute on a GPU, what
compiles, and where the elements of a tile, the sums of a thread and the results of a warp are."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, pipeline
from lamina.compiled import Planned
from lamina.core import options
from lamina.core.shape import Shape
from lamina.core.target import cuda_engines, cuda_target
from lamina.errors import FormatError
from lamina.frontend.realize import opened_as_computed
from lamina.frontend.session import SESSION
from lamina.ir import build
from lamina.ir.monoids import ADD
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.nest import Nest
from lamina.loops.text import parse, to_text
from lamina.runtime import cuda
from lamina.runtime.nvrtc import compile_source
from lamina.runtime.source import KERNELS
from lamina.schedule.gpu.atoms import ATOMS
from lamina.schedule.gpu.tensorize import Tensorize
from lamina.targets.cuda.results import RowLines
from lamina.tiles import decisions
from tests.generators import leaf

GPU = "cuda:0"
TOLERANCE = {lm.bfloat16: 2e-2, lm.float16: 2e-3, lm.float32: 2e-5}
TF32 = 2e-3  # 11 bits of each factor
SIZES = [(64, 64, 64), (129, 65, 257), (200, 304, 408), (17, 33, 31), (256, 512, 1024),
         (9, 2048, 1600)]  # fmt: skip
WARP, BANKS = 32, 32


def wide(x: Tensor) -> Tensor:
    return x.cast(lm.float32) if isinstance(x, Tensor) else x


FORMS: dict[str, tuple[Callable[..., object], list[tuple[int, ...]]]] = {
    "batch": (lambda a, b: a @ b, [(3, 100, 96), (3, 96, 136)]),
    "broadcast": (lambda a, b: a @ b, [(3, 100, 96), (96, 136)]),
    "turned result": (lambda a, b: (a @ b).T + 1, [(200, 96), (96, 136)]),
    "axes apart": (lambda a, b: (a[:, :, :, None] * b).sum((1, 2)), [(70, 6, 50), (6, 50, 90)]),
    "epilogue": (lambda a, b, c: (a @ b + c) * c, [(300, 200), (200, 264), (264,)]),
    "rest": (lambda a, b, c: a @ b + c, [(300, 200), (200, 264), (300, 264)]),
    "window": (lambda a, b: a[:, 8:] @ b[8:], [(300, 200), (200, 264)]),
    "wide results": (lambda a, b: wide(a) @ wide(b), [(300, 96), (96, 132)]),
    "two results": (lambda a, b: (a @ b, abs(a @ b)), [(300, 200), (200, 264)]),
    "more results": (lambda a, b: (a @ b, -(a @ b), a @ b + 1), [(300, 200), (200, 264)]),
    "padded": (lambda a, b, c: (a @ b) @ c, [(300, 200), (200, 133), (133, 264)]),
    "of two widths": (lambda a, b: (a @ b, wide(a @ b) + 1), [(300, 200), (200, 264)]),
}


def run(
    form: Callable[..., object], shapes: list[tuple[int, ...]], dtype: lm.DType, device: str = GPU
) -> None:
    """Compare `form` of random arrays with NumPy in float64."""
    rng = np.random.default_rng(len(shapes))
    arrays = [rng.standard_normal(shape).astype(dtype.numpy) for shape in shapes]
    wanted = several(form(*(one.astype(np.float64) for one in arrays)))
    with options.using(device=device):
        got = several(form(*map(Tensor, arrays)))
    lm.realize(*got)
    tolerance = max(TOLERANCE[dtype], TF32 * options.current().tf32)
    for one, want in zip(got, wanted, strict=True):
        found, scale = one.numpy().astype(np.float64), np.abs(want).max()
        np.testing.assert_allclose(found, want, tolerance, tolerance * scale)


def several(results: object) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.usefixtures("device")
def test_sizes_and_orders(size: tuple[int, int, int], dtype: lm.DType) -> None:
    m, k, n = size
    run(lambda a, b: a @ b, [(m, k), (k, n)], dtype)
    run(lambda a, b: a @ b.T, [(m, k), (n, k)], dtype)
    run(lambda a, b: a.T @ b, [(k, m), (k, n)], dtype)
    run(lambda a, b: a.T @ b.T, [(k, m), (n, k)], dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("device")
def test_forms(name: str, dtype: lm.DType) -> None:
    run(*FORMS[name], dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.usefixtures("device")
def test_windows_beyond_the_ends(dtype: lm.DType) -> None:
    rng, found = np.random.default_rng(0), []
    arrays = [rng.standard_normal(shape) for shape in ((2, 32, 20, 20), (48, 32, 3, 3))]
    for device in (GPU, "cpu"):
        with options.using(device=device):
            x, w = (Tensor(one).cast(dtype) for one in arrays)
            found.append(lm.conv2d(x, w, padding=1).cast(lm.float32).numpy())
    tolerance = TOLERANCE[dtype] * np.abs(found[1]).max()
    np.testing.assert_allclose(*found, TOLERANCE[dtype], tolerance)


def channels_last(function: Callable[..., Tensor], *given: Tensor, **how: Any) -> Tensor:
    """`function` of images and filters whose channels are the last axis, as in its result."""
    x, w = (lm.permute_dims(one, (0, 3, 1, 2)) for one in given)
    return lm.permute_dims(function(x, w, **how), (0, 2, 3, 1))


Convolution = tuple[Shape, Shape, Shape, dict[str, Any]]
# Images, height and width; channels, filters; the filter's sides; and the options.
CONVOLUTIONS: list[Convolution] = [
    ((3, 12, 10), (64, 72), (3, 3), {"padding": 1}),
    ((2, 15, 9), (64, 64), (3, 5), {"padding": (1, 2)}),
    ((2, 16, 16), (64, 64), (3, 3), {}),
    ((2, 16, 15), (64, 40), (3, 3), {"padding": 1, "stride": 2}),
    ((3, 16, 14), (72, 64), (1, 1), {"stride": 2}),
    ((2, 17, 16), (64, 64), (3, 3), {"padding": 2, "dilation": 2}),
    ((1, 20, 24), (24, 64), (3, 3), {"padding": 1}),
    ((2, 24, 24), (3, 64), (7, 7), {"padding": 3, "stride": 2}),
    ((2, 12, 12), (64, 64), (3, 3), {"padding": 1, "groups": 2}),
]


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
@pytest.mark.parametrize("engine", [True, False])
@pytest.mark.usefixtures("device")
def test_convolutions(
    case: Convolution, dtype: lm.DType, engine: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    (n, *sides), (channels, filters), window, how = case
    if not engine:
        monkeypatch.setattr(decisions, "engine_copy", lambda *_, **__: None)
    SESSION.forget()
    rng = np.random.default_rng(0)
    shapes = (n, *sides, channels), (filters, *window, channels // how.get("groups", 1))
    with options.using(device=GPU):
        x, w = (Tensor(rng.standard_normal(one)).cast(dtype) for one in shapes)
        y = channels_last(lm.conv2d, x, w, **how)
        dy = Tensor(rng.standard_normal(y.shape)).cast(dtype)
        got = [y, *lm.gradient(y, [x, w], dy)]
    SESSION.forget()
    exact = [torch.from_numpy(one.cast(lm.float64).numpy()).movedim(3, 1) for one in (x, w, dy)]
    left, right, seed = (one.requires_grad_() for one in exact)
    result = torch.nn.functional.conv2d(left, right, **how)
    wanted = [result.detach(), *torch.autograd.grad(result, [left, right], seed)]
    for one, want in zip(got, wanted, strict=True):
        scale = TOLERANCE[dtype] * float(want.abs().max())
        found = one.cast(lm.float64).numpy()
        np.testing.assert_allclose(found, want.movedim(1, 3), TOLERANCE[dtype], scale)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", [(100, 8200, 200), (300, 5000, 700), (768, 4096, 3072)], ids=str)
@pytest.mark.usefixtures("device")
def test_blocks_share_tiles(size: tuple[int, int, int], dtype: lm.DType) -> None:
    m, k, n = size
    *_, launch = planned(*size, dtype).launches  # rows of 700 halves are stored longer before it
    assert launch.blocks > 100  # of which several have parts of a tile, in an order that stays
    run(lambda a, b: a @ b, [(m, k), (k, n)], dtype)
    run(lambda a, b, c: (a.T @ b + c) * c, [(k, m), (k, n), (n,)], dtype)
    rng = np.random.default_rng(0)
    with options.using(device=GPU):
        a, b = (Tensor(rng.standard_normal(one)).cast(dtype) for one in ((m, k), (k, n)))
        first, again = ((a @ b).cast(lm.float32).numpy() for _ in range(2))
    np.testing.assert_array_equal(first, again)


@pytest.mark.usefixtures("device")
def test_threads_fill_what_the_engine_could(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "engine_copy", lambda *_, **__: None)
    SESSION.forget()
    for dtype, size in product(TOLERANCE, SIZES):
        run(lambda a, b: a @ b, [size[:2], size[1:]], dtype)
    with options.using(tf32=True):
        run(lambda a, b: a @ b, [(200, 304), (304, 408)], lm.float32)
    SESSION.forget()


@pytest.mark.parametrize("size", [*SIZES, (300, 5000, 700)], ids=str)
@pytest.mark.parametrize("arch", ["", "sm_90"])  # which has no instructions of a single kind of GPU
@pytest.mark.usefixtures("device")
def test_sizes_and_orders_of_tf32(
    size: tuple[int, int, int], arch: str, device: cuda.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if arch:
        target = replace(device.target, arch=arch, engines=cuda_engines(arch))
        monkeypatch.setattr(cuda, "target_of", lambda name: target)
        monkeypatch.setattr(device, "arch", arch)
    SESSION.forget()
    m, k, n = size
    with options.using(tf32=True):
        run(lambda a, b: a @ b, [(m, k), (k, n)], lm.float32)
        run(lambda a, b: a @ b.T, [(m, k), (n, k)], lm.float32)
        run(lambda a, b: a.T @ b, [(k, m), (k, n)], lm.float32)
        run(lambda a, b: a.T @ b.T, [(k, m), (n, k)], lm.float32)
    SESSION.forget()


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("device")
def test_forms_of_tf32(name: str) -> None:
    with options.using(tf32=True):
        run(*FORMS[name], lm.float32)


@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_only_the_left_tile_of_tf32_is_turned(turned: str) -> None:
    a, b = (leaf(at, (512, 512), lm.float32) for at in range(2))
    left, right = (Tensor.of(one, "cpu") for one in (a, b))
    given = left.T if "a" in turned else left, right.T if "b" in turned else right
    chosen = replace(options.current(), device=GPU, tf32=True)
    sinks = opened_as_computed([(given[0] @ given[1]).node], {})
    (plan,) = pipeline.compile_source(sinks, chosen).plans.values()
    assert isinstance(plan.nest, Nest)
    assert plan.nest.atom.startswith("mma_tf32")
    lies = [one.axes[0].arg.reduce for one in plan.nest.tiles]
    assert lies == [turned != "b", False]


def test_float32_is_exact_unless_tf32_is_asked_for() -> None:
    given = replace(options.current(), device=GPU)
    a, b = (Tensor.of(leaf(at, (512, 512), lm.float32), "cpu") for at in range(2))
    sinks = opened_as_computed([(a @ b).node], {})
    exact, rounded = (
        pipeline.compile_source(sinks, one).text.partition(KERNELS)[2]
        for one in (given, replace(given, tf32=True))
    )
    assert ("load_factors(" in exact, "tf32" in exact) == (True, False)
    assert ("load_factors(" in rounded, "wgmma_tf32" in rounded) == (False, True)


@pytest.mark.parametrize("dtype", [lm.float16, lm.float32])
def test_tensor_cores_that_a_gpu_lacks_multiply_nothing(dtype: lm.DType) -> None:
    """Threads do, of float32 in tiles; a schedule that asks for tensor cores is refused."""
    (plan,) = planned(512, 512, 512, dtype, tf32=True, arch="sm_75").plans.values()
    atoms = [move.atom for move in plan.moves if isinstance(move, Tensorize)]
    assert [atom[:7] for atom in atoms] == ["fma_f32"] * (dtype is lm.float32)
    kind = "f16" if dtype is lm.float16 else "tf32"
    with pytest.raises(FormatError, match="sm_75 has no tensor cores"):
        planned(512, 512, 512, dtype, f"tensorize(mma_{kind}_64x64)", tf32=True, arch="sm_75")


@pytest.mark.parametrize(("size", "dtype", "tiles"), [
    ((2, 4096, 512), lm.bfloat16, False), ((512, 64, 8), lm.float16, True),
    ((8, 4096, 4096), lm.float32, True), ((64, 65536, 64), lm.float32, True),
    ((2, 4096, 4096), lm.float32, False),  # of a tile's rows so many would be empty
    ((64, 64, 64), lm.float32, False), ((4, 4096, 4), lm.bfloat16, False),
    ((65536, 16, 4), lm.bfloat16, False),  # read and written at memory speed
])  # fmt: skip
def test_few_rows_or_tiles_that_are_worth_it(
    size: tuple[int, int, int], dtype: lm.DType, tiles: bool
) -> None:
    plans = planned(*size, dtype).plans.values()
    assert any(isinstance(one.nest, Nest) and one.nest.atom for one in plans) is tiles


def planned(
    m: int, k: int, n: int, dtype: lm.DType, schedule: str = "", tf32: bool = False, arch: str = ""
) -> Planned:
    """The program of a product of two matrices."""
    a, b = leaf(0, (m, k), dtype), leaf(1, (k, n), dtype)
    wide = [build.reshape(a, (m, k, 1)), build.reshape(b, (1, k, n))]
    left, right = (build.expand(one, (m, k, n)) for one in wide)
    result: Node = build.reduce(ADD, [1], left * right)
    chosen = replace(options.current(), device=GPU, schedule=schedule, tf32=tf32, arch=arch)
    return pipeline.compile_source([result], chosen)


# Each program is compiled for two kinds of GPUs, and for each kind one of a dtype or more.
ARCHITECTURES = [("sm_80", "sm_100"), ("sm_86", "sm_90a"), ("sm_75", "sm_90a")] * 2


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("size", "archs"), [*zip(SIZES, ARCHITECTURES, strict=True)], ids=str)
@pytest.mark.usefixtures("nvrtc")
def test_programs_compile(
    size: tuple[int, int, int], archs: tuple[str, str], dtype: lm.DType
) -> None:
    for arch in archs:
        if (arch, dtype) != ("sm_75", lm.bfloat16):  # which has none
            text = planned(*size, dtype, arch=arch).text
            assert compile_source(text, arch)[:4] == b"\x7fELF"


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_buffers_fit_in_the_shared_memory_of_a_gpu(arch: str, dtype: lm.DType) -> None:
    room = cuda_target(arch).shared_bytes - decisions.RESERVED_BYTES
    launches = planned(4096, 512, 4096, dtype, arch=arch).launches
    assert all(one.shared <= room for one in launches)
    has_tiles = dtype is lm.float32 or arch != "sm_75"
    assert any(one.shared for one in launches) is has_tiles


@pytest.mark.parametrize("turned", ["", "a", "ab"])
@pytest.mark.usefixtures("nvrtc")
def test_programs_of_tf32_compile(turned: str) -> None:
    a, b = (Tensor.of(leaf(at, (200, 200), lm.float32), "cpu") for at in range(2))
    value = (a.T if "a" in turned else a) @ (b.T if "b" in turned else b)
    for arch in ("sm_75", "sm_80", "sm_90a", "sm_100"):
        chosen = replace(options.current(), device=GPU, tf32=True, arch=arch)
        text = pipeline.compile_source(opened_as_computed([value.node], {}), chosen).text
        assert compile_source(text, arch)[:4] == b"\x7fELF"


def text_of(
    form: Callable[..., object], shapes: list[tuple[int, ...]], dtype: lm.DType, arch: str = ""
) -> str:
    """The program of a form on a GPU."""
    given = (Tensor.of(leaf(number, one, dtype), "cpu") for number, one in enumerate(shapes))
    sinks = opened_as_computed([one.node for one in several(form(*given))], {})
    return pipeline.compile_source(sinks, replace(options.current(), device=GPU, arch=arch)).text


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("nvrtc")
def test_forms_compile(name: str) -> None:
    for arch in ("sm_80", "sm_90a", "sm_100"):
        text = text_of(*FORMS[name], lm.bfloat16, arch)
        assert compile_source(text, arch)[:4] == b"\x7fELF"


@pytest.mark.parametrize(("name", "stores"), [
    ("batch", 1), ("epilogue", 1), ("wide results", 1), ("two results", 2), ("of two widths", 2),
    ("padded", 2),
    ("more results", 2),  # for which a block of 64 rows and 64 columns surely has lines
])  # fmt: skip
def test_rows_are_stored_whole(name: str, stores: int) -> None:
    assert text_of(*FORMS[name], lm.bfloat16).count("const auto write_rows") == stores
    assert "const auto write_rows" not in text_of(*FORMS[name], lm.float32)


@pytest.mark.parametrize(
    ("columns", "chunk"), [(132, "u64"), (130, "u32"), (129, "u16"), (136, "uint4")]
)
def test_rows_are_stored_by_chunks_to_which_they_are_aligned(columns: int, chunk: str) -> None:
    text = text_of(
        lambda a, b: a[:, :100] @ b[:100, :columns], [(300, 200), (200, 264)], lm.bfloat16
    )
    assert f" {chunk} chunks[4];" in text
    assert text.count(" write_rows0(p2 ") > 0


@pytest.mark.parametrize("form", [
    lambda a, b: (a @ b[:, :128]) > 0,  # of single bytes
    lambda a, b: (a @ b[:, :128]).cast(lm.float64),
])  # fmt: skip
def test_what_is_not_of_16_or_32_bits_is_stored_by_elements(form: Callable[..., object]) -> None:
    text = text_of(form, [(300, 200), (200, 264)], lm.bfloat16)
    assert "wgmma_commit(" in text.partition("/* The kernels")[2]
    assert "const auto write_rows" not in text


def test_nothing_waits_for_warps_that_bring_tiles() -> None:
    """Where sums are added to in place, by elements: a barrier of the block would wait for ever."""
    a, b = leaf(1, (300, 200), lm.bfloat16), leaf(2, (200, 264), lm.bfloat16)
    total = leaf(0, (300, 264), lm.float64)
    result = Tensor.of(total, "cpu") + Tensor.of(a, "cpu") @ Tensor.of(b, "cpu")
    sinks = [Node(Op.ASSIGN, (total, *opened_as_computed([result.node], {})))]
    ours = pipeline.compile_source(sinks, replace(options.current(), device=GPU))
    (text,) = ours.source.kernels.values()
    (launch,) = ours.launches
    assert launch.threads % 128 == 0
    _, _, roles = text.partition("// producer")
    assert roles
    assert "BARRIER" not in roles
    assert "THREAD <" not in roles


@pytest.mark.usefixtures("device")
def test_sums_are_added_to_in_place() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(lm.bfloat16.numpy)
            for shape in ((5000, 200), (200, 264)))  # fmt: skip
    start = rng.standard_normal((5000, 264))
    total = Tensor(start, device=GPU)
    total.assign(total + Tensor(a, device=GPU) @ Tensor(b, device=GPU))
    want = start + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(total.numpy(), want, 2e-2, 2e-2 * abs(want).max())


def test_what_rows_share_is_read_before_products_end() -> None:
    """A bias, that is, but no array of as many elements as there are sums, which registers hold."""
    for name, early in (("epilogue", True), ("rest", False)):
        text = text_of(*FORMS[name], lm.bfloat16).partition(KERNELS)[2]
        before, _, after = text.partition("wgmma_commit(")
        is_read = [re.search(r"\bp2(\[| \+)", part) is not None for part in (before, after)]
        assert is_read == [early, not early]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", [name for name in ATOMS if name.startswith("mma_bf16")])
def test_lines_of_results(name: str, size: int) -> None:
    """Where the printed text writes and reads the lines of a warp: every element once, in the order
    of rows, and no two lanes in one bank."""
    dtype = lm.bfloat16 if size == 2 else lm.float32
    place_of = RowLines(0, 0, dtype, 16, 4096).place("row", "place")
    atom, width = ATOMS[name], 128 // size
    row_split, column_split = atom.row_splits.along_k, atom.column_splits.along_k
    pieces, split = (*row_split, *column_split), len(row_split)
    sums = [pieces[one] for one in atom.register_loops]
    held = {}  # of a lane of the first warp and the number of a sum, its row and its column
    for lane, number in product(range(WARP), range(int(np.prod(sums)))):
        at = dict(zip(atom.thread_loops, (0, 0, lane // 4, lane % 4), strict=True))
        at |= dict(zip(atom.register_loops, np.unravel_index(number, sums), strict=True))
        where = [at[one] for one in range(len(pieces))]
        row, column = (
            int(np.ravel_multi_index(where[part], pieces[part]))
            for part in (slice(split), slice(split, None))
        )
        held[lane, number] = row, column

    def apart(places: list[int], bytes_each: int) -> bool:
        words = range(0, bytes_each, 4)
        step = 128 // bytes_each  # lanes that memory serves at once
        groups = (places[at : at + step] for at in range(0, WARP, step))
        banks = [[(one + word) // 4 % BANKS for one in few for word in words] for few in groups]
        return all(len(set(few)) == BANKS for few in banks)

    seen = set()
    for first in range(0, len(held) // WARP, width // 2):
        lines = {}
        for number in range(first, first + width // 2, 2):
            places = []
            for lane in range(WARP):
                row, column = held[lane, number]
                assert held[lane, number + 1] == (row, column + 1)
                assert row == number // 2 % 2 * 8 + lane // 4
                assert column == number // 4 * 8 + lane % 4 * 2
                places.append(eval(place_of, {"row": row, "place": column % width * size}))
                lines |= {places[-1]: (row, column), places[-1] + size: (row, column + 1)}
            assert apart(places, 2 * size)
        assert sorted(lines) == list(range(0, 2048, size))
        for part in range(4):
            rows = [part * 4 + lane // 8 for lane in range(WARP)]
            places = [eval(place_of, {"row": row, "place": lane % 8 * 16})
                      for lane, row in enumerate(rows)]  # fmt: skip
            assert apart(places, 16)
            for (lane, row), place in zip(enumerate(rows), places, strict=True):
                column = first // (width // 2) * width + lane % 8 * 16 // size
                for i in range(16 // size):
                    assert lines[place + i * size] == (row, column + i)
                    seen.add((row, column + i))
    assert len(seen) == len(held) == 16 * atom.n


def test_a_schedule_is_text_and_is_kept_to() -> None:
    ours = planned(256, 512, 1024, lm.bfloat16)
    (plan,) = ours.plans.values()
    moves = plan.moves
    assert parse(to_text(moves)) == {"": moves}
    assert planned(256, 512, 1024, lm.bfloat16, to_text(moves)).text == ours.text
    assert any(isinstance(one, Tensorize) for one in moves)


@pytest.mark.parametrize("change", ["bf16_256x64", "bf16_256", "f16_64x64", "f16_1"])
def test_a_product_that_does_not_fit_is_refused(change: str) -> None:
    (plan,) = planned(256, 512, 1024, lm.bfloat16).plans.values()
    text = to_text(plan.moves).replace("bf16_64x64", change)
    with pytest.raises(FormatError, match="kernel reduce0_256x1024: tensorize"):
        planned(256, 512, 1024, lm.bfloat16, text)


@pytest.mark.parametrize("move", ["bind(a0, grid)", "split(a0, 8) -> a8, a9", "stage(%0, a0)"])
def test_nothing_but_fuse_goes_with_a_product(move: str) -> None:
    both = [move, "tensorize(mma_bf16_64x64)"]
    for text in ("\n".join(both), "\n".join(reversed(both))):
        with pytest.raises(FormatError):
            planned(256, 512, 1024, lm.bfloat16, text)


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("size", SIZES[1:4], ids=str)
def test_a_nest_without_its_tiles_computes_the_same(
    size: tuple[int, int, int], dtype: lm.DType
) -> None:
    name = next(name for name, atom in ATOMS.items() if (atom.dtype, atom.n) == (dtype, 64))
    m, k, n = size
    with options.using(schedule=f"tensorize({name})"):
        run(lambda a, b: a @ b, [(m, k), (k, n)], dtype, "cpu")


@pytest.mark.usefixtures("on_cpu")
@pytest.mark.parametrize("case", [CONVOLUTIONS[at] for at in (2, 4)], ids=str)
def test_rows_of_several_axes_are_divided_from_one(
    case: Convolution, monkeypatch: pytest.MonkeyPatch
) -> None:
    (n, *sides), (channels, filters), window, how = case
    rng, found = np.random.default_rng(0), []
    shapes = (n, *sides, channels), (filters, *window, channels)
    arrays = [rng.standard_normal(one).astype(np.float32) for one in shapes]
    nests, ours = [], Tensorize.apply
    monkeypatch.setattr(Tensorize, "apply", lambda *given: nests.append(ours(*given)) or nests[-1])
    for moves in ("", "tensorize(fma_f32_64x64)"):
        result = channels_last(lm.conv2d, *map(Tensor, arrays), **how)
        with options.using(schedule=moves):
            found.append(result.numpy())
    assert [len(one.tiles[0].axes) for one in nests] == [4]
    np.testing.assert_allclose(*found, 1e-5, 1e-4)
