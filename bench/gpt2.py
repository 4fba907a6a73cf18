"""GPT-2-small, forward, batch 1, 64 tokens, random weights."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.process import PEERS, Bench, Worker, take_turns
from bench.programs import gpt2_data
from bench.report import LAMINA, VALUE, Row, Section, Target

_TOLERANCE = 1e-3
Samples = dict[str, list[float]]


def gpt2(bench: Bench) -> Section:
    """Cold and warm processes to the first logits, what the compiler does, and the steady time."""
    section = Section("GPT-2-small forward (batch 1, 64 tokens, random weights)", PEERS)
    data = bench.folder / "gpt2.bin"
    gpt2_data.make(data, bench.seed)
    kept: dict[str, Path] = {}

    def start(name: str, cold: bool) -> dict[str, Any]:
        """Facts of a process; "first" is the time to its logits, loading weights left out."""
        if cold or name not in kept:
            kept[name] = bench.new_cache()
        with _program(bench, name, data, kept[name]) as worker:
            facts = worker.read()
            return facts | {"first": facts["ended"] - worker.started - facts["loading"]}

    names = bench.frameworks(*PEERS)
    cold = take_turns(
        bench,
        "GPT-2, cold",
        {name: functools.partial(start, name, True) for name in names},
        bench.rounds(3, 1),
    )
    warm = take_turns(
        bench,
        "GPT-2, warm",
        {name: functools.partial(start, name, False) for name in cold},
        bench.rounds(3, 1),
    )
    steady = _steady(bench, data, {name: kept[name] for name in warm})
    section.rows += _rows(cold, warm, steady)
    section.notes += _notes(cold)
    section.notes.append(_agreement(bench, list(steady)))
    data.unlink()
    return section


def _program(bench: Bench, name: str, data: Path, cache: Path) -> Worker:
    logits = bench.folder / f"logits-{name}.npy"
    environment = bench.environment(cache)
    return Worker(f"gpt2_{name}", str(data), str(logits), environment=environment)


def _steady(bench: Bench, data: Path, kept: dict[str, Path]) -> Samples:
    with ExitStack() as stack:
        workers = {}
        for name, cache in kept.items():
            with bench.noting(f"GPT-2, steady, {name}"):
                worker = stack.enter_context(_program(bench, name, data, cache))
                worker.read()
                worker.ask("step")
                workers[name] = worker
        functions = {n: functools.partial(w.ask, "step") for n, w in workers.items()}
        results = take_turns(bench, "GPT-2, steady", functions, bench.rounds(7, 3))
    return {name: [one["seconds"][0] for one in values] for name, values in results.items()}


def _column(results: dict[str, list[Any]], key: str) -> Samples:
    return {name: [one[key] for one in v] for name, v in results.items() if key in v[0]}


def _rows(cold: dict[str, list[Any]], warm: dict[str, list[Any]], steady: Samples) -> list[Row]:
    ours = cold.get(LAMINA, [])
    without = [one["first"] - one["compiler"] for one in ours]
    compiling = [one["graph"] + sum(one["passes"].values()) for one in ours]
    rows = [
        Row("compiling: the graph and every pass", {LAMINA: compiling}, "s", (Target(1.0, VALUE),)),
        Row("process to the first logits, empty cache", _column(cold, "first"), "s"),
        Row("the same without the C compiler's time", {LAMINA: without}, "s"),
        Row("process to the first logits, cache kept", _column(warm, "first"), "s"),
        Row("a later forward pass", steady, "s", (Target(1, "tinygrad"),)),
        Row("building the graph", _column(cold, "graph"), "s"),
        Row("C compiler", {LAMINA: [one["compiler"] for one in ours]}, "s"),
    ]
    for name in ours[0]["passes"] if ours else ():
        rows.append(Row(f"pass {name}", {LAMINA: [one["passes"][name] for one in ours]}, "s"))
    launches = {n: [float(one) for one in v] for n, v in _column(cold, "launches").items()}
    distinct = [float(one["distinct"]) for one in ours]
    rows.append(Row("kernel launches", launches, ""))
    rows.append(Row("distinct kernels", {LAMINA: distinct}, ""))
    return rows


def _notes(cold: dict[str, list[Any]]) -> list[str]:
    notes = ["Weights are loaded from a file; that time is left out everywhere."]
    if LAMINA not in cold:
        return notes
    total: dict[str, list[float]] = {}
    for name, seconds, flops in cold[LAMINA][-1]["profile"]:
        entry = total.setdefault(name, [0.0, 0.0, 0.0])
        entry[0] += 1
        entry[1] += seconds
        entry[2] += flops
    top = sorted(total.items(), key=lambda item: -item[1][1])[:6]
    spent = ", ".join(
        f"`{name}` x{count:.0f} {seconds * 1e3:.1f} ms ({flops / max(seconds, 1e-9) / 1e9:.0f} "
        "GFLOP/s)"
        for name, (count, seconds, flops) in top
    )
    everything = sum(seconds for _, seconds, _ in total.values())
    notes.append(f"lamina's kernels take {everything * 1e3:.0f} ms a pass; the largest: {spent}.")
    return notes


def _agreement(bench: Bench, names: list[str]) -> str:
    if LAMINA not in names or len(names) == 1:
        return "The logits were **not compared** with a peer's."
    logits = {name: np.load(bench.folder / f"logits-{name}.npy") for name in names}
    ours = logits.pop(LAMINA)
    worst = {name: float(np.abs(ours - theirs).max()) for name, theirs in logits.items()}
    verdict = "agree" if all(one <= _TOLERANCE for one in worst.values()) else "**do not agree**"
    shown = ", ".join(f"{value:.1g} from {name}'s" for name, value in worst.items())
    size = median(np.abs(ours).reshape(-1)[::1009].tolist())
    return (
        f"The logits {verdict}: at most {shown} (allowed {_TOLERANCE:g}; median size {size:.2g})."
    )
