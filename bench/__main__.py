"""``python -m bench cpu [--quick] [--output FOLDER]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench import cpu


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("device", choices=["cpu"], help="what to measure")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, under two minutes")
    results = Path(__file__).parent / "results"
    parser.add_argument("--output", type=Path, default=results, help="folder of the results")
    arguments = parser.parse_args()
    print(cpu.run(arguments.output, arguments.quick).read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
