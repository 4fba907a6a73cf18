"""Models from files: a GGUF file, or a folder as on the Hugging Face hub."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lamina.core.dtypes import DType, float32
from lamina.core.options import current
from lamina.distributed.mesh import Axis
from lamina.errors import ArgumentError, CompilerNotFoundError, FormatError
from lamina.frontend.session import SESSION
from lamina.frontend.tensor import Tensor, check_device
from lamina.io import gguf, safetensors
from lamina.io.blocks import Packed
from lamina.models import configuration
from lamina.models.configuration import FAMILIES, GGUF_FAMILIES, ROPE_TENSORS, Family
from lamina.models.embedding import Embedder
from lamina.models.fields import Fields, read_object
from lamina.models.language_model import LanguageModel
from lamina.models.llama import LlamaConfig
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
    one that it is from, if it is not from a single file."""

    network: Network
    config: Any  # a dataclass of the family
    device: str
    _read_tokenizer: Any
    folder: Path | None = None

    @property
    def writer(self) -> LanguageModel:
        """The network as one that writes text. Raises ArgumentError for any other."""
        if not isinstance(self.network, LanguageModel):
            kind = type(self.network).__name__
            raise ArgumentError(f"{kind} writes no text", operation="load")
        return self.network

    @cached_property
    def embedder(self) -> Embedder:
        """Makes vectors of texts, as the folder says. Raises ArgumentError for a network that reads
        no texts as a whole, and FormatError for settings that are not supported."""
        network = self.network
        if not isinstance(network, TextEncoder) or self.folder is None:
            kind = type(network).__name__
            raise ArgumentError(f"{kind} makes no embeddings of texts", operation="load")
        size, context = network.config.size, network.config.context
        settings = SentenceSettings.from_folder(self.folder, size, context)
        return Embedder(network, self.tokenizer, settings, self.device)

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises FormatError for files that have none that lamina knows, and MissingPackageError
        without the extra ``text``."""
        tokenizer: Tokenizer = self._read_tokenizer()
        return tokenizer


def load(
    path: str | os.PathLike[str], device: str | None = None, round_activations: bool = False,
    over: Axis | None = None, activations: DType = float32,
) -> Model:  # fmt: skip
    """The model in a GGUF file, or in a folder with ``config.json`` and safetensors files. Weights
    are views of the mapped files, and quantised ones stay so.

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
    inner layers, equally, and OSError for files that cannot be read."""
    where, place = check_device(device), Path(path)
    if over is not None and over.ranks == 1:
        over = None
    lanes = _lanes(where) if round_activations and not place.is_dir() else None
    target = _Target(where, lanes, over, activations)
    return _from_folder(place, target) if place.is_dir() else _from_gguf(place, target)


@dataclass(frozen=True)
class _Target:
    """Where weights go: to a device, with a second copy in so many `lanes`, and of those that
    processes share over an axis a part to each. activations: of the model there."""

    device: str
    lanes: int | None
    over: Axis | None
    activations: DType

    @property
    def first(self) -> str:
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
    family: Family, config: Any, tensors: Mapping[str, Weight], origin: str, target: _Target
) -> Network:
    source = StoredWeights(
        tensors, origin, target.lanes, target.over, target.device, target.activations
    )
    network = family.network(config, source)
    source.check()
    return network


# Folders.


def _from_folder(folder: Path, target: _Target) -> Model:
    origin = str(folder / "config.json")
    values = read_object(folder / "config.json")
    family = configuration.family_of(values, origin)
    config = family.read(Fields(values, origin))
    tensors: dict[str, Weight] = {}
    for name, held in _shards(folder).items():
        loaded = safetensors.load(folder / name, target.first)
        for weight, tensor in loaded.items():
            is_needed = not weight.endswith(_OLD) and (held is None or held.get(weight) == name)
            if is_needed:
                tensors[weight] = tensor
    network = _network(family, config, family.renamed(tensors, config), str(folder), target)
    read_tokenizer = partial(Tokenizer.from_folder, folder)
    return Model(network, config, target.device, read_tokenizer, folder)


# Of old files: what follows from the configuration.
_OLD = ("rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias")


def _shards(folder: Path) -> dict[str, Mapping[str, str] | None]:
    """The names of the files with weights, each with the index that says what is in which file."""
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return {"model.safetensors": None}
    weights = read_object(index).get("weight_map")
    if not isinstance(weights, dict):
        raise FormatError(f"{index}: weight_map: an object is needed")
    for weight, name in weights.items():
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise FormatError(f"{index}: weight_map: {weight!r}: {name!r} is no name of a file")
    return dict.fromkeys(sorted(set(weights.values())), weights)


# GGUF files.

_GGUF_PARTS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate", "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj", "ffn_down_shexp": "mlp.shared_expert.down_proj",
}  # fmt: skip
_GGUF_STACKS = {  # of the matrices of all experts
    "ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj",
}  # fmt: skip
_GGUF_PARTS_OF = {  # architectures with other parts
    "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    "gemma3": {
        "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}  # fmt: skip
_GGUF_NAMES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
}  # fmt: skip


def _from_gguf(path: Path, target: _Target) -> Model:
    content, origin = gguf.load(path, target.first), str(path)
    kind = str(content.metadata.get("general.architecture"))
    parts = _GGUF_PARTS | _GGUF_PARTS_OF.get(kind, {})
    tensors = {_name(name, parts): weight for name, weight in content.tensors.items()}
    config = configuration.from_gguf(content.metadata, tensors, origin)
    for name in ROPE_TENSORS:
        tensors.pop(name, None)
    family = FAMILIES[GGUF_FAMILIES[kind]]
    if kind == "llama":
        tensors = {name: _unturned(name, one, config) for name, one in tensors.items()}
    tensors = {name: _as_matrix(name, one) for name, one in tensors.items()}
    network = _network(family, config, family.renamed(tensors, config), origin, target)
    return Model(network, config, target.device, partial(Tokenizer.from_gguf, content.metadata))


def _name(name: str, parts: Mapping[str, str]) -> str:
    """The name in Hugging Face's files of a tensor in a GGUF file: blk.0.attn_q.weight is
    model.layers.0.self_attn.q_proj.weight. Other names stay."""
    stem, _, kind = name.rpartition(".")
    block, _, part = stem.removeprefix("blk.").partition(".")
    if stem.startswith("blk.") and part in parts:
        return f"model.layers.{block}.{parts[part]}.{kind}"
    if stem.startswith("blk.") and part in _GGUF_STACKS and kind == "weight":
        return f"model.layers.{block}.mlp.experts.{_GGUF_STACKS[part]}"
    return f"{_GGUF_NAMES[stem]}.{kind}" if stem in _GGUF_NAMES else name


def _as_matrix(name: str, weight: Weight) -> Weight:
    """Files have the one row of this projection as a vector."""
    if not name.endswith("shared_expert_gate.weight") or not isinstance(weight, Tensor):
        return weight
    return weight.unsqueeze(0) if weight.ndim == 1 else weight


def _unturned(name: str, weight: Weight, config: LlamaConfig) -> Weight:
    """Files of the architecture "llama" pair neighbouring rows of the heads of queries and keys
    for the rotary embedding; here row i is paired with row i + size / 2 of a head."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    data = weight.data if isinstance(weight, Packed) else weight
    if not data.ndim or data.shape[0] % config.head_size or config.head_size % 2:
        return weight  # the wrong shape is reported with all others
    pairs = data.reshape((-1, config.head_size // 2, 2, *data.shape[1:]))
    moved = pairs.transpose(1, 2).reshape(data.shape).contiguous()
    SESSION.compute_first(moved)  # a function that reads it is traced again once it has memory
    return Packed(weight.kind, moved) if isinstance(weight, Packed) else moved
