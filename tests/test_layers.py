"""The layers: a lower row never imports a higher one, not even inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "lamina"

ROWS: dict[str, int] = {
    "errors": 0, "core": 0,
    "ir": 1,
    "graph": 2,
    "fuse": 3,
    "loops": 4,
    "schedule": 5,
    "tiles": 6, "targets": 6, "runtime": 6,
    "backends": 7, "pipeline": 7, "compiled": 7, "reference": 7, "stored": 7, "tuning": 7,
    "calibrate": 7, "explain": 7,
    "frontend": 8, "random": 8,
    "nn": 9, "io": 9, "text": 9, "models": 9, "cli": 9, "cli_models": 9, "datasets": 9,
    "interop": 9, "__main__": 9, "distributed": 9, "serving": 9, "__init__": 9,
}  # fmt: skip


class Import(NamedTuple):
    """``module`` imports ``target`` at ``line``; both are dotted module names."""

    module: str
    target: str
    line: int
    for_typing: bool


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a file below `root`; a package is its ``__init__``'s folder."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def row_of(module: str) -> int:
    """The row of a module of lamina."""
    parts = module.split(".")
    return ROWS[parts[1] if len(parts) > 1 else "__init__"]


def imports(path: Path, root: Path, modules: set[str]) -> Iterator[Import]:
    """Every import of the package's own modules in a file, wherever it stands."""
    module = module_name(path, root)
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        targets: list[str] = []
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            up = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*up, node.module or ""]).rstrip(".") if node.level else node.module
            targets = [
                inner if (inner := f"{base}.{alias.name}") in modules else str(base)
                for alias in node.names
            ]
        for target in targets:
            if target in modules:
                yield Import(module, target, node.lineno, id(node) in typing_only)


def all_imports(root: Path = ROOT, package: Path = PACKAGE) -> list[Import]:
    """Every import between modules below `package`."""
    files = sorted(package.rglob("*.py"))
    modules = {module_name(file, root) for file in files}
    return [one for file in files for one in imports(file, root, modules)]


def broken(found: list[Import]) -> list[str]:
    """The imports that break the law of the layers."""
    return [
        f"{one.module}:{one.line} (row {row_of(one.module)}) imports {one.target} "
        f"(row {row_of(one.target)})"
        for one in found
        if row_of(one.target) > row_of(one.module)
    ]


def test_every_module_has_a_row() -> None:
    top = {path.stem for path in PACKAGE.glob("*.py")}
    top |= {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert not top - set(ROWS)


def test_no_row_imports_a_higher_one() -> None:
    found = all_imports()
    assert len(found) > 50
    assert not broken(found)


def test_the_runtime_knows_no_graph() -> None:
    above = [
        f"{one.module}:{one.line} imports {one.target}"
        for one in all_imports()
        if one.module.startswith("lamina.runtime")
        and row_of(one.target) > 0
        and not one.target.startswith("lamina.runtime")
    ]
    assert not above


KINDS = {"cpu", "cuda", "metal"}  # the interpreter is no device: it compiles nothing
# Files above the runtime that compare a device with a kind by name, and why they may.
BY_NAME = {
    "distributed/launch.py": "the user names the kind; a process for each GPU is CUDA's way",
    "distributed/setup.py": "NCCL, which it sets up, is a library for CUDA alone",
    "interop/torch/draws.py": "PyTorch's kinds of devices",
    "interop/torch/plan.py": "PyTorch's kinds of devices",
    "interop/torch/program.py": "PyTorch's kinds of devices",
}


def names_of_kinds(node: ast.expr) -> set[str]:
    """The kinds that an operand of a comparison names: "cuda", or those of a tuple or a set."""
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List, ast.Set)) else [node]
    texts = [part.value for part in parts if isinstance(part, ast.Constant)]
    return {text for text in texts if isinstance(text, str)} & KINDS


def compared_kinds(source: str) -> list[int]:
    """The lines that ask whether something is a kind of device, or a name begins with one, or that
    look one up in a table of their own."""
    lines = []
    for node in ast.walk(ast.parse(source)):
        named: set[str] = set()
        if isinstance(node, ast.Compare):
            named = set().union(*map(names_of_kinds, [node.left, *node.comparators]))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("startswith", "removeprefix"):
                named = set().union(*map(names_of_kinds, node.args))
        elif isinstance(node, ast.Dict):
            named = set().union(*(names_of_kinds(key) for key in node.keys if key is not None))
        if named:
            lines.append(node.lineno)
    return lines


def test_nothing_above_the_runtime_asks_for_a_kind_of_device_by_name() -> None:
    """Facts of a `Target` and fields of a `Backend` and a `Runner` say what differs."""
    # One row a kind; names of other libraries.
    tables = {"backends.py", "compiled.py", "frontend/foreign.py"}
    found = set()
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        is_below = name.startswith(("runtime/", "core/")) or name in tables
        if not is_below and compared_kinds(file.read_text(encoding="utf-8")):
            found.add(name)
    assert found == set(BY_NAME)


@pytest.mark.parametrize(
    "line",
    [
        'x = device == "cuda"',
        'x = kind in ("cpu", "interp")',
        'x = device.startswith("cuda")',
        'limits = {"cpu": 1, "cuda": 2}',
        'x = "metal" != target.kind',
    ],
)
def test_a_planted_kind_is_found(line: str) -> None:
    assert compared_kinds(f"import os\n{line}\n") == [2]
    assert not compared_kinds('x = device == "interp"')


def test_modules_do_not_import_in_circles() -> None:
    edges: dict[str, set[str]] = {}
    for one in all_imports():
        if not one.for_typing and one.target != one.module:
            edges.setdefault(one.module, set()).add(one.target)
    TopologicalSorter(edges).prepare()


@pytest.mark.parametrize(
    "line",
    [
        "import lamina.fuse.groups",
        "from lamina.fuse import groups",
        "from lamina.fuse.groups import merge",
        "from ..fuse import groups",
        "from ..fuse.groups import merge",
        "def f():\n    from lamina.fuse import groups",
        "class A:\n    def f(self):\n        import lamina.fuse.groups",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lamina.fuse import groups",
        "from lamina import pipeline",
        "from lamina import anything",
        "import lamina",
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, line: str) -> None:
    package = tmp_path / "lamina"
    for name in ("__init__", "pipeline", "errors", "ir/__init__", "fuse/__init__", "fuse/groups"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / f"{name}.py").touch()
    file = package / "ir" / "node.py"
    file.write_text("from lamina import errors\nfrom lamina.errors import ShapeError\n")
    assert not broken(all_imports(tmp_path, package))
    file.write_text(line)
    assert len(broken(all_imports(tmp_path, package))) == 1
