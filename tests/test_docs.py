"""Generated pages are up to date, and the README says what is checked here."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace as Namespace
from typing import Any

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.io import safetensors
from lamina.ir.ops import Op
from tests.conftest import Golden
from tests.names_page import page_with_names
from tests.ops_page import ops_markdown
from tests.test_layers import PACKAGE, ROOT


def test_the_page_of_operations_is_current(golden: Golden) -> None:
    golden(ROOT / "docs" / "ops.md", ops_markdown())


def test_the_names_of_other_libraries_are_current(golden: Golden) -> None:
    page = ROOT / "docs" / "coming-from.md"
    golden(page, page_with_names(page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("folder", ["cpu", "gpu"])
def test_the_heuristics_list_their_files(folder: str) -> None:
    place = PACKAGE / "schedule" / folder
    listed = (place / "__init__.py").read_text(encoding="utf-8")
    for path in place.glob("*.py"):
        assert path.stem == "__init__" or re.search(rf"\b{path.stem}\b", listed), path.name


def test_the_page_has_every_operation_once() -> None:
    rows = re.findall(r"^\| ([A-Z0-9_]+) \|", ops_markdown(), re.MULTILINE)
    assert sorted(rows) == sorted(op.name for op in Op)


def test_the_readme_opens_with_the_demo_and_the_tests() -> None:
    commands = [line for block in _blocks("sh") for line in block.splitlines() if line]
    assert commands[0].endswith(".venv/bin/pip install -q . && .venv/bin/lamina demo")
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


def test_the_page_for_newcomers_runs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for program in _blocks("python", "docs/coming-from.md"):
        exec(compile(program, "coming-from.md", "exec"), {"lm": lm})
    assert float(capsys.readouterr().out.removeprefix("error ")) < 1.0
    model = nn.Sequential(nn.Linear(8, 4))
    safetensors.save(tmp_path / "state", state := nn.state_dict(model))
    x, array = Tensor(np.linspace(0, 0.9, 32).reshape(4, 8), lm.float32), np.zeros(3, np.float32)
    known: dict[str, Any] = {
        "lm": lm, "nn": nn, "Tensor": Tensor, "safetensors": safetensors, "model": model, "x": x,
        "array": array, "data": array, "images": array, "order": [0], "t": x, "self": Namespace(),
        "w": model[0].weight, "b": model[0].bias, "logits": x, "labels": lm.arange(4),
        "loss": model(x).sum(), "state": state, "path": tmp_path / "state", "f": lm.sin,
        "y": x, "v": x[0], "n": lm.asarray([1, 3]), "mask": x > 0.5,
        "i": lm.zeros((4, 8), dtype=lm.int64), "key": lm.random.key(0),
        "optimizer": nn.optim.SGD(nn.parameters(model), momentum=0.9),
    }  # fmt: skip
    text = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    cells = re.findall(r"^\|.*\|(.*)\|$", text, re.MULTILINE)
    spans = [one for cell in cells for one in re.findall("`(.+?)`", cell) if re.search(r"\W", one)]
    assert len(spans) > 40
    for one in spans:
        if "cuda" not in one:
            with lm.using():
                exec(one, known.copy())


def _blocks(language: str, page: str = "README.md") -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
