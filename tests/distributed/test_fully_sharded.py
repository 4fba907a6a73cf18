"""Parameters that are gathered for a layer alone: when, how often, and what memory that takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, distributed, nn
from lamina.core.options import Options
from lamina.distributed import FullySharded, fully_sharded, setup
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError, DTypeError
from lamina.fuse import early, overlap
from lamina.fuse.program import Program
from lamina.ir.kernel import Collective
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.pipeline import compile_source
from tests.distributed import gpt
from tests.distributed.lockstep import gradients_on_ranks, hole, on_ranks, opened

PAIR = Axis("pair", 2, 1)
CPU, GPU = Options(), Options(device="cuda:0", arch="sm_90a")
SIZE = 64


@pytest.fixture(autouse=True)
def _first_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 2)])
    monkeypatch.setattr(setup, "bucket_bytes", lambda: 128 << 10)


@pytest.fixture
def one_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with layers of which one has more bytes than may be on the way."""
    monkeypatch.setattr(early, "MAX_AHEAD_BYTES", 0)
    monkeypatch.setattr(overlap, "MAX_RUNNING_BYTES", 0)


def argument(number: int, *shape: int) -> Tensor:
    return Tensor.of(hole(number, np.zeros(shape, np.float32)), "cpu")


def order_of(program: Program) -> str:
    """A letter for each launch: g gathers, r adds up, c or k is a kernel."""
    letters = {Op.ALL_GATHER: "g", Op.REDUCE_SCATTER: "r"}
    found = []
    for launch in program.launches:
        is_collective = isinstance(launch.kernel, Collective)
        found.append(letters[launch.kernel.op] if is_collective else "k")
    return "".join(found)


def products(count: int) -> Tensor:
    """x @ w0 @ w1 ..., of gathered weights, each of them the first operand of its product."""
    x = argument(0, SIZE, SIZE)
    for number in range(count):
        x = distributed.all_gather(argument(1 + number, SIZE // 2, SIZE), 0, PAIR).mT @ x
    return x


def program_of(options: Options, *results: Tensor) -> Program:
    return compile_source([opened(one) for one in results], options).program


def test_each_gathering_comes_right_before_its_use() -> None:
    """On a CPU, where nothing runs beside it."""
    assert order_of(program_of(CPU, products(4))) == "gkgkgkgk"


@pytest.mark.usefixtures("one_ahead")
def test_each_gathering_runs_beside_the_kernel_before_its_use() -> None:
    assert order_of(program_of(GPU, products(4))) == "ggkgkgkk"


def test_more_are_gathered_ahead_where_they_are_short() -> None:
    assert order_of(program_of(GPU, products(4))) == "ggggkkkk"


def test_what_was_gathered_shares_memory() -> None:
    """No more than two of eight gathered weights at a time, and two arrays."""
    assert program_of(CPU, products(8)).arena <= 4 * SIZE * SIZE * 4


def sharded_product(x: Tensor) -> Tensor:
    """x @ weight, of which `x` has this process's half."""
    gathered = distributed.all_gather(x, 0, PAIR)
    recomputed = Node(Op.RECOMPUTED, (gathered.node, x.node))
    weight = Tensor.of(recomputed, x.device)
    return lm.tanh(weight * 2.0) @ weight


def test_derivatives_of_what_is_recomputed_are_those_of_the_same_value() -> None:
    generator = np.random.default_rng(1)
    operands = [generator.normal(size=(2, 4)) for _ in range(2)]
    seeds = [generator.normal(size=(4, 4)) for _ in range(2)]

    def kept(x: Tensor) -> Tensor:
        weight = distributed.all_gather(x, 0, PAIR)
        return lm.tanh(weight * 2.0) @ weight

    np.testing.assert_array_equal(on_ranks(sharded_product, operands), on_ranks(kept, operands))
    found = gradients_on_ranks(sharded_product, operands, seeds)
    np.testing.assert_allclose(found, gradients_on_ranks(kept, operands, seeds), rtol=1e-12)


def trained(model: gpt.Gpt, parameters: list[Tensor], ranks: int) -> Program:
    """The program of a step of AdamW for a GPU, of a model whose loss is divided by `ranks`."""
    optimizer = nn.optim.AdamW(parameters)
    lm.realize(*parameters)

    def step(x: Tensor, y: Tensor) -> Tensor:
        logits = model.hidden(model.embedded(x)) @ model.letters.weight.T
        loss = lm.cross_entropy(logits.flatten(0, 1), y.flatten()) / ranks
        optimizer.step(lm.gradient(loss, parameters))
        return loss

    tokens = lm.TensorSpec((1, gpt.LENGTH), lm.int64)
    return lm.jit(step).lower(tokens, tokens, device="cuda", arch="sm_90a").planned.program


def held(parameters: list[Tensor]) -> int:
    """Bytes of parameters and of the two moments of Adam."""
    return 3 * sum(one.size * one.dtype.itemsize for one in parameters)


@pytest.mark.usefixtures("one_ahead")
def test_a_step_with_shards_needs_less_than_six_tenths_of_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is gathered lives for a layer, not from the forward pass to the backward pass."""
    monkeypatch.setattr(gpt, "WIDTH", 128)
    layers = 8
    whole, sharded = gpt.Gpt(12, layers), gpt.Gpt(12, layers)
    parameters = nn.parameters(whole)
    alone = held(parameters) + trained(whole, parameters, 1).arena
    sharded.blocks = [FullySharded(block, PAIR) for block in sharded.blocks]
    shards = nn.parameters(sharded)
    program = trained(sharded, shards, 2)
    assert held(shards) + program.arena < 0.6 * alone
    order = order_of(program)
    each = 4  # for a layer: three weights, and a bucket with the fourth one and what is short
    assert order.count("g") == 2 * each * layers  # forwards, and again backwards
    assert order.count("r") == each * layers
    assert "gggg" not in order


def test_shards_of_a_layer_inside_are_left_as_they_are() -> None:
    """Each process has others: to gather parts of them would mix the elements of two."""
    model = {"first": FullySharded(nn.Linear(4, 4), PAIR), "last": nn.Linear(4, 2)}
    shards = list(model["first"].shards.values())
    outer = FullySharded(Chain(model), PAIR)
    assert set(outer.shards) == {"layers.last.weight", "layers.last.bias"}
    assert list(model["first"].shards.values()) == shards
    assert outer(lm.ones((3, 4))).shape == (3, 2)
    assert FullySharded(model["first"], PAIR).shards == {}


class Chain:
    def __init__(self, layers: dict[str, Any]) -> None:
        self.layers = layers

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers.values():
            x = layer(x)
        return x


def test_parts_of_the_same_processes_are_refused() -> None:
    """Of the first of two processes: parts along the pair are not divided along it again."""
    column = distributed.ColumnParallel(nn.Linear(4, 4), PAIR)
    with pytest.raises(ArgumentError, match=r"weight is a part, .* along 'pair' have others"):
        FullySharded(column, PAIR)
    with pytest.raises(ArgumentError, match=r"layers\.a\.weight is a part"):
        FullySharded(Chain({"a": column}), PAIR)


def test_parts_of_other_processes_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first of four: along the data axis two processes have the same part."""
    monkeypatch.setattr(setup, "_joined", [setup._Process(0, 4)])
    model, data = Axis("model", 2, 1), Axis("data", 2, 2)
    column = distributed.ColumnParallel(nn.Linear(4, 4), model)
    sharded = FullySharded(column, data)
    assert {name: one.size for name, one in sharded.shards.items()} == {"weight": 4, "bias": 1}


def test_short_parameters_are_gathered_together_however_long_others_are() -> None:
    """40 MB of weights lie between the biases."""
    shards = {name: lm.zeros(size) for name, size in
              (("first bias", 64), ("weight", 10_000_000), ("last bias", 64))}  # fmt: skip
    bucket_of = fully_sharded._buckets(shards, 2)
    assert bucket_of["weight"] == ["weight"]
    assert bucket_of["first bias"] == bucket_of["last bias"] == ["first bias", "last bias"]


def test_parameters_are_sent_as_floats() -> None:
    with pytest.raises(DTypeError, match="floats, not int8"):
        FullySharded(nn.Linear(4, 4), PAIR, lm.int8)
