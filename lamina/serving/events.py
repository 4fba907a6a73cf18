"""Answers as server-sent events: ``data: {...}`` for each piece, ``data: [DONE]`` at the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lamina.serving.answers import Answers, ClientGoneError
from lamina.serving.bodies import ChatBodies, CompletionBodies
from lamina.serving.protocol import ApiError, Settings

__all__ = ["EventStream"]


class EventStream(Response):
    """The texts of `answers`, which it closes, as they are written. seconds: that a client may take
    to read an event."""

    media_type = "text/event-stream"

    def __init__(
        self, answers: Answers, bodies: ChatBodies | CompletionBodies, settings: Settings,
        seconds: float,
    ) -> None:  # fmt: skip
        super().__init__(headers={"Cache-Control": "no-store"})
        del self.headers["content-length"]
        self._answers, self._bodies = answers, bodies
        self._settings, self._seconds = settings, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(start)
            async for event in self._events():
                body = f"data: {event}\n\n".encode()
                async with asyncio.timeout(self._seconds):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        except (ClientGoneError, TimeoutError):
            return  # the connection is closed
        finally:
            self._answers.close()

    async def _events(self) -> AsyncIterator[str]:
        try:
            begun = set[int]()
            async for piece in self._answers.pieces():
                first = None if piece.choice in begun else self._bodies.first(piece.choice)
                if first is not None:
                    yield _json(first)
                begun.add(piece.choice)
                yield _json(self._bodies.chunk(piece))
            if self._settings.shows_usage:
                yield _json(self._bodies.usage(self._answers.usage(self._settings.count)))
        except ApiError as error:
            yield _json(error.body())
        yield "[DONE]"


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
