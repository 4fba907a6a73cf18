"""Models of the Hugging Face hub: from a server of this machine that answers as it does."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina import Tensor, models
from lamina.errors import ArgumentError, DeviceError, FormatError, MissingPackageError
from lamina.models import fetch, hub
from lamina.models.hub import HubName
from tests.models.families import saved

pytest.importorskip("transformers")
constants = pytest.importorskip("huggingface_hub.constants")

ROOT = Path(__file__).parent.parent.parent
NEW, OLD = "a" * 40, "b" * 40  # commits
REVISIONS = {"main": NEW, NEW: NEW, "v1": OLD, OLD: OLD}
EXTRA = {
    "pytorch_model.bin": b"a pickle", "tokenizer.pkl": b"a pickle", "modeling.py": b"a program",
    "consolidated.safetensors": b"others", "original/model-1.bin": b"a pickle",
}  # fmt: skip
REFUSED = {"org/gated": (403, "GatedRepo"), "org/broken": (500, "")}


class Hub(BaseHTTPRequestHandler):
    """GET and HEAD of what the package asks for: commits, lists of files, and files."""

    repositories: dict[str, dict[str, bytes]]
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.command} {self.path}")
        path = self.path.partition("?")[0].removeprefix("/").split("/")
        is_api = path[:2] == ["api", "models"]
        path = path[2:] if is_api else path
        name = "/".join(path[:2])
        if name in REFUSED or name not in self.repositories:
            return self.refuse(*REFUSED.get(name, (404, "RepoNotFound")))
        action, revision, file = path[2], path[3], "/".join(path[4:])
        if revision not in REVISIONS:
            return self.refuse(404, "RevisionNotFound")
        return self.tell(name, REVISIONS[revision], action, file)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

    def tell(self, name: str, commit: str, action: str, file: str) -> None:
        files = self.repositories[name]
        if action == "resolve":
            return self.send(files[file], {"X-Repo-Commit": commit})
        if action == "tree":
            entries = [
                {"type": "file", "path": path, "size": len(content), "oid": digest(content)}
                for path, content in files.items()
            ]
            return self.send(json.dumps(entries).encode())
        siblings = [{"rfilename": path} for path in files]
        return self.send(json.dumps({"id": name, "sha": commit, "siblings": siblings}).encode())

    def refuse(self, status: int, code: str) -> None:
        self.send(b"no", {"X-Error-Code": code}, status)

    def send(self, content: bytes, others: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(content)), "ETag": f'"{digest(content)}"'}
        for key, value in {**headers, **(others or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *arguments: Any) -> None:
        pass


def digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model of transformers, and its folder."""
    folder = tmp_path_factory.mktemp("small")
    return saved("llama", folder), folder


@pytest.fixture
def server(
    theirs: tuple[Any, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ThreadingHTTPServer]:
    files = {path.name: path.read_bytes() for path in theirs[1].iterdir()}
    Hub.asked = []
    Hub.repositories = {
        "org/small": files | EXTRA,
        "org/pickles": {"config.json": files["config.json"], **EXTRA},
        "org/small-GGUF": {
            "q4/model.gguf": b"GGUF of 4 bits", "q8.gguf": b"GGUF of 8 bits",
            "big-00001-of-00002.gguf": b"first", "big-00002-of-00002.gguf": b"second",
        },
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", url)
    template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_is_loaded_by_its_name(
    server: ThreadingHTTPServer, theirs: tuple[Any, Path]
) -> None:
    torch = pytest.importorskip("torch")
    ids = np.arange(10)[None]
    with torch.no_grad():
        wanted = theirs[0](torch.tensor(ids)).logits.numpy()
    model = models.load("org/small", device="interp")
    np.testing.assert_allclose(
        model.network(Tensor(ids, device="interp")).numpy(), wanted, atol=1e-4
    )
    assert model.folder is not None
    present = {str(path.relative_to(model.folder)) for path in model.folder.rglob("*")}
    assert present == {"config.json", "generation_config.json", "model.safetensors"}
    assert not any(name in line for name in EXTRA for line in Hub.asked)


def test_a_revision_is_kept_and_used_without_a_network(server: ThreadingHTTPServer) -> None:
    folder = fetch.fetch("org/small@v1")
    assert folder.name == OLD
    assert fetch.fetch("org/small").name == fetch.fetch(f"org/small@{NEW}").name == NEW
    server.shutdown()
    server.server_close()
    assert fetch.find("org/small@v1") == folder
    with pytest.raises(DeviceError, match=r"fetch: org/other is not here, .*; check the name and"):
        fetch.fetch("org/other")


def test_a_gguf_file_is_named_by_its_path(server: ThreadingHTTPServer) -> None:
    path = fetch.find("org/small-GGUF/q4/model.gguf@v1")
    assert path.read_bytes() == b"GGUF of 4 bits"
    assert [file.name for file in path.parents[1].rglob("*.gguf")] == ["model.gguf"]
    first = fetch.find("org/small-GGUF/big-00001-of-00002.gguf")
    assert first.with_name("big-00002-of-00002.gguf").read_bytes() == b"second"
    with pytest.raises(ArgumentError, match=r"fetch: org/small-GGUF has no q5\.gguf"):
        fetch.find("org/small-GGUF/q5.gguf")
    with pytest.raises(FormatError, match=r"name a GGUF file of it, .* org/small-GGUF/FILE\.gguf"):
        fetch.find("org/small-GGUF")


WRONG = {
    "org/gated": (ArgumentError, "to those alone who have accepted its terms; accept them at http"),
    "org/nothing": (ArgumentError, "there is no org/nothing, neither here nor on the Hugging Face"),
    "org/small@v2": (ArgumentError, "fetch: org/small has no v2"),
    "org/pickles": (FormatError, "no model.safetensors; files of other formats, such as pickles"),
    "org/broken": (DeviceError, "org/broken is not here, and the Hugging Face hub cannot be asked"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_hub_refuses_is_named(name: str, server: ThreadingHTTPServer) -> None:
    kind, message = WRONG[name]
    with pytest.raises(kind, match=message):
        models.load(name)


def test_paths_are_no_names_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert HubName.parse("org/name@v1.0") == HubName("org/name", None, "v1.0")
    assert HubName.parse("o-1/n.2") == HubName("o-1/n.2")
    assert HubName.parse("org/name/a/b.gguf@x/y") == HubName("org/name", "a/b.gguf", "x/y")
    for path in (
        "name", "a/model.gguf", "/org/name", "./org/name", "../name", "org/name/", "a/b/c",
        "a/../b/c.gguf", "a/*/c.gguf", "a//b", "C:\\a/b", "a b/c", "",
    ):  # fmt: skip
        assert HubName.parse(path) is None, path
    monkeypatch.chdir(tmp_path)
    (tmp_path / "org/name").mkdir(parents=True)
    assert fetch.find("org/name") == Path("org/name")
    assert fetch.find(Path("org/other")) == Path("org/other")
    with pytest.raises(FileNotFoundError):
        models.load(Path("org/other"))


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(MissingPackageError, match=r"huggingface_hub: pip install 'lamina\[hub\]'"):
        hub.download(HubName("org/name"))


def test_the_command_downloads_and_says_where(server: ThreadingHTTPServer, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "fetch", "org/small@v1"], capture_output=True, text=True,
        check=False, cwd=tmp_path, env=os.environ | {
            "HF_ENDPOINT": constants.ENDPOINT, "HF_HUB_CACHE": str(tmp_path / "new"),
            "PYTHONPATH": str(ROOT),
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    name, _, folder = done.stdout.strip().partition(": ")
    assert name == "org/small@v1"
    assert Path(folder).is_relative_to(tmp_path / "new")
    assert (Path(folder) / "model.safetensors").exists()
