"""NVRTC accepts the text of every family of kernels for several GPUs; no GPU is needed."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lamina import backends, pipeline
from lamina.compiled import Planned
from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import current
from lamina.errors import CompileError
from lamina.graph.autodiff import gradient
from lamina.graph.lift_numbers import numbers_of, with_inputs
from lamina.ir import build
from lamina.ir.kernel import Kernel, points
from lamina.ir.monoids import ADD, ARGMAX, MAX
from lamina.ir.node import Node
from lamina.ir.ops import Group, Op, Reduce
from lamina.loops.moves import Bind, Split
from lamina.runtime import nvrtc as runtime
from lamina.runtime.nvrtc import compile_source
from lamina.runtime.source import KERNELS
from lamina.schedule.gpu.products import product_factors
from lamina.targets.cuda import printer as cuda
from tests import scans
from tests.cuda import test_nested, test_tiles
from tests.cuda.on_host import run_on_host
from tests.fuse.graphs import PROGRAMS
from tests.generators import leaf
from tests.programs import random_program, softmax
from tests.schedules import random_schedule

ARCHITECTURES = ("sm_80", "sm_90a", "sm_100")
FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64)


def compiled(*values: Node) -> Planned:
    """The program of `values` for a GPU."""
    return pipeline.compile_source(values, replace(current(), device="cuda:0"))


def sum_along(axis: int, shape: tuple[int, ...] = (512, 1024)) -> Node:
    return build.reduce(ADD, [axis], leaf(0, shape, dtypes.float32))


def transposed(dtype: DType) -> Node:
    return build.permute(leaf(0, (1000, 520), dtype), (1, 0))


def pairs() -> Node:
    """Reductions of several components, one of them of a matrix."""
    x = leaf(0, (300, 700), dtypes.float32)
    place = build.expand(build.reshape(build.iota(700, dtypes.int64), (1, 700)), (300, 700))
    _, best = (Node(Op.REDUCE, (x, place), Reduce(ARGMAX, (1,), part)) for part in range(2))
    return build.cast(best, dtypes.float32)


def casts() -> Node:
    """Every dtype from every other."""
    every = [one for one in dtypes.ALL if not one.is_complex]
    total = leaf(0, (40,), dtypes.int32)
    for number, source in enumerate(every, 1):
        for to in every:
            one = build.cast(leaf(number, (40,), source), to)
            total = total + build.cast(one.eq(one), dtypes.int32)
    return total


def functions() -> Node:
    """Every elementwise function of floats."""
    total = leaf(0, (40,), dtypes.float32)
    for number, dtype in enumerate(FLOATS, 1):
        x = leaf(number, (40,), dtype)
        for op in sorted(Group.TRANSCENDENTAL | {Op.TRUNC}, key=lambda one: one.name):
            total = total + build.cast(Node(op, (x,)), dtypes.float32)
        for op in (Op.MOD, Op.POW, Op.MAX, Op.MIN, Op.DIV):
            total = total + build.cast(Node(op, (x, x + 1.0)), dtypes.float32)
    return total


FAMILIES: dict[str, Callable[[], Node]] = {
    **PROGRAMS,
    "large array": lambda: leaf(0, (1 << 25,), dtypes.float32) * 2.0,
    "sum of rows": lambda: sum_along(1),
    "sum of columns": lambda: sum_along(0),
    "sum of all": lambda: build.reduce(ADD, [0], leaf(0, (1 << 20,), dtypes.bfloat16)),
    "ragged sum": lambda: sum_along(1, (33, 1001)),
    "transpose": lambda: transposed(dtypes.float32),
    "transpose of halves": lambda: transposed(dtypes.float16),
    "pairs": pairs,
    "casts": casts,
    "functions": functions,
    "sort of long rows": lambda: build.argsort(leaf(0, (3, 50257), dtypes.float16)),
    "maximum of bools": lambda: build.reduce(MAX, [1], leaf(0, (64, 200), dtypes.bool_)),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.usefixtures("nvrtc")
def test_kernels_compile(family: str) -> None:
    text = compiled(FAMILIES[family]()).text
    for arch in ARCHITECTURES:
        assert compile_source(text, arch)[:4] == b"\x7fELF"


def test_a_program_begins_with_the_texts_that_it_needs() -> None:
    sizes = 512, 512, 512
    attention = test_nested.SIZES[0], dtypes.bfloat16, True
    programs = {
        "elementwise": compiled(leaf(0, (64,), dtypes.float32) * 2.0).source,
        "product": test_tiles.planned(*sizes, dtypes.bfloat16).source,
        "attention": test_nested.planned(*attention, "sm_90a").source,
        "attention_by_steps": test_nested.planned(*attention, "sm_80").source,
        "sort": compiled(FAMILIES["sort of long rows"]()).source,
    }
    marks = {
        "WGMMA": "product attention",
        "WGMMA_OF_REGISTERS": "attention",
        "SORT_MOVE": "sort",
    }
    for macro, users in marks.items():
        has = [name for name, source in programs.items() if f"#define {macro}(" in source.prelude]
        assert has == users.split()


@pytest.mark.usefixtures("nvrtc")
def test_each_kernel_is_compiled_and_kept_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = leaf(0, (64, 256), dtypes.float32)
    program = compiled(build.argsort(x), build.reduce(ADD, [1], x))
    options = replace(current(), cache_dir=str(tmp_path))
    found = runtime.build(program.source, "sm_90a", options)
    assert set(found) == {one.name for one in program.launches}
    kept = {one: one.read_bytes() for one in tmp_path.rglob("*.cubin")}
    assert sorted(kept.values()) == sorted(found.values())
    assert all(one[:4] == b"\x7fELF" for one in kept.values())
    assert len(kept) > 1
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "compile_source", None)  # nothing is compiled again
        assert runtime.build(program.source, "sm_90a", options) == found


@pytest.mark.usefixtures("nvrtc")
def test_programs_share_the_file_of_a_kernel(tmp_path: Path) -> None:
    """Also where it has another number, and other kernels need more of the prelude."""
    x = leaf(0, (64, 256), dtypes.float32)
    sums = build.reduce(ADD, [1], x)
    alone, beside = compiled(sums), compiled(build.argsort(x), sums)
    options = replace(current(), cache_dir=str(tmp_path))
    (first,) = runtime.build(alone.source, "sm_90a", options).items()
    others = runtime.build(beside.source, "sm_90a", options)
    (again,) = [name for name in others if name.startswith("reduce")]
    assert again != first[0]
    assert others[again] == first[1]
    assert len(list(tmp_path.rglob("*.cubin"))) == len(others)


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float32])
@pytest.mark.usefixtures("nvrtc")
def test_offsets_in_memory_compile(dtype: DType) -> None:
    """Of the factors of a product, and of what is stored in place."""
    array, rows = leaf(0, (600, 520), dtype), leaf(1, (32, 520), dtype)
    parts = build.slice_axis(array, 0, 64, 320), build.slice_axis(array, 0, 8, 264)
    left = build.expand(build.reshape(parts[0], (256, 1, 520)), (256, 256, 520))
    right = build.expand(build.reshape(parts[1], (1, 256, 520)), (256, 256, 520))
    product = build.reduce(ADD, [2], build.cast(left * right, dtypes.float32))
    where = [range(100, 132), range(520)]
    everywhere = build.full((32, 520), True, dtypes.bool_)
    inside = build.pad_to_ranges(everywhere, where, array.shape)
    stored = build.select(inside, build.pad_to_ranges(rows, where, array.shape), array)
    for sink in (product, Node(Op.ASSIGN, (array, stored))):
        numbers = {one: at for at, one in enumerate(numbers_of([sink]), 2)}
        assert numbers
        program = compiled(*with_inputs([sink], numbers, "cpu"))
        assert compile_source(program.text, "sm_90a")
        if sink is not product:
            ((store,),) = (kernel.stores for kernel in program.plans)
            assert points(store.axes) == 32 * 520


@pytest.mark.usefixtures("nvrtc")
def test_running_values_compile() -> None:
    assert compile_source(compiled(*scans.sample().sinks).text, "sm_90a")


def test_threads_share_long_rows_of_running_values() -> None:
    x = leaf(0, (16384, 8192), dtypes.bfloat16)
    total = Node(Op.SCAN, (build.cast(x, dtypes.float32),), Reduce(ADD, (1,)))
    assert launches(build.cast(total, dtypes.bfloat16)) == [(16384, 256)]  # casts are inside


@pytest.mark.parametrize("number", range(4))
@pytest.mark.usefixtures("nvrtc")
def test_random_schedules_compile(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(number)
    if number % 2:
        schedule = lambda kernel, *_: random_schedule(rng, kernel)  # noqa: E731
        monkeypatch.setattr(backends, "schedule_for_gpu", schedule)
    programs = [random_program(rng, 12, 1000 * copy) for copy in range(4)]
    sinks = [sink.src[-1] if sink.op is Op.ASSIGN else sink
             for program in programs for sink in program.sinks]  # fmt: skip
    assert compile_source(compiled(*sinks).text, "sm_90a")


@pytest.mark.usefixtures("nvrtc")
def test_a_refusal_is_the_first_complaint() -> None:
    with pytest.raises(CompileError, match=r"sm_90a.*program\.cu\(2\): error"):
        compile_source('extern "C" __global__ void f() {\n    nothing();\n}', "sm_90a")


def launches(value: Node) -> list[tuple[int, int]]:
    return [(one.blocks, one.threads) for one in compiled(value).launches]


def bindings(value: Node) -> list[str]:
    (plan,) = compiled(value).plans.values()
    return [move.to for move in plan.moves if isinstance(move, Bind)]


def test_long_rows_get_a_block_each() -> None:
    assert launches(sum_along(1)) == [(512, 256)]
    assert bindings(sum_along(1)) == ["unroll", "thread", "grid"]


def test_short_rows_get_a_thread_each() -> None:
    assert launches(sum_along(1, (100_000, 7))) == [(391, 256)]
    assert bindings(sum_along(1, (100_000, 7))) == ["unroll", "grid"]


@pytest.mark.parametrize(
    ("rows", "length", "blocks", "threads"),
    [(196_608, 64, 6_144, 256), (196_608, 256, 24_576, 256), (196_607, 64, 6_144, 256)],
)
def test_rows_of_few_accesses_share_a_block(
    rows: int, length: int, blocks: int, threads: int
) -> None:
    assert launches(sum_along(1, (rows, length))) == [(blocks, threads)]


def test_neighbouring_threads_take_neighbouring_columns() -> None:
    assert bindings(sum_along(0)) == ["unroll", "thread", "unroll", "thread", "grid"]


@pytest.mark.parametrize("length", [1 << 24, (1 << 24) + 43])  # a prime number
def test_much_is_reduced_to_little_in_parts_that_fill_a_gpu(length: int) -> None:
    blocks, threads = launches(sum_along(0, (length,)))[0]
    assert blocks == 2048
    assert threads >= 512


def product_of(m: int, k: int, n: int) -> Node:
    """A product of two matrices of bfloat16, in float32."""
    halves = (leaf(at, one, dtypes.bfloat16) for at, one in enumerate(((m, k, 1), (1, k, n))))
    left, right = (build.expand(build.cast(one, dtypes.float32), (m, k, n)) for one in halves)
    return build.reduce(ADD, [1], left * right)


@pytest.mark.parametrize(
    ("size", "arrays", "count"),
    [
        ((768, 16384, 3072), 3, 2),
        ((768, 16384, 3072), 1, 1),  # read where the product is
        ((768, 2048, 3072), 3, 1),  # a short product
        ((768, 16384, 50304), 3, 1),  # tiles for all blocks
    ],
)
def test_arrays_are_updated_after_a_long_product_of_few_tiles(
    size: tuple[int, int, int], arrays: int, count: int
) -> None:
    sums = product_of(*size)
    turned = build.permute(sums, (1, 0))
    states = [leaf(2 + at, turned.shape, dtypes.float32) for at in range(arrays)]
    moments = [one * 0.5 + turned * turned for one in states]
    for updated in (moments, [*moments, moments[0] / (moments[-1] + 1.0)]):
        names = [one.name for one in compiled(*updated).launches]
        assert [name[:4] for name in names] == ["redu", "map1"][:count]


@pytest.mark.parametrize(
    ("length", "threads", "each"),
    [(1000, 256, 4), (4096, 256, 16), (5000, 512, 12), (9000, 512, 20), (30_000, 512, 60),
     (50_000, 1024, 52)],
)  # fmt: skip
def test_rows_that_registers_hold_are_read_once(length: int, threads: int, each: int) -> None:
    rows = softmax(leaf(0, (64, length), dtypes.float32), 1)
    source = compiled(rows).text.partition(KERNELS)[2]
    assert launches(rows) == [(64, threads)]
    assert [source.count(text) for text in ("= p0[", "exp_f32(", "for (i64")] == [each, each, 0]


@pytest.mark.parametrize(
    ("rows", "folds", "threads"), [(4096, 2, 64), (4096, 1, 128), (64, 1, 256)]
)
def test_rows_with_more_reductions_have_fewer_threads(rows: int, folds: int, threads: int) -> None:
    x = leaf(0, (rows, 768), dtypes.float32)
    total = build.broadcast_over(build.reduce(ADD, [1], x), [1], x.shape)
    scaled = softmax(x, 1) if folds == 2 else x / total
    assert launches(scaled) == [(rows, threads)]


@pytest.mark.parametrize(
    ("length", "blocks"),
    [(1 << 12, [256, 72, 96]), (1 << 14, [256, 288, 384])],  # of long columns, parts
)
def test_sums_of_few_columns_have_more_blocks_that_run_at_once(
    length: int, blocks: list[int]
) -> None:
    sums = (sum_along(0, (length, size)) for size in (8192, 2304, 768))
    assert [launches(one)[0][0] for one in sums] == blocks


def test_masks_leave_several_neighbours_to_a_thread() -> None:
    x, y = (leaf(i, (64, 4096), dtypes.bfloat16) for i in range(2))
    joined = build.pad(x, (0, 0), (0, 4096)) + build.pad(y, (0, 4096), (0, 0))
    (plan,) = compiled(joined).plans.values()
    assert [move.factor for move in plan.moves if isinstance(move, Split)] == [8]


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16])
def test_what_only_16_bits_show_is_computed_faster(dtype: DType) -> None:
    x, y = (build.cast(leaf(i, (8,), dtype), dtypes.float32) for i in range(2))
    ratio = Node(Op.EXP, (x,)) / y
    for value, faster in (
        (build.cast(ratio + 1.0, dtype), 2),
        (ratio, 0),
        (build.cast(Node(Op.TRUNC, (ratio,)), dtype), 0),
        (build.cast(Node(Op.LOG, (ratio,)), dtype), 1),  # which may be next to one
    ):
        assert compiled(value).text.partition(KERNELS)[2].count("= short_") == faster


@pytest.mark.parametrize("divisor", [3.0, 6.0, 0.1, -3.7, 241.0, 1.9999999, 1.0000001, 2.0**23 + 1])
def test_quotients_by_constants_are_the_nearest(divisor: float, tmp_path: Path) -> None:
    """Of numbers of any bits, but of quotients below 2**-70, which may be one beside it."""
    planned = compiled(leaf(0, (40_008,), dtypes.float32) / divisor)
    assert "= divided(" in planned.text
    rng = np.random.default_rng(8)
    values = rng.integers(0, 1 << 32, 40_008, dtype=np.uint32).view(np.float32)
    values[:8] = 0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, 3.4e38, divisor
    (got,) = run_on_host(planned, [values], tmp_path)
    with np.errstate(all="ignore"):
        want = values / np.float32(divisor)
        is_exact = ~(abs(want) < 2.0**-70)
        np.testing.assert_array_equal(got[is_exact], want[is_exact])
        np.testing.assert_array_max_ulp(got[~is_exact], want[~is_exact], 1)


def test_the_short_logarithm_next_to_one() -> None:
    """That the series of `short_log` has the precision of 16 bits up to where it ends."""
    text = Path(cuda.__file__).with_name("prelude.cu").read_text(encoding="utf-8")
    found = re.search(r"near = (t \+ t .*?);\n    return fabsf\(t\) < ([\d.]+)f", text)
    assert found
    numbers = re.sub(r"(\d\.\d+)f", r"np.float32(\1)", found[1])
    t = np.linspace(-float(found[2]), float(found[2]), 20002, dtype=np.float32)
    near = eval(numbers, {"t": t, "np": np}).astype(np.float64)
    want = np.log1p(t.astype(np.float64))
    assert (abs(near - want) <= 2.0**-20 * abs(want)).all()


def test_the_short_hyperbolic_tangent_near_zero() -> None:
    """That the series of `short_tanh` has the precision of 16 bits up to where it ends."""
    text = Path(cuda.__file__).with_name("prelude.cu").read_text(encoding="utf-8")
    found = re.search(r"near = (x \+ x \* t .*?);\n    return fabsf\(x\) < ([\d.]+)f", text)
    assert found
    numbers = re.sub(r"(\d\.\d+)f", r"np.float32(\1)", found[1])
    x = np.linspace(-float(found[2]), float(found[2]), 20001, dtype=np.float32)
    near = eval(numbers, {"x": x, "t": x * x, "np": np}).astype(np.float64)
    want = np.tanh(x.astype(np.float64))
    assert (abs(near - want) <= 2.0**-20 * abs(want)).all()


def test_the_distance_of_the_error_function_from_one() -> None:
    """That the polynomial of `log2_distance` gives what its comment and that of its product say, at
    float32's precision."""
    text = Path(cuda.__file__).with_name("prelude.cu").read_text(encoding="utf-8")
    found = re.search(r"return more \+ (x \* \(-.*?);", text, re.DOTALL)
    furthest = re.search(r"furthest = ([\d.]+)f", text)
    assert found
    assert furthest
    x = np.linspace(0, float(furthest[1]), 20001, dtype=np.float32)
    numbers = re.sub(r"(\d\.\d+)f", r"np.float32(\1)", " ".join(found[1].split()))
    distance = np.exp2(eval(numbers, {"x": x, "np": np}).astype(np.float64))
    want = np.array([math.erfc(one * math.sqrt(0.5)) for one in x.tolist()])
    assert (abs(distance - want) <= np.minimum(2.0**-11, want * 2.0**-10 + 2.0**-24)).all()
    assert (np.diff(distance) <= 0).all()
    for sign, most in ((1, 13.0), (-1, 4.0)):
        exact = x * (1 - want / 2 if sign > 0 else -want / 2)
        value = (np.maximum(sign * x, 0) - x * (distance / 2)).astype(np.float32)
        rounded = value.astype(dtypes.bfloat16.numpy).astype(np.float64)
        places = 2.0 ** (np.floor(np.log2(np.maximum(abs(exact), 2.0**-126))) - 7)
        assert (abs(rounded - exact) / places)[x <= most].max() <= 0.7


def test_sums_with_a_product_of_the_error_function_are_computed_faster() -> None:
    x = build.cast(leaf(0, (8,), dtypes.bfloat16), dtypes.float32)
    value = x * 0.5 * Node(Op.ERF, (x,)) + x * 0.5
    short = build.cast(value, dtypes.bfloat16), build.cast(value, dtypes.float16)
    for result, faster in zip((*short, value), (1, 0, 0), strict=True):
        assert compiled(result).text.partition(KERNELS)[2].count("= short_erf(") == faster


def test_a_product_with_the_normal_distribution_function_is_computed_faster() -> None:
    x, y = (build.cast(leaf(i, (8,), dtypes.bfloat16), dtypes.float32) for i in range(2))
    half = Node(Op.ERF, (x * 0.5**0.5,)) * 0.5 + 0.5
    for value, faster in ((half * x, 1), (y * (half * x), 1), (half * y, 0), (half + half * x, 1)):
        for result, count in ((build.cast(value, dtypes.bfloat16), faster), (value, 0)):
            text = compiled(result).text.partition(KERNELS)[2]
            assert text.count("= short_normal_product(") == count


def test_the_derivative_of_the_logistic_function_chooses_nothing() -> None:
    x = build.cast(leaf(0, (8,), dtypes.bfloat16), dtypes.float32)
    (dx,) = gradient(Node(Op.LOGISTIC, (x,)), [x], leaf(1, (8,), dtypes.float32))
    assert dx is not None
    text = compiled(build.cast(dx, dtypes.bfloat16)).text.partition(KERNELS)[2]
    assert text.count("= short_logistic(") == 1
    assert " ? " not in text


def test_longer_rows_are_read_again() -> None:
    rows = softmax(leaf(0, (64, 60_000), dtypes.float32), 1)
    assert compiled(rows).text.count("UNROLL for (i64") == 3


def looked_up(rows: int, columns: int) -> Node:
    """Rows of a table that an array tells."""
    table, places = leaf(0, (50_000, columns), dtypes.float32), leaf(1, (rows, 1), dtypes.int64)
    return Node(Op.GATHER, (table, build.expand(places, (rows, columns))), 0)


@pytest.mark.parametrize(("rows", "columns", "factors"), [
    (1000, 768, [4, 2]), (1001, 768, [4]), (200, 768, [4]),
    (512, 512, [4, 2]), (510, 512, [4]),  # 2**15 threads with 2 x 4 elements each, and fewer
])  # fmt: skip
def test_a_thread_reads_for_two_rows_where_data_say_which(
    rows: int, columns: int, factors: list[int]
) -> None:
    (plan,) = compiled(looked_up(rows, columns)).plans.values()
    assert [move.factor for move in plan.moves if isinstance(move, Split)] == factors


def test_tiles_store_single_elements() -> None:
    """They know neither a row's result nor what others add to as well, also beside elements."""
    (kernel,) = compiled(product_of(256, 512, 1024)).plans
    assert isinstance(kernel, Kernel)
    assert product_factors(kernel, "f32")
    (element,) = kernel.stores
    for other in (replace(element, axes=element.axes[:-1]), replace(element, monoid=ADD)):
        assert not product_factors(replace(kernel, stores=(element, other)), "f32")


@pytest.mark.parametrize(("steps", "factors"), [(4, [8]), (5, [8, 512, 256])])
def test_a_thread_with_much_to_compute_reads_two_accesses(steps: int, factors: list[int]) -> None:
    """As many values as an access has elements, 8 of bfloat16, are much: with the load and both
    casts, from 5 steps on."""
    x = build.cast(leaf(0, (1 << 22,), dtypes.bfloat16), dtypes.float32)
    for step in range(steps):
        x = x * 1.5 if step % 2 else x + 1.25
    (plan,) = compiled(build.cast(x, dtypes.bfloat16)).plans.values()
    assert [move.factor for move in plan.moves if isinstance(move, Split)] == factors


def assembly(text: str) -> str:
    """NVRTC's PTX of a program, for GPUs whose kernels may begin before others have ended."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"program.cu", 0, [], [])
    flags = [b"--gpu-architecture=compute_90a", b"--std=c++17", b"-default-device"]
    assert not nvrtc.nvrtcCompileProgram(program, len(flags), flags)[0]
    result = bytes(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, result)
    return result.decode()


@pytest.mark.usefixtures("nvrtc")
def test_kernels_wait_for_others_before_they_read_or_write() -> None:
    names = ("transpose", "argsort", "sort of long rows")
    texts = [compiled(FAMILIES[name]()).text for name in names]
    texts += [test_tiles.planned(512, 512, 512, dtype).text for dtype in FLOATS[1:3]]
    texts.append(test_nested.planned(test_nested.SIZES[0], dtypes.bfloat16, True).text)
    for kernel in (one for text in texts for one in assembly(text).split(".entry ")[1:]):
        before, waits, _ = kernel.partition("griddepcontrol.wait;")
        assert waits
        assert not re.search(r"(ld|st|atom|red)\.(\w+\.)*global|cp\.async", before)


@pytest.mark.usefixtures("nvrtc")
def test_what_is_read_stays_in_the_cache_or_does_not_where_no_cache_holds_it_all() -> None:
    """What is read stays where far more is written, and passes by where far more is read."""
    large, small = (leaf(size, (size, 1024), dtypes.float32) for size in (1 << 16, 1 << 12))
    first, last = str(0x12F0000000000000), str(0x14F0000000000000)  # to be evicted
    for value, policy in ((large, last), (small, ""), (build.reduce(ADD, [0, 1], large), first)):
        text = assembly(compiled(value * 2.0).text)
        assert ("ld.global.L2::cache_hint.v4" in text) == bool(policy)
        assert [one for one in (first, last) if one in text] == [policy] * bool(policy)


def test_elements_are_read_16_bytes_at_a_time_where_they_are_aligned() -> None:
    for dtype, lanes in ((dtypes.float32, 4), (dtypes.bfloat16, 8), (dtypes.float64, 2)):
        (plan,) = compiled(leaf(0, (1 << 19,), dtype) + 1.0).plans.values()
        assert [move.factor for move in plan.moves if isinstance(move, Split)] == [lanes]
    table, rows = leaf(0, (512, 768), dtypes.bfloat16), leaf(1, (1000, 1), dtypes.int64)
    taken = Node(Op.GATHER, (table, build.expand(rows, (1000, 768))), 0)
    (plan,) = compiled(taken).plans.values()
    assert [move.factor for move in plan.moves if isinstance(move, Split)] == [8, 2]
    for columns, expected in ((1024, (1, 4)), (1023, (0, 2))):
        odd = build.slice_axis(leaf(0, (1 << 10, 1025), dtypes.float32), 1, 1, columns + 1)
        (plan,) = compiled(odd + 1.0).plans.values()
        splits = [(move.axis, move.factor) for move in plan.moves if isinstance(move, Split)]
        # An access of results, or where these begin within one, two rows of single elements.
        assert splits == [expected]
