"""Run the tests on random mutants: ``python -m tests.mutants --count 40 --seed 1``.

Each mutant is tested in a copy of the tree: first by the generated texts, then, if it survives, by
the suites of its folder, until a test fails. A line a mutant says which test caught it, in which
tests it ran out of time, or that it survived. The exit status is 1 if fewer than 90 % are caught.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).parent.parent.parent
TREE = ("lamina", "tests", "bench", "examples", "docs", "pyproject.toml", "README.md")
FOLDERS = ("graph", "fuse", "loops", "schedule", "targets")
WANTED = 0.9  # of the mutants are to be caught

TEXTS = ("tests/golden", "tests/replay")
# The suites for what these texts do not show, of the first path that a mutant's path begins with.
SUITES = {
    "graph": ("tests/rewrite", "tests/fuse", "tests/ir", "tests/autodiff", "tests/codegen",
              "tests/functions", "tests/metal"),
    "fuse": ("tests/fuse", "tests/jit", "tests/codegen", "tests/cuda", "tests/functions"),
    "loops": ("tests/kernel", "tests/codegen", "tests/cuda", "tests/metal"),
    "schedule/cpu": ("tests/codegen", "tests/schedule", "tests/fuse"),
    "schedule/gpu": ("tests/cuda", "tests/schedule", "tests/metal", "tests/codegen"),
    "schedule": ("tests/schedule", "tests/codegen", "tests/cuda", "tests/metal"),
    "targets/c": ("tests/codegen", "tests/transcendental", "tests/functions"),
    "targets/cuda": ("tests/cuda",),
    "targets/metal": ("tests/metal",),
    "targets": ("tests/codegen", "tests/cuda", "tests/metal", "tests/functions"),
}  # fmt: skip


def suites_of(path: Path) -> tuple[str, ...]:
    """The tests of a mutant of the file at `path`, in the order that they run."""
    inside = path.relative_to(ROOT / "lamina").as_posix()
    return (*TEXTS, *next(tests for start, tests in SUITES.items() if inside.startswith(start)))


@contextmanager
def copied(mutant: Mutant | None) -> Iterator[Path]:
    """A copy of what the tests need, with the change of `mutant`."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in TREE:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / name)
        if mutant is not None:
            (copy / mutant.path.relative_to(ROOT)).write_text(mutant.text, encoding="utf-8")
        yield copy


def failure(copy: Path, test: str, limit: float) -> str | None:
    """The name of the first test that fails of those at the path `test` in a copy; None if none
    does. Raises TimeoutExpired after `limit` seconds."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-rfE", "-n", "0", "-p",
               "no:cacheprovider", test]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(copy), "LAMINA_CACHE_DIR": str(copy / "cache")}
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=limit,
        check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return None
    named = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return named[1] if named else test  # pytest itself ended, as where no module can be imported


@cache
def passes_unchanged(test: str, limit: float) -> bool:
    """Do the tests at the path `test` pass without a mutant? If not, they catch nothing."""
    with copied(None) as copy:
        return failure(copy, test, limit) is None


def verdict(mutant: Mutant, tests: Sequence[str], limit: float) -> str:
    """What became of a mutant. Raises SystemExit where tests fail without one as well."""
    with copied(mutant) as copy:
        for test in tests:
            try:
                caught_by = failure(copy, test, limit)
            except subprocess.TimeoutExpired:
                return f"TIMED OUT in {test}"  # which may be the machine's fault: not caught
            if caught_by is not None:
                if not passes_unchanged(test, limit):
                    raise SystemExit(f"{test} fails without a mutant")
                return f"caught by {caught_by}"
    return "SURVIVED"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each of the tests")
    parser.add_argument("--tests", nargs="*", help="these instead, for every mutant")
    options = parser.parse_args()
    paths = sorted(path for folder in FOLDERS for path in (ROOT / "lamina" / folder).rglob("*.py"))
    chosen = mutants(paths, options.count, options.seed)
    verdicts = []
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [
            pool.submit(verdict, mutant, options.tests or suites_of(mutant.path), options.limit)
            for mutant in chosen
        ]
        for mutant, job in zip(chosen, jobs, strict=True):
            verdicts.append(job.result())
            where = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
            print(f"{where}: {mutant.change}\n    {verdicts[-1]}", flush=True)
    caught = sum(each.startswith("caught") for each in verdicts)
    timed_out = sum(each.startswith("TIMED OUT") for each in verdicts)
    survived = len(chosen) - caught - timed_out
    print(f"{len(chosen)} mutants: {caught} caught, {timed_out} timed out, {survived} survived")
    return int(caught < WANTED * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
