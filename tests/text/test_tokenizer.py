"""Tokenizers: against a plain byte-level BPE, against transformers, and from wrong tables."""

from __future__ import annotations

import json
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lamina.errors import ArgumentError, DTypeError, FormatError
from lamina.text.tokenizer import TextStream, Tokenizer
from tests.text.tables import PROSE, SPECIAL, TEMPLATE, learned, tables

regex = pytest.importorskip("regex")
pytest.importorskip("tokenizers")

# The rules as llama.cpp has them: each pattern splits what the ones before it left.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
CASELESS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
MODERN = (
    CASELESS
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SUFFIXES = CASELESS + "?"
CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}*{SMALL}+SUFFIXES"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}+{SMALL}*SUFFIXES"
    r"|NUMBER| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
RULES = {
    "gpt-2": [GPT2],
    "dbrx": [MODERN.replace("NUMBER", r"\p{N}{1,3}")],
    "tekken": [CASED.replace("SUFFIXES", "").replace("NUMBER", r"\p{N}")],
    "gpt-4o": [CASED.replace("SUFFIXES", SUFFIXES).replace("NUMBER", r"\p{N}{1,3}")],
    "smollm": [r"\p{N}", GPT2],
    "llama-bpe": [MODERN.replace("NUMBER", r"\p{N}{1,3}")],
    "qwen2": [MODERN.replace("NUMBER", r"\p{N}")],
}


def pieces(text: str, patterns: list[str]) -> list[str]:
    """The parts of a text: what a pattern finds, and what lies between."""
    parts = [text]
    for pattern in patterns:
        split = [regex.split(f"({pattern})", part) for part in parts]
        parts = [piece for found in split for piece in found if piece]
    return parts


def letters() -> list[str]:
    """The character that stands for each byte: its own if it can be seen, else one from 256 on."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return [chr(byte if byte in seen else 256 + unseen.index(byte)) for byte in range(256)]


class PlainBPE:
    """Merges the pair that was learned first, until there is none."""

    def __init__(self, metadata: dict[str, Any]) -> None:
        self.numbers = {one: at for at, one in enumerate(metadata["tokenizer.ggml.tokens"])}
        merges = [tuple(one.split(" ")) for one in metadata["tokenizer.ggml.merges"]]
        self.ranks = {pair: at for at, pair in enumerate(merges)}
        self.patterns = RULES[metadata["tokenizer.ggml.pre"]]
        self.letters = letters()

    def encode(self, text: str) -> list[int]:
        special = "|".join(map(regex.escape, SPECIAL))
        ids = list[int]()
        for part in regex.split(f"({special})", text):
            if part in SPECIAL:
                ids.append(self.numbers[part])
            else:
                ids += [one for piece in pieces(part, self.patterns) for one in self.merged(piece)]
        return ids

    def merged(self, piece: str) -> list[int]:
        parts = [self.letters[byte] for byte in piece.encode()]
        while True:
            ranks = [self.ranks.get(pair, 1 << 30) for pair in pairwise(parts)]
            if not ranks or min(ranks) == 1 << 30:
                return [self.numbers[part] for part in parts]
            at = ranks.index(min(ranks))
            parts[at : at + 2] = ["".join(parts[at : at + 2])]


TABLES = tables("smollm")
STREAMED = Tokenizer.from_gguf(TABLES)


@pytest.fixture(scope="module", params=RULES)
def both(request: pytest.FixtureRequest) -> tuple[Tokenizer, PlainBPE]:
    metadata = tables(request.param)
    return Tokenizer.from_gguf(metadata), PlainBPE(metadata)


WORDS = st.sampled_from(
    ["the ", "it's", "WE'LL", "12345", " 1", "\n\n", "  ", "\t", "½", "日本", "🙂", "<user>"]
)


@given(text=st.lists(WORDS | st.text(max_size=4), max_size=12).map("".join))
@example(text="a 1 2  3\n\n 4x")
@example(text="HelloWorld ABCdef'LL 12345/\n/ don't ÉCOLE")
@example(text="<|im_start|>user\nhi<|im_end|>")
def test_tokens_are_those_of_a_plain_bpe(both: tuple[Tokenizer, PlainBPE], text: str) -> None:
    tokenizer, plain = both
    assert tokenizer.encode(text, with_bos=False) == plain.encode(text)


def test_a_whole_text_and_back(both: tuple[Tokenizer, PlainBPE]) -> None:
    tokenizer, plain = both
    text = PROSE.read_text(encoding="utf-8")
    ids = tokenizer.encode(text, with_bos=False)
    assert ids == plain.encode(text)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize(
    ("rule", "same"),
    [("phi-2", "gpt-2"), ("olmo", "gpt-2"), ("llama3", "llama-bpe"), ("deepseek-r1-qwen", "qwen2")],
)
def test_some_rules_have_several_names(rule: str, same: str) -> None:
    text = PROSE.read_text(encoding="utf-8") + " 12345 WE'LL\n\n"
    wanted = PlainBPE(tables(same)).encode(text)
    assert Tokenizer.from_gguf(tables(rule)).encode(text, with_bos=False) == wanted


def test_texts_of_llama3_begin_with_a_token_where_files_do_not_say_it() -> None:
    llama, qwen = (Tokenizer.from_gguf(tables(rule)) for rule in ("llama-bpe", "qwen2"))
    assert llama.encode("a") == [0, *qwen.encode("a")]
    silent = tables("llama-bpe") | {"tokenizer.ggml.add_bos_token": False}
    assert Tokenizer.from_gguf(silent).encode("a") == qwen.encode("a")


@pytest.mark.parametrize("rule", ["llama-bpe", "tekken", "qwen2"])
def test_llama_takes_a_part_that_is_a_token_though_no_merges_make_it(rule: str) -> None:
    metadata = tables(rule)
    unreached = "\u0120xyzzy"  # " xyzzy" in the letters of bytes
    metadata["tokenizer.ggml.tokens"] += [unreached]
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], 1)
    ids = Tokenizer.from_gguf(metadata).encode("a xyzzy")
    assert (ids[-1] == 600) == (rule != "qwen2")


def test_texts_and_tokens_that_cannot_be_are_refused() -> None:
    tokenizer = Tokenizer.from_gguf(tables("smollm"))
    with pytest.raises(ArgumentError, match=r"encode: '\\udcff' at place 1 is no character"):
        tokenizer.encode("a\udcff")
    with pytest.raises(DTypeError, match="encode: bytes; a str is needed"):
        tokenizer.encode(b"a")  # type: ignore[arg-type]
    for token in (-1, 1 << 32):
        with pytest.raises(ArgumentError, match="decode: a number of a token"):
            tokenizer.decode([token])


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    tokenizer = Tokenizer.from_gguf(tables("smollm"))
    text = PROSE.read_text(encoding="utf-8") * 60
    times, is_done = list[float](), threading.Event()

    def tick() -> None:
        while not is_done.is_set():
            times.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    start = time.perf_counter()
    thread.start()
    ids = tokenizer.encode(text)
    end = time.perf_counter()
    seconds = end - start
    is_done.set()
    thread.join()
    assert len(ids) > 100_000
    ticks = [start, *(at for at in times if at < end), end]  # also if the thread never ran
    longest = max(after - before for before, after in pairwise(ticks))
    assert longest < seconds / 2


def test_special_tokens_are_hidden_and_texts_of_users_are_not() -> None:
    tokenizer = Tokenizer.from_gguf(tables("smollm"))
    assert tokenizer.decode(tokenizer.encode("a<|im_end|>b<user>c")) == "ab<user>c"
    assert tokenizer.stops == {0, 2}
    assert tokenizer.encode("a", with_bos=True) == [0, *tokenizer.encode("a")]


def test_a_stream_shows_whole_characters_alone() -> None:
    tokenizer = Tokenizer.from_gguf(tables("smollm"))
    ids = tokenizer.encode("naïve 🙂 日本語 done")
    stream = TextStream(tokenizer)
    parts = [stream.push(one) for one in ids]
    assert "".join(parts) == "naïve 🙂 日本語 done"
    assert not any("\ufffd" in part for part in parts)
    assert stream.close() == ""
    cut = TextStream(tokenizer)
    first, *_ = tokenizer.encode("🙂")
    assert (cut.push(first), cut.close()) == ("", "\ufffd")


def byte_tokens(data: bytes) -> list[int]:
    """A token for each byte, whether or not they are a text."""
    numbers = {one: at for at, one in enumerate(TABLES["tokenizer.ggml.tokens"])}
    shown = letters()
    return [numbers[shown[byte]] for byte in data]


BYTES = st.lists(
    st.sampled_from([b"\x80", b"\xe6", b"\xe6\x97", b"\xff", b"a", "日".encode(), "🙂".encode()])
    | st.binary(max_size=3),
    max_size=40,
).map(b"".join)


@given(BYTES)
@example(b"\x80" * 30 + "日本".encode())
@example(b"\xe6" * 30 + "🙂".encode() * 9)
def test_a_stream_shows_any_bytes_as_python_decodes_them(data: bytes) -> None:
    stream = TextStream(STREAMED)
    parts = [stream.push(one) for one in byte_tokens(data)]
    assert "".join([*parts, stream.close()]) == data.decode("utf-8", "replace")


@given(st.lists(st.integers(0, 599), max_size=60))
def test_a_stream_shows_any_tokens_as_one_decoding_does(tokens: list[int]) -> None:
    stream = TextStream(STREAMED)
    shown = "".join(map(stream.push, tokens)) + stream.close()
    assert shown == STREAMED.decode(tokens)


@pytest.mark.parametrize("data", [b"\x80", b"\xff", b"\xe6", b"\xe6\x97", b"\xf0\x9f\x99"])
def test_bytes_of_no_text_are_shown_as_they_come(data: bytes) -> None:
    """Few are held back, and each token decodes few others."""
    lengths = list[int]()

    class Counting:
        def decode(self, ids: list[int]) -> str:
            lengths.append(len(ids))
            return STREAMED.decode(ids)

    tokens = byte_tokens(data * 100)
    stream = TextStream(Counting())  # type: ignore[arg-type]
    shown = "".join(map(stream.push, tokens))
    assert len(tokens) - stream.shown <= 9
    assert shown == STREAMED.decode(tokens[: stream.shown])
    assert max(lengths) <= 18


def test_a_folder_gives_the_same_tokenizer(tmp_path: Path) -> None:
    learned().save(str(tmp_path / "tokenizer.json"))
    settings = {
        "bos_token": {"content": "<|endoftext|>"}, "eos_token": "<|im_end|>",
        "add_bos_token": True, "chat_template": "from the settings",
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 77]}))
    tokenizer = Tokenizer.from_folder(tmp_path)
    assert tokenizer.encode("pip install") == [0, *learned().encode("pip install").ids]
    assert tokenizer.stops == {0, 2, 77}
    assert tokenizer.template is not None
    assert tokenizer.template.render([]) == "from the settings"
    (tmp_path / "chat_template.jinja").write_text("of its own{{ eos_token }}")
    template = Tokenizer.from_folder(tmp_path).template
    assert template is not None
    assert template.render([]) == "of its own<|im_end|>"


WRONG = {
    "ggml.model": ("rwkv", "tokenizer.ggml.model: 'rwkv'; lamina knows gpt2, llama, t5, bert"),
    "ggml.pre": ("nonsense", "tokenizer.ggml.pre: 'nonsense' is no rule that lamina knows: gpt-2"),
    "ggml.tokens": (["a", "a"], "tokenizer.ggml.tokens: a token is given twice"),
    "ggml.merges": (["a nonsense"], "merges: merge 0, 'a nonsense', joins no tokens"),
    "ggml.token_type": (np.array([1]), "token_type: not a type for each of 600 tokens"),
    "ggml.bos_token_id": (600, "bos_token_id: token 600 of 600"),
    "ggml.eos_token_id": ("2", "eos_token_id: str, not int"),
    "chat_template": (7, "tokenizer.chat_template: int, not str"),
}


@pytest.mark.parametrize("name", WRONG)
def test_tables_that_do_not_fit_are_refused(name: str) -> None:
    value, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        Tokenizer.from_gguf(tables("smollm") | {f"tokenizer.{name}": value})
    if name == "ggml.token_type":
        for other in (1, None, "x" * 600, [[1], [1, 2]] * 300):
            with pytest.raises(FormatError, match=message):
                Tokenizer.from_gguf(tables("smollm") | {f"tokenizer.{name}": other})
    if name in ("ggml.tokens", "ggml.merges"):
        with pytest.raises(FormatError, match=f"{name}: its elements are no texts"):
            Tokenizer.from_gguf(tables("smollm") | {f"tokenizer.{name}": [1]})
        missing = tables("smollm")
        del missing[f"tokenizer.{name}"]
        with pytest.raises(FormatError, match=f"{name}: missing"):
            Tokenizer.from_gguf(missing)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(FormatError, match=r"tokenizer\.json: "):
        Tokenizer.from_folder(tmp_path)
    learned().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text("[]")
    with pytest.raises(FormatError, match="a list, not an object"):
        Tokenizer.from_folder(tmp_path)
    for half in ('"\\ud800"', '{"content": "\\ud800"}'):
        (tmp_path / "tokenizer_config.json").write_text(f'{{"eos_token": {half}}}')
        with pytest.raises(FormatError, match=r"eos_token: '\\ud800' is no text"):
            Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    for name in ("chat_template.jinja", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}\xff")
        with pytest.raises(FormatError, match=rf"{name}: not UTF-8: invalid start byte at byte 2"):
            Tokenizer.from_folder(tmp_path)


def test_a_conversation_ends_where_the_answer_begins() -> None:
    tokenizer = Tokenizer.from_gguf(tables("smollm"))
    ids = tokenizer.chat([{"role": "user", "content": "pip"}])
    assert ids == tokenizer.encode(
        "<|endoftext|><|im_start|>user\npip<|im_end|>\n<|im_start|>assistant\n"
    )
    without = tables("smollm")
    del without["tokenizer.chat_template"]
    with pytest.raises(FormatError, match="no chat template"):
        Tokenizer.from_gguf(without).chat([])


def test_conversations_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=learned(), bos_token="<|endoftext|>", eos_token="<|im_end|>"
    )
    messages = [
        {"role": "system", "content": "Be short."}, {"role": "user", "content": "  a {{ b }} "}
    ]  # fmt: skip
    wanted = theirs.apply_chat_template(
        messages, chat_template=TEMPLATE, add_generation_prompt=True, tokenize=False
    )
    ours = Tokenizer.from_gguf(tables("gpt-2")).template
    assert ours is not None
    assert ours.render(messages) == wanted
