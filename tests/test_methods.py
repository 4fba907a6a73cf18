"""Editors and type checkers see the methods of `Tensor`, and no others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lamina.frontend import METHODS, OPERATORS
from tests.conftest import Golden
from tests.methods_stub import methods_stub
from tests.test_layers import ROOT

STUB = ROOT / "lamina" / "frontend" / "methods.pyi"
PROGRAM = """
import lamina as lm

x: lm.Tensor = lm.ones(3).softmax(0)
y: lm.Tensor = (x.sum(axis=0) + 1.0).reshape((1,)).T @ x
x[0] = y.mean()
x.backward()
layer = lm.nn.Linear(3, 4)
reveal_type(x.softmax)
reveal_type(x < 2)
"""


def checked_by_mypy(program: str, folder: Path) -> list[str]:
    """What mypy says of `program`, a line each."""
    file = folder / "program.py"
    file.write_text(program)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent"]
    done = subprocess.run(
        [*command, str(file)], capture_output=True, text=True, cwd=ROOT, check=False
    )
    return [line.partition("program.py:")[2] for line in done.stdout.splitlines()]


def test_the_stub_is_current(golden: Golden) -> None:
    golden(STUB, methods_stub())


def test_the_stub_has_every_method() -> None:
    text = methods_stub()
    for name in (*METHODS, *OPERATORS):
        assert f" {name} = " in text or f"def {name}(" in text


@pytest.mark.timeout(600)
def test_a_type_checker_knows_methods(tmp_path: Path) -> None:
    wrong = 'lm.ones(3).sofmax(0)\nlm.ones(3).softmax(nothing=1)\nlm.ones(3).sum("rows", 1, 2, 3)\n'
    said = checked_by_mypy(PROGRAM + wrong, tmp_path)
    start = len(PROGRAM.splitlines())
    notes = [line for line in said if " note: Revealed type" in line]
    assert len(notes) == 2
    assert "Tensor" in notes[0]
    assert "axis" in notes[0]
    assert notes[1].endswith('"lamina.frontend.tensor.Tensor"')
    errors = {int(line.partition(":")[0]) - start: line for line in said if " error: " in line}
    assert sorted(errors) == [1, 2, 3]
    assert '"Tensor" has no attribute "sofmax"' in errors[1]


def test_the_package_says_that_it_has_types() -> None:
    assert (ROOT / "lamina" / "py.typed").exists()
