"""Graphs with a mistake: each compiles, or raises an error of lamina's that names the operation.

``python -m tests.interop.test_torch_mutants 1000`` tries more of them."""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the graphs are PyTorch's: pip install torch==2.13.0")

from torch import fx  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

import lamina as lm  # noqa: E402
from lamina.errors import LaminaError  # noqa: E402
from lamina.interop.torch.broken import BrokenGraphError  # noqa: E402
from lamina.interop.torch.compiled import Compiled, Fallback  # noqa: E402

aten = torch.ops.aten
MODE = FakeTensorMode(allow_non_fake_inputs=True)


def layers(x: Any, w: Any, at: Any) -> list[Any]:
    hidden = torch.nn.functional.layer_norm(torch.relu(x @ w), (w.shape[1],))
    chosen = hidden[at].cumsum(0)
    return [chosen.softmax(-1), torch.cat([hidden, hidden * 2]), hidden.max(1).indices]


def images(x: Any, w: Any, at: Any) -> list[Any]:
    image = x.reshape(1, 1, 6, 8)
    kernels = w[:4, :4].reshape(1, 1, 4, 4)
    pooled = torch.nn.functional.max_pool2d(torch.conv2d(image, kernels, padding=1), 2)
    return [pooled.sum((2, 3)), torch.gather(x, 1, at.reshape(3, 1)), torch.sort(x)[0][:, 1:3]]


def graphs() -> list[Any]:
    with MODE:
        arguments = (torch.empty(6, 8), torch.empty(8, 5),
                     torch.empty(3, dtype=torch.int64))  # fmt: skip
        return [make_fx(function)(*arguments) for function in (layers, images)]


# Mutations: each changes one node, in place.


def fewer_arguments(node: fx.Node, rng: random.Random) -> None:
    node.args = node.args[:-1]


def more_arguments(node: fx.Node, rng: random.Random) -> None:
    node.args = (*node.args, rng.choice([None, 3, -1.5, "text", [1, 2], torch.float16]))


def another_argument(node: fx.Node, rng: random.Random) -> None:
    others = [one for one in node.graph.nodes if one.op == "placeholder"]
    values = [*others, None, 0, -7, 2**70, "text", [], [9, 9, 9], 1.5, True]
    place = rng.randrange(len(node.args))
    node.args = (*node.args[:place], rng.choice(values), *node.args[place + 1 :])


def another_keyword(node: fx.Node, rng: random.Random) -> None:
    name = rng.choice(["dtype", "dim", "alpha", "nonsense"])
    node.kwargs = {**node.kwargs, name: rng.choice([torch.bool, 3, "text", None])}


def another_target(node: fx.Node, rng: random.Random) -> None:
    node.target = rng.choice([
        aten.mm.default, aten.exp.default, aten.cat.default, aten.sort.default, len, print,
        aten.convolution.default, aten.sum.dim_IntList, aten.linalg_qr.default,
    ])  # fmt: skip


def another_description(node: fx.Node, rng: random.Random) -> None:
    with MODE:
        node.meta["val"] = rng.choice([
            torch.empty(7, 3), torch.empty((), dtype=torch.int64), torch.empty(0, 5), None, 4,
            [torch.empty(2)], torch.empty(6, 5, dtype=torch.complex64), "text",
            torch.empty_strided((6, 5), (1, 6)), torch.empty(3, dtype=torch.uint8),
        ])  # fmt: skip


def no_description(node: fx.Node, rng: random.Random) -> None:
    del node.meta["val"]


MUTATIONS: list[Callable[[fx.Node, random.Random], None]] = [
    fewer_arguments, more_arguments, another_argument, another_keyword, another_target,
    another_description, no_description,
]  # fmt: skip


def mutated(whole: Any, seed: int) -> tuple[Any, str]:
    """A copy with one or two mistakes, and what they are."""
    rng = random.Random(seed)
    module = copy.deepcopy(whole)
    nodes = [node for node in module.graph.nodes if node.op == "call_function" and node.args]
    said = []
    for node in rng.sample(nodes, rng.choice([1, 1, 2])):
        mutation = rng.choice(MUTATIONS)
        mutation(node, rng)
        said.append(f"{mutation.__name__} {node.format_node()}")
    return module, "; ".join(said)


def complaint(module: Any) -> str | None:
    """What is raised that does not tell the operation, or is no error of lamina's."""
    names = {str(node.target) for node in module.graph.nodes}
    names |= {node.name for node in module.graph.nodes}
    try:
        Compiled(module, Fallback.REFUSED)
    except LaminaError as error:
        is_told = any(name in str(error) for name in names)
        return None if is_told else f"no operation in: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def complaints(count: int) -> list[str]:
    wholes = graphs()
    found = []
    with lm.using(device="interp"):
        for seed in range(count):
            module, said = mutated(wholes[seed % len(wholes)], seed)
            what = complaint(module)
            if what is not None:
                found.append(f"{seed}: {what}\n  {said}")
    return found


def test_a_mistake_in_a_graph_is_told() -> None:
    assert complaints(60) == []


def test_whole_graphs_have_no_mistake() -> None:
    with lm.using(device="interp"):
        for module in graphs():
            Compiled(module, Fallback.REFUSED)


@pytest.mark.parametrize(("mutation", "said"), [
    (no_description, r"^mm = aten\.mm\.default: its result is not described"),
    (fewer_arguments, r"^left to PyTorch: aten\.mm\.default: matmul.*missing a required argument"),
])  # fmt: skip
def test_the_node_is_named(
    mutation: Callable[[fx.Node, random.Random], None], said: str
) -> None:
    module = graphs()[0]
    (node,) = module.graph.find_nodes(op="call_function", target=aten.mm.default)
    mutation(node, random.Random(0))
    with lm.using(device="interp"), pytest.raises(LaminaError, match=said):
        Compiled(module, Fallback.REFUSED)


def test_what_pytorch_refuses_too_is_a_broken_graph() -> None:
    module = graphs()[0]
    (node,) = module.graph.find_nodes(op="call_function", target=aten.cat.default)
    node.args = (7,)
    said = r"^cat = aten\.cat\.default: "
    with lm.using(device="interp"), pytest.raises(BrokenGraphError, match=said):
        Compiled(module, Fallback.REFUSED)


if __name__ == "__main__":
    lines = complaints(int(sys.argv[1]))
    print("\n".join([*lines, f"{len(lines)} of {sys.argv[1]} are not told"]))
