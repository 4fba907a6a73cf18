"""``python -m tests.opinfo [NAME ...] [--limit N] [--refresh]``: PyTorch's samples, by operation.

Prints a line for each operation that does not pass whole, and how many do.
"""

from __future__ import annotations

import argparse
import warnings

import lamina as lm
from tests.opinfo.harness import Outcome, database, run_operation
from tests.opinfo.page import write_page, write_whole


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operations; all by default")
    parser.add_argument("--limit", type=int, help="samples of each entry of the database")
    parser.add_argument("--device", default="interp", help="the device that computes")
    parser.add_argument(
        "--refresh", action="store_true", help="rewrite whole.txt and the tables of docs/opinfo.md"
    )
    options = parser.parse_args()
    if options.refresh and (options.names or options.limit is not None):
        parser.error("--refresh takes every sample of every operation")
    warnings.simplefilter("ignore")
    entries = database()
    outcomes: list[Outcome] = []
    with lm.using(device=options.device):
        for name in options.names or sorted(entries):
            outcome = run_operation(name, entries[name], options.limit)
            outcomes.append(outcome)
            if not outcome.whole:
                print(outcome, flush=True)
    whole = [outcome for outcome in outcomes if outcome.whole]
    wrong = [outcome.name for outcome in outcomes if outcome.wrong]
    print(f"{len(whole)} of {len(outcomes)} operations pass whole; "
          f"wrong: {' '.join(wrong) or 'none'}")  # fmt: skip
    if options.refresh:
        write_whole(outcomes)
        write_page(outcomes)


if __name__ == "__main__":
    main()
