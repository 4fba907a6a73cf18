"""Text to numbers of tokens and back, from a model's own tables.

The work is done by the package `tokenizers` (the extra ``text``): from the file ``tokenizer.json``
of a folder, or from the tables of a GGUF file: of a byte-level BPE, SentencePiece or WordPiece.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lamina.errors import ArgumentError, DTypeError, FormatError
from lamina.text.byte_level import begins_texts, byte_level_bpe
from lamina.text.chat import ChatTemplate
from lamina.text.extra import package
from lamina.text.sentencepiece import scored_bpe, unigram
from lamina.text.tables import CONTROL, UNKNOWN, USER_DEFINED, Tables
from lamina.text.wordpiece import word_pieces

__all__ = ["TextStream", "Tokenizer"]

_MOST_BYTES = 4  # of a character in UTF-8
_MOST_HELD = 2 * _MOST_BYTES  # tokens that wait for the rest of a character
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
        return _from_gguf(Tables(metadata))

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
        with _panics_refused():
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
            with _panics_refused():
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


@contextmanager
def _panics_refused() -> Iterator[None]:
    """Raises FormatError where the code of the package breaks over the tables of a file. What it
    raises then is no `Exception`, and of a class that cannot be imported."""
    try:
        yield
    except BaseException as error:
        if type(error).__module__ != "pyo3_runtime":
            raise
        raise FormatError(f"the tables of this tokenizer do not fit together: {error}") from None


@dataclass
class TextStream:
    """Text as its tokens arrive: `push` returns what is new, without a character that is cut."""

    tokenizer: Tokenizer
    ids: list[int] = field(default_factory=list)
    begin: int = 0  # of the tokens that are decoded: those before it have no more influence
    shown: int = 0  # the tokens whose text was returned

    @classmethod
    def after(cls, tokenizer: Tokenizer, prompt: Sequence[int]) -> TextStream:
        """Of a text that goes on where `prompt` ends: some tokenizers leave out a space at the
        begin of a text, which this is not."""
        for count in range(1, min(len(prompt), _MOST_BYTES) + 1):
            last = list(prompt[-count:])
            if not tokenizer.decode(last).endswith("\ufffd"):  # the rest of a longer character
                return cls(tokenizer, last, shown=count)
        return cls(tokenizer)

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
        new = text[len(before) :]
        if new:  # a text of its own stands before what comes next, which keeps its first space
            self.begin = self.shown
        self.shown = end
        return new


# Tokenizers in GGUF files.


@dataclass(frozen=True)
class _Kind:
    """The tokenizers of one ``tokenizer.ggml.model``. build: the package's object from the tables
    and the tokens. bos, eos, adds_bos, adds_eos: what files mean that do not say it: the tokens
    that begin and end a text, and whether a text gets them. end: how files call the latter."""

    build: Callable[[Tables, Sequence[str]], Any]
    bos: int | None = None
    eos: int | None = None
    adds_bos: Callable[[Tables], bool] = lambda tables: False
    adds_eos: bool = False
    end: str = "eos"


_KINDS = {
    "gpt2": _Kind(byte_level_bpe, adds_bos=begins_texts),
    "llama": _Kind(scored_bpe, bos=1, eos=2, adds_bos=lambda tables: True),
    "t5": _Kind(unigram, eos=1, adds_eos=True),
    # The format has the name of the field with this spelling.
    "bert": _Kind(
        word_pieces, bos=101, eos=102, adds_bos=lambda tables: True, adds_eos=True, end="seperator"
    ),
}


def _from_gguf(tables: Tables) -> Tokenizer:
    name = tables.optional("ggml.model", str)
    if name not in _KINDS:
        raise tables.fail("ggml.model", f"{name!r}; lamina knows {', '.join(_KINDS)}")
    kind, tokens = _KINDS[name], tables.texts("ggml.tokens")
    backend = kind.build(tables, tokens)
    special = _special_tokens(tables, tokens)
    _add_special_tokens(backend, special, strips=_strips(tables))
    bos = tables.token("ggml.bos_token_id", len(tokens), kind.bos)
    eos = tables.token(f"ggml.{kind.end}_token_id", len(tokens), kind.eos)
    ends = [eos, *(tables.token(f"ggml.{end}_token_id", len(tokens)) for end in ("eot", "eom"))]
    stops = {end for end in ends if end is not None}
    stops |= {backend.token_to_id(text) for text in special if text in _ENDS_OF_TURN}
    adds_bos = tables.optional("ggml.add_bos_token", bool, kind.adds_bos(tables))
    adds_eos = tables.optional("ggml.add_eos_token", bool, kind.adds_eos)
    _frame(backend, bos if adds_bos else None, eos if adds_eos else None)
    template = tables.optional("chat_template", str)
    return Tokenizer(
        backend,
        bos,
        adds_bos,
        frozenset(stops),
        template and ChatTemplate(template, _text(tokens, bos), _text(tokens, eos)),
    )


def _text(tokens: Sequence[str], number: int | None) -> str:
    return "" if number is None else tokens[number]


def _special_tokens(tables: Tables, tokens: Sequence[str]) -> dict[str, bool]:
    """The tokens that are looked for in a text before it is split, and whether decoding leaves them
    out."""
    hidden = CONTROL, UNKNOWN
    return {
        token: kind in hidden
        for token, kind in zip(tokens, tables.types(len(tokens)).tolist(), strict=True)
        if kind in (*hidden, USER_DEFINED)
    }


# Tokens of Phi 3 that leave a line break after them in the text.
_KEEP_SPACES = ("<unk>", "<s>", "<|endoftext|>")


def _strips(tables: Tables) -> bool:
    """Whether special tokens take the spaces and line breaks after them, as those of Phi 3 do where
    their tokenizer is of SentencePiece. Files do not say it."""
    kind = tables.metadata.get("general.architecture")
    return kind == "phi3" and tables.optional("ggml.model", str) == "llama"


def _add_special_tokens(backend: Any, special: Mapping[str, bool], strips: bool) -> None:
    make = package("tokenizers").AddedToken
    for is_hidden, add in ((True, backend.add_special_tokens), (False, backend.add_tokens)):
        texts = [text for text, hidden in special.items() if hidden is is_hidden]
        add([
            make(
                text, normalized=False, special=is_hidden,
                rstrip=strips and is_hidden and text not in _KEEP_SPACES,
            )
            for text in texts
        ])  # fmt: skip


def _frame(backend: Any, first: int | None, last: int | None) -> None:
    """Has whole texts begin and end with the tokens of these numbers."""
    before = [] if first is None else [backend.id_to_token(first)]
    after = [] if last is None else [backend.id_to_token(last)]
    if before or after:
        backend.post_processor = package("tokenizers").processors.TemplateProcessing(
            single=[*before, "$A", *after],
            special_tokens=[(text, backend.token_to_id(text)) for text in (*before, *after)],
        )


# Tokenizers in folders.


def _from_folder(folder: Path) -> Tokenizer:
    parse = package("tokenizers").Tokenizer.from_str
    text = _read_text(folder / "tokenizer.json")
    with _panics_refused():
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


def _read_text(path: Path) -> str:
    """What is in a file. Raises FormatError for bytes that are no text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8: {error.reason} at byte {error.start}") from None


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
    if not isinstance(value, str) or not _is_text(value):
        raise FormatError(f"tokenizer_config.json: {name}: {value!r} is no text")
    return value


def _is_text(value: str) -> bool:
    """Whether UTF-8 can say it. JSON can also have half of a pair of surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
        return _read_text(path)
    value = settings.get("chat_template")
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    if value is not None and not isinstance(value, str):
        raise FormatError(f"{folder}: tokenizer_config.json: chat_template is no text")
    return value
