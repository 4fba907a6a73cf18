"""Tokenizers of SentencePiece from the tables of a GGUF file, which has no merges: each token has a
score. A space is written as the character U+2581, and stands in front of a text as well.

Sources: Kudo and Richardson 2018, "SentencePiece"; of the unigram model Kudo 2018, "Subword
regularization".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lamina.errors import FormatError
from lamina.text.extra import package
from lamina.text.tables import NORMAL, USER_DEFINED, Tables

__all__ = ["scored_bpe", "unigram"]

_SPACE = "\u2581"
_WORSE = 1000.0  # than the worst normal token; scores are logarithms of probabilities
# Most tokens of users are found in a text before it is split. Runs of spaces are not, as files
# write them as U+2581.
_MERGED = (NORMAL, USER_DEFINED)
_MAX_PIECE = 256  # characters of a token that is made of others: each place is looked at


def scored_bpe(tables: Tables, tokens: Sequence[str]) -> Any:
    """The package's object, without special tokens, that merges those two neighbours next whose
    token has the highest score; a character that is no token becomes its bytes. Raises FormatError,
    which names the field, for tables that do not fit together."""
    tokenizers, vocabulary = package("tokenizers"), _numbered(tokens)
    unknown = tables.token("ggml.unknown_token_id", len(tokens), 0)
    assert unknown is not None
    model = tokenizers.models.BPE(
        vocabulary, _merges(tables, tokens), unk_token=tokens[unknown], fuse_unk=True,
        byte_fallback=True,
    )  # fmt: skip
    backend = tokenizers.Tokenizer(model)
    _add_spaces(backend, tables, [])
    return backend


def unigram(tables: Tables, tokens: Sequence[str]) -> Any:
    """The package's object, without special tokens, that cuts a text into the tokens of which the
    sum of scores is the highest. Raises FormatError, which names the field, for tables that do not
    fit together."""
    tokenizers = package("tokenizers")
    _numbered(tokens)
    unknown = tables.token("ggml.unknown_token_id", len(tokens), 2)
    scores, is_normal = tables.scores(len(tokens)), tables.types(len(tokens)) == NORMAL
    if not is_normal.any():
        raise tables.fail("ggml.token_type", "none of the tokens is a normal one")
    # The name of a byte in a text, "<0x0A>", is no byte: a token that is not normal is the worst.
    scores = np.where(is_normal, scores, scores[is_normal].min() - _WORSE)
    pairs = list(zip(tokens, scores.tolist(), strict=True))
    has_bytes = "<0x00>" in tokens
    backend = tokenizers.Tokenizer(tokenizers.models.Unigram(pairs, unknown, has_bytes))
    _add_spaces(backend, tables, _normalizers(tables))
    return backend


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise FormatError("tokenizer.ggml.tokens: a token is given twice")
    return vocabulary


def _merges(tables: Tables, tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of tokens that make a token, those of the highest score first. Of the pairs that make
    one token, the longest left part comes first, as in a text the left pair does."""
    types = tables.types(len(tokens))
    scores: Mapping[str, float] = {
        token: score
        for token, score, kind in zip(
            tokens, tables.scores(len(tokens)).tolist(), types, strict=True
        ) if kind in _MERGED
    }  # fmt: skip
    merges = list[tuple[str, str]]()
    for token in sorted(scores, key=lambda token: -scores[token]):
        if len(token) > _MAX_PIECE:
            shown = f"{token[:20]!r}... has {len(token)} characters"
            raise tables.fail("ggml.tokens", f"{shown}; at most {_MAX_PIECE} are supported")
        for place in range(len(token) - 1, 0, -1):
            left, right = token[:place], token[place:]
            if left in scores and right in scores:
                merges.append((left, right))
    return merges


def _normalizers(tables: Tables) -> list[Any]:
    """What the package does with a text before spaces are written: replaces characters by the table
    of the file, and leaves out spaces at the ends and beside others."""
    tokenizers = package("tokenizers")
    rules, steps = tokenizers.normalizers, list[Any]()
    table = tables.optional("ggml.precompiled_charsmap", np.ndarray)
    if table is not None and table.size:
        try:
            steps.append(rules.Precompiled(table.astype(np.uint8).tobytes()))
        except Exception as error:  # the package has no type of its own
            raise tables.fail("ggml.precompiled_charsmap", str(error)) from None
    if tables.optional("ggml.remove_extra_whitespaces", bool, False):
        steps.append(rules.Replace(tokenizers.Regex(r"\A +| +\z"), ""))
        steps.append(rules.Replace(tokenizers.Regex(" {2,}"), " "))
    return steps


def _add_spaces(backend: Any, tables: Tables, steps: list[Any]) -> None:
    """Has `backend` write spaces as tokens do, after `steps`, and read them back."""
    tokenizers = package("tokenizers")
    rules, decoders = tokenizers.normalizers, tokenizers.decoders
    has_prefix = tables.optional("ggml.add_space_prefix", bool, True)
    prefix = [rules.Prepend(_SPACE)] if has_prefix else []
    backend.normalizer = rules.Sequence([*steps, *prefix, rules.Replace(" ", _SPACE)])
    strip = [decoders.Strip(" ", 1, 0)] if has_prefix else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
