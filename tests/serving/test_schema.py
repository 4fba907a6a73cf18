"""Texts that have to fit a JSON schema, alone, beside others, and as OpenAI's client asks for them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.errors import ArgumentError, FormatError, MissingPackageError
from lamina.models.generate import Generator
from lamina.models.sampling import Sampling
from lamina.serving.batch import Batch, Text
from lamina.serving.engine import Engine
from lamina.text.schema import Schemas
from tests.serving.running import NAME, make, running
from tests.serving.tiny import CONFIG, ROOM, greedy, network, tokenizer

pytest.importorskip("llguidance", reason="texts that fit a JSON schema need llguidance")

WORDS = tokenizer()
SCHEMAS = Schemas(WORDS, CONFIG.vocabulary)
PROMPT = WORDS.encode("pip install")
OTHER = WORDS.encode("a program that")
CAPACITY = 400
PLAIN = network("interp")
ENGINE = Engine(network("cpu"), replace(ROOM, capacity=CAPACITY, pages=160), "cpu")
GENERATOR = Generator(network("cpu"), CAPACITY, "cpu", chunks=(16,))
BESIDE = greedy(PLAIN, OTHER, 8)
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "minimum": -20, "maximum": 20},
        "kind": {"enum": ["near", "far"]},
    },
    "required": ["x", "kind"],
    "additionalProperties": False,
}


def ranges(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(-1000, 1000))
    return {"type": "integer", "minimum": low, "maximum": low + draw(st.integers(0, 500))}


SCALARS = st.one_of(
    st.lists(st.one_of(st.text(max_size=4).filter(str.isprintable), st.integers(-99, 99)),
             min_size=1, max_size=3).map(lambda values: {"enum": values}),
    st.composite(ranges)(),
    st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": "string", "maxLength": 5}]),
)  # fmt: skip


def lists(items: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda item, least, more: {
            "type": "array", "items": item, "minItems": least, "maxItems": least + more
        },
        items, st.integers(0, 1), st.integers(0, 2),
    )  # fmt: skip


def objects(values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(["a", "b c", "d\"", "é"]), values, max_size=2).map(
        lambda properties: {
            "type": "object", "properties": properties, "required": sorted(properties)[:1],
            "additionalProperties": False,
        }
    )  # fmt: skip


DRAWN = st.recursive(SCALARS, lambda inner: st.one_of(lists(inner), objects(inner)), max_leaves=3)


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is what one of the schemas above asks for."""
    if "enum" in schema:
        return any(type(value) is type(one) and value == one for one in schema["enum"])
    kinds = {"boolean": bool, "null": type(None), "string": str, "integer": int, "array": list,
             "object": dict}  # fmt: skip
    if type(value) is not kinds[schema["type"]]:
        return False
    if schema["type"] == "integer":
        return bool(schema["minimum"] <= value <= schema["maximum"])
    if schema["type"] == "string":
        return len(value) <= 5
    if schema["type"] == "array":
        is_long = schema["minItems"] <= len(value) <= schema["maxItems"]
        return is_long and all(fits(one, schema["items"]) for one in value)
    if schema["type"] == "object":
        known = schema["properties"]
        return set(schema["required"]) <= set(value) <= set(known) and all(
            fits(one, known[name]) for name, one in value.items()
        )
    return True


@settings(max_examples=25, deadline=None)
@given(DRAWN, st.sampled_from([Sampling(), Sampling(1.0), Sampling(2.0, 0.95)]), st.integers(0, 99))
def test_texts_fit_drawn_schemas(schema: dict[str, Any], sampling: Sampling, seed: int) -> None:
    """Beside a text that may be anything, which stays as it is; and as `lamina generate` has them.
    """
    drawn = replace(sampling, seed=seed)
    constraint = SCHEMAS.constraint(schema)
    text = Text(PROMPT, CAPACITY - 20, drawn, WORDS.stops, constraint.copy())
    beside = Text(OTHER, len(BESIDE), Sampling())
    batch = Batch(ENGINE)
    for one in (text, beside):
        batch.add(one)
    while batch.active or batch.waiting:
        batch.step()
    assert beside.new == BESIDE
    assert text.finish_reason == "stop"
    assert text.new[-1] in WORDS.stops
    assert fits(json.loads(WORDS.decode(text.new)), schema)
    alone = []
    for token in GENERATOR.tokens(PROMPT, CAPACITY - 20, drawn, constraint):
        alone.append(token)
        if token in WORDS.stops:
            break
    assert alone == text.new


def test_tokens_without_a_text_are_never_allowed() -> None:
    """The logits of a model may have more tokens than its tokenizer."""
    words = Schemas(WORDS, 1000).constraint({"type": "string"}).allowed()
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    first = {WORDS.decode([int(token)])[0] for token in np.flatnonzero(bits)}
    assert words.shape == (32,)
    assert first == {'"'}


def test_a_text_whose_constraint_broke_is_cut() -> None:
    constraint = SCHEMAS.constraint({"enum": ["near"]})
    text = Text(PROMPT, 9, Sampling(), WORDS.stops, constraint)
    assert text.finish_reason is None
    constraint.add(WORDS.encode("7")[0])
    assert text.finish_reason == "length"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "nothing"}, "Invalid type: nothing"),
        ({"enum": []}, "Unsatisfiable schema"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "http://localhost/x"}, "does not fetch"),
        ({"type": "string", "pattern": "(" * 5000}, r"error: \(+ \.\.\. .{,150}unclosed group"),
        ({"const": "\ud800"}, "not JSON serializable"),
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, Any], reason: str) -> None:
    with pytest.raises(ArgumentError, match=reason):
        SCHEMAS.constraint(schema)


def test_deep_schemas_are_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(900):
        schema = {"type": "array", "items": schema}
    with pytest.raises(ArgumentError, match="recursion limit"):
        SCHEMAS.constraint(schema)


def test_a_model_without_a_last_token_is_refused() -> None:
    endless = Schemas(replace(WORDS, stops=frozenset()), CONFIG.vocabulary)
    with pytest.raises(FormatError, match="no token that ends a text"):
        endless.constraint({"type": "null"})


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingPackageError, match=r"llguidance: pip install 'lamina\[json\]'"):
        SCHEMAS.constraint({"type": "null"})


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    openai = pytest.importorskip("openai")
    with running(make()[0]) as address:
        yield openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def asked(schema: dict[str, Any]) -> dict[str, Any]:
    """The settings of a chat whose answers have to fit `schema`."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": schema}}
    return {
        "model": NAME, "messages": [{"role": "user", "content": "pip"}], "response_format": form,
        "max_completion_tokens": 50, "seed": 5,
    }  # fmt: skip


def test_answers_fit_a_schema(client: Any) -> None:
    whole = client.chat.completions.create(**asked(POINT), n=3)
    texts = [choice.message.content for choice in whole.choices]
    assert [choice.finish_reason for choice in whole.choices] == ["stop"] * 3
    assert all(fits(json.loads(text), POINT) for text in texts)
    assert len(set(texts)) > 1
    chunks = list(client.chat.completions.create(**asked(POINT), stream=True))
    parts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(parts) == texts[0]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert len(parts) > 3


def test_answers_are_objects(client: Any) -> None:
    plain = {"response_format": {"type": "text"}, "temperature": 0}
    free = client.chat.completions.create(**asked({}) | plain)
    assert not free.choices[0].message.content.startswith("{")
    form = {"response_format": {"type": "json_object"}, "temperature": 0}
    (choice,) = client.chat.completions.create(**asked({}) | form).choices
    assert choice.message.content.startswith("{")
    assert choice.finish_reason in ("stop", "length")
    if choice.finish_reason == "stop":
        assert isinstance(json.loads(choice.message.content), dict)


def test_a_schema_that_is_none_is_refused_with_its_reason(client: Any) -> None:
    import openai

    with pytest.raises(openai.BadRequestError, match="Invalid type: nothing") as caught:
        client.chat.completions.create(**asked({"type": "nothing"}))
    assert caught.value.body["param"] == "response_format"  # type: ignore[index]
