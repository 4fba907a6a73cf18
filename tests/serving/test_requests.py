"""Requests as no client writes them: each is answered with an error that says what is wrong, or
with text; the server goes on."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lamina.models.sampling import Sampling
from lamina.serving.batch import Batch, Text
from lamina.serving.engine import Engine, Row
from lamina.serving.metrics import Metrics
from lamina.serving.stopping import StoppingStream
from lamina.serving.worker import Worker
from tests.serving.running import JSON, NAME, Reply, ask, make, wait_until
from tests.serving.tiny import ROOM, network, tokenizer

Ask = Callable[..., Reply]
FINE = {"model": NAME, "prompt": "pip", "max_tokens": 1, "temperature": 0}
CHAT = {"model": NAME, "messages": [{"role": "user", "content": "pip"}], "max_tokens": 1}


@pytest.fixture(scope="module")
def made() -> Any:
    return make(body=4096, tokens=1)


@pytest.fixture(scope="module")
def answer(made: Any) -> Iterator[Ask]:
    """Asks the application, whose loop runs in a thread."""
    loop, ends = asyncio.new_event_loop(), asyncio.Event()
    app = made[0].app

    async def live() -> None:
        async with app.router.lifespan_context(app):
            await ends.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()

    def asked(*arguments: Any, **more: Any) -> Reply:
        future = asyncio.run_coroutine_threadsafe(ask(app, *arguments, **more), loop)
        return future.result(60)

    yield asked
    loop.call_soon_threadsafe(ends.set)
    thread.join(60)
    loop.close()


def post(answer: Ask, path: str, body: Any) -> Reply:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return answer("POST", path, data)


def check(reply: Reply) -> None:
    """Text or an error, whole or as events, as OpenAI's API has them."""
    assert reply.status in (200, 400, 404, 413, 429), reply
    if reply.body.startswith(b"data: "):
        *events, last, end = reply.body.decode().split("\n\n")
        assert (last, end) == ("data: [DONE]", "")
        assert all(isinstance(json.loads(one.removeprefix("data: ")), dict) for one in events)
    elif reply.status == 200:
        assert reply.json["choices"]
    else:
        error = reply.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        assert "\n" not in error["message"]


SCALARS = st.one_of(
    st.none(), st.booleans(), st.sampled_from([-1, 0, 1, 2, 1 << 40, -(1 << 70), 10**400]),
    st.floats(allow_nan=True), st.text(max_size=8),
    st.sampled_from(["\ud800", "\0", "user", NAME, "<|im_end|>", "text", "x" * 5000]),
    st.sampled_from(["json_object", "json_schema"]),
)  # fmt: skip
NAMES = ["role", "content", "type", "text", "json_schema", "schema", "odd"]
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(NAMES), inner),
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from([*FINE, *CHAT, "stream", "stream_options", "n", "stop", "top_p", "seed",
                          "logit_bias", "tools", "min_p", "user", "response_format",
                          "odd"])  # fmt: skip


@settings(max_examples=150)
@given(st.sampled_from([True, False]), st.dictionaries(FIELDS, VALUES, min_size=1, max_size=3))
def test_fields_of_any_kind(answer: Ask, is_chat: bool, changes: dict[str, Any]) -> None:
    path = "/v1/chat/completions" if is_chat else "/v1/completions"
    check(post(answer, path, (CHAT if is_chat else FINE) | changes))


@given(st.binary(max_size=60), st.integers(0, 80), st.integers(0, 80))
def test_bodies_that_are_cut_or_mixed(answer: Ask, data: bytes, first: int, last: int) -> None:
    body = json.dumps(FINE).encode()
    check(post(answer, "/v1/completions", body[:first] + data + body[last:]))


def test_the_server_goes_on(answer: Ask, made: Any) -> None:
    """After all of these: no test before it may leave a text or a page behind."""
    reply = post(answer, "/v1/completions", FINE)
    assert (reply.status, made[1].pool.free, made[1].active) == (200, ROOM.pages, [])


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "message"),
    [
        ("GET", "/v1/nothing", b"", JSON, 404, "GET /v1/nothing: Not Found"),
        ("GET", "/v1/completions", b"", JSON, 405, "Method Not Allowed"),
        ("POST", "/v1/completions", b"{}", {"host": "localhost"}, 415, "application/json is need"),
        ("POST", "/v1/completions", b"{}", JSON | {"host": "evil.example"}, 403, "without a key"),
        ("POST", "/v1/completions", b"{}", {"content-type": "application/json"}, 403, "host ''"),
        ("POST", "/v1/completions", b"{" * 5000, JSON, 413, "more than 4096 bytes"),
        ("POST", "/v1/completions", b"[" * 4000, JSON, 400, "the body is not JSON"),
        ("POST", "/v1/completions", b"\xff", JSON, 400, "the body is not JSON"),
        ("POST", "/v1/completions", b'{"seed": NaN}', JSON, 400, "NaN is no number of JSON"),
        ("POST", "/v1/completions", b"{}", JSON, 400, "model: missing"),
        ("POST", "/v1/chat/completions", b"[]", JSON, 400, "not a JSON object"),
        ("GET", "/v1/models", b"", {"host": "["}, 400, "host '[' is no name or address"),
        ("GET", "/v1/models", b"", {"host": "a/?"}, 400, "host 'a/?' is no name or address"),
    ],
)  # fmt: skip
def test_each_error_says_what_is_wrong(
    answer: Ask, method: str, path: str, body: bytes, headers: dict[str, str], status: int,
    message: str,
) -> None:  # fmt: skip
    reply = answer(method, path, body, headers)
    assert reply.status == status
    assert message in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "host", ["a/?", "a/health?", "a/#", "a\\", "[", "[::1", "a:b", "a b", "u@a"]
)
def test_a_host_of_no_form_opens_no_door(host: str) -> None:
    """The words of a client for the host are no part of the path that a key is asked for."""
    app = make(key="a secret")[0].app
    for path in ("/v1/models", "/metrics", "/health"):
        reply = asyncio.run(ask(app, "GET", path, headers={"host": host}))
        assert reply.status == 400
        assert "is no name or address with a port" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "host", ["", "example.org", "example.org:80", "10.0.0.1:80", "[fe80::1]:80"]
)
def test_a_key_is_asked_for_at_every_host(host: str) -> None:
    app = make(key="a secret")[0].app
    statuses = {
        path: asyncio.run(ask(app, "GET", path, headers={"host": host})).status
        for path in ("/", "/v1/models", "/metrics")
    }
    assert statuses == {"/": 200, "/v1/models": 401, "/metrics": 401}


def test_few_texts_are_tokenized_at_once(
    answer: Ask, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, running, lock = list[int](), 0, threading.Lock()
    words = made[0]._tokenizer

    class Counting:
        stops = words.stops
        decode = words.decode

        def encode(self, text: str) -> list[int]:
            nonlocal running
            with lock:
                running += 1
                counts.append(running)
            time.sleep(0.02)
            with lock:
                running -= 1
            return [7]

    monkeypatch.setattr(made[0], "_tokenizer", Counting())
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: post(answer, "/v1/completions", FINE), range(6)))
    assert [reply.status for reply in replies] == [200] * 6
    assert max(counts) == 2


def test_failures_are_counted(answer: Ask, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> list[int]:
        raise RuntimeError("a fault of the server")

    class Failing:
        encode = staticmethod(fail)

    monkeypatch.setattr(made[0], "_tokenizer", Failing())
    with pytest.raises(RuntimeError, match="a fault of the server"):
        post(answer, "/v1/completions", FINE)  # answered with 500, and then raised for the log
    lines = answer("GET", "/metrics").body.decode()
    assert 'lamina_requests_total{path="/v1/completions",status="500"} 1' in lines


def test_a_server_whose_thread_has_ended_is_not_healthy() -> None:
    server = make()[0]

    async def statuses() -> list[int]:
        async with server.app.router.lifespan_context(server.app):
            before = await ask(server.app, "GET", "/health")
            server._worker.stop(60.0)
            after = await ask(server.app, "GET", "/health")
        return [before.status, after.status]

    assert asyncio.run(statuses()) == [200, 503]


def test_a_step_that_does_not_end_does_not_hold_the_end_up() -> None:
    goes_on = threading.Event()

    class Stuck(Engine):
        def read(self, row: Row) -> int:
            goes_on.wait(60)
            return 0

    batch = Batch(Stuck(network("cpu"), ROOM, "cpu"))
    worker = Worker(batch, 1, Metrics())
    worker.start()
    worker.submit([Text([7], 1, Sampling())], lambda event: None)
    wait_until(lambda: batch.active)
    worker.stop(0.1)
    assert worker.is_alive
    goes_on.set()
    worker.stop(60.0)
    assert not worker.is_alive


@pytest.mark.parametrize(("value", "status"), [(None, 200), (False, 200), (0, 400), (1, 400)])
def test_probabilities_are_refused_and_not_ignored(answer: Ask, value: Any, status: int) -> None:
    """For `logprobs: 0` OpenAI's API answers with those of the tokens that are written."""
    reply = post(answer, "/v1/completions", FINE | {"logprobs": value})
    assert reply.status == status
    if status == 400:
        assert reply.json["error"]["message"] == "logprobs: not supported"


def test_parts_of_odd_kinds_are_refused(answer: Ask) -> None:
    for kind in ([], {}, ["text"], None, 1):
        message = {"role": "user", "content": [{"type": kind, "text": "pip"}]}
        reply = post(answer, "/v1/chat/completions", CHAT | {"messages": [message]})
        assert reply.status == 400
        assert "a list of parts of type 'text'" in reply.json["error"]["message"]


def test_names_of_fields_that_utf_8_cannot_say_are_refused(answer: Ask) -> None:
    for name, shown in (("\ud800", "?"), ("x" * 900, "x" * 200)):
        reply = post(answer, "/v1/completions", FINE | {name: 1})
        assert reply.status == 400
        assert reply.json["error"]["param"] == shown
        assert reply.json["error"]["code"] == "unknown_parameter"


def test_names_of_this_machine_are_answered(answer: Ask) -> None:
    for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
        assert answer("GET", "/health", headers={"host": host}).status == 200


@given(st.text("ab", max_size=12), st.lists(st.text("ab", min_size=1, max_size=3), max_size=3))
def test_a_text_in_pieces_ends_where_the_whole_does(text: str, stops: list[str]) -> None:
    words = tokenizer()
    stream = StoppingStream(words, stops)
    pieces = [stream.push(token) for letter in text for token in words.encode(letter)]
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    # Of two stops, the one whose end comes first is seen first.
    shown = "".join([*pieces, stream.close()])
    assert stream.is_stopped == bool(ends)
    first_end = min((text.find(stop) + len(stop) for stop in stops if stop in text), default=None)
    if first_end is None:
        assert shown == text
    else:
        assert text.startswith(shown)
        assert any(text[len(shown) :].startswith(stop) for stop in stops)
        assert len(shown) < first_end
