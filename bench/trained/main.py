"""``python -m bench whole --device cuda:0 [--only gpt2,llama] [--columns lamina,torch] [--quick]
[--lanes 4] [--seed 7] [--output FOLDER]``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.trained import command as gpu
from bench.trained.catalogue import ALL, PROGRAMS
from bench.trained.trainers import COLUMNS


def _names(
    read: argparse.ArgumentParser, option: str, text: str, known: Sequence[str]
) -> list[str]:
    found = [name for name in text.split(",") if name]
    if unknown := [name for name in found if name not in known]:
        read.error(f"{option}: {', '.join(unknown)}: not among {', '.join(known)}")
    return found


def main(words: Sequence[str]) -> None:
    """Parse the command line, measure, and print the page."""
    read = argparse.ArgumentParser(prog="python -m bench whole", description=__doc__)
    read.add_argument("--device", required=True, help="a GPU")
    read.add_argument(
        "--only",
        default="",
        help=f"programs of {', '.join(PROGRAMS)}; with tiny- before a name the same in small",
    )
    read.add_argument("--columns", default="", help=f"of {', '.join(COLUMNS)}")
    read.add_argument("--quick", action="store_true", help="fewer rounds")
    read.add_argument("--lanes", type=int, default=0, help="programs that compile at one time; "
                      "default: one for each four cores")  # fmt: skip
    read.add_argument("--seed", type=int, help="of weights and batches; default: a new one")
    read.add_argument("--output", type=Path, help="folder of the page, which is written after "
                      "each program and keeps those that are there")  # fmt: skip
    arguments = read.parse_args(words)
    only = _names(read, "--only", arguments.only, tuple(ALL)) or list(PROGRAMS)
    columns = _names(read, "--columns", arguments.columns, COLUMNS) or COLUMNS
    print(gpu.run(arguments.device, only, columns, arguments.quick, arguments.lanes, arguments.seed,
                  arguments.output))  # fmt: skip
