"""Time of the compiler's passes as programs grow: ``python -m bench.passes [--output FOLDER]``.

Each program is compiled in a process of its own, for a CPU and for an H200, from its graph to the
source; neither a C compiler nor NVRTC runs. If passes are linear, a node takes as long in a large
program as in a small one.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import lamina as lm
from bench.machine import BUSY, facts
from bench.report import digits, table
from lamina import Tensor
from lamina.ir.node import toposort
from lamina.runtime.profile import passes

NODES = (500, 1000, 2000, 5000)  # of the graph of a training step, at least
DEVICES = ("cpu", "cuda:0")
SHOWN = ("simplify", "fuse", "schedule", "print")  # passes with a column of their own
Loss = Callable[[Tensor, list[Tensor]], Tensor]


@dataclass(frozen=True)
class Network:
    """A network of any depth.

    input: the shape of its input. weights: the shapes of the weights of layer 0, 1, ..., empty
    where a layer has those of the first. loss: from the input and all weights, at such a depth.
    """

    input: Callable[[int], tuple[int, ...]]
    weights: Callable[[int], list[tuple[int, ...]]]
    loss: Callable[[int], Loss]


@dataclass(frozen=True)
class Compiled:
    """What compiling a program took: processor seconds in all, and seconds of each pass."""

    nodes: int
    kernels: int
    seconds: float
    of_passes: dict[str, float]


def _width(layer: int) -> int:
    """Every layer has another width, so that no two kernels are alike: 64, 101, 138, 175, ..."""
    return 64 + 37 * layer % 211


def _dense_loss(depth: int) -> Loss:
    def loss(x: Tensor, weights: list[Tensor]) -> Tensor:
        for weight in weights:
            x = (x @ weight).relu()
            x = x - x.mean(axis=1, keepdims=True)
        return (x * x).mean()

    return loss


def _normalized(x: Tensor) -> Tensor:
    x = x - x.mean(axis=-1, keepdims=True)
    return x * lm.rsqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5)


def _transformer_loss(depth: int) -> Loss:
    def loss(x: Tensor, weights: list[Tensor]) -> Tensor:
        for layer in range(depth):
            projection, output, up, down = weights[4 * layer : 4 * layer + 4]
            heads = (_normalized(x) @ projection).reshape((2, 32, 3, 4, 16)).permute(2, 0, 3, 1, 4)
            queries, keys, values = heads.unstack()
            attended = lm.scaled_dot_product_attention(queries, keys, values)
            x = x + attended.permute(0, 2, 1, 3).reshape((2, 32, 64)) @ output
            x = x + lm.gelu(_normalized(x) @ up) @ down
        return (x * x).mean()

    return loss


def _recurrent_loss(depth: int) -> Loss:
    def loss(x: Tensor, weights: list[Tensor]) -> Tensor:
        of_input, of_state = weights
        state = memory = lm.zeros((4, 32))
        for step in range(depth):
            gates = (x[step] @ of_input + state @ of_state).reshape((4, 4, 32))
            reads, forgets, writes, new = gates.unstack(axis=1)
            memory = memory * forgets.sigmoid() + reads.sigmoid() * new.tanh()
            state = writes.sigmoid() * memory.tanh()
        return (state * state).mean()

    return loss


NETWORKS = {
    "layers of other widths": Network(
        lambda depth: (32, _width(0)),
        lambda layer: [(_width(layer), _width(layer + 1))],
        _dense_loss,
    ),
    "transformer": Network(
        lambda depth: (2, 32, 64),
        lambda layer: [(64, 192), (64, 64), (64, 256), (256, 64)],
        _transformer_loss,
    ),
    "LSTM": Network(
        lambda depth: (depth, 4, 32),
        lambda layer: [] if layer else [(32, 128), (32, 128)],
        _recurrent_loss,
    ),
}


def compiled(name: str, depth: int, device: str) -> Compiled:
    """What a step of stochastic gradient descent of a network takes."""
    network = NETWORKS[name]
    loss_of = network.loss(depth)

    def step(x: Tensor, weights: list[Tensor]) -> list[Tensor]:
        loss = loss_of(x, weights)
        gradients = lm.gradient(loss, weights)
        moved = zip(weights, gradients, strict=True)
        return [loss, *(weight - 0.1 * gradient for weight, gradient in moved)]

    weights = [
        lm.TensorSpec(shape) for layer in range(depth) for shape in network.weights(layer)
    ]
    with passes() as records:
        started = time.process_time()
        lowered = lm.jit(step).lower(lm.TensorSpec(network.input(depth)), weights, device=device)
        seconds = time.process_time() - started
    of_passes: Counter[str] = Counter()
    for record in records:
        of_passes[record.pass_.name] += record.seconds
    nodes = len(toposort(records[0].before))
    return Compiled(nodes, len(lowered.kernels), seconds, dict(of_passes))


def _depth_for(name: str, nodes: int) -> int:
    """The least depth at which the network has so many nodes. They grow by as many a layer."""
    shallow, deeper = (compiled(name, depth, "cpu").nodes for depth in (2, 4))
    of_layer = (deeper - shallow) / 2
    missing = max(nodes - shallow, 0)
    return 2 + int(missing / of_layer + 1)


def _in_new_process(name: str, nodes: int, device: str) -> Compiled:
    """Nothing that another program left in memory may help."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        depth = pool.submit(_depth_for, name, nodes).result()
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(compiled, name, depth, device).result()


def _row(name: str, device: str, result: Compiled) -> list[str]:
    """A row of the table."""
    shown = [result.of_passes.get(step, 0.0) for step in SHOWN]
    others = sum(result.of_passes.values()) - sum(shown)
    times = [digits(1e3 * seconds) for seconds in (*shown, others, result.seconds)]
    microseconds = sum(result.of_passes.values()) / result.nodes * 1e6
    return [name, device, str(result.nodes), str(result.kernels), *times, digits(microseconds)]


def page(rows: list[list[str]]) -> str:
    """The page of results."""
    head = ["program", "for", "nodes", "kernels", *(f"{step}, ms" for step in SHOWN),
            "other passes, ms", "in all with tracing, ms", "passes, us a node"]  # fmt: skip
    shown = ("commit", "date", "CPU", BUSY, "Python")
    known = facts(0, None)
    machine = [[name, known[name]] for name in shown]
    lines = [
        "# Passes as programs grow",
        "",
        " ".join((__doc__ or "").split("\n\n")[1].split()),
        "A program is a training step with stochastic gradient descent. Processor time in all, and "
        "seconds on the wall of single passes. Written by `python -m bench.passes`.",
        "",
        *table(["", ""], machine),
        "",
        *table(head, rows),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, and write the page where that is asked for, anew after each program."""
    parser = argparse.ArgumentParser(prog="python -m bench.passes", description=__doc__)
    parser.add_argument("--output", type=Path, help="folder of the page")
    arguments = parser.parse_args()
    rows: list[list[str]] = []
    for name, device, nodes in itertools.product(NETWORKS, DEVICES, NODES):
        rows.append(_row(name, device, _in_new_process(name, nodes, device)))
        print(*rows[-1], flush=True)
        if arguments.output is not None:
            arguments.output.mkdir(parents=True, exist_ok=True)
            (arguments.output / "passes.md").write_text(page(rows), encoding="utf-8")
    print(page(rows))


if __name__ == "__main__":
    main()
