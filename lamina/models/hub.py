"""Models of the Hugging Face hub by name: ``org/name``, with a branch, a tag or a commit as
``org/name@revision``, or a GGUF file of a repository as ``org/name/file.gguf``.

The package `huggingface_hub` (the extra ``hub``) downloads them into its own cache. Of a repository
it gets the files that lamina reads and no others: weights in safetensors, never pickles, and texts.
Nothing in them is run.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamina.errors import ArgumentError, DeviceError, FormatError, LaminaError
from lamina.text.extra import package

__all__ = ["HubName", "download"]

# What lamina reads of a folder; a star stands for any part of a name.
_FILES = [
    "config.json", "generation_config.json", "preprocessor_config.json",
    "model.safetensors", "model-*.safetensors", "model.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "modules.json", "*_Pooling/config.json", "sentence_bert_config.json",
    "config_sentence_transformers.json",
]  # fmt: skip
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of a name, between slashes
_PLACE = re.compile(r"-\d{5}-of-")  # of a part of a GGUF file, all of which are needed
_LONGEST_REASON = 200  # characters
_SITE = "https://huggingface.co"


@dataclass(frozen=True)
class HubName:
    """A repository, a file of it if it is that alone, and a revision if it is not the newest."""

    repository: str
    file: str | None = None
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """None for a text that is no name of the hub, but a path."""
        path, _, revision = text.partition("@")
        parts = path.split("/")
        is_file = path.endswith(".gguf")
        if not all(_PART.fullmatch(part) for part in parts) or len(parts) < 2:
            return None
        if is_file != (len(parts) > 2):
            return None
        file = "/".join(parts[2:]) if is_file else None
        return cls("/".join(parts[:2]), file, revision or None)


def download(name: HubName) -> Path:
    """The folder or the GGUF file of a model in the package's cache. What is there already is not
    downloaded again; without a network it is used as it is.

    Raises MissingPackageError without the extra ``hub``; ArgumentError for what the hub does not
    have, or gives nobody who has not asked for it; FormatError for a repository without weights
    that lamina reads; DeviceError where the network fails."""
    patterns = _FILES if name.file is None else [_PLACE.sub("-*-of-", name.file)]
    hub = package("huggingface_hub", "hub")
    try:
        folder = Path(
            hub.snapshot_download(name.repository, revision=name.revision, allow_patterns=patterns)
        )
    except Exception as error:  # of the package, of its HTTP client, and of the disk
        raise _failure(name, error) from None
    if name.file is None:
        _check(name, folder)
        return folder
    if not (folder / name.file).exists():
        raise ArgumentError(f"{name.repository} has no {name.file}", operation="fetch")
    return folder / name.file


def _check(name: HubName, folder: Path) -> None:
    """Raises FormatError where a file is missing without which there is no model."""
    if not (folder / "config.json").exists():
        raise FormatError(
            f"fetch: {name.repository} has no config.json; name a GGUF file of it, if it has one, "
            f"as {name.repository}/FILE.gguf"
        )
    weights = "model.safetensors", "model.safetensors.index.json"
    if not any((folder / file).exists() for file in weights):
        raise FormatError(
            f"fetch: {name.repository} has no model.safetensors; files of other formats, such as "
            "pickles, are not downloaded"
        )


def _failure(name: HubName, error: Exception) -> LaminaError:
    """The error to raise for one of the package. One that says that the hub has no such thing may
    also mean that it is private."""
    kinds: Any = package("huggingface_hub.errors", "hub")
    if isinstance(error, kinds.GatedRepoError):
        return ArgumentError(
            f"{name.repository} is given to those alone who have accepted its terms",
            operation="fetch",
            remedy=f"accept them at {_SITE}/{name.repository}, and log in with `hf auth login` or "
            "set HF_TOKEN",
        )
    if isinstance(error, kinds.RevisionNotFoundError):
        return ArgumentError(f"{name.repository} has no {name.revision}", operation="fetch")
    if isinstance(error, kinds.RepositoryNotFoundError):
        return ArgumentError(
            f"there is no {name.repository}, neither here nor on the Hugging Face hub, or it is "
            "private",
            operation="fetch",
        )
    cause = error.__cause__ or error
    reason = " ".join(str(cause).split())[:_LONGEST_REASON] or type(cause).__name__
    return DeviceError(
        f"{name.repository} is not here, and the Hugging Face hub cannot be asked for it: {reason}",
        operation="fetch",
        remedy="check the name and the network",
    )
