"""Budgets: lines of text, blank lines, comments and docstrings included, and what importing
lamina costs."""

from __future__ import annotations

import subprocess
import sys

from tests.test_layers import PACKAGE, ROOT, module_name, row_of

MAX_FILE, MAX_COMPILER, MAX_PACKAGE = 600, 8_000, 15_000
COMPILER_ROWS = range(8)
HEAVY = ("numpy", "ml_dtypes", "rich", "platformdirs", "safetensors", "sklearn", "torch")

LINES = {
    path: len(path.read_text(encoding="utf-8").splitlines()) for path in PACKAGE.rglob("*.py")
}


def test_no_file_is_long() -> None:
    tests = {path: len(path.read_text(encoding="utf-8").splitlines())
             for path in (ROOT / "tests").rglob("*.py")}  # fmt: skip
    assert not {path: count for path, count in (LINES | tests).items() if count >= MAX_FILE}


def test_the_compiler_and_the_package_stay_small() -> None:
    compiler = {
        path: count
        for path, count in LINES.items()
        if row_of(module_name(path, ROOT)) in COMPILER_ROWS
    }
    assert len(compiler) > 20
    assert sum(compiler.values()) < MAX_COMPILER
    assert sum(LINES.values()) < MAX_PACKAGE


def test_importing_lamina_imports_nothing_heavy() -> None:
    code = f"import sys, lamina; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.strip() == "[]", done.stderr or done.stdout
