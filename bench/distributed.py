"""Programs of several GPUs: tokens a second, memory, and what PyTorch does with the same.

    python -m bench.distributed --output many.json
    python -m bench.distributed --only sharded,decode

Each row is a run of its own, of one or of two processes (`bench/ranks.py`), one after the other:

data      a step of AdamW of GPT-2 with 124 million parameters, a batch for each process
sharded   the same of GPT-2 XL, 1.5 thousand million, whole in one process, or a part in each
decode    tokens one at a time, of a Llama with 8 thousand million random weights

    lamina launch -n 2 --device cuda -m bench.ranks data --bucket 1000000

is the run of one row. With `LAMINA_DEBUG=1` lamina tells there what kernels and collectives wait
for, as predicted from the times of each alone.

Numbers are medians over rounds, at whose end every process waits for its result. Memory is the most
that a process has held of its device at a time; PyTorch's is that of its allocator. `--tiny` takes
small models, to see that all runs, and `--device cpu` two CPU processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MARK = "RESULT "  # before the result of a process, a line of JSON
TIMEOUT_SECONDS = 300.0  # of one run, most of which compiles
TORCH, LAMINA = "torch", "lamina"


@dataclass(frozen=True)
class Run:
    """A row: a case of `bench.ranks`, of a group, in so many processes of a framework."""

    group: str
    label: str
    case: str
    framework: str
    processes: int

    def command(self, device: str, options: Sequence[str]) -> list[str]:
        """What starts it."""
        program = ["-m", "bench.ranks", self.case, "--device", device, *options]
        if self.framework == TORCH:
            count = str(self.processes)
            launcher = ["-m", "torch.distributed.run", "--nproc-per-node", count]
            return [sys.executable, *launcher, *program]
        if self.processes == 1:
            return [sys.executable, *program]
        count = str(self.processes)
        launcher = ["-m", "lamina", "launch", "-n", count, "--device", device]
        return [sys.executable, *launcher, *program]


RUNS = (
    Run("data", "lamina, one GPU", "data", LAMINA, 1),
    Run("data", "lamina, data parallel", "data", LAMINA, 2),
    Run("data", "PyTorch, DistributedDataParallel", "torch-data", TORCH, 2),
    Run("sharded", "lamina, whole, one GPU", "whole", LAMINA, 1),
    Run("sharded", "lamina, fully sharded", "sharded", LAMINA, 2),
    Run("sharded", "PyTorch, fully_shard", "torch-sharded", TORCH, 2),
    Run("decode", "lamina, one GPU", "decode", LAMINA, 1),
    Run("decode", "lamina, tensor parallel", "decode", LAMINA, 2),
)
GROUPS = tuple(dict.fromkeys(run.group for run in RUNS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by commas: %(default)s")
    parser.add_argument("--output", type=Path, help="a file for the results as JSON")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models, of which no speed tells")
    parser.add_argument("--batch", type=int, help="sequences of a process, for training")
    add_variants(parser)
    options = parser.parse_args()
    wanted = options.only.split(",")
    if not set(wanted) <= set(GROUPS):
        parser.error(f"--only {options.only}: there are {', '.join(GROUPS)}")
    extra = ["--tiny"] if options.tiny else []
    extra += ["--batch", str(options.batch)] if options.batch else []
    extra += ["--bucket", str(options.bucket)] if options.bucket is not None else []
    results = []
    for run in (run for run in RUNS if run.group in wanted):
        results.append(result_of(run, options.device, extra))
        print(f"{run.group}: {run.label}: {results[-1]}", file=sys.stderr, flush=True)
        if options.output:
            options.output.write_text(json.dumps(results, indent=1), encoding="utf-8")
    print(table(results))


def add_variants(parser: argparse.ArgumentParser) -> None:
    """The option by which lamina exchanges arrays in another way."""
    parser.add_argument("--bucket", type=int, help="bytes up to which arrays are sent together")


def result_of(run: Run, device: str, options: Sequence[str]) -> dict[str, Any]:
    """The result of the first process, and the seconds that all took; or the end of what a run that
    failed has said."""
    started = time.perf_counter()
    about = {"group": run.group, "label": run.label, "processes": run.processes}
    environment = os.environ | {"LAMINA_DEVICE": device, "PYTHONUNBUFFERED": "1"}
    try:
        done = subprocess.run(
            run.command(device, options), env=environment, capture_output=True, text=True,
            timeout=TIMEOUT_SECONDS, check=False,
        )  # fmt: skip
        said = done.stdout + done.stderr
    except subprocess.TimeoutExpired as error:
        parts = (error.stdout, error.stderr)
        said = "".join((part or b"").decode(errors="replace") for part in parts)
        said += f"\nno result after {TIMEOUT_SECONDS:g} s"
    about["seconds_in_all"] = round(time.perf_counter() - started, 1)
    lines = [line.partition(MARK)[2] for line in said.splitlines() if MARK in line]
    return about | (json.loads(lines[0]) if lines else {"error": said[-3000:]})


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """The results as Markdown; the last column is relative to the first row of its group."""
    lines = ["| | | tokens/s, all together | ms | GiB of a process | tokens/s : first |"]
    lines.append("|---|---|---|---|---|---|")
    first: dict[str, float] = {}
    for one in results:
        start = f"| {one['group']} | {one['label']} |"
        if "error" in one:
            lines.append(f"{start} failed | | | |")
            continue
        rate = one["tokens_per_second"]
        relative = rate / first.setdefault(one["group"], rate)
        memory = one["peak_bytes"] / 2**30
        milliseconds = 1e3 * one["seconds"]
        lines.append(f"{start} {rate:,.1f} | {milliseconds:.2f} | {memory:.2f} | {relative:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
