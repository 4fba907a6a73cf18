"""Budgets: the length of a file and of a function, with blank lines, comments and docstrings, and
what importing lamina costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

import lamina as lm
from tests.test_layers import PACKAGE, ROOT

MAX_FILE = 600
MAX_FUNCTION = 60  # lines
MAX_EXPRESSIONS = 250  # names, constants, calls, operators and so on of a function
HEAVY = ("numpy", "ml_dtypes", "rich", "platformdirs", "safetensors", "sklearn", "torch")
# What `import lamina` loads of the package: the options.
AT_ONCE = {
    "lamina", "lamina.core", "lamina.core.dtypes", "lamina.core.options", "lamina.core.seeds",
    "lamina.errors",
}  # fmt: skip
# What neither tensors nor functions on them need before something runs.
COMPILER = (
    "lamina.graph.rewrite", "lamina.graph.algebra", "lamina.graph.movement", "lamina.fuse",
    "lamina.loops", "lamina.schedule", "lamina.targets", "lamina.pipeline",
    "lamina.runtime.compiler", "lamina.runtime.cpu", "lamina.runtime.cuda",
    "lamina.runtime.metal", "lamina.ir.interpreter",
)  # fmt: skip
OF_PYTHON = ("subprocess", "tempfile", "hashlib", "shutil", "concurrent.futures", "urllib.request")


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh interpreter has after `statement`."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return set(json.loads(done.stdout))


def of_lamina(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "lamina"}


def test_no_file_is_long() -> None:
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert len(lengths) > 100
    assert not {path: length for path, length in lengths.items() if length >= MAX_FILE}


def functions_of(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions and methods; those inside of a function are part of it and come too."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node


def is_long(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    expressions = sum(isinstance(node, ast.expr) for node in ast.walk(function))
    return lines > MAX_FUNCTION or expressions > MAX_EXPRESSIONS


def test_no_function_is_long() -> None:
    long = {
        f"{path.relative_to(PACKAGE).as_posix()}:{function.name}"
        for path in PACKAGE.rglob("*.py")
        for function in functions_of(ast.parse(path.read_text(encoding="utf-8")))
        if is_long(function)
    }
    assert not long


def test_importing_lamina_loads_the_options_alone() -> None:
    modules = loaded_by("import lamina")
    assert of_lamina(modules) == AT_ONCE
    assert not modules.intersection(HEAVY)


@pytest.mark.parametrize("statement", ["from lamina import Tensor", "from lamina import *"])
def test_tensors_load_without_the_compiler(statement: str) -> None:
    modules = loaded_by(statement)
    assert "lamina.frontend.tensor" in modules
    assert not modules.intersection((*HEAVY, *COMPILER, *OF_PYTHON))
    assert not [name for name in modules if name.startswith("lamina.nn")]


def test_functions_load_with_the_module_that_has_them() -> None:
    before, after = (loaded_by(f"import lamina; lamina.{name}") for name in ("zeros", "layer_norm"))
    assert "lamina.frontend.functions.neural" not in before
    assert "lamina.frontend.functions.neural" in after


def test_submodules_load_when_they_are_asked_for() -> None:
    for name in ("nn", "io", "datasets", "random"):
        assert f"lamina.{name}" in loaded_by(f"import lamina; lamina.{name}")


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    for name in ("no_such_name", "_no_such_name", "__no_such_name__"):
        with pytest.raises(AttributeError, match=f"module 'lamina' has no attribute '{name}'"):
            getattr(lm, name)
        assert name not in dir(lm)


def test_looking_for_what_python_itself_asks_of_modules_loads_nothing() -> None:
    modules = loaded_by("import lamina; hasattr(lamina, '__wrapped__'); hasattr(lamina, '_repr_')")
    assert of_lamina(modules) == AT_ONCE


def test_every_public_name_is_there_and_no_submodule_hides_one() -> None:
    names = lm.__all__
    assert len(names) == len(set(names)) > 200
    assert set(names) <= set(dir(lm))
    for name in names:
        assert getattr(lm, name) is getattr(lm, name)
    submodules = {path.stem for path in PACKAGE.iterdir()}
    assert submodules.intersection(names) == {"random"}
