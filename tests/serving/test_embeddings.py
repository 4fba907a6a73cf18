"""A server of embeddings as OpenAI's own client sees it."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lamina import models
from tests.models.encoders import sentence_folder, sentence_vectors
from tests.serving.running import JSON, ask, running, wait_until

openai = pytest.importorskip("openai")
pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("starlette")
NAME, SIZE, LONGEST = "tiny-embedding", 32, 40


class Model:
    """The small model, its server, and how many texts were computed at once. Where `gate` is not
    set, the model waits for it."""

    def __init__(self, folder: Path, **limits: Any) -> None:
        from lamina.serving.embedding import EmbeddingServer
        from lamina.serving.front import Limits

        self.theirs = sentence_folder(folder)
        self.embedder = models.load(folder, device="interp").embedder
        self.server = EmbeddingServer(NAME, self.embedder, Limits(**limits))
        self.together = list[int]()
        self.gate = threading.Event()
        self.gate.set()
        compute = self.embedder.of_tokens

        def counted(texts: Any) -> Any:
            self.together.append(len(texts))
            assert self.gate.wait(60)
            return compute(texts)

        self.embedder.of_tokens = counted  # type: ignore[method-assign]

    def expected(self, texts: list[str]) -> np.ndarray:
        return sentence_vectors(self.theirs, [self.embedder.tokens(text) for text in texts])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(tmp_path_factory.mktemp("model"), waiting=8)


@pytest.fixture(scope="module")
def address(made: Model) -> Iterator[str]:
    with running(made.server) as url:
        yield url


@pytest.fixture(scope="module")
def client(address: str) -> Any:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


TEXTS = ["the cat sat", "dogs", "a running cat on the mat."]


@pytest.mark.parametrize("settings", [{}, {"encoding_format": "float"}, {"dimensions": SIZE}])
def test_texts_have_vectors(client: Any, made: Model, settings: dict[str, Any]) -> None:
    """By default the client asks for base64."""
    answer = client.embeddings.create(model=NAME, input=TEXTS, **settings)
    assert [one.index for one in answer.data] == [0, 1, 2]
    vectors = np.array([one.embedding for one in answer.data])
    np.testing.assert_allclose(vectors, made.expected(TEXTS), atol=1e-5)
    count = sum(len(made.embedder.tokens(text)) for text in TEXTS)
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (count, count)
    assert answer.model == NAME


def test_a_text_and_tokens_are_taken_as_well(client: Any, made: Model) -> None:
    expected = made.expected(TEXTS[:2])
    tokens = [made.embedder.tokens(text) for text in TEXTS[:2]]
    for asked, count in ((TEXTS[0], 1), (tokens[0], 1), (tokens, 2)):
        answer = client.embeddings.create(model=NAME, input=asked)
        vectors = np.array([one.embedding for one in answer.data])
        np.testing.assert_allclose(vectors, expected[:count], atol=1e-5)


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"model": "gpt-4"}, openai.NotFoundError, "no model 'gpt-4'; there is 'tiny-embedding'"),
    ({"input": []}, openai.BadRequestError, "input: a text, a list of tokens, or a list"),
    ({"input": ""}, openai.BadRequestError, "input: 1 to 2048 texts, none empty, are needed"),
    ({"input": ["a"] * 2049}, openai.BadRequestError, "input: 1 to 2048 texts"),
    ({"input": [["a"]]}, openai.BadRequestError, "input: a text, a list of tokens, or a list"),
    ({"input": [[]]}, openai.BadRequestError, "input: a text, a list of tokens, or a list"),
    ({"input": [96]}, openai.BadRequestError, "input: tokens from 0 to 95 are needed"),
    ({"input": [-1]}, openai.BadRequestError, "input: tokens from 0 to 95 are needed"),
    ({"input": "a " * 39}, openai.BadRequestError, "input: a text of 41 tokens; 40 fit"),
    ({"encoding_format": "int8"}, openai.BadRequestError, "encoding_format: 'int8'; 'float' or"),
    ({"dimensions": 16}, openai.BadRequestError, "dimensions: 16; 32 to 32 is needed"),
    ({"extra_body": {"truncate": True}}, openai.BadRequestError, "'truncate': no such field"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "kind", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(
    client: Any, changes: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        client.embeddings.create(**{"model": NAME, "input": "a"} | changes)
    assert caught.value.body["type"] == "invalid_request_error"  # type: ignore[attr-defined]


def test_it_writes_no_text(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="makes embeddings and writes no text"):
        client.completions.create(model=NAME, prompt="a")
    with pytest.raises(openai.BadRequestError, match="makes embeddings and writes no text"):
        client.chat.completions.create(model=NAME, messages=[{"role": "user", "content": "a"}])


def test_requests_that_wait_are_computed_together(client: Any, made: Model, address: str) -> None:
    """While one is computed, six others come; beyond eight that wait there is no room."""
    made.together.clear()
    made.gate.clear()
    expected = made.expected(["the cat", "dogs"])

    def vectors(text: str) -> list[float]:
        answer = client.embeddings.create(model=NAME, input=text)
        return answer.data[0].embedding  # type: ignore[no-any-return]

    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(vectors, "the cat")
        wait_until(lambda: made.together)
        others = [pool.submit(vectors, "dogs") for _ in range(8)]
        wait_until(lambda: made.server.gauges()["texts_waiting"] == 8)
        with pytest.raises(openai.RateLimitError, match="9 requests wait; ask again later"):
            vectors("dogs")
        made.gate.set()
        np.testing.assert_allclose(first.result(60), expected[0], atol=1e-5)
        for other in others:
            np.testing.assert_allclose(other.result(60), expected[1], atol=1e-5)
    assert made.together == [1, 8]
    with urllib.request.urlopen(f"{address}/metrics") as reply:
        lines = reply.read().decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["lamina_requests_active"] == values["lamina_texts_waiting"] == "0"
    assert int(values["lamina_prompt_tokens_total"]) >= 9 * 3
    assert json.load(urllib.request.urlopen(f"{address}/health")) == {"status": "ok"}


def test_a_failure_is_an_error_and_the_next_text_is_computed(
    client: Any, made: Model, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(texts: Any) -> Any:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(made.embedder, "of_tokens", fail)
        with pytest.raises(openai.InternalServerError, match="the model did not run; see"):
            client.embeddings.create(model=NAME, input=TEXTS)
    assert "no memory" in capfd.readouterr().err
    assert len(client.embeddings.create(model=NAME, input="a").data) == 1


def test_a_client_that_leaves_waits_no_more(made: Model, address: str) -> None:
    made.gate.clear()
    connection = http.client.HTTPConnection(address.removeprefix("http://"))
    body = json.dumps({"model": NAME, "input": "a"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    wait_until(lambda: made.server.gauges()["requests_active"] == 1)
    connection.close()
    wait_until(lambda: made.server.gauges()["requests_active"] == 0)
    made.gate.set()


def test_texts_that_nobody_waits_for_are_not_computed(tmp_path: Path) -> None:
    """The time of the second request ends while the first one is computed."""
    made = Model(tmp_path, seconds=1.0)
    made.gate.clear()
    body = json.dumps({"model": NAME, "input": "a cat"}).encode()

    async def both() -> list[Any]:
        await made.server.start()
        first = asyncio.create_task(ask(made.server.app, "POST", "/v1/embeddings", body, JSON))
        while not made.together:
            await asyncio.sleep(0.01)
        second = await ask(made.server.app, "POST", "/v1/embeddings", body, JSON)
        replies = [await first, second]
        made.gate.set()
        while made.server.gauges()["texts_waiting"]:
            await asyncio.sleep(0.01)
        await made.server.stop()
        return replies

    for reply in asyncio.run(both()):
        assert reply.status == 504
        assert reply.json["error"]["code"] == "timeout"
    assert made.together == [1]
