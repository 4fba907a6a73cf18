"""Models from files: a GGUF file, or a folder as on the Hugging Face hub."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lamina.core.dtypes import DType, float32
from lamina.core.options import current
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError, CompilerNotFoundError, FormatError
from lamina.frontend.tensor import check_device
from lamina.io import gguf, safetensors
from lamina.models import gguf_models
from lamina.models.configuration import FAMILIES, Family, family_of
from lamina.models.embedding import Embedder
from lamina.models.fetch import find
from lamina.models.fields import Fields, read_object
from lamina.models.language_model import LanguageModel
from lamina.models.network import Network
from lamina.models.sentences import SentenceSettings
from lamina.models.sharing import Weight
from lamina.models.text_encoder import TextEncoder
from lamina.models.weights import StoredWeights
from lamina.runtime.devices import target_of
from lamina.text.tokenizer import Tokenizer

__all__ = ["Model", "load"]


@dataclass(frozen=True, eq=False)
class Model:
    """A network and what belongs to it. `tokenizer` is read when it is first asked for. folder: the
    one that it is from, if it is not from a single file. metadata: of that file."""

    network: Network
    config: Any  # a dataclass of the family
    device: str
    _read_tokenizer: Callable[[], Tokenizer]
    folder: Path | None = None
    metadata: Mapping[str, Any] | None = None

    @property
    def writer(self) -> LanguageModel:
        """The network as one that writes text. Raises ArgumentError for any other."""
        if not isinstance(self.network, LanguageModel):
            kind = type(self.network).__name__
            raise ArgumentError(f"{kind} writes no text", operation="load")
        return self.network

    @cached_property
    def embedder(self) -> Embedder:
        """Makes vectors of texts, as the folder or the file says. Raises ArgumentError for a
        network that reads no texts as a whole, and FormatError for settings that are not supported.
        """
        network = self.network
        if not isinstance(network, TextEncoder):
            kind = type(network).__name__
            raise ArgumentError(f"{kind} makes no embeddings of texts", operation="load")
        size, context = network.config.size, network.config.context
        if self.folder is not None:
            settings = SentenceSettings.from_folder(self.folder, size, context)
        else:
            settings = gguf_models.sentence_settings(self.metadata or {}, "load", context)
        return Embedder(network, self.tokenizer, settings, self.device)

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises FormatError for files that have none that lamina knows, and MissingPackageError
        without the extra ``text``."""
        return self._read_tokenizer()


def load(
    path: str | os.PathLike[str], device: str | None = None, round_activations: bool = False,
    over: Axis | None = None, activations: DType = float32,
) -> Model:  # fmt: skip
    """The model in a GGUF file, or in a folder with ``config.json`` and safetensors files. Weights
    are views of the mapped files, and quantised ones stay so. A text that is no path here may be
    the name of a model to download, such as "smollm2" or, of the Hugging Face hub, "org/name".

    round_activations: where one token is computed at a time on a CPU, vectors are rounded to 8 bits
    a block of 32 before they are multiplied with weights of the types Q4_0, Q4_1 and Q8_0, of which
    there is a second copy then. That takes fewer instructions, and is not exact.

    over: an axis of a mesh, whose processes share the model: each has some heads, and the keys and
    values of these, some units of the inner layers and some rows of the vocabulary, and of the
    mapped files reads nothing else; all rows of queries and keys in GGUF files of the architecture
    "llama", which are put into another order first. All get all logits, and write the same text.

    activations: float32, bfloat16 or float16: the dtype of keys and values, and to which factors
    of products are rounded. Products of several vectors are faster in 16 bits on a GPU, as tensor
    cores multiply these; sums, normalizations and logits are float32 always.

    Raises FormatError, which names the field, for files that are not what their formats ask for
    and for models that lamina does not know; it lists weights that are missing, surplus or of
    another shape. Raises ShapeError where the processes cannot share heads of keys, or units of the
    inner layers, equally, and OSError for files that cannot be read. For a name raises as
    `lamina.models.fetch.fetch`."""
    device, path = check_device(device), find(path)
    if over is not None and over.ranks == 1:
        over = None
    if path.is_dir():
        return _from_folder(path, _Placement(device, None, over, activations))
    lanes = _lanes(device) if round_activations else None
    return _from_gguf(path, _Placement(device, lanes, over, activations))


@dataclass(frozen=True)
class _Placement:
    """Where weights go, and for what: to a `device`, where processes share the model `over` an axis
    a part of each weight, with a second copy in so many `lanes` if there is to be one.
    activations: the dtype of the model's keys, values and factors."""

    device: str
    lanes: int | None
    over: Axis | None
    activations: DType

    @property
    def reader(self) -> str:
        """The device that reads the files: the host, where each process takes parts of them."""
        return self.device if self.over is None else "cpu"


def _lanes(device: str) -> int | None:
    """The words of four bytes in a vector register; None where products are not of words: in the
    interpreter, and on GPUs, whose threads share a program."""
    if device == "interp":
        return None
    try:
        target = target_of(replace(current(), device=device))
    except CompilerNotFoundError:
        return None
    return target.vector_bytes // 4 if target.warp == 1 else None


def _network(
    family: Family, config: Any, tensors: Mapping[str, Weight], origin: str, placement: _Placement
) -> Network:
    source = StoredWeights(
        tensors, origin, placement.lanes, placement.over, placement.device, placement.activations
    )
    network = family.network(config, source)
    source.check()
    return network


# Folders.

# Ends of names in old files, of what follows from the configuration.
_COMPUTED = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")


def _from_folder(folder: Path, placement: _Placement) -> Model:
    origin = str(folder / "config.json")
    values = read_object(folder / "config.json")
    family = family_of(values, origin)
    config = family.read(Fields(values, origin))
    weights = family.renamed(_weights_of(folder, placement.reader), config)
    network = _network(family, config, weights, str(folder), placement)
    read_tokenizer = partial(Tokenizer.from_folder, folder)
    return Model(network, config, placement.device, read_tokenizer, folder)


def _weights_of(folder: Path, device: str) -> dict[str, Weight]:
    """All weights that a folder has, by name; of several files each has those of the index."""
    weights: dict[str, Weight] = {}
    for file, file_of in _shards(folder).items():
        for name, tensor in safetensors.load(folder / file, device).items():
            is_of_file = file_of is None or file_of.get(name) == file
            if is_of_file and not name.endswith(_COMPUTED):
                weights[name] = tensor
    return weights


def _shards(folder: Path) -> dict[str, Mapping[str, str] | None]:
    """The names of the files with weights, each with the index of all: weights to their files. A
    folder of one file has no index, None."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        _check_for_pickles(folder)
        return {"model.safetensors": None}
    weights = read_object(index).get("weight_map")
    if not isinstance(weights, dict):
        raise FormatError(f"{index}: weight_map: an object is needed")
    for weight, name in weights.items():
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise FormatError(f"{index}: weight_map: {weight!r}: {name!r} is no name of a file")
    return dict.fromkeys(sorted(set(weights.values())), weights)


def _check_for_pickles(folder: Path) -> None:
    """Raises FormatError for a folder whose weights are in pickles alone."""
    pickles = sorted(
        path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth")
    )
    if pickles and not (folder / "model.safetensors").exists():
        raise FormatError(
            f"{folder}: no model.safetensors; {pickles[0]} is a pickle, which can run any program, "
            "and is not read: have the package that wrote it save the model as safetensors"
        )


# GGUF files.


def _from_gguf(path: Path, placement: _Placement) -> Model:
    content, origin = gguf.load(path, placement.reader), str(path)
    architecture = gguf_models.architecture_of(content.metadata, origin)
    tensors = {
        gguf_models.hugging_face_name(name, architecture): weight
        for name, weight in content.tensors.items()
    }
    config = gguf_models.from_gguf(content.metadata, tensors, origin)
    weights = gguf_models.as_network_weights(tensors, architecture, config)
    family = FAMILIES[architecture.family]
    network = _network(family, config, family.renamed(weights, config), origin, placement)
    read_tokenizer = partial(Tokenizer.from_gguf, content.metadata)
    return Model(
        network, config, placement.device, read_tokenizer, metadata=content.metadata
    )
