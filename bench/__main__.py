"""``python -m bench cpu [--quick] [--only gemm,rows] [--threads 2,1] [--rounds 3] [--seed 7]
[--output FOLDER]``, ``python -m bench whole`` with the same options, ``python -m bench cuda
[--only memory,training] [--seed 7] [--output FOLDER]``, or ``python -m bench cliffs`` and
``python -m bench whole --device cuda:0``, which have options of their own."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench import cpu, gpu, whole
from bench.cliffs import command
from bench.trained import main as trained


def main() -> None:
    """Parse the command line and measure."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # stopped programs are not to be left behind
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    if sys.argv[1:2] == ["cliffs"]:
        command.main(sys.argv[2:])
        return
    names_device = any(word.startswith("--device") for word in sys.argv[2:])
    if sys.argv[1:2] == ["whole"] and names_device:
        trained.main(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("device", choices=["cpu", "whole", "cuda"], help="what to measure")
    parser.add_argument("--quick", action="store_true", help="less of it, in under two minutes")
    pages = {"cpu": cpu.PAGE, "whole": whole.PAGE}
    sections = {name: page.sections for name, page in pages.items()} | {"cuda": gpu.SECTIONS}
    known = "; ".join(f"{device}: {', '.join(names)}" for device, names in sections.items())
    parser.add_argument("--only", default="", help="sections, with commas between; --output "
                        f"keeps the others of a page that is there: {known}")  # fmt: skip
    parser.add_argument("--threads", default="", help="such as 2,1; default: all cores, then 1")
    parser.add_argument("--rounds", type=int, help="no figure has more")
    parser.add_argument("--seed", type=int, help="of the data and the order; default: a new one")
    results = Path(__file__).parent / "results"
    parser.add_argument("--output", type=Path, help="folder of the results; default for a full "
                        "run: bench/results, otherwise the page is only printed")  # fmt: skip
    arguments = parser.parse_args()
    only = [name for name in arguments.only.split(",") if name]
    if unknown := [name for name in only if name not in sections[arguments.device]]:
        parser.error(f"--only: {', '.join(unknown)}: not among {known}")
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error(f"--rounds: {arguments.rounds}: at least 1 is needed")
    threads = [int(count) for count in arguments.threads.split(",") if count]
    complete = not (only or threads or arguments.quick or arguments.rounds)
    output = arguments.output or (results if complete else None)
    if arguments.device == "cuda":
        print(gpu.run(output, only, arguments.seed))
    else:
        print(
            cpu.run(
                pages[arguments.device], output, arguments.quick, only, threads,
                arguments.rounds, arguments.seed,
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
