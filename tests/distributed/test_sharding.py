"""Annotated programs beside the same without annotations: all ranks of a mesh in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lamina as lm
from lamina import Tensor, distributed, nn
from lamina.core import options
from lamina.core.exchange import group_of, place_of
from lamina.distributed import Mesh, setup
from lamina.distributed.spec import reshaped
from lamina.errors import ArgumentError, ShapeError
from lamina.graph.autodiff import gradient
from lamina.ir.interpreter import EVALUATE, from_ranks
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.substitute import substitute, with_operands
from tests.distributed.lockstep import hole, opened

Names = tuple[str | None, ...]
SIZES = {"data": 2, "model": 2}


@contextmanager
def as_rank(rank: int, size: int) -> Iterator[None]:
    """Within it this process is a rank of a run, whose graphs can be built."""
    before = setup._joined[:]
    setup._joined[:] = [setup._Process(rank, size)]
    try:
        yield
    finally:
        setup._joined[:] = before


def part_of(x: np.ndarray, names: Names, mesh: Mesh) -> np.ndarray:
    """The part of this rank of an array."""
    for axis, name in enumerate(names):
        if name is not None:
            x = np.split(x, mesh[name].ranks, axis)[mesh[name].place]
    return x


def evaluate(sinks: Sequence[Node], leaves: Sequence[dict[Node, np.ndarray]]) -> list[np.ndarray]:
    """The value of the sink of each rank, whose graphs differ in the places of parts alone."""
    orders = [toposort([sink]) for sink in sinks]
    assert len({len(order) for order in orders}) == 1
    values: list[dict[Node, np.ndarray]] = [dict(held) for held in leaves]
    for nodes in zip(*orders, strict=True):
        assert len({node.op for node in nodes}) == 1
        pairs = zip(nodes, values, strict=True)
        operands = [[held[one] for one in node.src] for node, held in pairs]
        for rank, node in enumerate(nodes):
            if node not in values[rank]:
                values[rank][node] = _value(node, operands, rank)
    return [held[sink] for held, sink in zip(values, sinks, strict=True)]


def _value(node: Node, operands: list[list[np.ndarray]], rank: int) -> np.ndarray:
    if node.op in Group.COLLECTIVE:
        ranks, stride = node.arg.ranks, node.arg.stride
        of_group = [operands[other][0] for other in group_of(rank, ranks, stride)]
        return from_ranks(node.op, node.arg, of_group, place_of(rank, ranks, stride))
    if node.op is Op.BUFFER:  # of the program itself
        return Tensor.of(node, node.arg.device).numpy()
    found = np.asarray(EVALUATE[node.op](node, *operands[rank]))
    return found.astype(node.dtype.numpy, copy=False)


@dataclass(frozen=True)
class Ran:
    """On each rank the result, and the derivative of the sum of its squares by each part; and the
    nodes of both on the last rank."""

    results: list[np.ndarray]
    gradients: list[list[np.ndarray]]
    sinks: list[Node]


def run_sharded(
    function: Callable[..., Tensor], arrays: Sequence[np.ndarray], specs: Sequence[Names],
    sizes: dict[str, int] = SIZES,
) -> Ran:  # fmt: skip
    count = int(np.prod(list(sizes.values())))
    results, adjoints, leaves = [], [], []
    for rank in range(count):
        with as_rank(rank, count):
            mesh = Mesh(**sizes)
            own = [part_of(one, names, mesh) for one, names in zip(arrays, specs, strict=True)]
            holes = [hole(number, one) for number, one in enumerate(own)]
            pairs = zip(holes, specs, strict=True)
            whole = [distributed.of_part(Tensor.of(x, "cpu"), mesh, names) for x, names in pairs]
            y = opened(distributed.whole(function(*whole)))
            results.append(y)
            adjoints.append(gradient(y, holes, y * 2.0))
            leaves.append(dict(zip(holes, own, strict=True)))
    of_inputs = []
    for number in range(len(arrays)):
        found = [one[number] for one in adjoints if one[number] is not None]
        of_inputs.append(evaluate(found, leaves) if found else [])
    sinks = [results[-1], *(one for one in adjoints[-1] if one is not None)]
    return Ran(evaluate(results, leaves), of_inputs, sinks)


def check(
    function: Callable[..., Tensor], arrays: Sequence[np.ndarray], specs: Sequence[Names],
    sizes: dict[str, int] = SIZES,
) -> Ran:  # fmt: skip
    """Results and gradients are those of one process."""
    ran = run_sharded(function, arrays, specs, sizes)
    holes = [hole(number, one) for number, one in enumerate(arrays)]
    y = opened(function(*(Tensor.of(x, "cpu") for x in holes)))
    held = dict(zip(holes, arrays, strict=True))
    (expected,) = evaluate([y], [held])
    for result in ran.results:
        np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)
    adjoints = gradient(y, holes, y * 2.0)
    for number, adjoint in enumerate(adjoints):
        if adjoint is None:
            continue
        (whole,) = evaluate([adjoint], [held])
        for rank, found in enumerate(ran.gradients[number]):
            with as_rank(rank, len(ran.results)):
                own = part_of(whole, specs[number], Mesh(**sizes))
            np.testing.assert_allclose(found, own, rtol=1e-8, atol=1e-8)
    return ran


def collectives(ran: Ran) -> list[str]:
    """Those that run: of what has a derivative of its own the value alone does."""

    def value(node: Node, operands: tuple[Node, ...]) -> Node:
        return operands[0] if node.op is Op.CUSTOM_DERIVATIVE else with_operands(node, operands)

    nodes = toposort(substitute(ran.sinks, {}, value))
    return [node.op.name for node in nodes if node.op in Group.COLLECTIVE]


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


PAIR = {"model": 2}


def mlp(x: Tensor, up: Tensor, bias: Tensor, down: Tensor) -> Tensor:
    return lm.gelu(x @ up.T + bias) @ down.T


def test_columns_then_rows_take_one_sum_each_way() -> None:
    arrays = [drawn(3, 4), drawn(8, 4, seed=1), drawn(8, seed=2), drawn(4, 8, seed=3)]
    specs: list[Names] = [(None, None), ("model", None), ("model",), (None, "model")]
    ran = check(mlp, arrays, specs, PAIR)
    assert collectives(ran) == ["ALL_REDUCE", "ALL_REDUCE"]


def attention(x: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> Tensor:
    rows, length, width = x.shape
    heads = 2

    def split(weight: Tensor) -> Tensor:
        return (x @ weight.T).reshape((rows, length, heads, width // heads)).transpose(1, 2)

    mixed = lm.scaled_dot_product_attention(*map(split, (query, key, value)), is_causal=True)
    return mixed.transpose(1, 2).reshape((rows, length, width)) @ out.T


def test_heads_take_one_sum_each_way() -> None:
    arrays = [drawn(2, 3, 4), *(drawn(4, 4, seed=seed) for seed in range(1, 5))]
    column: Names = ("model", None)
    specs: list[Names] = [(None,) * 3, column, column, column, (None, "model")]
    ran = check(attention, arrays, specs, PAIR)
    assert collectives(ran) == ["ALL_REDUCE", "ALL_REDUCE"]


def test_rows_of_a_batch_add_up_the_gradients_of_weights() -> None:
    arrays = [drawn(4, 4), drawn(8, 4, seed=1), drawn(8, seed=2), drawn(4, 8, seed=3)]
    specs: list[Names] = [("data", None), (None, None), (None,), (None, None)]

    def loss(*tensors: Tensor) -> Tensor:
        return (mlp(*tensors) ** 2).mean()

    ran = check(loss, arrays, specs, {"data": 2})
    assert collectives(ran) == ["ALL_REDUCE"] * 4  # the loss, and three gradients


def test_both_at_once() -> None:
    arrays = [drawn(4, 4), drawn(8, 4, seed=1), drawn(8, seed=2), drawn(4, 8, seed=3)]
    check(mlp, arrays, [("data", None), ("model", None), ("model",), (None, "model")])


def test_sharded_parameters_are_gathered_and_their_gradients_scattered() -> None:
    arrays = [drawn(4, 4), drawn(8, 4, seed=1)]
    specs: list[Names] = [("data", None), ("data", None)]
    ran = check(lambda x, w: (x @ w.T).sum(), arrays, specs, {"data": 2})
    assert collectives(ran).count("REDUCE_SCATTER") == 1


def test_a_lookup_in_whole_rows() -> None:
    ids = np.array([[0, 3], [5, 5], [1, 2], [4, 0]])

    def looked_up(table: Tensor) -> Tensor:
        return lm.embedding(Tensor(ids), table)

    check(looked_up, [drawn(6, 4)], [(None, "model")])
    check(looked_up, [drawn(6, 4)], [("model", None)])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("names", [("model", None), (None, "model")])
def test_sorts_along_an_axis_of_which_each_has_a_part(axis: int, names: Names) -> None:
    weights = drawn(4, 6, seed=1)

    def ordered(x: Tensor) -> Tensor:
        largest, _ = lm.topk(x, 2, axis=axis)
        return (lm.sort(x, axis=axis) * Tensor(weights)).sum() + largest.sum()

    check(ordered, [drawn(4, 6)], [names], PAIR)


@pytest.mark.parametrize(
    ("before", "after", "names", "expected"),
    [
        ((8, 6), (48,), ("model", None), ("model",)),
        ((8, 6), (48,), (None, "model"), (None,)),
        ((48,), (4, 12), ("model",), ("model", None)),
        ((6,), (3, 2), ("model",), (None, None)),
        ((1, 8, 1), (8,), (None, "model", None), ("model",)),
        ((8, 6), (2, 4, 3, 2), ("model", "data"), ("model", None, None, None)),
        ((8, 4), (2, 4, 2, 2), ("model", "data"), ("model", None, "data", None)),
    ],
)
def test_dimensions_that_are_cut_stay_so_where_they_come_first(
    before: tuple[int, ...], after: tuple[int, ...], names: Names, expected: Names
) -> None:
    assert reshaped(before, after, names, SIZES) == expected


# Small random programs: each step makes a tensor from those before it.


@dataclass(frozen=True)
class Drawn:
    arrays: list[np.ndarray]
    specs: list[Names]
    steps: list[tuple[str, int, int]]


SHAPE = (4, 2, 4)


def applied(kind: str, x: Tensor, y: Tensor) -> Tensor:
    """One step, of tensors of SHAPE to one of SHAPE."""
    rows, middle, columns = SHAPE
    if kind == "product":
        return x @ (y.reshape((rows * middle, columns))[:columns] * 0.5)
    if kind == "row sums":
        return x + y.sum(axis=-1, keepdims=True)
    if kind == "softmax":
        return lm.softmax(x, axis=0)
    if kind == "merged":
        flat = x.reshape((rows * middle, columns))
        return (flat * flat.sum(axis=0)).reshape(SHAPE)
    if kind == "transposed":
        return x * y.transpose(0, 2)
    if kind == "cut":
        return lm.concat([x[1:], y[:1]], axis=0)
    if kind == "running":
        return lm.cumsum(x, axis=0)
    if kind == "largest":
        return x * lm.max(y, axis=1, keepdims=True)
    if kind == "quotient":
        return x.sum(axis=1, keepdims=True) / (2.0 + y * y)
    if kind == "sums":
        sums = x.sum(axis=0, keepdims=True) + y.sum(axis=0, keepdims=True)
        return sums + lm.zeros(SHAPE, dtype=lm.float64)
    return {"add": x + y, "multiply": x * y, "sine": lm.sin(x)}[kind]


KINDS = (
    "add", "multiply", "sine", "product", "row sums", "softmax", "merged", "transposed", "cut",
    "running", "largest", "quotient", "sums",
)  # fmt: skip


@st.composite
def drawn_programs(draw: st.DrawFn) -> Drawn:
    count = draw(st.integers(1, 3))
    choices = [None, "data", "model"]
    specs = []
    for _ in range(count):
        names = draw(st.tuples(*[st.sampled_from(choices)] * 3))
        used: list[str] = []
        for name in names:
            used += [name] if name and name not in used else []
        specs.append(tuple(name if name and names.index(name) == axis else None
                           for axis, name in enumerate(names)))  # fmt: skip
    arrays = [drawn(*SHAPE, seed=seed) for seed in range(count)]
    steps = []
    for number in range(draw(st.integers(1, 4))):
        known = st.integers(0, count + number - 1)
        steps.append((draw(st.sampled_from(KINDS)), draw(known), draw(known)))
    return Drawn(arrays, specs, steps)


@settings(deadline=None, max_examples=150)
@given(drawn_programs())
def test_random_programs_are_those_of_one_process(program: Drawn) -> None:
    def function(*tensors: Tensor) -> Tensor:
        known = list(tensors)
        for kind, first, second in program.steps:
            known.append(applied(kind, known[first], known[second]))
        return known[-1] + known[0] * 0.0

    check(function, program.arrays, program.specs)


def test_a_deep_program() -> None:
    """Deeper than Python's calls may be."""

    def deep(x: Tensor) -> Tensor:
        for _ in range(400):
            x = lm.sin(x + x.sum(axis=0, keepdims=True))
        return x

    with as_rank(0, 2):
        x = distributed.of_part(lm.ones((2, 3)), Mesh(model=2), ("model", None))
        assert distributed.part(deep(x)).shape == (2, 3)


# What is refused.


def test_names_are_axes_of_the_mesh_each_once() -> None:
    with as_rank(0, 2):
        mesh = Mesh(model=2)
        x = lm.ones((4, 3))
        for names in [("model",), ("model", "model")]:
            with pytest.raises(ArgumentError, match="for each dimension"):
                distributed.shard(x, mesh, names)
        with pytest.raises(ArgumentError, match="no axis 'data'"):
            distributed.shard(x, mesh, ("data", None))
        with pytest.raises(ShapeError, match="3 elements, 2 processes"):
            distributed.shard(x, mesh, (None, "model"))


def test_a_value_is_asked_for_by_its_part_or_whole() -> None:
    with as_rank(0, 2):
        x = distributed.shard(lm.ones((4, 3)), Mesh(model=2), ("model", None))
        assert x.shape == (4, 3)
        assert distributed.part(x * 2.0).shape == (2, 3)
        assert distributed.axes_of(x * 2.0) == ("model", None)
        with pytest.raises(ArgumentError, match="take its `part` or its `whole`"):
            (x * 2.0).numpy()
        with pytest.raises(ArgumentError, match="nothing that `shard` gave"):
            distributed.whole(lm.ones((4, 3)))


def test_a_layer_has_the_part_as_its_parameter() -> None:
    with as_rank(0, 2):
        layer = nn.Linear(3, 4)
        layer.weight = distributed.shard(layer.weight, Mesh(model=2), ("model", None))
        assert nn.parameters(layer) == [distributed.part(layer.weight), layer.bias]


def test_a_whole_gets_no_other_value() -> None:
    """Its part, which an optimiser has, would keep the old one."""
    with as_rank(0, 2):
        layer = nn.Linear(3, 4)
        layer.weight = distributed.shard(layer.weight, Mesh(model=2), ("model", None))
        with pytest.raises(ArgumentError, match="take its `part` or its `whole`"):
            layer.weight.assign(1.0)
        with pytest.raises(ArgumentError, match="take its `part` or its `whole`"):
            nn.load_state_dict(layer, nn.state_dict(nn.Linear(3, 4)))
        assert distributed.axes_of(layer.weight) == ("model", None)


def test_a_leaf_of_its_own_has_no_parts() -> None:
    with as_rank(0, 2):
        y = distributed.shard(lm.ones((4, 3)), Mesh(model=2), ("model", None)) * 2.0
        y.requires_grad = True
        with pytest.raises(ArgumentError, match="let what is sharded require it"):
            distributed.whole(y + 1.0)


def test_a_parameter_stays_one_and_a_result_can_be_cut_again() -> None:
    with as_rank(1, 2):
        mesh = Mesh(model=2)
        weight = lm.ones((4, 2), requires_grad=True)
        x = distributed.shard(weight, mesh, ("model", None))
        assert distributed.part(x).requires_grad
        assert distributed.part(x) is distributed.part(x)
        moved = distributed.shard(x * 2.0, mesh, (None, "model"))
        exchanged = toposort([distributed.part(moved).node])
        assert [n.op for n in exchanged if n.op in Group.COLLECTIVE] == [Op.ALL_TO_ALL]


def test_what_is_inserted_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with as_rank(0, 2), options.using(debug=1):
        x = distributed.shard(lm.ones((4, 3)), Mesh(model=2), ("model", None))
        distributed.whole(x.sum(axis=0))
    said = capsys.readouterr().err
    assert "shard: all_reduce over model of float32 (3,)" in said
