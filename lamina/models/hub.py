"""Downloads of models from the Hugging Face hub.

A model has a name of one of these forms:

    org/name                 the folder of a repository, at its default branch
    org/name@revision        the same at a branch, a tag or a commit
    org/name/file.gguf       one GGUF file of a repository; it may have a revision, too

The package `huggingface_hub` (the extra ``hub``) downloads into its own cache. It is asked only for
the files that lamina reads: weights in safetensors, configurations and tokenizers. It is not asked
for pickles. Nothing in a file is executed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamina.errors import ArgumentError, DeviceError, FormatError, LaminaError
from lamina.text.extra import package

__all__ = ["HubName", "download"]

# The files of a folder that lamina reads; a star stands for any part of a name.
_FILES = [
    "config.json", "generation_config.json", "preprocessor_config.json",
    "model.safetensors", "model-*.safetensors", "model.safetensors.index.json",
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "modules.json", "*_Pooling/config.json", "sentence_bert_config.json",
    "config_sentence_transformers.json",
]  # fmt: skip
_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # a part of a name, between slashes
# The number of a part in ``model-00001-of-00003.gguf``. A model needs all: 00001 becomes ``*``.
_PART_NUMBER = re.compile(r"-\d{5}-of-")
_LONGEST_REASON = 200  # characters of another package's message
_SITE = "https://huggingface.co"


@dataclass(frozen=True)
class HubName:
    """A name of the hub in its parts.

    repository: ``org/name``
    file: a GGUF file in it; None for the whole folder
    revision: a branch, a tag or a commit; None for the default branch
    """

    repository: str
    file: str | None = None
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """The name that `text` is; None if it has another form, as a path has."""
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
    """Download a model into the package's cache, and return the path of its folder or GGUF file. A
    file that the cache has is not downloaded again. Without a network, the cache is used as it is.

    Raises

    - MissingPackageError without the extra ``hub``;
    - ArgumentError if the hub has no such repository, file or revision, or if the user has not
      accepted the terms of the model;
    - FormatError for a repository without weights that lamina reads;
    - DeviceError if the network fails and the cache lacks the model."""
    patterns = _FILES if name.file is None else [_PART_NUMBER.sub("-*-of-", name.file)]
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
    """Raises FormatError if the folder lacks a configuration, or weights in safetensors."""
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
    """The error of lamina for an `error` of the package. For a private repository the hub answers
    as if it did not exist."""
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
