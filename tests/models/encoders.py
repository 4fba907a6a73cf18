"""Small encoders of text with random weights, as transformers makes and saves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 48,
}  # fmt: skip
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {"pad_token_id": 3, "type_vocab_size": 1}),
    "modernbert": (
        "ModernBert", {"num_hidden_layers": 4, "local_attention": 8, "pad_token_id": 0}
    ),
    "modernbert with kinds": (
        "ModernBert",
        {"layer_types": ["sliding_attention", "full_attention"], "local_attention": 4,
         "pad_token_id": 0, "rope_parameters": {
             "full_attention": {"rope_type": "default", "rope_theta": 50.0},
             "sliding_attention": {"rope_type": "default", "rope_theta": 9.0}}},
    ),
}  # fmt: skip
_LENGTHS = (24, 1, 17)  # of texts; what is behind them is padding


def texts(padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and a mask: three texts, padded to one length."""
    mask = np.arange(max(_LENGTHS)) < np.array(_LENGTHS)[:, None]
    ids = np.random.default_rng(0).integers(4, SIZES["vocab_size"], mask.shape)
    return np.where(mask, ids, padding), mask


def reference(name: str, head: str = "Model") -> Any:
    """The model of transformers, float32. Normalizations and biases are drawn as well."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind, changes = ENCODERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**SIZES | changes)
    model = getattr(transformers, f"{kind}{head}")(config).eval()
    for weight in model.parameters():
        with torch.no_grad():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim == 1 else 0.15))
    return model


WORDS = ("the", "cat", "sat", "on", "mat", "dog", "run", "##s", "##ning", "##y", "a", "b", "c", ".")
_MODULES = ("Transformer", "Pooling", "Normalize")


def sentence_folder(folder: Path, pooling: str = "mean", modules: int = 3) -> Any:
    """A small BERT with its tokenizer in `folder`, as sentence-transformers has them, with the
    first of three modules. The model of transformers."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    model = reference("bert")
    model.save_pretrained(folder)
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
    vocabulary = {word: number for number, word in enumerate((*special, *WORDS))}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", model_max_length=40
    ).save_pretrained(folder)
    # As the hub's file of MiniLM: whoever made it cut and padded texts.
    backend.enable_truncation(5)
    backend.enable_padding(length=7)
    backend.save(str(folder / "tokenizer.json"))
    places = ("", "1_Pooling", "2_Normalize")
    kinds = [f"sentence_transformers.models.{kind}" for kind in _MODULES]
    written = [
        {"idx": number, "name": str(number), "path": place, "type": kind}
        for number, (place, kind) in enumerate(zip(places, kinds, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(written[:modules]))
    (folder / "1_Pooling").mkdir()
    modes = {"cls_token": pooling == "cls", "mean_tokens": pooling == "mean"}
    values = {f"pooling_mode_{name}": value for name, value in modes.items()}
    values["word_embedding_dimension"] = SIZES["hidden_size"]
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(values))
    lengths = {"max_seq_length": 40, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(lengths))
    return model


BERT_NAMES = {
    "embeddings.word_embeddings": "token_embd", "embeddings.LayerNorm": "token_embd_norm",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k",
    "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
}  # fmt: skip


def sentence_file(path: Path, model: Any, pooling: int, are_old: bool) -> None:
    """The BERT of `sentence_folder` as a GGUF file, by llama.cpp's conventions. are_old: without
    types of tokens."""
    gguf = pytest.importorskip("gguf")
    config, writer = model.config, gguf.GGUFWriter(path, "bert")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_layer_norm_eps(config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType(pooling))
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    marked = [word[2:] if word.startswith("##") else f"\u2581{word}" for word in WORDS]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(special + marked)
    if not are_old:
        writer.add_token_types([3] * len(special) + [1] * len(marked))
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    for name, weight in model.named_parameters():
        stem, _, kind = name.rpartition(".")
        if stem.startswith("pooler"):
            continue
        if stem.startswith("encoder.layer."):
            layer, _, part = stem.removeprefix("encoder.layer.").partition(".")
            known = f"blk.{layer}.{BERT_NAMES[part]}"
        else:
            known = BERT_NAMES[stem]
        writer.add_tensor(f"{known}.{kind}", weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def sentence_vectors(
    model: Any, tokens: list[list[int]], pooling: str = "mean", normalizes: bool = True
) -> np.ndarray:
    """Of each text alone, by PyTorch."""
    import torch

    rows = []
    for ids in tokens:
        with torch.no_grad():
            hidden = model(torch.tensor([ids])).last_hidden_state[0]
        row = hidden[0] if pooling == "cls" else hidden.mean(0)
        rows.append(torch.nn.functional.normalize(row, dim=0) if normalizes else row)
    return torch.stack(rows).numpy()
