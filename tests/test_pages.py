"""The pages of docs/: printed stages are the compiler's, files exist, words are where pages say."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.stages_page import BLOCK, abridged, page_with_stages, part_of
from tests.test_layers import PACKAGE, ROOT, ROWS

PAGES = sorted((ROOT / "docs").rglob("*.md"))
STAGED = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]
CHAPTERS = sorted((ROOT / "docs" / "design").glob("*.md"))
SCREENS = 120  # lines of prose of a chapter, on two screens
ZENSICAL = "pip install -e '.[docs]'"


def page_id(page: Path) -> str:
    """A page as tests name it."""
    return str(page.relative_to(ROOT / "docs").with_suffix(""))


@pytest.mark.parametrize("page", STAGED, ids=page_id)
def test_the_printed_stages_are_current(page: Path, golden: Golden) -> None:
    golden(page, page_with_stages(page.read_text(encoding="utf-8")))


def test_the_chapters_print_every_stage_that_changes_the_example() -> None:
    blocks = {block[:3] for page in STAGED for block in BLOCK.findall(page.read_text("utf-8"))}
    for what in ("graph", "fuse", "schedule", "kernel0", "launches"):
        assert ("softmax", "cpu", what) in blocks
    assert {("softmax", "cuda", "schedule"), ("softmax", "cuda", "kernel1")} <= blocks
    assert {("attention", "cuda", what) for what in ("fuse", "schedule", "kernel0")} <= blocks
    assert {("product", "cuda", what) for what in ("fuse", "schedule", "tiles")} <= blocks


def test_a_stage_that_changed_is_printed_anew() -> None:
    empty = "<!-- printed: softmax cpu fuse -->\n<!-- printed: end -->\n"
    block = page_with_stages(empty)
    assert "loop_reduce" in block
    assert page_with_stages(block.replace("loop_reduce", "stale")) == block


def test_a_part_of_a_kernel_is_from_one_word_to_another() -> None:
    lines = ["f(a) {", "    begin(1);", "      g();", "    ending();", "    end(1);", "}"]
    assert part_of(lines, "begin", "end") == ["begin(1);", "  g();", "ending();", "end(1);"]


def test_unrolled_lines_are_left_out() -> None:
    unrolled = ["{"] + [line for i in range(4) for line in (f"  a_{i} = p[{i}];", "  f();")] + ["}"]
    assert abridged(unrolled) == [
        "{", "  a_0 = p[0];", "  f();", "  // ... 6 more such lines", "}"
    ]  # fmt: skip
    short = ["  a_0 = p[0];", "  a_1 = p[1];"]
    assert abridged(short) == short
    branches = ["if (a == 0) {", "  f();", "}"] * 3
    assert abridged(branches) == branches


@pytest.mark.parametrize("page", CHAPTERS, ids=page_id)
def test_a_chapter_is_short_and_its_files_exist(page: Path) -> None:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    assert text.count("\n") <= SCREENS
    files = re.findall(r"`((?:\w+/)+[\w.]*|\w+\.py)`", text)
    missing = [name for name in files if not any((at / name).exists() for at in (PACKAGE, ROOT))]
    assert not missing


def test_the_glossary_says_where_each_word_stands() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+? \| `(.+?)` \| .+ \|$", text, re.MULTILINE)
    words = [word for word, _ in rows]
    assert len(rows) > 40
    assert words == sorted(words, key=str.lower)
    for word, place in rows:
        for name in word.split(", "):
            assert name.lower() in text_below(PACKAGE / place).lower(), f"{place} has no {name!r}"


def text_below(place: Path) -> str:
    """The text of a file, or of all files in a folder."""
    files = [place] if place.is_file() else sorted(place.rglob("*.*"))
    texts = [file for file in files if file.suffix != ".pyc"]
    assert texts, f"{place} does not exist"
    return "\n".join(file.read_text(encoding="utf-8") for file in texts)


def test_the_afternoon_follows_the_compiler() -> None:
    """Its files exist, stops are in the order of layers, minutes add up, names are in the files."""
    text = (ROOT / "docs" / "afternoon.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.+?)` \| (\d+) \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) >= 15
    for place, _, hint in rows:
        content = text_below(ROOT / place)
        for name in re.findall(r"`([A-Za-z_]\w*)(?:\.\w+)?`", hint):
            assert re.search(rf"\b{name}\b", content), f"{place} has no {name}"
    said = [int(minutes) for minutes in re.findall(r"^## .*\((\d+) minutes\)", text, re.MULTILINE)]
    assert sum(said) == sum(int(minutes) for _, minutes, _ in rows) == 240
    stops = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    for stop in stops:
        minutes = re.search(r"\((\d+) minutes\)", stop)
        parts = re.findall(r"^\| `.+?` \| (\d+) \|", stop, re.MULTILINE)
        assert int(minutes.group(1) if minutes else 0) == sum(map(int, parts))
    rooms = [re.findall(r"^\| `lamina/(\w+)", stop, re.MULTILINE) for stop in stops[1:]]
    layers = [ROWS[files[0]] for files in rooms if files]
    assert layers == sorted(layers)
    assert len(layers) == 4
    stages = [match[2] for match in BLOCK.findall(text)]
    assert stages == ["passes", "graph", "fuse", "schedule", "kernel1"]


def test_pages_link_to_pages_alone() -> None:
    """A site has docs/ and no other folder; the builder looks at links to pages alone."""
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if not link.startswith("https://"):
                target = (page.parent / link).resolve()
                assert target in PAGES, f"{page_id(page)} links to {link}"


def test_every_page_and_every_layer_is_on_the_site() -> None:
    config = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    listed = re.findall(r'"([\w/-]+\.md)"', config)
    assert sorted(listed) == sorted(str(page.relative_to(ROOT / "docs")) for page in PAGES)
    shown = {page.stem for page in PAGES if page.parent.name == "reference"}
    not_shown = {"__init__", "__main__", "cli", "cli_models", "models"}  # nothing to import there
    assert set(ROWS) - not_shown <= shown


def test_the_site_builds_and_its_links_hold(tmp_path: Path) -> None:
    if importlib.util.find_spec("zensical") is None:
        pytest.skip(f"zensical is missing: {ZENSICAL}")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "lamina").symlink_to(PACKAGE)
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    built = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not built.returncode, built.stdout + built.stderr
    assert "scaled_dot_product_attention" in (tmp_path / "site/search.json").read_text("utf-8")
    assert (tmp_path / "site/afternoon/index.html").exists()
