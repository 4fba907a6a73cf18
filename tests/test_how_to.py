"""The checklists of docs/how-to: each file and each name exists, and their rows are complete."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lamina.ir.ops import Kinds, OpRecord
from tests.ir.places import TEXTS, missing_places, read
from tests.test_layers import ROOT

PAGES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
EACH = "#define EACH(F) F(exp) F(log10)\n"  # which the page says in a sentence
FILE = r"`((?:lamina|tests|docs|examples)/[\w./]*)`"
NAME = r"`([A-Za-z_][\w.]*)`"


def prose(page: Path) -> str:
    """A page without its blocks of code, and as one line a paragraph."""
    text = re.sub(r" *```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", text)


def names_in_files(text: str) -> list[tuple[str, str]]:
    """The names that a page says to be in a file: "`name` in `file`", "of" or in parentheses."""
    return re.findall(rf"{NAME}(?: (?:in|of) | \(){FILE}", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_exists(page: Path) -> None:
    files = re.findall(FILE, prose(page))
    assert len(files) >= 8
    assert not [name for name in files if not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_name_is_in_its_file(page: Path) -> None:
    named = names_in_files(prose(page))
    assert len(named) >= 5
    for name, file in named:
        last = name.rpartition(".")[2]
        defined = rf"(?:def|class|#define) {last}\b|^ *{last}(?::.*)? = |^ +{last}: "
        assert re.search(defined, read(file), re.MULTILINE), f"{file} defines no {name}"


def test_a_name_that_is_gone_is_found() -> None:
    assert names_in_files("see `gone` in `lamina/ir/ops.py`") == [("gone", "lamina/ir/ops.py")]
    assert names_in_files("a `Heap` (`lamina/runtime/buffer.py`)") == [
        ("Heap", "lamina/runtime/buffer.py")
    ]


def test_what_the_page_of_operations_adds_is_complete() -> None:
    """Its rows, appended to the files, leave the front alone missing, which is no text."""
    page = (ROOT / "docs/how-to/add-an-operation.md").read_text(encoding="utf-8")
    rows = [re.sub("^   ", "", block, flags=re.MULTILINE)
            for block in re.findall(r"```c\n(.*?)   ```", page, re.DOTALL)]  # fmt: skip
    texts = {
        "c/arithmetic.c": read(f"{TEXTS}/c/arithmetic.c") + "\n" + rows[0],
        "metal/prelude.metal": read(f"{TEXTS}/metal/prelude.metal"),
        "c/math.c": read(f"{TEXTS}/c/math.c") + "\n" + "\n".join([*rows[1:], EACH]),
    }
    row = OpRecord(
        "transcendental", Kinds.FLOAT, numpy="log10", derivative="of a test", instructions=90,
    )  # fmt: skip
    assert "`F(log10)`" in page
    assert missing_places("LOG10", row, ["LOG10"], texts) == [
        "lamina/frontend/functions: no function makes Op.LOG10",
    ]
    assert len(rows) == 3
