"""Import time, the cost of a node, and an MLP's training step: cold, warm and steady."""

from __future__ import annotations

import functools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from bench.process import PEERS, Bench, Worker, take_turns
from bench.programs import mlp_data
from bench.report import LAMINA, VALUE, Row, Section, Target
from bench.statistics import in_turns

_IMPORT = """
import json, resource, sys
{}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, "numpy" in sys.modules]))
"""
_TOLERANCE = 1e-4
JITTED = "lamina jitted"


def imports(bench: Bench) -> Section:
    """CPU seconds of ``import`` in a fresh process, less those of the bare interpreter."""
    section = Section("Import", PEERS)
    environment = bench.environment(bench.new_cache())
    statements = {name: f"import {name}" for name in bench.frameworks(*PEERS)}

    def measure(statement: str) -> tuple[float, bool]:
        command = [sys.executable, "-c", _IMPORT.format(statement)]
        answer = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=True, cwd=bench.folder
        )
        seconds, numpy = json.loads(answer.stdout)
        return seconds, numpy

    functions: dict[str, Callable[[], tuple[float, bool]]] = {
        name: functools.partial(measure, statement)
        for name, statement in {"": "", **statements}.items()
    }
    in_turns(functions, 1)  # reads the files once
    results = in_turns(functions, bench.rounds(7, 3))
    bare = [seconds for seconds, _ in results.pop("")]
    samples = {
        name: [max(seconds - base, 1e-4) for (seconds, _), base in zip(values, bare, strict=True)]
        for name, values in results.items()
    }
    section.rows.append(Row("import, CPU seconds", samples, "s", (Target(0.1, VALUE),)))
    numpy = any(imported for _, imported in results[LAMINA])
    section.rows.append(
        Row(
            "NumPy modules that `import lamina` brings",
            {LAMINA: [float(numpy)]},
            "",
            (Target(0, VALUE),),
        )
    )
    return section


def nodes(bench: Bench) -> Section:
    """Building a node that is known, and one that is new."""
    section = Section("Graph nodes", ("tinygrad",))
    with ExitStack() as stack:
        workers = {}
        for name in bench.frameworks("tinygrad"):
            with bench.noting(f"nodes, {name}"):
                environment = bench.environment(bench.new_cache())
                worker = stack.enter_context(Worker("nodes", name, environment=environment))
                count = worker.read()["count"]
                workers[name] = worker
        for kind, target in (("hit", (Target(1.0, VALUE),)), ("miss", ())):
            results = take_turns(
                bench,
                "nodes",
                {n: functools.partial(w.ask, kind, 5) for n, w in workers.items()},
                bench.rounds(7, 3),
            )
            samples = {
                name: [median(answer["seconds"]) / count * 1e6 for answer in answers]
                for name, answers in results.items()
            }
            section.rows.append(Row(f"interning {kind}", samples, "us", target))
    section.notes.append("An ADD of two known nodes; dtype and shape follow from the operands.")
    return section


def mlp(bench: Bench) -> Section:
    """The MLP: time to the first step with and without a disk cache, and a later step."""
    section = Section("MLP training step (784-512-10, batch 64, Adam, unjitted)", PEERS)
    data = bench.folder / "mlp.npz"
    mlp_data.make(data, bench.seed)
    names = bench.frameworks(*PEERS)
    kept: dict[str, Path] = {}
    losses: dict[str, list[float]] = {}
    kernels: dict[str, int] = {}

    def start(name: str, cold: bool) -> float:
        """Seconds from the start of a process to the end of its first step."""
        if cold or name not in kept:
            kept[name] = bench.new_cache()
        environment = bench.environment(kept[name])
        with Worker(f"mlp_{name}", str(data), environment=environment) as worker:
            first, second = worker.read(), worker.read()
            losses[name] = [first["value"], second["value"]]
            kernels[name] = second["kernels"]
            return float(first["ended"] - worker.started)

    def starts(cold: bool) -> dict[str, Callable[[], float]]:
        return {name: functools.partial(start, name, cold) for name in names}

    cold = take_turns(bench, "MLP, cold", starts(True), bench.rounds(3, 1))
    names = [name for name in names if name in cold]
    warm = take_turns(bench, "MLP, warm", starts(False), bench.rounds(3, 2))
    section.rows += [
        Row("process to the first step, empty cache", cold, "s", (Target(1, "torch"),)),
        Row("process to the first step, cache kept", warm, "s", (Target(1, "torch"),)),
    ]
    steady, later = _steady_mlp(bench, data, kept, losses)
    jitted = steady.pop(JITTED, None)
    section.rows.append(Row("a later step", steady, "ms", (Target(1, "tinygrad"),)))
    if jitted is not None:
        section.rows.append(Row("the same, lamina jitted", steady | {LAMINA: jitted}, "ms"))
    counts = {name: [float(count)] for name, count in kernels.items() if count}
    section.rows.append(Row("kernels of a step", counts, ""))
    section.notes.append(agreement(losses, later))
    return section


def _steady_mlp(
    bench: Bench, data: Path, kept: dict[str, Path], losses: dict[str, list[float]]
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Milliseconds of a step in turns, and each framework's loss after the same steps."""
    with ExitStack() as stack:
        workers = {}
        programs: dict[str, tuple[str, Path, list[str]]]
        programs = {name: (name, cache, []) for name, cache in kept.items()}
        programs |= {JITTED: (LAMINA, kept[LAMINA], ["jit"])} if LAMINA in kept else {}
        for name, (framework, cache, options) in programs.items():
            with bench.noting(f"MLP, steady, {name}"):
                environment = bench.environment(cache)
                program = Worker(f"mlp_{framework}", str(data), *options, environment=environment)
                worker = stack.enter_context(program)
                losses.setdefault(name, [worker.read()["value"], worker.read()["value"]])
                worker.ask("step", 3)
                workers[name] = worker
        functions = {n: functools.partial(w.ask, "step", 4) for n, w in workers.items()}
        results = take_turns(bench, "MLP, steady", functions, bench.rounds(7, 3))
    samples = {
        name: [median(answer["seconds"]) * 1e3 for answer in answers]
        for name, answers in results.items()
    }
    return samples, {name: answers[-1]["value"] for name, answers in results.items()}


def agreement(first: dict[str, list[float]], later: dict[str, float]) -> str:
    """A sentence on whether all frameworks computed the same losses."""
    table: dict[str, list[Any]] = {
        name: [*values, later[name]] for name, values in first.items() if name in later
    }
    ours = table.get(LAMINA)
    if ours is None:
        return "The losses were **not compared**: lamina gave none."
    worst = max(
        abs(a - b) / max(abs(b), 1e-3)
        for values in table.values()
        for a, b in zip(ours, values, strict=True)
    )
    agrees = worst <= _TOLERANCE and all(map(math.isfinite, ours))
    verdict = "agree" if agrees else "**do not agree**"
    shown = ", ".join(f"{value:.6f}" for value in ours)
    return (
        f"Losses of the first, the second and the last step {verdict} among {', '.join(table)} "
        f"(lamina: {shown}; largest difference {worst:.1g}, allowed {_TOLERANCE:g})."
    )
