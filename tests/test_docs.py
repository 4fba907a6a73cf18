"""Generated pages are up to date, and the README says what is checked here."""

from __future__ import annotations

import re
from pathlib import Path

from lamina.ir.ops import Op
from tests.conftest import Golden
from tests.ops_page import ops_markdown
from tests.test_layers import PACKAGE, ROOT


def test_the_page_of_operations_is_current(golden: Golden) -> None:
    golden(ROOT / "docs" / "ops.md", ops_markdown())


def test_the_page_has_every_operation_once() -> None:
    rows = re.findall(r"^\| ([A-Z0-9_]+) \|", ops_markdown(), re.MULTILINE)
    assert sorted(rows) == sorted(op.name for op in Op)


def test_the_readme_opens_with_the_demo_and_the_tests() -> None:
    commands = [line for block in _blocks("sh") for line in block.splitlines() if line]
    assert commands[0].endswith(".venv/bin/lamina demo")
    assert commands[1].endswith(".venv/bin/python -m pytest -q")


def test_the_first_program_of_the_readme_runs() -> None:
    (program, *_) = _blocks("python")
    exec(compile(program, "README.md", "exec"), {})


def test_the_map_of_the_readme_names_what_exists() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d \| (.*?) \|", text, re.MULTILINE)
    names = {name for row in rows for name in re.findall(r"`([\w.]+)/?`", row)}
    assert len(names) > 15
    assert not [name for name in names if not (PACKAGE / name).exists()]


def _blocks(language: str) -> list[str]:
    text = Path(ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
