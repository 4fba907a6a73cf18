"""Text to numbers of tokens and back, from a model's own tables.

The work is done by the package `tokenizers` (the extra ``text``): from the file ``tokenizer.json``
of a folder, or from the tables of a GGUF file, which hold a byte-level BPE: tokens, merges, types,
and the name of the rule by which text is split before it is merged.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamina.errors import ArgumentError, DTypeError, FormatError
from lamina.text.chat import ChatTemplate
from lamina.text.extra import package

__all__ = ["TextStream", "Tokenizer"]

_MOST_BYTES = 4  # of a character in UTF-8
_MOST_HELD = 2 * _MOST_BYTES  # tokens that wait for the rest of a character
# Types of tokens in GGUF: special ones are written by the model and by templates.
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
# Tokens that end an answer beside the one that ends a text, as the families of models name them.
_ENDS_OF_TURN = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>",
    "<|end_of_text|>", "</s>",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """`encode` and `decode` of one model.

    bos: the token that begins a text, where the model was trained with one. stops: the tokens that
    end a text or an answer. template: how its conversations are written, if it says so."""

    backend: Any  # of the package `tokenizers`
    bos: int | None = None
    adds_bos: bool = False
    stops: frozenset[int] = frozenset()
    template: ChatTemplate | None = None

    @classmethod
    def from_gguf(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """The tokenizer in the metadata of a GGUF file. Raises FormatError for tables that are
        missing or do not fit together, and for kinds of tokenizers that lamina does not know."""
        return _from_gguf(_Tables(metadata))

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> Tokenizer:
        """The tokenizer of a folder with ``tokenizer.json``, and ``tokenizer_config.json`` and
        ``chat_template.jinja`` where they are there. Raises FormatError for files that are no
        such ones, and OSError where the first is missing."""
        return _from_folder(Path(folder))

    def encode(self, text: str, with_bos: bool | None = None) -> list[int]:
        """The tokens of `text`. with_bos: begin with the token `bos`; by default as the model was
        trained. Templates write theirs. Raises DTypeError for what is no text, and ArgumentError
        for a text with half of a pair of surrogates, which UTF-8 cannot say."""
        ids: list[int] = self._encoding(text).ids
        is_first = self.adds_bos if with_bos is None else with_bos
        return [self.bos, *ids] if is_first and self.bos is not None else ids

    def _encoding(self, text: str) -> Any:
        """The package's object for the tokens of a text, without special ones around them."""
        if not isinstance(text, str):
            raise DTypeError(f"{type(text).__name__}; a str is needed", operation="encode")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ArgumentError(
                f"{text[error.start]!r} at place {error.start} is no character of Unicode; "
                "decode the bytes as UTF-8 first",
                operation="encode",
            ) from None
        # A batch of one: unlike `encode` of the package it lets other threads run meanwhile.
        (encoding,) = self.backend.encode_batch([text], add_special_tokens=False)
        return encoding

    def encode_whole(self, text: str, limit: int | None = None) -> list[int]:
        """The tokens of `text` as an encoder of whole texts reads them, with the special ones that
        the file puts around them, such as [CLS] and [SEP]: all, or at most `limit`, which leaves
        out the end of a longer text. Raises as `encode`, and ArgumentError where the special tokens
        alone are more."""
        encoding = self._encoding(text)
        if limit is not None:
            room = limit - self.backend.num_special_tokens_to_add(False)
            if room < 0:
                raise ArgumentError(
                    f"{limit} tokens have no room for the special ones", operation="encode"
                )
            encoding.truncate(room)
        ids: list[int] = self.backend.post_process(encoding).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens; special ones are left out, as are numbers of no token. Raises
        ArgumentError for numbers that are negative or need more than 32 bits."""
        try:
            text: str = self.backend.decode(list(ids), skip_special_tokens=True)
        except OverflowError:
            raise ArgumentError(
                "a number of a token is from 0 to 2 ** 32 - 1", operation="decode"
            ) from None
        return text

    def chat(self, messages: Iterable[Mapping[str, str]]) -> list[int]:
        """The tokens of a conversation up to where the model's answer begins. Messages have a
        role, such as "user", and a content. Raises FormatError for a model without a template."""
        if self.template is None:
            raise FormatError("chat: this model has no chat template; give it plain text")
        return self.encode(self.template.render(messages), with_bos=False)


@dataclass
class TextStream:
    """Text as its tokens arrive: `push` returns what is new, without a character that is cut."""

    tokenizer: Tokenizer
    ids: list[int] = field(default_factory=list)
    begin: int = 0  # of the tokens that are decoded: those before it have no more influence
    shown: int = 0  # the tokens whose text was returned

    def push(self, token: int) -> str:
        """The text that `token` completes; empty in the middle of a character."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids[self.begin :])
        if not text.endswith("\ufffd"):
            return self._new(text, len(self.ids))
        # The rest of a character is still to come, or the bytes are none of a text.
        is_cut = len(self.ids) - self.shown <= _MOST_HELD
        return "" if is_cut else self._certain(text)

    def close(self) -> str:
        """What is left: the replacement of a character that was never completed."""
        return self._new(self.tokenizer.decode(self.ids[self.begin :]), len(self.ids))

    def _certain(self, text: str) -> str:
        """Of bytes that are none of a text: what is before the last token that begins at a place
        between characters. A character has four bytes at most, so that this is near the end."""
        for end in range(len(self.ids) - 1, len(self.ids) - _MOST_BYTES, -1):
            head = self.tokenizer.decode(self.ids[self.begin : end])
            tail = self.tokenizer.decode(self.ids[end:])
            if tail and head + tail == text:
                return self._new(head, end)
        return ""

    def _new(self, text: str, end: int) -> str:
        """What is new in `text`, that of the tokens from `begin` to `end`."""
        before = self.tokenizer.decode(self.ids[self.begin : self.shown])
        self.begin, self.shown = self.shown, end
        return text[len(before) :]


@dataclass(frozen=True)
class _Tables:
    """The metadata of a GGUF file below ``tokenizer.``."""

    metadata: Mapping[str, Any]

    def optional(self, name: str, kind: type, fallback: Any = None) -> Any:
        """The value ``tokenizer.NAME``; raises FormatError if it is no `kind`."""
        value = self.metadata.get(f"tokenizer.{name}")
        if value is None:
            return fallback
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise FormatError(f"tokenizer.{name}: {type(value).__name__}, not {kind.__name__}")
        return value

    def texts(self, name: str) -> list[str]:
        value = self.optional(name, list)
        if value is None:
            raise FormatError(f"tokenizer.{name}: missing")
        if not all(isinstance(one, str) for one in value):
            raise FormatError(f"tokenizer.{name}: its elements are no texts")
        return list(value)

    def token(self, name: str, count: int) -> int | None:
        value: int | None = self.optional(name, int)
        if value is not None and not 0 <= value < count:
            raise FormatError(f"tokenizer.{name}: token {value} of {count}")
        return value


def _from_gguf(tables: _Tables) -> Tokenizer:
    model = tables.optional("ggml.model", str)
    if model != "gpt2":
        raise FormatError(f"tokenizer.ggml.model: {model!r}; lamina knows 'gpt2', byte-level BPE")
    tokens = tables.texts("ggml.tokens")
    takes_whole = tables.optional("ggml.pre", str) in _WHOLE_PARTS
    merges, splitting = tables.texts("ggml.merges"), _pre_tokenizer(tables)
    backend = _byte_level_bpe(tokens, merges, splitting, takes_whole)
    special = _special_tokens(tables, tokens)
    _add_special_tokens(backend, special)
    bos = tables.token("ggml.bos_token_id", len(tokens))
    ends = [tables.token(f"ggml.{name}_token_id", len(tokens)) for name in ("eos", "eot", "eom")]
    stops = {one for one in ends if one is not None}
    stops |= {backend.token_to_id(one) for one in special if one in _ENDS_OF_TURN}
    template = tables.optional("chat_template", str)
    return Tokenizer(
        backend,
        bos,
        tables.optional("ggml.add_bos_token", bool, False),
        frozenset(stops),
        template and ChatTemplate(template, _text(tokens, bos), _text(tokens, ends[0])),
    )


def _text(tokens: Sequence[str], number: int | None) -> str:
    return "" if number is None else tokens[number]


def _special_tokens(tables: _Tables, tokens: Sequence[str]) -> dict[str, bool]:
    """The tokens that are found in a text before it is split, and whether decoding leaves them
    out."""
    import numpy as np

    normal = np.full(len(tokens), _NORMAL)
    types = tables.metadata.get("tokenizer.ggml.token_type", normal)
    if not isinstance(types, np.ndarray) or types.shape != normal.shape:
        raise FormatError(f"tokenizer.ggml.token_type: not a type for each of {len(tokens)} tokens")
    return {
        token: bool(kind == _CONTROL)
        for token, kind in zip(tokens, types, strict=True) if kind in (_CONTROL, _USER_DEFINED)
    }  # fmt: skip


def _byte_level_bpe(
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


def _add_special_tokens(backend: Any, special: Mapping[str, bool]) -> None:
    make = package("tokenizers").AddedToken
    for is_hidden, add in ((True, backend.add_special_tokens), (False, backend.add_tokens)):
        texts = [text for text, hidden in special.items() if hidden is is_hidden]
        add([make(text, normalized=False, special=is_hidden) for text in texts])


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


def _pre_tokenizer(tables: _Tables) -> Any:
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


def _from_folder(folder: Path) -> Tokenizer:
    parse = package("tokenizers").Tokenizer.from_str
    text = (folder / "tokenizer.json").read_text(encoding="utf-8")
    try:
        backend = parse(text)
    except Exception as error:  # the package has no type of its own
        raise FormatError(f"{folder / 'tokenizer.json'}: {error}") from None
    # Some files cut texts or pad them as their last user did; how long a text is, is not theirs.
    backend.no_truncation()
    backend.no_padding()
    settings = _json(folder / "tokenizer_config.json")
    bos, eos = (_named(settings, name) for name in ("bos_token", "eos_token"))
    ends = [eos, *_ENDS_OF_TURN]
    stops = {number for one in ends if (number := backend.token_to_id(one)) is not None}
    adds_bos = settings.get("add_bos_token", _writes_first(backend, bos))
    template = _template(folder, settings)
    return Tokenizer(
        backend,
        backend.token_to_id(bos),
        adds_bos is True,
        frozenset(stops | _generation_stops(folder)),
        ChatTemplate(template, bos, eos) if template else None,
    )


def _json(path: Path) -> dict[str, Any]:
    """The object in a file; empty without one."""
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise FormatError(f"{path}: a {type(value).__name__}, not an object")
    return value


def _named(settings: Mapping[str, Any], name: str) -> str:
    """The text of a special token, which is a text or an object with one; empty without it."""
    value = settings.get(name) or ""
    value = value.get("content", "") if isinstance(value, dict) else value
    if not isinstance(value, str):
        raise FormatError(f"tokenizer_config.json: {name}: {value!r} is no text")
    return value


def _writes_first(backend: Any, bos: str) -> bool:
    """Whether the file's own post-processing begins a text with the token `bos`."""
    ids = backend.encode("", add_special_tokens=True).ids
    return bool(bos) and ids[:1] == [backend.token_to_id(bos)]


def _generation_stops(folder: Path) -> frozenset[int]:
    """The tokens that end a text by ``generation_config.json``."""
    value = _json(folder / "generation_config.json").get("eos_token_id", [])
    numbers = value if isinstance(value, list) else [value]
    return frozenset(one for one in numbers if isinstance(one, int))


def _template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The text of the chat template: of its own file, or of the settings, where several have
    names."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return path.read_text(encoding="utf-8")
    value = settings.get("chat_template")
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{folder}: tokenizer_config.json: chat_template is no text")
    return value
