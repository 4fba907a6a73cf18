"""What every server has: routes about the model and the server, a guard that refuses requests,
bodies of requests, and errors."""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamina.errors import LaminaError
from lamina.serving.answers import ClientGoneError
from lamina.serving.metrics import Metrics
from lamina.serving.protocol import ApiError, parse_object

__all__ = ["Front", "Limits"]

_Part = TypeVar("_Part")  # of a request: a text, a conversation, or a schema
_Made = TypeVar("_Made")
_OPEN_PATHS = frozenset({"/", "/health"})  # without a key
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A name or an address, and a port, as RFC 9112 has them in the header Host.
_HOST = re.compile(r"([\w.~!$&'()*+,;=%-]*|\[[0-9a-f:.]+\])(:[0-9]*)?", re.ASCII | re.IGNORECASE)
_BODY_SECONDS = 30.0  # until a body has come
_MADE_AT_ONCE = 2  # texts or schemas that are read; the rest of the machine is for the model


@dataclass(frozen=True)
class Limits:
    """body: bytes of a request. waiting: texts that wait for a slot. tokens: of a text whose
    request does not say how many. seconds: for a request."""

    body: int = 1 << 20
    waiting: int = 64
    tokens: int = 512
    seconds: float = 300.0


class Front(ABC):
    """One model as a service; `app` is the application.

    name: of the model, as clients ask for it. routes: beside those that all servers have. key:
    what clients have to know, if there is one; without one only requests to this machine by its
    local names are answered, so that no page of another site reaches the server by a name of its
    own. host: where it listens, which is one of these names; an address of IPv6 in brackets."""

    def __init__(
        self, name: str, limits: Limits, routes: Sequence[Route], key: str | None, host: str
    ) -> None:
        self.name, self.limits = name, limits
        self.metrics = Metrics()
        self._created = int(time.time())
        self._making = asyncio.Semaphore(_MADE_AT_ONCE)
        routes = [
            *routes,
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
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

    @abstractmethod
    async def start(self) -> None:
        """Begin to work, before the first request."""

    @abstractmethod
    async def stop(self) -> None:
        """End what is left after the last request."""

    @abstractmethod
    def is_alive(self) -> bool:
        """Whether requests are worked on."""

    @abstractmethod
    def gauges(self) -> Mapping[str, int]:
        """Counts of this moment, such as texts that wait, by name, for ``/metrics``."""

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        await self.start()
        yield
        await self.stop()

    # Routes that all servers have.

    async def _health(self, _: Request) -> Response:
        if not self.is_alive():
            raise ApiError(503, "no text is worked on any more; see the log", kind="api_error")
        return JSONResponse({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.metrics.lines(self.gauges()))

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model_body()]})

    async def _model(self, request: Request) -> Response:
        self.check_model(request.path_params["name"])
        return JSONResponse(self._model_body())

    def _model_body(self) -> dict[str, Any]:
        return {
            "id": self.name, "object": "model", "created": self._created, "owned_by": "lamina"
        }  # fmt: skip

    def check_model(self, name: str) -> None:
        """Raises ApiError for another name than the model's."""
        if name != self.name:
            reason = f"no model {name[:60]!r}; there is {self.name!r}"
            raise ApiError(404, reason, "model", "model_not_found")

    # Requests.

    async def body(self, request: Request) -> dict[str, Any]:
        """The JSON object that a client sends. It has to say that it is JSON: a page of another
        site cannot say so without asking first."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, "content-type: application/json is needed")
        limit, body = self.limits.body, bytearray()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > limit:
                        raise ApiError(413, f"the body has more than {limit} bytes")
        except TimeoutError:
            raise ApiError(408, f"the body has not come in {_BODY_SECONDS:g} s") from None
        return parse_object(bytes(body))

    async def made(self, make: Callable[[_Part], _Made], part: _Part, field: str) -> _Made:
        """What `make` makes of a part of a request, such as the tokens of a text, in a thread of
        its own: other clients need not wait for a long one. Raises ApiError, which names the field
        of the request, where it raises LaminaError."""
        try:
            async with self._making:
                return await asyncio.to_thread(make, part)
        except LaminaError as error:
            raise ApiError(400, error.message, field) from None


class _Guard:
    """Refuses requests of clients that may not ask, and counts answers by path and status."""

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
        answer = self._app if error is None else _error_response(error)
        try:
            await answer(scope, receive, counted)
        except Exception:
            if not is_counted:  # what is around this middleware answers it
                self._metrics.request(path, 500)
            raise

    def _refusal(self, request: Request) -> ApiError | None:
        host = request.headers.get("host", "")
        if not _HOST.fullmatch(host):
            return ApiError(400, f"host {host[:60]!r} is no name or address with a port")
        if self._key is None:
            if _without_port(host).lower() in self._names:
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


def _without_port(host: str) -> str:
    """The name or address in a header: [::1] of [::1]:8000 and of [::1]."""
    if host.endswith("]"):
        return host
    name, _, _ = host.rpartition(":")
    return name or host


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
    """The client has left."""
    return Response(status_code=499)  # nobody reads it; it is counted
