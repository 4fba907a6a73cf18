"""Tokenizers of SentencePiece in GGUF files: against the package `sentencepiece`, and wrong tables.

`sentencepiece.json` has four vocabularies that its version 0.2.3 learned from `prose.txt`, and what
it makes of some 65 random texts each.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina.errors import FormatError
from lamina.io import gguf
from lamina.io.gguf_writing import save
from lamina.text.tokenizer import TextStream, Tokenizer
from tests.text.tables import TEMPLATE

pytest.importorskip("tokenizers")

LEARNED: dict[str, Any] = json.loads(Path(__file__).with_name("sentencepiece.json").read_text())
SIMPLE = ["add_space_prefix", "remove_extra_whitespaces", "unknown_token_id", "eos_token_id"]


def tables(name: str) -> dict[str, Any]:
    """The metadata of a GGUF file."""
    learned = LEARNED[name]
    charsmap = np.frombuffer(base64.b64decode(learned["precompiled_charsmap"]), np.int8)
    values = {key: learned[key] for key in ("model", "tokens", *SIMPLE)}
    values["scores"] = np.array(learned["scores"], np.float32)
    values["token_type"] = np.array(learned["token_type"], np.int32)
    if charsmap.size:
        values["precompiled_charsmap"] = charsmap
    return {f"tokenizer.ggml.{key}": value for key, value in values.items()}


@pytest.mark.parametrize("name", LEARNED)
def test_tokens_and_texts_are_those_of_sentencepiece(name: str, tmp_path: Path) -> None:
    save(tmp_path / "model.gguf", tables(name), [])
    tokenizer = Tokenizer.from_gguf(gguf.load(tmp_path / "model.gguf").metadata)
    for text, ids, decoded in LEARNED[name]["texts"]:
        assert tokenizer.encode(text, with_bos=False) == ids, text
        if decoded is not None:  # a token that is unknown has no text
            assert tokenizer.decode(ids) == decoded


@pytest.mark.parametrize("name", LEARNED)
def test_a_stream_shows_what_one_decoding_does(name: str) -> None:
    tokenizer = Tokenizer.from_gguf(tables(name))
    for text, ids, _ in LEARNED[name]["texts"]:
        stream = TextStream(tokenizer)
        shown = "".join(map(stream.push, ids)) + stream.close()
        assert shown == tokenizer.decode(ids), text


def test_a_space_after_a_hidden_token_is_shown() -> None:
    tokenizer = Tokenizer.from_gguf(tables("llama"))
    ids = [*tokenizer.encode("the model", with_bos=False), 2, *tokenizer.encode("and", False)]
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, ids)) == tokenizer.decode(ids) == "the model and"


@pytest.mark.parametrize("name", LEARNED)
def test_a_stream_goes_on_with_the_space_after_a_prompt(name: str) -> None:
    """At any token of a text: what is shown after it is the rest of the whole."""
    tokenizer = Tokenizer.from_gguf(tables(name))
    for text, ids, _ in LEARNED[name]["texts"]:
        for place in range(1, len(ids)):
            begin = tokenizer.decode(ids[:place])
            is_hidden = ids[place - 1] == LEARNED[name]["unknown_token_id"]
            if is_hidden or not begin.strip(" ") or begin.endswith("\ufffd"):
                continue  # nothing is shown before it, or a part of a character
            stream = TextStream.after(tokenizer, ids[:place])
            shown = "".join(map(stream.push, ids[place:])) + stream.close()
            if not shown.startswith("\ufffd"):
                assert begin + shown == tokenizer.decode(ids), (text, place)


def test_a_text_begins_and_ends_as_its_kind_asks() -> None:
    llama, t5 = Tokenizer.from_gguf(tables("llama")), Tokenizer.from_gguf(tables("t5"))
    (plain,) = (llama.encode("the", with_bos=False),)
    assert llama.encode("the") == llama.encode_whole("the") == [1, *plain]
    assert llama.stops == {2}
    assert t5.encode_whole("the") == [*t5.encode("the"), 1]
    assert t5.encode_whole("the model and the", 3)[-1] == 1
    silent = tables("llama") | {"tokenizer.ggml.add_bos_token": False}
    assert Tokenizer.from_gguf(silent).encode("the") == plain


def test_special_tokens_stand_apart_and_what_follows_begins_with_a_space() -> None:
    """As llama.cpp does."""
    tokenizer = Tokenizer.from_gguf(tables("llama"))
    the = tokenizer.encode("the", with_bos=False)
    assert tokenizer.encode("<s>the</s>the", with_bos=False) == [1, *the, 2, *the]
    assert tokenizer.decode([1, *the, 2]) == "the"
    gemma = Tokenizer.from_gguf(tables("gemma"))
    user = LEARNED["gemma"]["tokens"].index("<user>")
    assert gemma.encode("<user>the", with_bos=False) == [user, *gemma.encode("the", False)]
    assert gemma.decode([user]) == "<user>"


def test_runs_of_spaces_may_be_tokens_of_users() -> None:
    """Old files of Gemma have them so, as the last ones of these tokens. Longer ones come first."""
    values, runs = tables("gemma"), ["\u2581" * count for count in (2, 3, 4)]
    tokens = [*values["tokenizer.ggml.tokens"], *runs]
    changes = {
        "tokens": tokens,
        "scores": np.append(values["tokenizer.ggml.scores"], [0, 0, 0]).astype(np.float32),
        "token_type": np.append(values["tokenizer.ggml.token_type"], [4, 4, 4]).astype(np.int32),
    }
    changed = {f"tokenizer.ggml.{name}": value for name, value in changes.items()}
    tokenizer = Tokenizer.from_gguf(values | changed)
    for count in (2, 3, 4):
        written = [tokens[number] for number in tokenizer.encode("x" + " " * count + "x", False)]
        assert written == ["x", runs[count - 2], "x"]
    assert tokenizer.decode(tokenizer.encode("the    the", False)) == "the    the"


def test_special_tokens_of_phi3_take_the_line_break_after_them() -> None:
    plain = tables("llama")
    phi = Tokenizer.from_gguf(plain | {"general.architecture": "phi3"})
    the = phi.encode("the", with_bos=False)
    assert phi.encode("</s>\n the", with_bos=False) == [2, *the]
    assert len(phi.encode("<s>\n the", with_bos=False)) > len([1, *the])
    assert len(Tokenizer.from_gguf(plain).encode("</s>\n the", False)) > len([2, *the])


def test_a_conversation_has_the_texts_of_its_special_tokens() -> None:
    values = tables("llama") | {"tokenizer.chat_template": TEMPLATE}
    tokenizer = Tokenizer.from_gguf(values)
    assert tokenizer.template is not None
    assert (tokenizer.template.bos, tokenizer.template.eos) == ("<s>", "</s>")


def test_texts_that_fit_a_schema_are_made_of_these_tokens() -> None:
    pytest.importorskip("llguidance")
    from lamina.text.schema import Schemas

    tokenizer = Tokenizer.from_gguf(tables("llama"))
    constraint = Schemas(tokenizer, 520).constraint({"type": "boolean"})
    bits = np.unpackbits(constraint.allowed().view(np.uint8), bitorder="little")
    allowed = {LEARNED["llama"]["tokens"][number] for number in np.flatnonzero(bits)}
    assert {"t", "f"} <= allowed
    assert all("true".startswith(text) or "false".startswith(text) for text in allowed - BYTES)


BYTES = {f"<0x{byte:02X}>" for byte in b"tf"}
WRONG = {
    "scores": (np.zeros(3, np.float32), "ggml.scores: not a finite number for each of 520 tokens"),
    "token_type": (np.zeros(3, np.int32), "ggml.token_type: not a type for each of 520 tokens"),
    "tokens": (["a"] * 520, "tokenizer.ggml.tokens: a token is given twice"),
    "unknown_token_id": (520, "unknown_token_id: token 520 of 520"),
    "bos_token_id": (-1, "bos_token_id: token -1 of 520"),
    "add_space_prefix": (1, "add_space_prefix: int, not bool"),
}


@pytest.mark.parametrize("name", WRONG)
def test_tables_that_do_not_fit_are_refused(name: str) -> None:
    value, message = WRONG[name]
    with pytest.raises(FormatError, match=message):
        Tokenizer.from_gguf(tables("llama") | {f"tokenizer.ggml.{name}": value})


def test_scores_and_tokens_that_make_no_sense_are_refused() -> None:
    infinite = np.full(520, np.inf, np.float32)
    with pytest.raises(FormatError, match=r"ggml\.scores: not a finite number"):
        Tokenizer.from_gguf(tables("llama") | {"tokenizer.ggml.scores": infinite})
    tokens = [*LEARNED["llama"]["tokens"][:-1], "a" * 257]
    with pytest.raises(FormatError, match="has 257 characters; at most 256 are supported"):
        Tokenizer.from_gguf(tables("llama") | {"tokenizer.ggml.tokens": tokens})
    without = {key: value for key, value in tables("t5").items() if not key.endswith("scores")}
    with pytest.raises(FormatError, match=r"ggml\.scores: not a finite number"):
        Tokenizer.from_gguf(without)
    special = np.full(260, 3, np.int32)
    with pytest.raises(FormatError, match="none of the tokens is a normal one"):
        Tokenizer.from_gguf(tables("t5") | {"tokenizer.ggml.token_type": special})
    cut = tables("t5")["tokenizer.ggml.precompiled_charsmap"][:30]
    with pytest.raises(FormatError, match=r"ggml\.precompiled_charsmap: "):
        Tokenizer.from_gguf(tables("t5") | {"tokenizer.ggml.precompiled_charsmap": cut})


def test_a_table_of_characters_that_leads_nowhere_is_refused() -> None:
    """The package's code breaks over it, and says so on the standard error."""
    name = "tokenizer.ggml.precompiled_charsmap"
    charsmap = tables("t5")[name].view(np.uint8)
    units = int.from_bytes(charsmap[:4].tobytes(), "little")  # bytes of a trie
    texts = charsmap[4 + units :]
    without_texts = np.concatenate([charsmap[: 4 + units], texts[:3]])
    tokenizer = Tokenizer.from_gguf(tables("t5") | {name: without_texts})
    with pytest.raises(FormatError, match="the tables of this tokenizer do not fit together"):
        tokenizer.encode("\uff21\ufb01\xa0\xbd e\u0301")
