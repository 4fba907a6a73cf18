"""Data parallel training of GPT-2 with 124 million parameters: tokens a second of all processes.

    lamina launch -n 2 --device cuda bench/distributed.py lamina
    LAMINA_DEVICE=cuda python bench/distributed.py lamina
    torchrun --nproc-per-node 2 bench/distributed.py torch

With `LAMINA_DEBUG=1` lamina tells what kernels and collectives wait for, as predicted from the
times of each alone. Each process has a batch of its own. The numbers are medians over rounds of
steps, at whose end every process waits for the loss.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from bench.cases import Array
from bench.trainers import BETAS, DECAY, RATE, Batch, Model, Trainer, lamina_trainer, torch_loss

WARMING, ROUNDS, STEPS = 5, 5, 8  # the first in steps, the last in steps of a round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=["lamina", "torch"])
    parser.add_argument("--batch", type=int, default=16, help="sequences of a process")
    parser.add_argument("--bucket", type=int, help="bytes up to which gradients are sent together")
    parser.add_argument(
        "--at-once", action="store_true", help="collectives begin as soon as they can"
    )
    options = parser.parse_args()
    model = Model(batch=options.batch).padded()
    drawn = model.weights(np.random.default_rng(0))
    rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    tokens = model.tokens(np.random.default_rng(1 + rank), 1)[0]
    if options.framework == "lamina":
        from lamina import distributed
        from lamina.core.options import current

        distributed.init(timeout=40.0)
        _vary(options.bucket, at_once=options.at_once)
        trainer, wait = lamina_trainer(model, drawn, current().device), _wait_for_lamina
    else:
        trainer, wait = torch_trainer(model, drawn, rank, size), _wait_for_torch
    started = time.perf_counter()
    losses, seconds = measured(trainer, tokens, wait)
    total = time.perf_counter() - started
    rate = size * model.batch * model.length / seconds
    print(
        f"{options.framework}, rank {rank} of {size}: {rate:,.0f} tokens/s, {1e3 * seconds:.2f} ms "
        f"a step, losses {losses[0]:.4f} ... {losses[-1]:.4f}, {total:.0f} s in all",
        flush=True,
    )


def _vary(bucket: int | None, *, at_once: bool) -> None:
    """Let lamina send gradients in other buckets, or at other times."""
    from lamina.fuse import overlap
    from lamina.runtime.nccl import NcclEngine

    if bucket is not None:
        NcclEngine.bucket_bytes = bucket
    if at_once:
        overlap.MEMORY_OF_LINK = float("inf")  # no kernels are ever enough


def measured(
    trainer: Trainer, tokens: Array, wait: Callable[[Any], float]
) -> tuple[list[float], float]:
    """Losses on the way, and the median seconds of a step."""
    batch: Batch = trainer.place(tokens)
    losses = [wait(trainer.step(*batch)) for _ in range(WARMING)]
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        for _ in range(STEPS):
            loss = trainer.step(*batch)
        losses.append(wait(loss))
        times.append((time.perf_counter() - started) / STEPS)
    return losses, median(times)


def _wait_for_lamina(loss: Any) -> float:
    return float(loss.item())


def _wait_for_torch(loss: Any) -> float:
    return float(loss)


def torch_trainer(model: Model, drawn: dict[str, Array], rank: int, size: int) -> Trainer:
    """PyTorch's step, by its compiler, in several processes by DistributedDataParallel."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    module: Any = _module(torch, model, drawn).to(device)
    parameters = list(module.parameters())
    if size > 1:
        torch.distributed.init_process_group("nccl", device_id=device)
        module = DistributedDataParallel(
            module, device_ids=[device.index], gradient_as_bucket_view=True
        )
    compiled = torch.compile(module)
    optimizer = torch.optim.AdamW(
        parameters, lr=RATE, betas=BETAS, weight_decay=DECAY, fused=True
    )

    def step(ids: Any, following: Any) -> Any:
        optimizer.zero_grad()
        loss = compiled(ids, following)
        loss.backward()
        optimizer.step()
        return loss.detach()

    def place(ids: Array) -> Batch:
        here = torch.from_numpy(ids).to(device)
        return here[:, :-1].contiguous(), here[:, 1:].contiguous()

    return Trainer(place, step)


def _module(torch: Any, model: Model, drawn: dict[str, Array]) -> Any:
    """The model as a module, whose parameters DistributedDataParallel finds."""

    class Gpt(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weights = torch.nn.ParameterDict(
                {name.replace(".", "_"): torch.from_numpy(one) for name, one in drawn.items()}
            )

        def forward(self, ids: Any, following: Any) -> Any:
            weights = {name: self.weights[name.replace(".", "_")] for name in drawn}
            return torch_loss(torch, model, weights, ids, following)

    return Gpt()


if __name__ == "__main__":
    main()
