"""How fast GPT-2 is trained in lamina and in PyTorch, and that both reach the same losses from the
same weights on the same tokens; with GPT-2's vocabulary, and with that as it is usually padded."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import numpy as np

from bench.report import LAMINA, VALUE, Row, Section, Target
from bench.trainers import Batch, Model, Trainer, trainer

STEPS, CLOSE = 50, 1e-2  # whose losses are compared, and by how much they may differ
TURNS, STEPS_A_TURN = 7, 10
SLOWEST = 40  # kernels that are named
PEERS = ("torch", "torch.compile")
GPT2 = Model()
PADDED = GPT2.padded()


def curves(model: Model, seed: int, device: str, steps: int) -> tuple[list[list[float]], float]:
    """The losses of lamina and of PyTorch over `steps`, and how far apart they are at most."""
    random = np.random.default_rng(seed)
    drawn, ids = model.weights(random), model.tokens(random, steps)
    losses = []
    for column in (LAMINA, "torch"):
        subject = trainer(column, model, drawn, device)
        batches = [subject.place(batch) for batch in ids]
        losses.append([float(subject.step(*batch).item()) for batch in batches])
    return losses, max(abs(a - b) for a, b in zip(*losses, strict=True))


def _turns(subject: Trainer, batches: Sequence[Batch]) -> list[float]:
    """Seconds of a step in each of several turns, which queue their steps and wait once."""
    rotating = itertools.cycle(batches)

    def turn() -> float:
        started = time.perf_counter()
        for batch in itertools.islice(rotating, STEPS_A_TURN):
            loss = subject.step(*batch)
        loss.item()  # comes after all that was queued before
        return (time.perf_counter() - started) / STEPS_A_TURN

    turn()  # compiles
    return [turn() for _ in range(TURNS)]


def _slowest(subject: Trainer, batch: Batch) -> str:
    """Where lamina's time goes."""
    from lamina.explain.report import profile

    with profile() as records:
        subject.step(*batch).item()
    total, count = Counter[str](), Counter(record.name for record in records)
    for record in records:
        total[record.name] += 1e3 * record.seconds
    named = (f"{count[name]} {name} {taken:.2f} ms" for name, taken in total.most_common(SLOWEST))
    return f"{len(records)} kernels take {total.total():.0f} ms: {', '.join(named)}, ..."


@contextlib.contextmanager
def _tf32() -> Iterator[None]:
    """PyTorch may round factors in float32 to tf32, as its trainers let it."""
    import torch

    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    allowed_before = products.allow_tf32
    products.allow_tf32 = True
    try:
        # Its context manager also works where a program has frozen cudnn's flags, as PyTorch's own
        # test helpers do when they are imported.
        with convolutions.flags(
            enabled=convolutions.enabled,
            benchmark=convolutions.benchmark,
            benchmark_limit=convolutions.benchmark_limit,
            deterministic=convolutions.deterministic,
            allow_tf32=True,
        ):
            yield
    finally:
        products.allow_tf32 = allowed_before


def _release() -> None:
    """Give back the memory of what is gone."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()


def _losses(model: Model, seed: int, device: str, notes: list[str]) -> Row:
    """The row that compares losses."""
    (ours, theirs), apart = curves(model, seed, device, STEPS)
    _release()
    shown = [0, *range(9, STEPS, 10)]
    losses = ", ".join(f"{at + 1}: {ours[at]:.4f} and {theirs[at]:.4f}" for at in shown)
    notes.append(f"Losses of lamina and PyTorch at steps {losses}.")
    figure = f"losses of {STEPS} steps, largest difference"
    return Row(figure, {LAMINA: [apart]}, "", (Target(CLOSE, VALUE),))


def _seconds(column: str, model: Model, seed: int, device: str, notes: list[str]) -> list[float]:
    """The seconds of a step in each turn of a column; nothing of it is kept in memory."""
    random = np.random.default_rng(seed)
    drawn, ids = model.weights(random), model.tokens(random, STEPS_A_TURN)
    subject = trainer(column, model, drawn, device)
    batches = [subject.place(batch) for batch in ids]
    seconds = _turns(subject, batches)
    rate = model.batch * model.length / median(seconds)
    notes.append(f"{column}: {rate:,.0f} tokens a second.")
    if column == LAMINA:
        notes.append(_slowest(subject, batches[0]))
    return seconds


def _times(model: Model, seed: int, device: str, columns: Sequence[str], notes: list[str]) -> Row:
    """The row of the times of a step, peer after peer: together they need too much memory."""
    samples: dict[str, list[float]] = {}
    for column in columns:
        try:
            seconds = _seconds(column, model, seed, device, notes)
            samples[column] = [1e3 * turn for turn in seconds]
        except Exception as error:
            notes.append(f"{column}: not measured: {(str(error) or repr(error)).splitlines()[0]}")
        _release()
    return Row("one step", samples, "ms")


def training(
    seed: int, device: str, model: Model = GPT2, peers: tuple[str, ...] = PEERS
) -> Section:
    """The section of a page with a model."""
    sizes = f"batch {model.batch}, {model.length} tokens each, bf16 products"
    notes = [
        "PyTorch as its guides recommend: bf16 by autocast, a fused AdamW, TF32 where float32 is "
        f"left. A turn is {STEPS_A_TURN} steps with batches that are on the GPU, and waits once, "
        "at its end."
    ]
    if model.padding:
        sizes += f", vocabulary padded to {model.logits():,}"
        notes.append(
            "PyTorch's guides pad the vocabulary, for products that are faster; the logits that "
            "are added stand for no token, and count in the loss."
        )
    section = Section(f"Training GPT-2 124M ({sizes})", peers, notes=notes)
    with _tf32():
        section.rows.append(_losses(model, seed, device, notes))
        section.rows.append(_times(model, seed + 1, device, (LAMINA, *peers), notes))
    return section
