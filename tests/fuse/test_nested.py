"""Products inside sums: which arrays then need no memory, and that kernels compute the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina.backends import OF_GPUS
from lamina.core.dtypes import DType, bfloat16, float16, float32
from lamina.explain.check import run_kernel
from lamina.frontend.realize import cut
from lamina.fuse.program import Program, build_program
from lamina.fuse.target import FusionTarget
from lamina.graph.algebra import SIMPLIFY
from lamina.graph.rewrite import rewrite
from lamina.ir.interpreter import evaluate
from lamina.ir.kernel import Kernel, bound_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op
from lamina.ir.text import kernel_text
from lamina.ir.verify_kernel import verify_kernel
from tests.conftest import Golden
from tests.generators import Array
from tests.programs import memory_of, views_of

RNG = np.random.default_rng(5)
BATCH, HEADS, LENGTH, KEYS, WIDTH = 2, 3, 20, 36, 8
Inputs = dict[Any, Array]


def nested(kernel: Kernel) -> bool:
    reductions = [node for node in kernel.nodes if node.op is Op.LOOP_REDUCE]
    beneath = [node for reduction in reductions for node in toposort(reduction.src)]
    return any(node.op is Op.LOOP_REDUCE and bound_axes(node) for node in beneath)


def graph(*results: lm.Tensor) -> tuple[list[Node], Inputs]:
    """The nodes of some results over numbered inputs, and what these hold."""
    numbers: dict[Any, int] = {}
    sinks = rewrite(cut([one.node for one in results], numbers), SIMPLIFY)
    flat = {number: buffer.on_host().view() for buffer, number in numbers.items()}
    leaves = (one for one in toposort(sinks) if one.op is Op.BUFFER)
    return sinks, {
        one: np.frombuffer(flat[one.arg.storage], one.dtype.numpy).reshape(one.shape)
        for one in leaves
    }


def run(program: Program, inputs: Inputs) -> list[Array]:
    """What the reference of kernels makes of a program."""
    arrays = memory_of(program, {one.arg.storage: array for one, array in inputs.items()})
    for launch in program.launches:
        verify_kernel(launch.kernel)
        run_kernel(launch.kernel, [arrays[view] for view in launch.arguments])
    return [arrays[view] for view in program.outputs]


def agrees(program: Program, sinks: list[Node], inputs: Inputs) -> None:
    for got, want in zip(run(program, inputs), evaluate(sinks, inputs), strict=True):
        reach = float(np.abs(want.astype(np.float64)).max()) * (
            1e-5 if want.dtype == np.float32 else 2e-2
        )
        np.testing.assert_allclose(
            got.astype(np.float64), want.ravel().astype(np.float64), atol=reach
        )


def tensor(*shape: int, dtype: DType = float32) -> lm.Tensor:
    return lm.Tensor(RNG.standard_normal(shape), dtype).contiguous().realize()


def attention(dtype: DType, *, heads: int = HEADS, mask: str = "", **how: Any) -> list[lm.Tensor]:
    """Attention and its derivatives."""
    query, seed = (tensor(BATCH, HEADS, LENGTH, WIDTH, dtype=dtype) for _ in range(2))
    key, value = (tensor(BATCH, heads, KEYS, WIDTH, dtype=dtype) for _ in range(2))
    if mask:
        scores = tensor(LENGTH, KEYS)
        how["attn_mask"] = (scores > 0.0).realize() if mask == "bool" else scores
    result = lm.scaled_dot_product_attention(query, key, value, **how)
    return [result, *lm.gradient(result, [query, key, value], seed)]


CASES = {
    "plain": {}, "causal": {"is_causal": True}, "groups": {"heads": 1, "enable_gqa": True},
    "bool": {"mask": "bool"}, "float": {"mask": "float"}, "scaled": {"scale": 0.5},
}  # fmt: skip


@pytest.mark.parametrize("dtype", [float32, bfloat16, float16])
@pytest.mark.parametrize("case", CASES)
def test_no_array_of_all_pairs(case: str, dtype: DType) -> None:
    sinks, inputs = graph(*attention(dtype, **CASES[case]))
    program = build_program(sinks, replace(OF_GPUS, gains_by_recomputing=nested))
    agrees(program, sinks, inputs)
    scratch = [view.size for view in views_of(program) if view.kind == "scratch"]
    assert max(scratch) < BATCH * HEADS * LENGTH * KEYS
    # The forward, a sum for each row, and two for the derivatives; of groups, those of keys and of
    # values are apart, and added up.
    assert len(program.launches) == 4 + 3 * (case == "groups")


def test_what_a_row_sums_to_is_stored_once(golden: Golden) -> None:
    sinks, _ = graph(*attention(bfloat16, is_causal=True))
    program = build_program(sinks, replace(OF_GPUS, gains_by_recomputing=nested))
    texts = [kernel_text(launch.kernel) for launch in program.launches]
    golden(Path(__file__).parents[1] / "golden" / "nested.txt", "\n\n".join(texts) + "\n")


def test_heads_side_by_side() -> None:
    """Rows of the result in another order than those that the sums are over."""
    width, part = HEADS * WIDTH, (BATCH, LENGTH, HEADS, WIDTH)
    every = tensor(BATCH, LENGTH, 3 * width)
    query, key, value = (
        every[..., at * width : (at + 1) * width].reshape(part).transpose(1, 2) for at in range(3)
    )
    mixed = lm.scaled_dot_product_attention(query, key, value, is_causal=True)
    result = mixed.transpose(1, 2).reshape((BATCH, LENGTH, width))
    derivative = lm.gradient(result, [every], tensor(BATCH, LENGTH, width))
    sinks, inputs = graph(*derivative)
    program = build_program(sinks, replace(OF_GPUS, gains_by_recomputing=nested))
    agrees(program, sinks, inputs)
    assert len(program.launches) == 5  # the last one lays the three derivatives side by side


@pytest.mark.parametrize("refuses", [lambda kernel: True, lambda kernel: len(kernel.stores) > 1])
def test_what_gains_nothing_stays_in_memory(refuses: Any) -> None:
    sinks, inputs = graph(*attention(float32))
    asked: list[Kernel] = []

    def picky(kernel: Kernel) -> bool:
        asked.append(kernel)
        return not refuses(kernel)

    program = build_program(sinks, replace(OF_GPUS, gains_by_recomputing=picky))
    assert program == build_program(sinks, OF_GPUS)
    assert all(map(nested, asked))
    agrees(program, sinks, inputs)


def test_an_array_that_others_need_stays_in_memory() -> None:
    a, b = tensor(40, 8), tensor(8, 50)
    product = a @ b
    memory = FusionTarget(gains_by_recomputing=lambda kernel: True)
    for result in ([product, lm.sum(product)], [lm.sort(product)], [lm.sum(product[1:])]):
        sinks, inputs = graph(*result)
        program = build_program(sinks, memory)
        assert not any(map(nested, (one.kernel for one in program.launches
                                    if isinstance(one.kernel, Kernel))))  # fmt: skip
        agrees(program, sinks, inputs)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_kernels_compute_the_same_whatever_else_is_wanted(data: Any) -> None:
    """Operands and results in memory of any order, and other results that need the same sums."""
    batch, heads, length = data.draw(st.sampled_from([(1, 1, 6), (2, 3, 8), (1, 2, 12)]))
    keys, width = data.draw(st.sampled_from([(length, 4), (10, 2)]))
    dtype = data.draw(st.sampled_from([float32, bfloat16]))

    def operand(count: int) -> tuple[lm.Tensor, lm.Tensor]:
        if data.draw(st.booleans()):
            leaf = tensor(batch, count, heads * width, dtype=dtype)
            return leaf, leaf.reshape((batch, count, heads, width)).transpose(1, 2)
        leaf = tensor(heads, batch, count, width, dtype=dtype)
        return leaf, leaf.transpose(0, 1)

    leaves, (query, key, value) = zip(*map(operand, (length, keys, keys)), strict=True)
    query, key, value = (one.cast(float32) for one in (query, key, value))
    scores = query @ key.transpose(-1, -2)
    top = lm.max(scores, axis=-1, keepdims=True)
    weights = lm.exp(scores - top)
    total = lm.sum(weights, axis=-1, keepdims=True)
    result = weights @ value / total
    others = {
        "sum": lambda: (lm.log(total) + top).reshape((batch, heads * length)),
        "turned": lambda: (top * 2.0).reshape((batch * heads, length)).T,
        "some": lambda: total[:, :, ::2],
        "less": lambda: lm.sum(total.reshape((batch, heads * length)), axis=1),
        "beside": lambda: top + result,
        "again": lambda: (weights * 2.0) @ value[..., :1],
        "pieces": lambda: top + lm.max(
            tensor(batch, heads, length // 2, 2 * keys).reshape(scores.shape), -1, keepdims=True),
        "derivatives": lambda: lm.gradient(lm.sum(result * result), [leaves[0]])[0],
    }  # fmt: skip
    found = [others[name]() for name in data.draw(st.lists(st.sampled_from([*others]), max_size=3))]
    place = data.draw(st.sampled_from([(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 3, 2)]))
    sinks, inputs = graph(lm.permute_dims(result, place) * 2.0, *found)
    for gains in (lambda kernel: True, nested):
        target = replace(OF_GPUS, gains_by_recomputing=gains)
        agrees(build_program(sinks, target), sinks, inputs)


def test_groups_of_several_heads_have_no_array_of_all_pairs() -> None:
    query, seed = (tensor(BATCH, 4, LENGTH, WIDTH, dtype=bfloat16) for _ in range(2))
    key, value = (tensor(BATCH, 2, KEYS, WIDTH, dtype=bfloat16) for _ in range(2))
    result = lm.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    wanted = [result, *lm.gradient(result, [query, key, value], seed)]
    sinks, inputs = graph(*wanted)
    program = build_program(sinks, replace(OF_GPUS, gains_by_recomputing=nested))
    agrees(program, sinks, inputs)
    scratch = [view.size for view in views_of(program) if view.kind == "scratch"]
    assert max(scratch) < BATCH * 4 * LENGTH * KEYS
