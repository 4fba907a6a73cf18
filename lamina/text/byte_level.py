"""Byte-level BPE from the tables of a GGUF file: bytes are merged pair by pair, in the order in
which the merges were learned. The name of a rule says how a text is split before that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lamina.errors import FormatError
from lamina.text.extra import package
from lamina.text.tables import Tables

__all__ = ["byte_level_bpe"]


def byte_level_bpe(tables: Tables, tokens: Sequence[str]) -> Any:
    """The package's object, without special tokens. Raises FormatError, which names the field, for
    tables that do not fit together and for a rule that lamina does not know."""
    merges, splitting = tables.texts("ggml.merges"), _pre_tokenizer(tables)
    takes_whole = tables.optional("ggml.pre", str) in _WHOLE_PARTS
    return _backend(tokens, merges, splitting, takes_whole)


def _backend(
    tokens: Sequence[str], merges: Iterable[str], splitting: Any, takes_whole: bool
) -> Any:
    """takes_whole: a part of a text that is a token is that one, even where no merges make it."""
    tokenizers = package("tokenizers")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise FormatError("tokenizer.ggml.tokens: a token is given twice")
    parts = [merge.partition(" ") for merge in merges]
    pairs = [(first, second) for first, _, second in parts]
    try:
        model = tokenizers.models.BPE(vocabulary, pairs, fuse_unk=False, ignore_merges=takes_whole)
    except Exception as error:  # the package has no type of its own
        _check_merges(parts, vocabulary)
        raise FormatError(f"tokenizer.ggml.merges: {error}") from None
    if not all(space for _, space, _ in parts):
        _check_merges(parts, vocabulary)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = splitting
    backend.decoder = tokenizers.decoders.ByteLevel()
    return backend


def _check_merges(parts: Iterable[tuple[str, str, str]], vocabulary: Mapping[str, int]) -> None:
    """Raises FormatError for the first merge, in the parts around its space, that joins no tokens
    to a token. Of 50,000 it is looked for where something is known to be wrong."""
    for number, (first, space, second) in enumerate(parts):
        if not space or not {first, second, first + second} <= vocabulary.keys():
            merge = "".join((first, space, second))
            raise FormatError(f"tokenizer.ggml.merges: merge {number}, {merge!r}, joins no tokens")


# How text is split before bytes are merged, by the name in a GGUF file; each part is merged alone.
# The patterns are part of what the models were trained with. A digit is any numeric character.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_PATTERNS = {
    "llama-bpe": _WORDS % r"\p{N}{1,3}",
    "qwen2": _WORDS % r"\p{N}",
}  # fmt: skip
_WHOLE_PARTS = ("llama-bpe",)  # tokens that no merges make are used as well
_SINGLE_DIGITS = ("smollm",)  # then as GPT-2
_PLAIN = ("gpt-2", "gpt2")


def _pre_tokenizer(tables: Tables) -> Any:
    tokenizers = package("tokenizers")
    rules = tokenizers.pre_tokenizers
    name = tables.optional("ggml.pre", str)
    if name in _PATTERNS:
        split = rules.Split(tokenizers.Regex(_PATTERNS[name]), "isolated")
        last = rules.ByteLevel(add_prefix_space=False, use_regex=False)
        return rules.Sequence([split, last])
    as_gpt2 = rules.ByteLevel(add_prefix_space=False)
    if name in _SINGLE_DIGITS:
        digits = rules.Digits(individual_digits=True)
        return rules.Sequence([digits, as_gpt2])
    if name in _PLAIN:
        return as_gpt2
    known = ", ".join([*_PLAIN, *_SINGLE_DIGITS, *_PATTERNS])
    raise FormatError(f"tokenizer.ggml.pre: {name!r} is no rule that lamina knows: {known}")
