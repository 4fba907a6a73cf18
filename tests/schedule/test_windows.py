"""What windows that slide share, a thread of a GPU reads once."""

from __future__ import annotations

import random
import re

import pytest

import lamina as lm
from lamina import Tensor
from lamina.core.target import DEFAULT_CUDA
from lamina.frontend.lowered import Lowered
from lamina.fuse.kernel_group import KernelGroup
from lamina.graph import index as ix
from lamina.ir.kernel import Kernel, Parameter, Store, free_axes, indices_of, points
from lamina.ir.monoids import ADD
from lamina.ir.node import Node, peel
from lamina.ir.ops import Group, Load, LoopReduce, Op
from lamina.loops.nest import Nest
from lamina.schedule.cost.blocks import in_blocks
from lamina.schedule.cost.walk import walk
from lamina.schedule.gpu import parts
from lamina.schedule.gpu.planner import TILE, GpuPlanner
from lamina.schedule.gpu.windows import slides, tiles_of_windows
from lamina.schedule.knobs import GpuKnobs

IMAGES, FILTER = (64, 96, 56, 56), (96, 1, 7, 7)


def lowered(
    which: str, images: tuple[int, ...], filters: tuple[int, ...], *, stride: int = 1,
    dilation: int = 1, is_last: bool = False, dtype: str = "float32",
) -> Lowered:  # fmt: skip
    """A depthwise convolution, or its derivative by the images or by the filter; channels first or
    last in memory, for an H100."""
    window, groups = filters[-1], images[1]
    reach = dilation * (window // 2)

    def function(x: Tensor, w: Tensor) -> Tensor:
        if is_last:
            x = lm.permute_dims(x, (0, 3, 1, 2))
        y = lm.conv2d(x, w, None, stride, reach, dilation, groups)
        if which == "forward":
            return y
        wide = y.cast(lm.float32)
        (slope,) = lm.gradient((wide * wide).sum(), [x if which == "images" else w])
        return slope

    batch, channels, *sides = images
    shape = (batch, *sides, channels) if is_last else images
    specs = lm.TensorSpec(shape, dtype), lm.TensorSpec(filters, dtype)
    return lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")


def kernels_with_windows(program: Lowered) -> list[tuple[Nest, str]]:
    """The nests of a program that read windows, each with its text."""
    assert program.planned.source is not None
    texts = program.planned.source.kernels
    nests = [(plan.nest, texts[plan.name]) for plan in program.planned.plans.values()]
    return [(nest, text) for nest, text in nests if isinstance(nest, Nest) and slides(nest.kernel)]


def test_windows_slide_along_a_row_and_a_step() -> None:
    i, j = ix.axis(0, 20), ix.axis(1, 30)
    k, n = ix.axis(2, 3, reduce=True), ix.axis(3, 30, reduce=True)

    def slides_of(index: Node) -> list[tuple[Node, Node]]:
        load = Node(Op.LOAD, (index,), Load(0, lm.float32))
        bound = [axis for axis in (k, n) if axis in free_axes(index)]
        total = Node(Op.LOOP_REDUCE, (load, *bound), LoopReduce(ADD))
        rows = tuple(axis for axis in (i, j) if axis in free_axes(index))
        return list(map(tuple, slides(kernel_of(total, rows))))

    assert slides_of(ix.add(i, k)) == [(i, k)]
    assert slides_of(ix.add(i, ix.scale(k, -1, 2))) == [(i, k)]  # as a derivative reads
    assert slides_of(ix.add(ix.scale(i, 2), k)) == [(i, k)]  # a stride of 2, windows of 3
    assert slides_of(ix.add(ix.scale(i, 3), k)) == []  # windows side by side
    assert slides_of(ix.add(i, ix.scale(k, 2))) == [(i, k)]  # every second element
    assert slides_of(ix.add(ix.scale(i, 30), n)) == []  # a matrix
    assert slides_of(ix.add(ix.scale(i, 30), j, k)) == [(j, k)]
    assert slides_of(ix.add(ix.scale(k, 30), j, n)) == [(j, n)]


def kernel_of(total: Node, rows: tuple[Node, ...]) -> Kernel:
    """The kernel that stores a reduction for each of its rows."""
    parameters = Parameter(lm.float32, 1 << 12), Parameter(lm.float32, points(rows), written=True)
    return Kernel(parameters, (Store(1, ix.row_major(rows), total, rows),), rows=len(rows))


@pytest.mark.parametrize("seed", range(5))
def test_tiles_have_few_points(seed: int) -> None:
    """However long windows are, and however far apart."""
    rng = random.Random(seed)
    i = ix.axis(0, rng.randint(2, 99))
    k = ix.axis(1, rng.randint(2, 99), reduce=True)
    index = ix.add(ix.scale(i, rng.randint(1, k.arg.size - 1)), k)
    load = Node(Op.LOAD, (index,), Load(0, lm.float32))
    kernel = kernel_of(Node(Op.LOOP_REDUCE, (load, k), LoopReduce(ADD)), (i,))
    tiled = list(tiles_of_windows(GpuPlanner(kernel, DEFAULT_CUDA, GpuKnobs())))
    assert tiled
    for plan in tiled:
        assert 1 < points(plan.register_tile) <= TILE
        assert {plan.nest.bound(axis) for axis in plan.register_tile} == {"unroll"}
        assert not plan.register_tile.intersection(plan.rows)


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("which", ["forward", "images", "filter"])
def test_a_tile_of_8_reads_14_elements_for_7_places_of_a_window(which: str, is_last: bool) -> None:
    """Of 56 that it multiplies, whichever way channels lie."""
    program = lowered(which, IMAGES, FILTER, is_last=is_last, dtype="bfloat16")
    _, text = kernels_with_windows(program)[-1]
    products = len(re.findall(r"\bmul_\d+ = ", text))
    loads = len(re.findall(r"\bload_\d+ = ", text))
    neighbours = products // 56  # channels of a thread
    assert products == 56 * neighbours
    assert loads <= (14 + 8) * neighbours  # the other factor has 7 or 8


@pytest.mark.parametrize("is_last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize(
    ("window", "stride", "dilation"), [(7, 1, 1), (3, 1, 1), (3, 2, 1), (5, 1, 2)]
)
def test_loads_are_counted_as_printed(
    window: int, stride: int, dilation: int, is_last: bool
) -> None:
    for which in ("forward", "images", "filter"):
        filters = (96, 1, window, window)
        program = lowered(which, IMAGES, filters, stride=stride, dilation=dilation, is_last=is_last)
        for nest, text in kernels_with_windows(program):
            if any(split.extent != points(split.axes) for split in nest.splits):
                continue  # what is left over has a text of its own
            loops = walk(in_blocks(nest), each_lane=False).every()
            loads = [access for loop in loops for access in loop.accesses if not access.is_store]
            printed = len(re.findall(r"\bload_\d+ = ", text))
            assert sum(load.copies for load in loads) == printed


def test_indices_decide_a_value() -> None:
    i, k = ix.axis(0, 8), ix.axis(1, 3, reduce=True)
    place = ix.add(i, k)
    load = Node(Op.LOAD, (place, ix.inside(ix.scale(place, 1, -1), 5)), Load(0, lm.float32))
    assert set(indices_of(load)) == {place, ix.scale(place, 1, -1)}
    total = Node(Op.LOOP_REDUCE, (load, k), LoopReduce(ADD))
    assert indices_of(total * load) == (i, place, ix.scale(place, 1, -1))


@pytest.mark.parametrize(
    ("images", "count"),
    [
        ((64, 384, 14, 14), "32x"),  # of two images each
        ((1, 64, 112, 112), "112x"),  # of a row of the image
        ((2, 20000, 8, 8), ""),  # so many results that threads are busy
        ((4, 16, 8, 8), ""),  # too few products for a second kernel
    ],
)
def test_few_sums_of_windows_are_taken_in_parts(images: tuple[int, ...], count: str) -> None:
    channels = images[1]
    program = lowered("filter", images, (channels, 1, 7, 7))
    names = [kernel.name.partition("_")[2] for kernel in program.kernels]
    assert f"{count}{channels}x7x7" in names
    assert sum(name.endswith(f"{channels}x7x7") for name in names) == (2 if count else 1)


def test_products_of_matrices_are_told_as_their_kernels_tell_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of depthwise, dense and grouped convolutions, strided and dilated."""
    told: list[bool] = []
    is_matrix_product = parts._is_matrix_product

    def compared(node: Node) -> bool:
        arrays = [peel(factor, Group.MOVEMENT | {Op.CAST}) for factor in node.src[0].src]
        group = KernelGroup(node, {array: array.shape for array in arrays})
        told.append(is_matrix_product(node))
        assert told[-1] is (group.contraction is not None)
        return told[-1]

    def slopes(x: Tensor, w: Tensor, stride: int, dilation: int, groups: int) -> list[Tensor]:
        y = lm.conv2d(x, w, None, stride, dilation, dilation, groups).cast(lm.float32)
        return lm.gradient((y * y).sum(), [x, w])

    monkeypatch.setattr(parts, "_is_matrix_product", compared)
    for groups, stride, dilation in [(1, 1, 1), (1, 2, 1), (8, 1, 1), (64, 1, 1), (64, 2, 3)]:
        specs = lm.TensorSpec((16, 64, 28, 28)), lm.TensorSpec((64, 64 // groups, 3, 3))
        with lm.using(search=0):
            lm.jit(slopes).lower(
                *specs, stride, dilation, groups, device="cuda:0", arch="sm_90a"
            )  # fmt: skip
    for images in ((64, 384, 14, 14), (1, 64, 112, 112)):
        lowered("filter", images, (images[1], 1, 7, 7))
    assert set(told) == {True, False}


@pytest.mark.parametrize("which", ["forward", "filter"])
def test_channels_lie_last_where_windows_read_what_is_computed(which: str) -> None:
    """So that a warp reads neighbours along them, of the filter too."""

    def function(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
        y = lm.conv2d(lm.gelu(lm.conv2d(x, v)), w, None, 1, 3, 1, 96)
        wide = y.cast(lm.float32)
        return y if which == "forward" else lm.gradient((wide * wide).sum(), [w])[0]

    specs = [lm.TensorSpec(shape, lm.bfloat16) for shape in (IMAGES, FILTER, (96, 96, 1, 1))]
    program = lm.jit(function).lower(*specs, device="cuda:0", arch="sm_90a")
    for nest, _ in kernels_with_windows(program):
        channels = [axis for axis in nest.kernel.row_axes if axis.arg.size in (96, 48, 2)]
        for load in nest.kernel.of(Op.LOAD):
            assert any(ix.suits(axis, *load.src) == ix.NEIGHBOURS for axis in channels)


def test_nothing_is_added_up_that_a_margin_hides() -> None:
    """The derivative by images of 7 x 7 with windows as large: not by 13 x 13 padded ones."""
    program = lowered("images", (64, 768, 7, 7), (768, 1, 7, 7))
    assert not any("13x13" in kernel.name for kernel in program.kernels)


def test_the_last_block_of_an_uneven_split_reads_elements_of_its_own() -> None:
    """12,544 elements are three blocks of 4096, unrolled, and 256: no two loads have one place, and
    8 elements of a thread in each of the four are loaded."""
    spec = lm.TensorSpec((4096, 12544), lm.bfloat16)
    function = lm.jit(lambda x: lm.sum(x.cast(lm.float32), axis=1))
    (kernel,) = function.lower(spec, device="cuda:0", arch="sm_90a").kernels
    places = re.findall(r"\bload_\d+ = (.*);", kernel.source)
    assert len(places) == len(set(places)) == 4 * 8
