"""Training steps of a program: lamina's, PyTorch's, and that of PyTorch's compiler.

PyTorch as its guides recommend: fused optimisers, bfloat16 by autocast or in the weights, images
with the channels last, products of float32 in TF32, cuDNN measuring its ways to convolve.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.cases import Array
from bench.report import LAMINA
from bench.trained.functions import Lamina, Torch
from bench.trained.program import Phase, Program, Weights

Arrays = dict[str, Array]
COMPILED = "torch.compile"
COLUMNS = (LAMINA, "torch", COMPILED)


@dataclass(frozen=True)
class Trainer:
    """step: trains with the next batch; returns the loss of each phase, for which nobody has
    waited. wait: until all that was asked of the device is done. peak: bytes of its memory that
    were in use at one time, at most, since `forget`."""

    step: Callable[[], Sequence[Any]]
    wait: Callable[[], None]
    peak: Callable[[], int]
    forget: Callable[[], None]


def jitted(program: Program, weights: Weights) -> Callable[..., list[Any]]:
    """Lamina's training step: from a batch to the loss of each phase."""
    import lamina as lm
    from lamina import nn

    functions = Lamina(weights)
    parts = []
    for phase in program.phases:
        trained = [one for name, one in weights.items() if phase.trains(name)]
        optimizer = getattr(nn.optim, program.optimizer)(trained, **program.settings)
        parts.append((phase, trained, optimizer))

    @lm.jit
    def step(*batch: Any) -> list[Any]:
        losses = []
        for phase, trained, optimizer in parts:
            loss = phase.loss(functions, *phase.of_batch(batch))
            optimizer.step(lm.gradient(loss, trained))
            losses.append(loss)
        return losses

    return step


def lamina_trainer(
    program: Program, drawn: Arrays, batches: Sequence[Sequence[Array]], device: str
) -> Trainer:
    """A jitted training step on batches in turn."""
    import lamina as lm
    from lamina.runtime.buffer import heap_of

    def weight(name: str, array: Array) -> Any:
        kept = array.astype(lm.bfloat16.numpy) if program.is_half else array
        return lm.Tensor(kept, device=device, requires_grad=program.trains(name))

    step = jitted(program, {name: weight(name, one) for name, one in drawn.items()})
    placed = [[lm.asarray(one, device=device) for one in batch] for batch in batches]
    following, heap = itertools.cycle(placed), heap_of(device)

    def forget() -> None:
        heap.peak = heap.allocated

    return Trainer(lambda: step(*next(following)), heap.synchronize, lambda: heap.peak, forget)


def torch_trainer(
    program: Program,
    drawn: Arrays,
    batches: Sequence[Sequence[Array]],
    device: str,
    compiled: bool,
) -> Trainer:
    """PyTorch's, by its compiler or without."""
    import torch

    torch.set_float32_matmul_precision("high")
    on_gpu = device.startswith("cuda")
    if on_gpu:
        torch.backends.cudnn.benchmark = True

    def placed(array: Array) -> Any:
        one = torch.from_numpy(array).to(device)
        is_image = program.has_images and one.ndim == 4
        return one.contiguous(memory_format=torch.channels_last) if is_image else one

    weights = {name: placed(one) for name, one in drawn.items()}
    for name, one in weights.items():
        kept = one.bfloat16() if program.is_half else one.clone()
        weights[name] = kept.requires_grad_(program.trains(name))
    functions = Torch(weights)
    kind = getattr(torch.optim, program.optimizer)
    parts: list[tuple[Phase, Any, Any]] = []
    for phase in program.phases:
        loss = torch.compile(phase.loss) if compiled else phase.loss
        trained = [one for name, one in weights.items() if phase.trains(name)]
        parts.append((phase, loss, kind(trained, fused=on_gpu, **program.settings)))
    following = itertools.cycle([[placed(one) for one in batch] for batch in batches])

    def precision() -> contextlib.AbstractContextManager[Any]:
        if program.is_half:
            return contextlib.nullcontext()
        autocast: contextlib.AbstractContextManager[Any] = torch.autocast(
            device.partition(":")[0], torch.bfloat16
        )
        return autocast

    def step() -> list[Any]:
        batch, losses = next(following), []
        for phase, loss_of, optimizer in parts:
            optimizer.zero_grad()
            with precision():
                loss = loss_of(functions, *phase.of_batch(batch))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return losses

    if not on_gpu:
        return Trainer(step, lambda: None, lambda: 0, lambda: None)
    of_gpu = torch.cuda
    return Trainer(
        step, of_gpu.synchronize, of_gpu.max_memory_allocated, of_gpu.reset_peak_memory_stats
    )


def trainer(
    column: str, program: Program, drawn: Arrays, batches: Sequence[Sequence[Array]], device: str
) -> Trainer:
    """The trainer of a column of the table."""
    if column == LAMINA:
        return lamina_trainer(program, drawn, batches, device)
    return torch_trainer(program, drawn, batches, device, column == COMPILED)
