"""The families of models that lamina knows, and their configurations in ``config.json`` of a folder
as on the Hugging Face hub. `lamina.models.gguf_models` reads those of GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lamina.models import (
    bert,
    clip,
    convnext,
    gemma,
    gpt2,
    llama,
    llama4,
    modernbert,
    olmo,
    phi,
    resnet,
    t5,
    vit,
    whisper,
)
from lamina.models.fields import Fields
from lamina.models.llama import VARIANTS, Variant
from lamina.models.network import Network
from lamina.models.weights import Source, Weight

__all__ = ["FAMILIES", "Family", "family_of", "from_hugging_face"]

_Weights = Mapping[str, Weight]


def _as_they_are(weights: _Weights, config: Any) -> dict[str, Weight]:
    return dict(weights)


@dataclass(frozen=True)
class Family:
    """The models of one ``model_type``. read: the configuration in ``config.json``. network: the
    model of a configuration, with weights. renamed: the weights of a folder by the names and in the
    parts that the network asks for."""

    read: Callable[[Fields], Any]
    network: Callable[[Any, Source], Network]
    renamed: Callable[[_Weights, Any], dict[str, Weight]] = _as_they_are


def _llama(variant: Variant) -> Family:
    read = partial(llama.read, variant=variant)
    if variant.mixture is not None:
        return Family(read, llama.Llama, llama.with_joined_experts)
    if variant.is_fused:
        return Family(read, llama.Llama, llama.unfused)
    return Family(read, llama.Llama)


_TEXT = "language_model."  # what names of weights begin with beside those of images


def _text_of(family: Family, usual: Mapping[str, Any] | None = None) -> Family:
    """Models that see images as well: `family` is what writes their text, and the rest of their
    files is passed over. usual: fields where ``text_config`` does not say them."""

    def read(fields: Fields) -> Any:
        text, tied = fields.part("text_config"), "tie_word_embeddings"
        values = {**(usual or {}), **text.values}
        if tied in fields.values:  # that of the whole model counts
            values[tied] = fields.values[tied]
        return family.read(Fields(values, text.origin))

    def renamed(weights: _Weights, config: Any) -> dict[str, Weight]:
        of_text = {
            name.removeprefix(_TEXT): weight
            for name, weight in weights.items() if name.startswith(_TEXT)
        }  # fmt: skip
        return family.renamed(of_text, config)

    return Family(read, family.network, renamed)


_GEMMA3 = Family(gemma.read_gemma3, gemma.Gemma)
_LLAMA4 = Family(llama4.read, llama4.Llama4, llama4.renamed)
_GEMMA3_USUAL = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4}
FAMILIES: Mapping[str, Family] = {
    **{kind: _llama(variant) for kind, variant in VARIANTS.items()},
    "gpt2": Family(gpt2.read, gpt2.GPT2, gpt2.with_prefix),
    "gemma": Family(gemma.read_gemma, gemma.Gemma),
    "gemma2": Family(gemma.read_gemma2, gemma.Gemma),
    "gemma3_text": _GEMMA3,
    "gemma3": _text_of(_GEMMA3, _GEMMA3_USUAL),
    "llama4_text": _LLAMA4,
    "llama4": _text_of(_LLAMA4),
    "mistral3": _text_of(_llama(VARIANTS["mistral"])),
    "olmo": Family(olmo.read_olmo, olmo.Olmo),
    "olmo2": Family(olmo.read_olmo2, olmo.Olmo2),
    "phi": Family(phi.read, phi.Phi, llama.unfused),
    "bert": Family(bert.read_bert, bert.Bert, partial(bert.renamed, prefix="bert.")),
    "roberta": Family(bert.read_roberta, bert.Bert, partial(bert.renamed, prefix="roberta.")),
    "modernbert": Family(modernbert.read, modernbert.ModernBert, modernbert.renamed),
    "t5": Family(t5.read, t5.T5, t5.with_last_projection),
    "whisper": Family(whisper.read, whisper.Whisper),
    "clip": Family(clip.read, clip.Clip),
    "vit": Family(vit.read, vit.ViT),
    "resnet": Family(resnet.read, resnet.ResNet),
    "convnext": Family(convnext.read, convnext.ConvNext),
}  # fmt: skip


def family_of(values: Mapping[str, Any], origin: str) -> Family:
    """The family of the model with the configuration `values`. Raises FormatError, which names the
    field, for models that lamina does not know."""
    fields = Fields(values, origin)
    kind = fields.text("model_type")
    if kind not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise fields.fail("model_type", f"{kind!r} is no model that lamina knows: {known}")
    return FAMILIES[kind]


def from_hugging_face(values: Mapping[str, Any], origin: str) -> Any:
    """The configuration of a model: a dataclass of its family. Raises FormatError, which names the
    field, for models that lamina does not know, and for values that are missing or make no sense.
    """
    return family_of(values, origin).read(Fields(values, origin))
