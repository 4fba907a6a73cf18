"""WordPiece from the tables of a GGUF file: the longest token at the begin of what is left of a
word is taken. Files mark tokens that begin a word by the character U+2581, and leave out the mark
"##" of those that go on.

Source: Schuster and Nakajima 2012, "Japanese and Korean voice search".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lamina.text.extra import package
from lamina.text.tables import NORMAL, Tables

__all__ = ["word_pieces"]

_BEGIN = "\u2581"
_MOST = 100  # characters of a word; a longer one is unknown


def word_pieces(tables: Tables, tokens: Sequence[str]) -> Any:
    """The package's object, without special tokens. Texts are read in small letters without
    accents. Raises FormatError, which names the field, for tables that do not fit together."""
    tokenizers = package("tokenizers")
    types = tables.types(len(tokens)).tolist()
    texts = [
        token if kind != NORMAL else _with_mark(token)
        for token, kind in zip(tokens, types, strict=True)
    ]
    vocabulary = {text: number for number, text in enumerate(texts)}
    if len(vocabulary) != len(tokens):
        raise tables.fail("ggml.tokens", "a token is given twice")
    unknown = tables.token("ggml.unknown_token_id", len(tokens), 100)
    assert unknown is not None
    model = tokenizers.models.WordPiece(
        vocabulary, unk_token=texts[unknown], max_input_chars_per_word=_MOST
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.decoder = tokenizers.decoders.WordPiece("##")
    return backend


def _with_mark(token: str) -> str:
    """As the package has it. Old files have special tokens, such as [CLS], of the normal type."""
    if token.startswith(_BEGIN):
        return token[len(_BEGIN) :]
    is_special = token.startswith("[") and token.endswith("]")
    return token if is_special else f"##{token}"
