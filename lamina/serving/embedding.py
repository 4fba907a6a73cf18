"""The routes of a server of embeddings, as an application of ASGI.

Texts of all requests that wait are computed together, in the order in which they came.
"""

from __future__ import annotations

import asyncio
import traceback
from base64 import b64encode
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive

from lamina.models.embedding import Embedder
from lamina.serving.answers import ClientGoneError
from lamina.serving.front import Front, Limits
from lamina.serving.protocol import ApiError, parse_embeddings

__all__ = ["EmbeddingServer"]

Array = Any  # numpy.ndarray
_MAX_TOGETHER = 64  # texts that are computed together; those that come meanwhile wait


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A text that waits for its vector."""

    tokens: Sequence[int]
    vector: asyncio.Future[Array]


class EmbeddingServer(Front):
    """A model of embeddings as a service; see `Front`."""

    def __init__(
        self, name: str, embedder: Embedder, limits: Limits, key: str | None = None,
        host: str = "localhost",
    ) -> None:  # fmt: skip
        routes = [
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
            Route("/v1/chat/completions", self._no_text, methods=["POST"]),
            Route("/v1/completions", self._no_text, methods=["POST"]),
        ]
        super().__init__(name, limits, routes, key, host)
        self._embedder = embedder
        self._open_requests = 0  # that are not answered yet
        self._waiting = deque[_Waiting]()
        self._has_come = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._work = asyncio.create_task(self._compute_all())

    async def stop(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def is_alive(self) -> bool:
        return self._work is not None and not self._work.done()

    def gauges(self) -> Mapping[str, int]:
        return {"requests_active": self._open_requests, "texts_waiting": len(self._waiting)}

    async def _no_text(self, request: Request) -> Response:
        await self.body(request)
        reason = f"{self.name} makes embeddings and writes no text"
        raise ApiError(400, reason, "model", "unsupported_model")

    async def _embeddings(self, request: Request) -> Response:
        asked = parse_embeddings(await self.body(request), self._embedder.size)
        self.check_model(asked.model)
        if self._open_requests > self.limits.waiting:
            reason = f"{self._open_requests} requests wait; ask again later"
            raise ApiError(429, reason, code="queue_full", kind="rate_limit_error")
        self._open_requests += 1
        try:
            texts = [await self._tokens_of(text) for text in asked.inputs]
            vectors = await self._vectors(texts, request.receive)
        finally:
            self._open_requests -= 1
        count = sum(map(len, texts))
        self.metrics.read(count)
        data = [
            {"object": "embedding", "index": index, "embedding": _shown(vector, asked.is_base64)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": count, "total_tokens": count}
        return JSONResponse({"object": "list", "data": data, "model": self.name, "usage": usage})

    async def _tokens_of(self, text: str | list[int]) -> Sequence[int]:
        """The tokens of a text, which may be given as such. Raises ApiError for a text that is too
        long, and for numbers of no token."""
        tokens: Sequence[Any] = text
        if isinstance(text, str):
            tokens = await self.made(self._embedder.all_tokens, text, "input")
        longest = self._embedder.settings.longest
        if len(tokens) > longest:
            reason = f"a text of {len(tokens)} tokens; {longest} fit"
            raise ApiError(400, f"input: {reason}", "input", "context_length_exceeded")
        last = self._embedder.vocabulary - 1
        if not all(isinstance(token, int) and 0 <= token <= last for token in tokens):
            raise ApiError(400, f"input: tokens from 0 to {last} are needed", "input")
        return [int(token) for token in tokens]

    async def _vectors(self, texts: Sequence[Sequence[int]], receive: Receive) -> list[Array]:
        """The vectors of texts. Raises ApiError where that takes too long or fails, and
        ClientGoneError where the client leaves."""
        loop = asyncio.get_running_loop()
        added = [_Waiting(tokens, loop.create_future()) for tokens in texts]
        self._waiting.extend(added)
        self._has_come.set()
        whole = asyncio.gather(*(text.vector for text in added))
        gone = loop.create_task(_until_gone(receive))
        try:
            done, _ = await asyncio.wait(
                (whole, gone), timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if whole in done:
                return list(whole.result())
            if gone in done:
                raise ClientGoneError
            reason = f"not finished after {self.limits.seconds:g} s; ask for fewer texts"
            raise ApiError(504, reason, code="timeout", kind="timeout_error")
        finally:
            whole.cancel()
            gone.cancel()

    async def _compute_all(self) -> None:
        """Compute what waits, until the server ends."""
        while True:
            await self._has_come.wait()
            self._has_come.clear()
            while texts := self._next_texts():
                await self._compute(texts)

    def _next_texts(self) -> list[_Waiting]:
        """The first texts that wait, without those whose requests have ended."""
        texts = list[_Waiting]()
        while self._waiting and len(texts) < _MAX_TOGETHER:
            text = self._waiting.popleft()
            if not text.vector.done():
                texts.append(text)
        return texts

    async def _compute(self, texts: Sequence[_Waiting]) -> None:
        tokens = [text.tokens for text in texts]
        try:
            vectors = await asyncio.to_thread(self._embedder.of_tokens, tokens)
        except Exception:  # of the compiler or the device: the next texts may be computed
            traceback.print_exc()
            reason = "the model did not run; see the server's log"
            for text in texts:
                if not text.vector.done():
                    text.vector.set_exception(ApiError(500, reason, kind="api_error"))
            return
        for text, vector in zip(texts, vectors, strict=True):
            if not text.vector.done():  # its client has left, or waited too long
                text.vector.set_result(vector)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _shown(vector: Array, is_base64: bool) -> str | list[float]:
    """A vector in an answer: numbers, or their bytes, little-endian, as text."""
    if is_base64:
        return b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    numbers: list[float] = vector.tolist()
    return numbers
