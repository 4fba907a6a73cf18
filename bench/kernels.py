"""Single kernels beside PyTorch, with one thread and with all."""

from __future__ import annotations

import functools
import math
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import numpy as np

from bench.process import Bench, Worker, take_turns
from bench.programs.kernel_data import SHAPES, Array, key
from bench.report import LAMINA, Row, Section

_TOLERANCE = 1e-4  # of the largest value of the result
_SLICE_SECONDS = 0.05  # what one framework's turn is meant to take


def kernels(bench: Bench) -> Section:
    """Time from the call to the computed result."""
    section = Section("Kernels", ("torch",))
    for threads in (1, 0):
        _measure(bench, section, threads)
    section.notes.append(
        "From the call to the computed result: lamina's time has its Python work in it (building "
        "the graph, finding the compiled program). The gelu is written as nine operations in "
        "lamina, and is the fused one of PyTorch."
    )
    return section


def _measure(bench: Bench, section: Section, threads: int) -> None:
    label = "1 thread" if threads else "all threads"
    folders: dict[str, Path] = {}
    with ExitStack() as stack:
        workers = {}
        for name in bench.frameworks("torch"):
            folders[name] = bench.new_cache()
            with bench.noting(f"kernels, {name}"):
                environment = bench.environment(bench.new_cache(), LAMINA_THREADS=str(threads))
                arguments = [str(bench.seed), str(folders[name]), str(threads)]
                program = f"kernels_{name}"
                worker = stack.enter_context(Worker(program, *arguments, environment=environment))
                worker.read()
                workers[name] = worker
        alone = []
        for kernel in SHAPES:
            samples, inside = _one(bench, workers, key(kernel))
            section.rows.append(Row(f"{kernel}, {label}", samples, "ms"))
            if inside is not None:
                alone.append(f"{kernel} {inside * 1e3:.3g} ms")
    if alone:
        section.notes.append(f"lamina's kernels alone, {label}, one run: {', '.join(alone)}.")
    section.notes.append(_agreement(folders, label))


def _one(
    bench: Bench, workers: dict[str, Worker], command: str
) -> tuple[dict[str, list[float]], float | None]:
    counts: dict[str, int] = {}
    for name, worker in workers.items():
        once = min(worker.ask(command, 2)["seconds"])
        counts[name] = max(1, min(200, int(_SLICE_SECONDS / once)))
    results = take_turns(
        bench,
        f"kernel {command}",
        {n: functools.partial(w.ask, command, counts[n]) for n, w in workers.items()},
        bench.rounds(7, 3),
    )
    samples = {
        name: [median(one["seconds"]) * 1e3 for one in answers] for name, answers in results.items()
    }
    return samples, results[LAMINA][-1]["value"] if LAMINA in results else None


def _agreement(folders: dict[str, Path], label: str) -> str:
    wrong, worst = [], 0.0
    for kernel in SHAPES:
        files = [folder / f"{key(kernel)}.npy" for folder in folders.values()]
        if len(files) < 2 or not all(file.exists() for file in files):
            return f"The results, {label}, were **not compared**: one side gave none."
        error = compare(np.load(files[0]), np.load(files[1]))
        worst = max(worst, error)
        if error > _TOLERANCE:
            wrong.append(f"{kernel} ({error:.1g})")
    if wrong:
        return f"Results that **do not agree** with PyTorch's, {label}: {', '.join(wrong)}."
    return f"All results agree with PyTorch's, {label}: at most {worst:.1g} of the largest value."


def compare(ours: Array, theirs: Array) -> float:
    """The largest difference as a share of the largest value; infinite for NaN or other shapes."""
    if ours.shape != theirs.shape:
        return math.inf
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    return math.inf if math.isnan(error) else error
