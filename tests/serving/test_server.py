"""The server as OpenAI's own client sees it."""

from __future__ import annotations

import http.client
import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.serving.running import NAME, SlowEngine, make, running, wait_until
from tests.serving.tiny import ROOM, greedy, network, tokenizer

openai = pytest.importorskip("openai")
MESSAGES = [{"role": "system", "content": "run"}, {"role": "user", "content": "pip"}]


@pytest.fixture(scope="module")
def made() -> Any:
    return make(kind=SlowEngine, waiting=4)


@pytest.fixture(scope="module")
def address(made: Any) -> Iterator[str]:
    with running(made[0]) as url:
        yield url


@pytest.fixture(scope="module")
def client(address: str) -> Any:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


PLAIN = network("interp")


def expected(prompt: list[int], count: int) -> str:
    """The text of the most probable tokens."""
    words = tokenizer()
    ids = greedy(PLAIN, prompt, count)
    assert not words.stops.intersection(ids)
    return words.decode(ids)


def test_the_model_is_listed(client: Any) -> None:
    (model,) = client.models.list()
    assert (model.id, model.owned_by) == (NAME, "lamina")
    assert client.models.retrieve(NAME).id == NAME
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-4'; there is 'tiny'"):
        client.models.retrieve("gpt-4")


def test_a_chat_is_answered_as_a_whole_or_as_a_stream(client: Any) -> None:
    prompt = tokenizer().chat(MESSAGES)
    text = expected(prompt, 6)
    settings = {"model": NAME, "messages": MESSAGES, "temperature": 0, "max_completion_tokens": 6}
    whole = client.chat.completions.create(**settings)
    (choice,) = whole.choices
    assert (choice.message.role, choice.message.content) == ("assistant", text)
    assert choice.finish_reason == "length"
    assert whole.usage.prompt_tokens == len(prompt)
    assert whole.usage.completion_tokens == 6
    chunks = list(client.chat.completions.create(
        **settings, stream=True, stream_options={"include_usage": True}
    ))  # fmt: skip
    *parts, last = chunks
    assert parts[0].choices[0].delta.role == "assistant"
    assert "".join(one.choices[0].delta.content or "" for one in parts) == text
    assert [one.choices[0].finish_reason for one in parts[-2:]] == [None, "length"]
    assert not last.choices
    assert last.usage.prompt_tokens_details.cached_tokens > 0  # the whole answer's prompt
    assert len({one.id for one in chunks}) == 1


def test_texts_and_tokens_are_completed(client: Any) -> None:
    words = tokenizer()
    prompts = ["pip install", words.encode("a program")]
    texts = [expected(words.encode("pip install"), 5), expected(prompts[1], 5)]
    settings = {"model": NAME, "temperature": 0, "max_tokens": 5}
    for prompt, text in zip(prompts, texts, strict=True):
        done = client.completions.create(prompt=prompt, **settings)
        assert [one.text for one in done.choices] == [text]
    both = client.completions.create(prompt=["pip install", "a program"], n=2, **settings)
    assert [one.text for one in both.choices] == [texts[0], texts[0], texts[1], texts[1]]
    assert both.usage.completion_tokens == 20
    streamed = ["", ""]
    for chunk in client.completions.create(prompt=prompts, stream=True, **settings):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == texts


def test_a_text_ends_before_a_stop(client: Any) -> None:
    text = expected(tokenizer().encode("pip"), 8)
    stop = text[4:6]
    settings = {"model": NAME, "prompt": "pip", "temperature": 0, "max_tokens": 8}
    for stops in (stop, ["@@@@", stop]):
        done = client.completions.create(stop=stops, **settings)
        assert done.choices[0].text == text[: text.index(stop)]
        assert done.choices[0].finish_reason == "stop"
    chunks = client.completions.create(stop=stop, stream=True, **settings)
    assert "".join(one.choices[0].text for one in chunks) == text[: text.index(stop)]


def test_drawn_texts_follow_from_the_seed(client: Any) -> None:
    def drawn(seed: int, count: int = 1) -> list[str]:
        done = client.completions.create(
            model=NAME, prompt="pip", temperature=1.5, top_p=0.9, seed=seed, n=count, max_tokens=6,
            extra_body={"min_p": 0.01, "top_k": 50, "repetition_penalty": 1.1},
            frequency_penalty=0.1, presence_penalty=0.1,
        )  # fmt: skip
        return [one.text for one in done.choices]

    assert drawn(1) == drawn(1) != drawn(2)
    assert drawn(1, 2) == [*drawn(1), *drawn(2)]


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": "gpt-4"}, openai.NotFoundError, "no model 'gpt-4'"),
    ({"temperature": 1e-60}, openai.BadRequestError, "temperature: 1e-60; a number from 0 on"),
    ({"temperature": 1e60}, openai.BadRequestError, "to 3.4e.38 or 0, is needed"),
    ({"frequency_penalty": 2.1}, openai.BadRequestError, "frequency_penalty: 2.1; -2 to 2 is"),
    ({"presence_penalty": -3}, openai.BadRequestError, "presence_penalty: -3.0; -2 to 2 is"),
    ({"extra_body": {"repetition_penalty": 1e-9}}, openai.BadRequestError, "0.01 to 100 is needed"),
    ({"stop": "x" * 257}, openai.BadRequestError, "stop: 257 characters; a text has 256"),
    ({"temperature": -1}, openai.BadRequestError, "temperature: -1.0; a number from 0"),
    ({"top_p": 0}, openai.BadRequestError, "top_p: 0.0; above 0"),
    ({"max_tokens": 0}, openai.BadRequestError, "max_tokens: 0; 1 to"),
    ({"max_tokens": 95}, openai.BadRequestError, "new ones are asked for; 96 fit"),
    ({"n": 99}, openai.BadRequestError, "n: 99; 1 to 16"),
    ({"logprobs": True}, openai.BadRequestError, "logprobs: not supported"),
    ({"stop": [""]}, openai.BadRequestError, "stop: a text"),
    ({"messages": []}, openai.BadRequestError, "messages: a list of one or more"),
    ({"messages": [{"role": "nobody", "content": ""}]}, openai.BadRequestError, "'nobody' is not"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
     openai.BadRequestError, r"messages\[0\].content: a text"),
    ({"response_format": {"type": "xml"}}, openai.BadRequestError, "response_format: the type"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
     openai.BadRequestError, "a json_schema.schema is needed"),
    ({"extra_body": {"top_q": 1}}, openai.BadRequestError, "'top_q': no such field"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(
    client: Any, changes: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        client.chat.completions.create(**{"model": NAME, "messages": MESSAGES} | changes)
    assert caught.value.body["type"] == "invalid_request_error"  # type: ignore[attr-defined]


def test_there_are_no_embeddings(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="makes no embeddings"):
        client.embeddings.create(model=NAME, input="pip")


def test_a_client_that_leaves_frees_pages_and_others_go_on(client: Any, made: Any) -> None:
    batch = made[1]
    settings = {"model": NAME, "temperature": 0, "stream": True}
    leaving = client.completions.create(prompt="pip install", max_tokens=80, **settings)
    next(iter(leaving))
    staying = client.completions.create(prompt="a program", max_tokens=12, **settings)
    assert batch.pool.free < ROOM.pages
    leaving.close()
    text = "".join(one.choices[0].text for one in staying)
    assert text == expected(tokenizer().encode("a program"), 12)
    wait_until(lambda: batch.pool.free == ROOM.pages)
    assert not batch.active


def test_a_client_that_leaves_without_a_stream_frees_pages_too(address: str, made: Any) -> None:
    host = address.removeprefix("http://")
    connection = http.client.HTTPConnection(host)
    body = json.dumps({"model": NAME, "prompt": "pip", "max_tokens": 80, "temperature": 0})
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    wait_until(lambda: made[1].active)
    connection.close()
    wait_until(lambda: not made[1].active)
    assert made[1].pool.free == ROOM.pages


def test_too_many_texts_are_refused(client: Any, made: Any) -> None:
    """There are 3 slots, and 4 texts may wait: an idle server has room for 7, and never for 8."""
    settings = {"model": NAME, "prompt": "pip", "temperature": 0}
    done = client.completions.create(n=7, max_tokens=2, **settings)
    assert len(done.choices) == 7
    with pytest.raises(openai.BadRequestError, match=r"n: 8 texts .* takes 7 at most"):
        client.completions.create(n=8, max_tokens=2, **settings)
    running = client.completions.create(n=2, max_tokens=80, stream=True, **settings)
    next(iter(running))
    with pytest.raises(openai.RateLimitError, match="more texts beside"):
        client.completions.create(n=6, max_tokens=2, **settings)
    running.close()
    wait_until(lambda: not made[1].active)


def test_a_page_and_metrics(client: Any, address: str) -> None:
    with urllib.request.urlopen(f"{address}/") as reply:
        assert reply.headers["Content-Type"].startswith("text/html")
        page = reply.read()
    assert b"/v1/chat/completions" in page
    assert b"!event.isComposing" in page  # Enter sends no word that is being composed
    client.completions.create(model=NAME, prompt="pip", max_tokens=3, temperature=0)
    with urllib.request.urlopen(f"{address}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert int(values['lamina_requests_total{path="/v1/completions",status="200"}']) >= 1
    assert int(values["lamina_generated_tokens_total"]) >= 3
    assert int(values["lamina_pages_free"]) == ROOM.pages
    buckets = [int(value) for name, value in values.items() if "between_tokens_seconds_b" in name]
    assert buckets == sorted(buckets)
    assert buckets[-1] == int(values["lamina_time_between_tokens_seconds_count"]) > 0


def test_a_key_is_asked_for() -> None:
    with running(make(key="a secret")[0]) as address:
        for key, kind in (("wrong", openai.AuthenticationError), ("a secret", None)):
            client = openai.OpenAI(base_url=f"{address}/v1", api_key=key, max_retries=0)
            if kind is None:
                assert [one.id for one in client.models.list()] == [NAME]
            else:
                with pytest.raises(kind, match="the server's key"):
                    client.models.list()
        assert json.load(urllib.request.urlopen(f"{address}/health")) == {"status": "ok"}


def test_answers_that_take_too_long_end_with_an_error() -> None:
    server, batch = make(kind=SlowEngine, seconds=0.1)
    with running(server) as address:
        client = openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)
        settings = {"model": NAME, "prompt": "pip", "max_tokens": 90, "temperature": 0}
        with pytest.raises(openai.InternalServerError, match=r"not finished after 0\.1 s"):
            client.completions.create(**settings)
        with pytest.raises(openai.APIError, match=r"not finished after 0\.1 s"):
            list(client.completions.create(stream=True, **settings))
        wait_until(lambda: batch.pool.free == ROOM.pages)
