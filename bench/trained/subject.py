"""A process that trains one program in one framework.

Arguments: the column, the program's name, the device, the seed. Prints what the first steps gave,
with the time of the first result; then answers each line: ``turn`` with the seconds of a step,
``peak`` with bytes of memory, ``slowest`` with lamina's kernels.
"""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.programs.protocol import emit, serve
from bench.report import LAMINA
from bench.trained.catalogue import ALL
from bench.trained.trainers import Trainer, trainer

BATCHES, COMPARED = 3, 3  # steps whose losses are compared
TURN_SECONDS, LEAST = 0.35, 4  # of a turn, and steps in it
SLOWEST = 40  # kernels that are named


def _loss(subject: Trainer) -> list[float]:
    """Of each phase, in one step."""
    return [float(one.item()) for one in subject.step()]


def _turn(subject: Trainer) -> Callable[[], dict[str, float]]:
    """A turn: as many steps untimed as timed ones, as a GPU's clock depends on what it computed
    before. Gives the seconds of a step, and those that the host is busy with one."""

    def timed(count: int) -> tuple[float, float]:
        subject.wait()
        started = time.perf_counter()
        for _ in range(count):
            subject.step()
        queued = time.perf_counter()
        subject.wait()
        return (time.perf_counter() - started) / count, (queued - started) / count

    seconds, _ = timed(LEAST)
    count = max(LEAST, int(TURN_SECONDS / seconds))

    def turn() -> dict[str, float]:
        timed(count)
        taken, _ = timed(count)
        _, host = timed(1)  # with nothing in the queue before
        return {"step": taken, "host": host}

    return turn


def _slowest(subject: Trainer) -> str:
    """Where lamina's time goes."""
    from lamina.explain.report import profile

    with profile() as records:
        _loss(subject)
    count = Counter(record.name for record in records)
    milliseconds: dict[str, float] = defaultdict(float)
    for record in records:
        milliseconds[record.name] += 1e3 * record.seconds
    slowest = sorted(milliseconds.items(), key=lambda item: -item[1])[:SLOWEST]
    named = (f"{count[name]} {name} {taken:.2f} ms" for name, taken in slowest)
    return f"{len(records)} kernels take {sum(milliseconds.values()):.1f} ms: {', '.join(named)}"


def main(column: str, name: str, device: str, seed: str) -> None:
    """Train, then answer."""
    started = time.perf_counter()
    program, random = ALL[name](), np.random.default_rng(int(seed))
    drawn = {key: weight.drawn(random) for key, weight in program.weights.items()}
    batches = [program.batch(random) for _ in range(BATCHES)]
    facts: dict[str, Any] = {"loading": time.perf_counter() - started}
    subject = trainer(column, program, drawn, batches, device)
    if column == LAMINA:
        from lamina.runtime.profile import passes

        with passes() as records:
            losses = [_loss(subject)]
        spent: dict[str, float] = defaultdict(float)
        for record in records:
            spent[record.pass_.name] += record.seconds
        facts["passes"] = spent
    else:
        losses = [_loss(subject)]
    facts["ended"] = time.time()
    losses += [_loss(subject) for _ in range(1, COMPARED)]
    subject.forget()
    emit(losses=losses, **facts)
    turns: list[Callable[[], dict[str, float]]] = []  # one, when it is first asked for

    def turn() -> dict[str, float]:
        if not turns:
            turns.append(_turn(subject))
        return turns[0]()

    serve({"turn": turn, "peak": subject.peak, "slowest": lambda: _slowest(subject)})


if __name__ == "__main__":
    main(*sys.argv[1:])
