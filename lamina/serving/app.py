"""The routes of the server, as an application of ASGI."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamina.errors import LaminaError
from lamina.serving.answers import Answers, ClientGoneError
from lamina.serving.batch import Batch, Text
from lamina.serving.bodies import ChatBodies, CompletionBodies
from lamina.serving.events import EventStream
from lamina.serving.metrics import Metrics
from lamina.serving.protocol import (
    ApiError,
    Settings,
    parse_chat,
    parse_completion,
    parse_object,
)
from lamina.serving.stopping import StoppingStream
from lamina.serving.worker import Worker
from lamina.text.tokenizer import Tokenizer

__all__ = ["Limits", "Server"]

_OPEN_PATHS = frozenset({"/", "/health"})  # without a key
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A name or an address, and a port, as RFC 9112 has them in the header Host.
_HOST = re.compile(r"([\w.~!$&'()*+,;=%-]*|\[[0-9a-f:.]+\])(:[0-9]*)?", re.ASCII | re.IGNORECASE)
_BODY_SECONDS = 30.0  # until a body has come
_STOP_SECONDS = 10.0  # for the step that runs when the server ends
_TOKENIZED_AT_ONCE = 2  # texts; the rest of the machine is for the model
_PAGE_RULES = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
_PAGE_RULES += "connect-src 'self'"


@dataclass(frozen=True)
class Limits:
    """body: bytes of a request. waiting: texts that wait for a slot. tokens: of a text whose
    request does not say how many. seconds: for a request."""

    body: int = 1 << 20
    waiting: int = 64
    tokens: int = 512
    seconds: float = 300.0


class Server:
    """One model as a service; `app` is the application.

    name: of the model, as clients ask for it. key: what they have to know, if there is one; without
    one only requests to this machine by its local names are answered, so that no page of another
    site reaches the server by a name of its own. host: where it listens, which is one of these
    names; an address of IPv6 in brackets."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, batch: Batch, vocabulary: int, limits: Limits,
        key: str | None = None, host: str = "localhost",
    ) -> None:  # fmt: skip
        self.name, self._tokenizer, self._limits = name, tokenizer, limits
        self._batch, self._vocabulary = batch, vocabulary
        self.metrics = Metrics()
        self._worker = Worker(batch, limits.waiting, self.metrics)
        self._created = int(time.time())
        self._tokenizing = asyncio.Semaphore(_TOKENIZED_AT_ONCE)
        routes = [
            Route("/", self._page),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
        ]
        paths = frozenset(route.path for route in routes)
        self.app = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            middleware=[Middleware(_Guard, self.metrics, key, _LOCAL_NAMES | {host}, paths)],
            exception_handlers={
                ApiError: _answer_error, HTTPException: _answer_http, Exception: _answer_failure,
                ClientDisconnect: _answer_nobody, ClientGoneError: _answer_nobody,
            },
        )  # fmt: skip

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self._worker.start()
        yield
        await asyncio.to_thread(self._worker.stop, _STOP_SECONDS)

    # What is there.

    async def _page(self, _: Request) -> Response:
        page = resources.files("lamina.serving").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(page, headers={"Content-Security-Policy": _PAGE_RULES})

    async def _health(self, _: Request) -> Response:
        if not self._worker.is_alive:
            raise ApiError(503, "no text is written any more; see the log", kind="api_error")
        return JSONResponse({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        gauges = {
            "texts_waiting": len(self._batch.waiting),
            "texts_active": len(self._batch.active),
            "pages": self._batch.pool.count,
            "pages_free": self._batch.pool.free,
        }
        return PlainTextResponse(self.metrics.lines(gauges))

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_body()]})

    async def _model(self, request: Request) -> Response:
        self._check_model(request.path_params["name"])
        return JSONResponse(self._model_body())

    def _model_body(self) -> dict[str, Any]:
        return {
            "id": self.name, "object": "model", "created": self._created, "owned_by": "lamina"
        }  # fmt: skip

    def _check_model(self, name: str) -> None:
        if name != self.name:
            reason = f"no model {name[:60]!r}; there is {self.name!r}"
            raise ApiError(404, reason, "model", "model_not_found")

    async def _embeddings(self, request: Request) -> Response:
        await self._body(request)
        reason = f"{self.name} writes text and makes no embeddings"
        raise ApiError(400, reason, "model", "unsupported_model")

    # Text.

    async def _chat(self, request: Request) -> Response:
        settings, messages = parse_chat(await self._body(request))
        self._check_model(settings.model)
        prompt = await self._tokens(self._tokenizer.chat, messages, "messages")
        texts = self._texts([prompt], settings, "messages")
        return await self._answer(request, settings, texts, ChatBodies(self.name))

    async def _completions(self, request: Request) -> Response:
        asked = parse_completion(await self._body(request))
        self._check_model(asked.settings.model)
        prompts = list[list[int]]()
        for prompt in asked.prompts:
            if isinstance(prompt, str):
                prompt = await self._tokens(self._tokenizer.encode, prompt, "prompt")
            prompts.append(prompt)
        texts = self._texts(prompts, asked.settings, "prompt")
        return await self._answer(request, asked.settings, texts, CompletionBodies(self.name))

    async def _body(self, request: Request) -> dict[str, Any]:
        """The JSON object that a client sends. It has to say that it is JSON: a page of another
        site cannot say so without asking first."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, "content-type: application/json is needed")
        most, body = self._limits.body, bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise ApiError(413, f"the body has more than {most} bytes")
        except TimeoutError:
            raise ApiError(408, f"the body has not come in {_BODY_SECONDS:g} s") from None
        return parse_object(bytes(body))

    async def _tokens(self, encode: Any, text: Any, field: str) -> list[int]:
        """The tokens of a text or a conversation. A thread of its own makes them: other clients
        need not wait for a long text."""
        try:
            async with self._tokenizing:
                tokens: list[int] = await asyncio.to_thread(encode, text)
        except LaminaError as error:
            raise ApiError(400, error.message, field) from None
        return tokens

    def _texts(
        self, prompts: Sequence[Sequence[int]], settings: Settings, field: str
    ) -> list[Text]:
        """What the batch is to write: each prompt as often as is asked for."""
        texts, capacity = list[Text](), self._batch.capacity
        count, most = len(prompts) * settings.count, self._worker.most
        if count > most:
            reason = f"{count} texts are asked for; this server takes {most} at most"
            raise ApiError(400, f"n: {reason}", "n")
        for prompt in prompts:
            if not prompt or not all(0 <= token < self._vocabulary for token in prompt):
                reason = f"one or more tokens from 0 to {self._vocabulary - 1} are needed"
                raise ApiError(400, f"{field}: {reason}", field)
            limit = settings.limit or min(self._limits.tokens, capacity - len(prompt))
            for _ in range(settings.count):
                sampling = settings.sampling_of(len(texts))
                texts.append(Text(prompt, limit, sampling, self._tokenizer.stops))
            if limit < 1 or not self._batch.fits(texts[-1]):
                reason = f"{len(prompt)} tokens and {max(limit, 1)} new ones are asked for; "
                reason += f"{capacity} fit"
                raise ApiError(400, reason, field, "context_length_exceeded")
        return texts

    async def _answer(
        self, request: Request, settings: Settings, texts: Sequence[Text],
        bodies: ChatBodies | CompletionBodies,
    ) -> Response:  # fmt: skip
        streams = [StoppingStream(self._tokenizer, settings.stops) for _ in texts]
        seconds = self._limits.seconds
        answers = Answers(self._worker, texts, streams, request.receive, seconds)
        if settings.streams:
            return EventStream(answers, bodies, settings, seconds)
        try:
            written, reasons = [""] * len(texts), [""] * len(texts)
            async for piece in answers.pieces():
                written[piece.choice] += piece.text
                reasons[piece.choice] = piece.finish_reason or ""
        finally:
            answers.close()
        choices = list(zip(written, reasons, strict=True))
        return JSONResponse(bodies.whole(choices, answers.usage(settings.count)))


class _Guard:
    """Refuses who may not ask, and counts what is answered."""

    def __init__(
        self, app: ASGIApp, metrics: Metrics, key: str | None, names: frozenset[str],
        paths: frozenset[str],
    ) -> None:  # fmt: skip
        self._app, self._metrics, self._key = app, metrics, key
        self._names, self._paths = names, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"] if scope["path"] in self._paths else "other"
        is_counted = False

        async def counted(message: Message) -> None:
            nonlocal is_counted
            if message["type"] == "http.response.start":
                self._metrics.request(path, message["status"])
                is_counted = True
            await send(message)

        error = self._refusal(Request(scope))
        try:
            await (self._app if error is None else _error_response(error))(scope, receive, counted)
        except Exception:
            if not is_counted:  # what is around this middleware answers it
                self._metrics.request(path, 500)
            raise

    def _refusal(self, request: Request) -> ApiError | None:
        host = request.headers.get("host", "")
        if not _HOST.fullmatch(host):
            return ApiError(400, f"host {host[:60]!r} is no name or address with a port")
        if self._key is None:
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() in self._names:
                return None
            names = ", ".join(sorted(self._names))
            reason = f"without a key only {names} are answered; start it with --api-key-file"
            return ApiError(403, f"host {host[:60]!r}: {reason}")
        # The path that is routed: `request.url` is made of the client's own words for the host.
        if request.scope["path"] in _OPEN_PATHS:
            return None
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        is_known = hmac.compare_digest(given.strip().encode(), self._key.encode())
        if kind.lower() == "bearer" and is_known:
            return None
        reason = "'Bearer' and the server's key are needed"
        return ApiError(401, f"authorization: {reason}", code="invalid_api_key")


def _error_response(error: ApiError) -> Response:
    headers = {"Retry-After": "1"} if error.status == 429 else None
    return JSONResponse(error.body(), error.status, headers)


async def _answer_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return _error_response(error)


async def _answer_http(request: Request, error: Exception) -> Response:
    """No such route, or not with this method."""
    assert isinstance(error, HTTPException)
    reason = f"{request.method} {request.scope['path'][:60]}: {error.detail}"
    return _error_response(ApiError(error.status_code, reason))


async def _answer_failure(_: Request, error: Exception) -> Response:
    return _error_response(ApiError(500, "the server failed; see its log", kind="api_error"))


async def _answer_nobody(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; it is counted
