"""``python -m bench.door [--draw 12] [--seed 7] [--only bert,vit] [--threads 1] [--rounds 5]
[--device cuda:0] [--dtype bfloat16] [--lanes 8] [--minutes 8] [--output FOLDER]``: models of
`tests.interop.zoo`, drawn by the seed or named, and, on the CPU, trivial modules, of which a call
is the host's work alone. With the same seed and folder it goes on where it stopped."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.cases.modules import CATALOGUE, DRAWN, STEPWISE, TRIVIAL
from bench.door.measure import Setting, measure
from bench.door.page import Page
from bench.lanes import side_by_side
from bench.machine import facts, facts_of_gpu
from bench.process import Bench


def drawn(count: int, seed: int, device: str) -> list[str]:
    """The trivial modules, and `count` of the others; on GPUs of those alone that fill one."""
    is_cpu = device == "cpu"
    names = sorted(DRAWN if is_cpu else DRAWN.keys() - STEPWISE)
    chosen = random.Random(seed).sample(names, min(count, len(names)))
    return [*TRIVIAL, *chosen] if is_cpu else chosen


def run(
    names: Sequence[str], setting: Setting, lanes: int, rounds: int | None, page: Page, seed: int
) -> None:
    """Measure models, `lanes` at a time; each is on the page as soon as it is done."""
    writing = threading.Lock()

    def examine(name: str) -> None:
        with tempfile.TemporaryDirectory(prefix="lamina-door-") as folder:
            bench = Bench(Path(folder), seed, False, None, [setting.threads], rounds)
            measured = measure(name, bench, setting)
        if bench.failures and time.monotonic() > setting.ends:
            print(f"{name}: left out, as the time was over", file=sys.stderr)
            return
        with writing:
            page.put(measured)

    side_by_side(names, lanes, setting.ends, examine)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.door", description=__doc__)
    parser.add_argument("--draw", type=int, default=12, help="how many models")
    parser.add_argument("--seed", type=int, help="of the models, the data, the order of turns; "
                        "default: a new one")  # fmt: skip
    parser.add_argument("--only", default="", help="these models, with commas between, also where "
                        "the page of --output has them")  # fmt: skip
    parser.add_argument("--device", default="cpu", help="or cuda:0")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--lanes", type=int, default=1, help="models at a time, each on its share "
                        "of the cores")  # fmt: skip
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no model after that, and "
                        "leave out those that are not done soon")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="no figure has more")
    parser.add_argument("--output", type=Path, help="folder of the page, which keeps the models "
                        "that it has; else it is printed")  # fmt: skip
    options = parser.parse_args()
    seed: int = time.time_ns() % 2**32 if options.seed is None else options.seed
    only = [name for name in options.only.split(",") if name]
    if unknown := [name for name in only if name not in CATALOGUE]:
        parser.error(f"--only: {', '.join(unknown)}: not in tests/interop/zoo/table.py")
    is_cpu = options.device == "cpu"
    threads = options.threads if is_cpu else 0
    ends = time.monotonic() + 60 * options.minutes
    setting = Setting(options.device, options.dtype, threads, ends)
    machine = facts(seed, None) if is_cpu else facts_of_gpu(options.device, seed)
    name = "door" if is_cpu else f"door_{options.dtype}"
    page = Page(name, options.device, machine | {"lanes": str(options.lanes)}, options.output)
    chosen = drawn(options.draw, seed, options.device)
    names = only or [name for name in chosen if name not in page.models()]
    run(names, setting, options.lanes, options.rounds, page, seed)
    print(page.report.markdown())


if __name__ == "__main__":
    main()
