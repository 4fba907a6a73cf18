"""Run the tests on random mutants: ``python -m tests.mutants --count 40 --seed 1 --jobs 2``.

Prints each mutant, and the test file that caught it or that it survived. Tests run in the order
given, which begins with the quick ones, and stop at the first failure.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("graph", "fuse", "loops", "schedule", "targets")
TESTS = ("tests/golden", "tests/replay", "tests/fuse", "tests/kernel", "tests/rewrite",
         "tests/codegen")  # fmt: skip


def run(mutant: Mutant, tests: list[str], limit: float) -> str:
    """The name of what caught a mutant; "" if nothing did."""
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder)
        for name in ("lamina", "tests", "bench", "examples", "docs", "pyproject.toml", "README.md"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copied / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copied / name)
        (copied / mutant.path.relative_to(ROOT)).write_text(mutant.text, encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": str(copied), "LAMINA_CACHE": str(copied / "cache"),
        }  # fmt: skip
        until = time.monotonic() + limit
        for test in tests:
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p",
                       "no:cacheprovider", test]  # fmt: skip
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                done = subprocess.run(
                    command, cwd=copied, env=environment, capture_output=True, timeout=left,
                    check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return ""  # it is still running: not shown to be caught
            if done.returncode not in (0, 5):
                return test
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each mutant")
    parser.add_argument("--tests", nargs="*", default=list(TESTS))
    options = parser.parse_args()
    paths = sorted(path for folder in FOLDERS for path in (ROOT / "lamina" / folder).rglob("*.py"))
    chosen = mutants(paths, options.count, options.seed)
    caught = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(run, mutant, options.tests, options.limit) for mutant in chosen]
        for mutant, job in zip(chosen, jobs, strict=True):
            by = job.result()
            caught += bool(by)
            where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            print(f"{by or 'SURVIVED':20} {where}: {mutant.change}", flush=True)
    print(f"{caught} of {len(chosen)} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
