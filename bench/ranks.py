"""What a process of `bench.distributed` runs: ``python -m bench.ranks CASE``.

The first process prints the result: tokens a second of all together, seconds of a step, the most
bytes that it has held of its device, and losses on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from bench import timeline
from bench.cases import Array
from bench.distributed import MARK, TORCH, add_variants
from bench.llama_shape import EIGHT_BILLION, TINY, HalfWeights
from bench.trainers import (
    BETAS,
    DECAY,
    Batch,
    Model,
    Trainer,
    lamina_loss,
    lamina_trainer,
    rates_of_steps,
)

WARMING, ROUNDS, STEPS = 5, 5, 8  # the first in steps, the last in steps of a round
XL = Model(width=1600, heads=25, layers=48, batch=2).padded()
TOKENS, CAPACITY = 64, 1024  # that are decoded in a round, and that the cache has room for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--batch", type=int)
    parser.add_argument(
        "--timeline", action="store_true", help="print when collectives and kernels of a step run"
    )
    add_variants(parser)
    options = parser.parse_args()
    if options.timeline:
        timeline.prepare(int(os.environ.get("LOCAL_RANK", "0")))
    if not options.case.startswith(TORCH):
        vary(options.bucket)
    result = CASES[options.case](options)
    if result:
        print(MARK + json.dumps(result), flush=True)


def vary(bucket: int | None) -> None:
    """Let lamina send arrays in other buckets."""
    from lamina.runtime.nccl import NcclEngine

    if bucket is not None:
        NcclEngine.bucket_bytes = bucket


def place_of_process() -> tuple[int, int]:
    """The rank of this process, and how many there are, by the variables of torchrun."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def sized(model: Model, options: argparse.Namespace) -> Model:
    """The model that is asked for, in the size that is asked for."""
    if options.tiny:
        model = replace(model, vocabulary=256, padding=0, width=64, heads=2, layers=3, length=32)
    return replace(model, batch=options.batch) if options.batch else model


# Training.


def trained(
    trainer: Trainer, model: Model, rank: int, size: int, wait: Callable[[Any], float],
    *, shows: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """The median seconds of a step, and losses on the way. shows: print the timeline of a step."""
    batch: Batch = trainer.place(model.tokens(np.random.default_rng(1 + rank), 1)[0])
    losses = [wait(trainer.step(*batch)) for _ in range(WARMING)]
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(STEPS):
            loss = trainer.step(*batch)
        losses.append(wait(loss))
        times.append((time.perf_counter() - started) / STEPS)
    if shows:
        show_steps(lambda: wait(trainer.step(*batch)), rank)
    seconds = median(times)
    return {
        "tokens_per_second": size * model.batch * model.length / seconds,
        "seconds": seconds,
        "losses": [round(losses[0], 4), round(losses[-1], 4)],
    }


def show_steps(step: Callable[[], object], rank: int) -> None:
    """Print the timeline of the last of some steps, which all processes make, in the first one."""
    step()  # what waits for a process that comes later is not of these
    parts = [timeline.recorded(step) for _ in range(timeline.STEPS)]
    if rank == 0:
        print("\n".join(timeline.table(parts[-1])), flush=True)


def data(options: argparse.Namespace) -> dict[str, Any]:
    """Lamina's step of GPT-2, data parallel in several processes."""
    from lamina import distributed
    from lamina.core.options import current

    model = sized(Model().padded(), options)
    distributed.init(timeout=40.0)
    rank, size = distributed.rank(), distributed.size()
    drawn = model.weights(np.random.default_rng(0))
    trainer = lamina_trainer(model, drawn, current().device)
    result = trained(trainer, model, rank, size, value_of, shows=options.timeline)
    return of_lamina(result)


def value_of(loss: Any) -> float:
    """The loss, for which this waits."""
    return float(loss.item())


def of_lamina(result: dict[str, Any]) -> dict[str, Any]:
    """A result with the memory of this process; nothing of others than the first."""
    from lamina import distributed
    from lamina.core.options import current
    from lamina.runtime.buffer import heap_of

    result["peak_bytes"] = heap_of(current().device).peak
    return result if distributed.rank() == 0 else {}


def whole(options: argparse.Namespace) -> dict[str, Any]:
    return step_of_xl(sized(XL, options), is_sharded=False, shows=options.timeline)


def sharded(options: argparse.Namespace) -> dict[str, Any]:
    return step_of_xl(sized(XL, options), is_sharded=True, shows=options.timeline)


class Unit:
    """Weights that are gathered together: those of a layer."""

    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def __call__(self) -> dict[str, Any]:
        return dict(self.parts)


def step_of_xl(model: Model, *, is_sharded: bool, shows: bool) -> dict[str, Any]:
    """Lamina's step of a model whose weights are drawn on the device, layer by layer."""
    import lamina as lm
    from lamina import distributed, nn

    distributed.init(timeout=200.0)  # processes compile for different times
    rank, size = distributed.rank(), distributed.size()
    over = distributed.Mesh(data=size)["data"]
    names: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, shape in model.shapes():
        unit, _, part = name.rpartition(".")
        names.setdefault(unit, {})[part] = shape
    units: dict[str, Callable[[], dict[str, Any]]] = {}
    parameters: list[Any] = []
    lm.random.manual_seed(0)
    for unit, shapes in names.items():
        layer: Any = Unit({part: drawn(lm, part, shape) for part, shape in shapes.items()})
        if is_sharded:
            layer = distributed.FullySharded(layer, over, lm.bfloat16)
        units[f"{unit}." if unit else ""] = layer
        own = nn.parameters(layer)
        lm.realize(*own)
        parameters += own
    optimizer = nn.optim.AdamW(parameters, betas=BETAS, weight_decay=DECAY)
    rates = rates_of_steps()

    @lm.jit
    def fast(ids: Any, following: Any) -> Any:
        weights = {before + part: one for before, unit in units.items()
                   for part, one in unit().items()}  # fmt: skip
        loss = lamina_loss(lm, model, weights, ids, following)
        optimizer.step(lm.gradient(loss / size, parameters))
        return loss

    def step(ids: Any, following: Any) -> Any:
        optimizer.lr = next(rates)
        return fast(ids, following)

    def place(ids: Array) -> Batch:
        here, following = (np.ascontiguousarray(part) for part in (ids[:, :-1], ids[:, 1:]))
        return lm.asarray(here), lm.asarray(following)

    result = trained(Trainer(place, step), model, rank, size, value_of, shows=shows)
    return of_lamina(result)


def drawn(lm: Any, part: str, shape: tuple[int, ...]) -> Any:
    """A weight as GPT-2 begins; not yet computed, so that of what is cut a part alone is."""
    from lamina.nn.state import parameter

    if part.endswith("gain"):
        return parameter(lm.ones(shape))
    return parameter(lm.zeros(shape) if part.endswith("bias") else 0.02 * lm.random.normal(shape))


def torch_data(options: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's step of GPT-2, by its compiler and DistributedDataParallel."""
    from bench.torch_ranks import data_parallel

    model = sized(Model().padded(), options)
    rank, size = place_of_process()
    weights = model.weights(np.random.default_rng(0))
    trainer, peak = data_parallel(model, weights, options.device)
    return of_torch(trained(trainer, model, rank, size, float), peak, rank)


def torch_sharded(options: argparse.Namespace) -> dict[str, Any]:
    """PyTorch's step of GPT-2 XL, by its compiler and fully_shard."""
    from bench.torch_ranks import fully_sharded

    model = sized(XL, options)
    rank, size = place_of_process()
    trainer, peak = fully_sharded(model, options.device)
    return of_torch(trained(trainer, model, rank, size, float), peak, rank)


def of_torch(result: dict[str, Any], peak: Callable[[], int], rank: int) -> dict[str, Any]:
    """A result with the memory of this process; nothing of others than the first."""
    return {**result, "peak_bytes": peak()} if rank == 0 else {}


# Decoding.


def decode(options: argparse.Namespace) -> dict[str, Any]:
    """One token after the other, of random weights: a program for each token, read as it comes."""
    import lamina as lm
    from lamina import distributed
    from lamina.core.options import current
    from lamina.models.generate import Generator
    from lamina.models.llama import Llama

    distributed.init(timeout=200.0)
    over = distributed.Mesh(model=distributed.size())["model"]
    lm.random.manual_seed(distributed.rank())
    config = TINY if options.tiny else EIGHT_BILLION
    network = Llama(config, HalfWeights(over if over.ranks > 1 else None))
    capacity = 64 if options.tiny else CAPACITY
    generator = Generator(network, capacity, current().device, chunks=(1,))
    tokens = generator.tokens([1], capacity)
    count = 8 if options.tiny else TOKENS
    for _ in range(4):  # which compile
        next(tokens)
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(count):
            next(tokens)
        times.append((time.perf_counter() - started) / count)
    if options.timeline:
        show_steps(lambda: next(tokens), distributed.rank())
    seconds = median(times)
    return of_lamina({"tokens_per_second": 1.0 / seconds, "seconds": seconds})


CASES: Mapping[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "data": data,
    "whole": whole,
    "sharded": sharded,
    "decode": decode,
    "torch-data": torch_data,
    "torch-sharded": torch_sharded,
}

if __name__ == "__main__":
    main()
