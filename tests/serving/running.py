"""A server that runs in a thread of the tests, and requests to its application without a socket."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from lamina.serving.batch import Batch
from lamina.serving.engine import Engine, Row
from tests.serving.tiny import CONFIG, ROOM, network, tokenizer

NAME = "tiny"


class SlowEngine(Engine):
    """Takes some time for each token, as larger models do."""

    def write(self, rows: Sequence[Row]) -> list[int]:
        time.sleep(0.01)
        return super().write(rows)


def make(key: str | None = None, kind: type[Engine] = Engine, **limits: Any) -> Any:
    """A server, and its batch."""
    pytest.importorskip("starlette")
    from lamina.serving.app import Server
    from lamina.serving.front import Limits

    batch = Batch(kind(network("cpu"), ROOM, "cpu"))
    return Server(NAME, tokenizer(), batch, CONFIG.vocabulary, Limits(**limits), key), batch


@contextmanager
def running(server: Any) -> Iterator[str]:
    """The address of the server, which ends with the block."""
    uvicorn = pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        runner = uvicorn.Server(uvicorn.Config(server.app, log_level="error"))
        thread = threading.Thread(target=runner.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            runner.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


def wait_until(holds: Any, seconds: float = 30.0) -> None:
    """Fails where `holds` stays false."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


JSON = {"content-type": "application/json", "host": "localhost:80"}


async def ask(
    app: Any, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = JSON
) -> Reply:
    """What the application answers to one request."""
    parts, status = [b""], 0
    is_sent = False

    async def receive() -> dict[str, Any]:
        nonlocal is_sent
        if is_sent:
            await asyncio.Event().wait()  # the client stays
        is_sent = True
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        parts.append(message.get("body", b""))

    names = [(name.lower().encode("latin-1"), value.encode("latin-1"))
             for name, value in headers.items()]  # fmt: skip
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": names,
        "query_string": b"", "http_version": "1.1", "scheme": "http", "server": ("localhost", 80),
        "client": ("127.0.0.1", 1), "root_path": "",
    }  # fmt: skip
    await app(scope, receive, send)
    return Reply(status, b"".join(parts))
