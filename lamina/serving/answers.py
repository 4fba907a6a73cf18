"""The texts of one request, from the worker's thread to the client that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from starlette.types import Receive

from lamina.serving.batch import Text, Written
from lamina.serving.protocol import ApiError, Usage
from lamina.serving.stopping import StoppingStream
from lamina.serving.worker import BusyError, Failed, Worker

__all__ = ["Answers", "ClientGoneError", "Piece"]


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


class _Signal(Enum):
    LATE = auto()
    GONE = auto()


@dataclass(frozen=True)
class Piece:
    """New text of choice number `choice`. finish_reason: with its last piece."""

    choice: int
    text: str
    finish_reason: str | None


class Answers:
    """Texts that are written as soon as this is made. To be closed, whatever happens: `close`
    cancels what is not finished. Raises ApiError where too many texts wait."""

    def __init__(
        self, worker: Worker, texts: Sequence[Text], streams: Sequence[StoppingStream],
        receive: Receive, seconds: float,
    ) -> None:  # fmt: skip
        self._worker, self._texts = worker, texts
        self._streams = dict(zip(texts, streams, strict=True))
        self._numbers = {text: number for number, text in enumerate(texts)}
        self._tokens = 0
        self._seconds = seconds
        loop = asyncio.get_running_loop()
        self._events: asyncio.Queue[Written | Failed | _Signal] = asyncio.Queue()
        put = self._events.put_nowait
        try:
            worker.submit(texts, lambda event: loop.call_soon_threadsafe(put, event))
        except BusyError as error:
            raise ApiError(429, str(error), code="queue_full", kind="rate_limit_error") from None
        self._late = loop.call_later(seconds, put, _Signal.LATE)
        self._watch = loop.create_task(self._until_gone(receive))

    def close(self) -> None:
        self._late.cancel()
        self._watch.cancel()
        self._worker.cancel(self._texts)

    async def pieces(self) -> AsyncIterator[Piece]:
        """New text as it comes, until all texts have ended. Raises ApiError where that takes too
        long or fails, and ClientGoneError."""
        left = set(self._texts)
        while left:
            written = self._checked(await self._events.get())
            text = written.text
            if text not in left:
                continue  # it was written on before it was cancelled
            self._tokens += 1
            piece = self._piece(written)
            if piece.finish_reason is not None:
                left.discard(text)
                self._worker.cancel([text])
            if piece.text or piece.finish_reason is not None:
                yield piece

    def usage(self, choices: int) -> Usage:
        """Of all texts, each `choices` of which have one prompt."""
        firsts = self._texts[::choices]
        return Usage(
            sum(len(text.prompt) for text in firsts),
            sum(text.reused for text in firsts),
            self._tokens,
        )

    def _checked(self, event: Written | Failed | _Signal) -> Written:
        if event is _Signal.GONE:
            raise ClientGoneError
        if event is _Signal.LATE:
            reason = f"not finished after {self._seconds:g} s; ask for fewer tokens"
            raise ApiError(504, reason, code="timeout", kind="timeout_error")
        if not isinstance(event, Written):
            raise ApiError(500, "the model did not run; see the server's log", kind="api_error")
        return event

    def _piece(self, written: Written) -> Piece:
        stream, reason = self._streams[written.text], written.finish_reason
        new = "" if reason == "stop" else stream.push(written.token)
        if reason is not None:
            new += stream.close()
        reason = "stop" if stream.is_stopped else reason
        return Piece(self._numbers[written.text], new, reason)

    async def _until_gone(self, receive: Receive) -> None:
        message: Any = {}
        while message.get("type") != "http.disconnect":
            message = await receive()
        self._events.put_nowait(_Signal.GONE)
