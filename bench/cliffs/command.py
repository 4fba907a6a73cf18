"""``python -m bench cliffs [--draw 500] [--seed S] [--case N] [--device cuda:0]
[--only product,norm] [--peers torch] [--minutes 9] [--output FOLDER]``."""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cliffs.draw import draw, indices, limits_of
from bench.cliffs.families import FAMILIES
from bench.cliffs.outcome import Outcome
from bench.cliffs.page import Page, earlier
from bench.cliffs.program import MODULES, Program
from bench.cliffs.run import PEERS, examine_all, installed_peers
from bench.cliffs.stage import SharedIterator, Stage, StagedCrew, side_by_side
from bench.machine import commit, facts
from bench.process import Bench
from lamina.runtime.buffer import heap_of
from lamina.runtime.cpu import usable_cores


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench cliffs", description=__doc__)
    parser.add_argument("--draw", type=int, default=100, help="how many programs; default: 100")
    parser.add_argument("--seed", type=int, help="what they are drawn from; default: a new one")
    parser.add_argument("--first", type=int, default=0, help="the index of the first program")
    parser.add_argument("--case", default="", help="some programs by their indices, with commas "
                        "between; their texts are printed as well")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="cpu or cuda:0")
    families = ", ".join(FAMILIES)
    parser.add_argument("--only", default="", help=f"families, with commas between: {families}")
    parser.add_argument("--peers", default="", help=f"default: those of {', '.join(PEERS)} that "
                        "are installed")  # fmt: skip
    parser.add_argument("--threads", type=int, default=0, help="default: all cores")
    parser.add_argument("--limit", type=float, default=120, help="seconds until an answer, such "
                        "as a program that is compiled; then its process is killed")  # fmt: skip
    parser.add_argument("--search", action="store_true", help="also measure what a search for "
                        "schedules finds, and what the first choice loses beside it")  # fmt: skip
    parser.add_argument("--crews", type=int, default=1, help="how many programs are compiled at "
                        "the same time; while one is measured, all others are stopped")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no program after that")
    parser.add_argument("--output", type=Path, help="folder of the page; outcomes with the same "
                        "seed that are there are kept")  # fmt: skip
    return parser


def main(words: Sequence[str]) -> None:
    """Draw, measure, and print the page."""
    read = parser()
    arguments = read.parse_args(words)
    only = [name for name in arguments.only.split(",") if name]
    if unknown := [name for name in only if name not in FAMILIES]:
        read.error(f"--only: {', '.join(unknown)}: not among {', '.join(FAMILIES)}")
    peers = [name for name in arguments.peers.split(",") if name]
    if unknown := [name for name in peers if name not in PEERS]:
        read.error(f"--peers: {', '.join(unknown)}: not among {', '.join(PEERS)}")
    seed: int = time.time_ns() % 2**32 if arguments.seed is None else arguments.seed
    wanted = list(indices(arguments.first, arguments.draw, only))
    if arguments.case:
        wanted = [int(index) for index in arguments.case.split(",")]
        for index in wanted:
            _print_texts(draw(seed, index, limits_of(arguments.device)))
    threads = arguments.threads or usable_cores()
    with tempfile.TemporaryDirectory(prefix="lamina-cliffs-") as folder:
        benches = [
            Bench(Path(tempfile.mkdtemp(dir=folder)), seed, False, None, [threads])
            for _ in range(arguments.crews)
        ]
        columns = installed_peers(benches[0], arguments.device, peers)
        page = _page(arguments.device, seed, threads, arguments.output)
        shared = SharedIterator(wanted)

        writing = threading.Lock()

        def done(outcome: Outcome) -> None:
            with writing:
                page.put(outcome)
                if arguments.output is not None:
                    page.write(arguments.output, _name(arguments.device))

        def work(bench: Bench, stage: Stage) -> None:
            with StagedCrew(bench, arguments.device, arguments.limit, stage) as crew:
                seconds, searches = 60 * arguments.minutes, arguments.search
                examine_all(bench, crew, shared, columns, seconds, done, searches=searches)

        side_by_side(benches, work)
    print(page.markdown())


def _print_texts(program: Program) -> None:
    """A program as each framework runs it."""
    for framework in MODULES:
        print(program.text() if framework == "lamina" else program.forward(framework))


def _name(device: str) -> str:
    """The name of the page of a device: ``cliffs_cpu``, ``cliffs_h200``."""
    if device == "cpu":
        return "cliffs_cpu"
    return f"cliffs_{str(heap_of(device)).partition(',')[0].split()[-1].lower()}"


def _page(device: str, seed: int, threads: int, output: Path | None) -> Page:
    """An empty page, or with the outcomes of that seed that are in `output`."""
    drawn = functools.partial(draw, seed, limits=limits_of(device))
    outcomes = earlier(output, _name(device), seed, drawn) if output is not None else []
    return Page(f"Drawn programs: {_name(device)}", _facts(device, seed, threads), device, outcomes)


def _facts(device: str, seed: int, threads: int) -> dict[str, str]:
    """On what it is measured."""
    if device == "cpu":
        return facts(seed, None) | {"threads": str(threads)}
    versions = {name: importlib.metadata.version(name) for name in ("torch", "cuda-bindings")}
    return {"commit": commit(), "GPU": str(heap_of(device))} | versions | {"seed": str(seed)}
