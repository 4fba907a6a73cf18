"""Byte-level BPE from the tables of a GGUF file: bytes are merged pair by pair, in the order in
which the merges were learned. The name of a rule says how a text is split before that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lamina.errors import FormatError
from lamina.text.extra import package
from lamina.text.tables import Tables

__all__ = ["begins_texts", "byte_level_bpe"]


def byte_level_bpe(tables: Tables, tokens: Sequence[str]) -> Any:
    """The package's object, without special tokens. Raises FormatError, which names the field, for
    tables that do not fit together and for a rule that lamina does not know."""
    rule, merges = _rule(tables), tables.texts("ggml.merges")
    return _backend(tokens, merges, rule)


def begins_texts(tables: Tables) -> bool:
    """Whether a text gets the token that begins one, where a file does not say it."""
    return _rule(tables).adds_bos


def _backend(tokens: Sequence[str], merges: Iterable[str], rule: _Rule) -> Any:
    tokenizers = package("tokenizers")
    vocabulary = {token: number for number, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise FormatError("tokenizer.ggml.tokens: a token is given twice")
    parts = [merge.partition(" ") for merge in merges]
    pairs = [(first, second) for first, _, second in parts]
    try:
        model = tokenizers.models.BPE(
            vocabulary, pairs, fuse_unk=False, ignore_merges=rule.takes_whole
        )
    except Exception as error:  # the package has no type of its own
        _check_merges(parts, vocabulary)
        raise FormatError(f"tokenizer.ggml.merges: {error}") from None
    if not all(space for _, space, _ in parts):
        _check_merges(parts, vocabulary)
    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = _pre_tokenizer(rule)
    backend.decoder = tokenizers.decoders.ByteLevel()
    return backend


def _check_merges(parts: Iterable[tuple[str, str, str]], vocabulary: Mapping[str, int]) -> None:
    """Raises FormatError for the first merge, in the parts around its space, that joins no tokens
    to a token. Of 50,000 it is looked for where something is known to be wrong."""
    for number, (first, space, second) in enumerate(parts):
        if not space or not {first, second, first + second} <= vocabulary.keys():
            merge = "".join((first, space, second))
            raise FormatError(f"tokenizer.ggml.merges: merge {number}, {merge!r}, joins no tokens")


@dataclass(frozen=True)
class _Rule:
    """How a text is split before bytes are merged; each part is merged alone.

    pattern: of the parts; None for those of GPT-2. has_single_digits: each numeric character is
    split off first. takes_whole: a part that is a token is that one, even where no merges make it.
    adds_bos: texts begin with a token of their own where a file does not say otherwise."""

    pattern: str | None = None
    has_single_digits: bool = False
    takes_whole: bool = False
    adds_bos: bool = False


# The patterns are part of what the models were trained with. A digit is any numeric character.
_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = (
    _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED_WORDS = (  # a part goes on from capitals to small letters, and never back
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|%s"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2, _DIGITS = _Rule(), _Rule(has_single_digits=True)
_GPT4 = _Rule(_WORDS % r"\p{N}{1,3}")
_GPT4O = _Rule(_CASED_WORDS % (f"{_SUFFIXES}?", f"{_SUFFIXES}?", r"\p{N}{1,3}"))
_LLAMA3 = replace(_GPT4, takes_whole=True, adds_bos=True)
_QWEN2 = _Rule(_WORDS % r"\p{N}")
_TEKKEN = _Rule(_CASED_WORDS % ("", "", r"\p{N}"), takes_whole=True, adds_bos=True)
_RULES = {  # by the name in a GGUF file
    "gpt-2": _GPT2, "gpt2": _GPT2, "phi-2": _GPT2, "olmo": _GPT2,
    "smollm": _DIGITS, "starcoder": _DIGITS, "refact": _DIGITS, "minerva-7b": _DIGITS,
    "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3, "falcon3": _LLAMA3,
    "dbrx": _GPT4, "smaug-bpe": _GPT4,
    "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2, "megrez": _QWEN2, "stablelm2": _QWEN2,
    "tekken": _TEKKEN, "gpt-4o": _GPT4O, "llama4": _GPT4O,
}  # fmt: skip


def _rule(tables: Tables) -> _Rule:
    name = tables.optional("ggml.pre", str)
    if name not in _RULES:
        reason = f"{name!r} is no rule that lamina knows: {', '.join(_RULES)}"
        raise tables.fail("ggml.pre", reason)
    return _RULES[name]


def _pre_tokenizer(rule: _Rule) -> Any:
    tokenizers = package("tokenizers")
    rules = tokenizers.pre_tokenizers
    if rule.pattern is not None:
        split = rules.Split(tokenizers.Regex(rule.pattern), "isolated")
        last = rules.ByteLevel(add_prefix_space=False, use_regex=False)
        return rules.Sequence([split, last])
    as_gpt2 = rules.ByteLevel(add_prefix_space=False)
    if rule.has_single_digits:
        digits = rules.Digits(individual_digits=True)
        return rules.Sequence([digits, as_gpt2])
    return as_gpt2
