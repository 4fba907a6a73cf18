"""Import time, and the cost of a node."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median

from bench.process import Bench, take_turns
from bench.report import LAMINA, VALUE, Row, Section, Target
from bench.samples import in_turns
from bench.worker import Worker

_IMPORT = """
import json, resource, sys
{}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([used.ru_utime + used.ru_stime, "numpy" in sys.modules]))
"""
_TENSORS = "lamina with tensors"
_PEERS = ("numpy", "torch", "jax", "tinygrad")


def imports(bench: Bench) -> Section:
    """CPU seconds of ``import`` in a fresh process, less those of the bare interpreter. A second
    row asks lamina for tensors, which load on first use."""
    section = Section("Import", _PEERS)
    environment = bench.environment(bench.new_cache())
    statements = {name: f"import {name}" for name in bench.frameworks(*_PEERS)}
    statements[_TENSORS] = "from lamina import Tensor"

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
    results = in_turns(functions, bench.rounds(7, 2), bench.order)
    bare = [seconds for seconds, _ in results.pop("")]
    samples = {
        name: [max(seconds - base, 1e-4) for (seconds, _), base in zip(values, bare, strict=True)]
        for name, values in results.items()
    }
    target = (Target(1.0, "numpy"),)
    of_tensors = samples.pop(_TENSORS)
    tensors = {**samples, LAMINA: of_tensors}
    section.rows.append(Row("import, CPU seconds", samples, "s", target))
    section.rows.append(Row("the same with lamina's Tensor", tensors, "s", target))
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
                program = Worker("bench.programs.nodes", name, environment=environment)
                worker = stack.enter_context(program)
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
