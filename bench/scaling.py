"""The step time of a large model on many GPUs, on paper: `python -m bench.scaling`.

Nothing runs. One GPU of each kind of stage is followed through a step: its products, and its
collectives beside them or between them, from the rates of a GPU and of its links, which are
options. `docs/scaling.md` says what comes out, and what is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lamina.distributed.pipeline import task_at

GPUS = (64, 128, 256, 512, 1024)
OF_NODE = 8  # GPUs that NVLink joins


@dataclass(frozen=True)
class Model:
    """A Llama, by default of 70 billion parameters."""

    layers: int = 80
    width: int = 8192
    hidden: int = 28672
    key_share: float = 0.125  # of the query's width, that keys and values have
    vocabulary: int = 128256

    @property
    def layer_parameters(self) -> float:
        attention = self.width**2 * (2 + 2 * self.key_share)
        return attention + 3 * self.width * self.hidden

    @property
    def parameters(self) -> float:
        return self.layers * self.layer_parameters + 2 * self.width * self.vocabulary

    def layer_operations(self, tokens: float, length: int) -> float:
        """Of a forward pass: two for each parameter and token, and causal attention."""
        return 2 * tokens * self.layer_parameters + 2 * tokens * length * self.width


# Bytes that go out of a GPU, and the seconds that they take.
Curve = tuple[tuple[float, float], ...]

# Of an all_gather by NCCL 2.28.9 between two H200s of a node, without NVLink multicast, measured
# alone, by the bytes that each GPU sends: half of the result. `bench/results/h200_distributed.md`
# has other collectives too.
MEASURED_INSIDE: Curve = (
    (512 << 10, 15.7e-6), (2 << 20, 31.1e-6), (6 << 20, 49.3e-6), (25 << 19, 84.3e-6),
    (32 << 20, 159.9e-6), (128 << 20, 558.2e-6),
)  # fmt: skip


def constant(rate: float) -> Curve:
    """A link of so many bytes a second, however few."""
    return ((0.0, 0.0), (1.0, 1.0 / rate))


def seconds_of(sent: float, curve: Curve) -> float:
    """Seconds for `sent` bytes: a straight line between two points of the curve, and beyond its
    last two on in their direction; never less than at the first point."""
    pairs = pairwise(curve)
    (start, first), (end, last) = next(
        ((low, high) for low, high in pairs if sent <= high[0]), (curve[-2], curve[-1])
    )
    return max(curve[0][1], first + (sent - start) * (last - first) / (end - start))


@dataclass(frozen=True)
class Rates:
    """What a GPU and its links do in a second.

    operations: of products, with all that runs between them. inside: what a collective takes that
    moves so many bytes out of a GPU within a node. between: bytes a second among nodes. latency:
    seconds of a collective for each rank that it goes through; within a node, for each after the
    second one."""

    operations: float = 500e12
    inside: Curve = MEASURED_INSIDE
    between: float = 45e9
    latency: float = 4e-6


@dataclass(frozen=True)
class Mesh:
    """How many processes share what. sharded: the parameters, along `data`."""

    data: int
    tensor: int = 1
    stages: int = 1

    @property
    def gpus(self) -> int:
        return self.data * self.tensor * self.stages

    def __str__(self) -> str:
        parts = [f"data {self.data}"]
        if self.tensor > 1:
            parts.append(f"tensor {self.tensor}")
        if self.stages > 1:
            parts.append(f"stages {self.stages}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Batch:
    """What all GPUs train on in a step."""

    tokens: int = 4 << 20
    length: int = 8192

    def sequences(self, mesh: Mesh) -> float:
        """Of one group of GPUs that has the whole model."""
        return self.tokens / self.length / mesh.data


@dataclass(frozen=True)
class Layer:
    """Seconds of one layer on one GPU, for one micro-batch.

    forward, backward: products, and the collectives between them that they wait for. gather: of its
    parameters, beside the products of the layer before. scatter: of its gradients, beside those of
    the layer after."""

    forward: float
    backward: float
    gather: float
    scatter: float


@dataclass(frozen=True)
class Step:
    """What a step takes, in seconds and bytes of one GPU."""

    seconds: float
    busy: float  # with products
    memory: float

    def tokens_a_second(self, batch: Batch) -> float:
        return batch.tokens / self.seconds


def collective(nbytes: float, ranks: int, rates: Rates, spread: int) -> float:
    """Seconds in which each of `ranks` gets the `nbytes` that all have together, or adds them up
    for the others. spread: GPUs of a node that belong to one group; the rest are elsewhere."""
    if ranks == 1:
        return 0.0
    sent = nbytes * (ranks - 1) / ranks
    if ranks <= spread:
        return seconds_of(sent, rates.inside) + (ranks - 2) * rates.latency
    return sent / rates.between + ranks * rates.latency


def bytes_of_sum(ranks: int) -> float:
    """Of each bfloat16 element that `ranks` add up: more than two do so in float32, as
    `lamina/graph/nccl_types.py` has it."""
    return 4.0 if ranks > 2 else 2.0


def layer_of(model: Model, mesh: Mesh, batch: Batch, rates: Rates) -> Layer:
    """One sequence is a micro-batch. The forward pass is computed again in the backward pass."""
    tokens = batch.length
    forward = model.layer_operations(tokens, batch.length) / mesh.tensor / rates.operations
    # Two sums of the activations a pass, each a reduce-scatter and an all-gather.
    activations = bytes_of_sum(mesh.tensor) * tokens * model.width
    between = 4 * collective(activations, mesh.tensor, rates, OF_NODE)
    # A group of data has a GPU of each node where tensor has all of a node.
    spread = max(1, OF_NODE // mesh.tensor)
    own = model.layer_parameters / mesh.tensor
    gather = collective(2.0 * own, mesh.data, rates, spread)
    scatter = collective(bytes_of_sum(mesh.data) * own, mesh.data, rates, spread)
    return Layer(forward + between, 3 * forward + 2 * between, gather, scatter)


def passes(layer: Layer, layers: int, *, is_sharded: bool) -> tuple[float, float]:
    """Seconds of the forward and of the backward pass of a micro-batch over some layers."""
    if not is_sharded:
        return layers * layer.forward, layers * layer.backward
    forward = overlapped(layer.forward, layer.gather, 0.0, layers)
    return forward, overlapped(layer.backward, layer.gather, layer.scatter, layers)


def overlapped(products: float, gather: float, scatter: float, layers: int) -> float:
    """Seconds of a pass, by events. A layer begins when the one before has ended and its parameters
    are there. Beside it the network sums up the gradients of the one before, and gathers the
    parameters of the one after."""
    ended, gathered = 0.0, gather
    for number in range(layers):
        begun = max(ended, gathered)
        ended = begun + products
        gathered = max(gathered, begun) + gather
        if number:
            gathered += scatter
    return max(ended, gathered - gather) + scatter


def step_of(model: Model, mesh: Mesh, batch: Batch, rates: Rates) -> Step:
    """A step of training on a mesh."""
    layer = layer_of(model, mesh, batch, rates)
    layers = -(-model.layers // mesh.stages)
    micro_batches = max(1, round(batch.sequences(mesh)))
    is_sharded = mesh.stages == 1  # with stages each gathers what it has once a step
    forward, backward = passes(layer, layers, is_sharded=is_sharded)
    if is_sharded:
        seconds = micro_batches * (forward + backward)
    else:
        hidden = 2.0 * batch.length * model.width / mesh.tensor / rates.between
        seconds = pipelined(forward + hidden, backward + hidden, mesh.stages, micro_batches)
        seconds += layers * (layer.gather + layer.scatter)  # before the first, after the last
    logits = 6.0 * batch.length * model.width * model.vocabulary / mesh.tensor / rates.operations
    seconds += micro_batches * logits
    operations = 4 * model.layer_operations(batch.length, batch.length) * model.layers
    busy = operations * micro_batches * mesh.data / mesh.gpus / rates.operations
    return Step(seconds, busy, memory_of(model, mesh, batch, micro_batches))


def pipelined(forward: float, backward: float, stages: int, micro_batches: int) -> float:
    """Seconds until every stage has done all its passes, each as soon as what it needs is there and
    the one before has ended; in the order of `lamina.distributed.pipeline`."""
    ended: dict[tuple[int, bool, int], float] = {}
    free = [0.0] * stages
    for time in range(2 * (micro_batches + stages - 1)):
        for stage in range(stages):
            task = task_at(time, stage, stages, micro_batches)
            if task is None:
                continue
            way = -1 if task.is_forward else 1
            needed = ended.get((stage + way, task.is_forward, task.micro_batch), 0.0)
            seconds = forward if task.is_forward else backward
            free[stage] = max(free[stage], needed) + seconds
            ended[stage, task.is_forward, task.micro_batch] = free[stage]
    return max(free)


def memory_of(model: Model, mesh: Mesh, batch: Batch, micro_batches: int) -> float:
    """Bytes of one GPU: of each parameter 2 for bfloat16, 2 for its gradient, and 12 for a float32
    copy and Adam's averages; and the input of each layer of every micro-batch that is under way."""
    shards = mesh.data * mesh.tensor * mesh.stages
    if mesh.stages == 1:
        held = 16 * model.parameters / shards
        gathered = 2 * 2 * model.layer_parameters / mesh.tensor  # this layer's and the next one's
    else:
        held = 12 * model.parameters / shards
        gathered = 4 * model.parameters / mesh.tensor / mesh.stages
    under_way = min(mesh.stages, micro_batches)
    layers = -(-model.layers // mesh.stages)
    inputs = 2.0 * batch.length * model.width / mesh.tensor * layers * under_way
    return held + gathered + inputs


def meshes(gpus: int) -> Iterator[Mesh]:
    """The three that the table compares."""
    yield Mesh(data=gpus)
    yield Mesh(data=gpus // OF_NODE, tensor=OF_NODE)
    yield Mesh(data=gpus // (OF_NODE * 8), tensor=OF_NODE, stages=8)


def table(batch: Batch, rates: Rates, gpus: Sequence[int] = GPUS) -> Iterator[str]:
    """The lines of a table in Markdown."""
    model = Model()
    yield "| GPUs | mesh | step, s | tokens/s | of the time in products | GiB of a GPU |"
    yield "|---|---|---|---|---|---|"
    for count in gpus:
        for mesh in meshes(count):
            if batch.sequences(mesh) < 1:
                yield f"| {count} | {mesh} | - | fewer sequences than groups | - | - |"
                continue
            step = step_of(model, mesh, batch, rates)
            yield (
                f"| {count} | {mesh} | {step.seconds:.2f} | {step.tokens_a_second(batch):,.0f} | "
                f"{step.busy / step.seconds:.0%} | {step.memory / 2**30:.0f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    rates, batch = Rates(), Batch()
    for name in ("operations", "between", "latency"):
        parser.add_argument(f"--{name}", type=float, default=getattr(rates, name))
    parser.add_argument(
        "--inside", type=lambda text: constant(float(text)), default=rates.inside,
        help="bytes a second within a node; by default what was measured",
    )  # fmt: skip
    parser.add_argument("--tokens", type=int, default=batch.tokens, help="of a batch")
    options = vars(parser.parse_args())
    batch = replace(batch, tokens=options.pop("tokens"))
    print("\n".join(table(batch, Rates(**options))))


if __name__ == "__main__":
    main()
