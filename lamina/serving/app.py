"""The routes of a server of a language model, as an application of ASGI."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import resources

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from lamina.serving.answers import Answers
from lamina.serving.batch import Batch, Text
from lamina.serving.bodies import ChatBodies, CompletionBodies
from lamina.serving.events import EventStream
from lamina.serving.front import Front, Limits
from lamina.serving.protocol import ApiError, Settings, parse_chat, parse_completion
from lamina.serving.stopping import StoppingStream
from lamina.serving.worker import Worker
from lamina.text.schema import Constraint, Schemas
from lamina.text.tokenizer import Tokenizer

__all__ = ["Server"]

_STOP_SECONDS = 10.0  # for the step that runs when the server ends
_PAGE_RULES = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
_PAGE_RULES += "connect-src 'self'"


class Server(Front):
    """A language model as a service; other arguments are those of `Front`.

    batch: writes the texts. vocabulary: tokens of prompts are below it."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, batch: Batch, vocabulary: int, limits: Limits,
        key: str | None = None, host: str = "localhost",
    ) -> None:  # fmt: skip
        routes = [
            Route("/", self._page),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._completions, methods=["POST"]),
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
        ]
        super().__init__(name, limits, routes, key, host)
        self._tokenizer, self._batch, self._vocabulary = tokenizer, batch, vocabulary
        self._schemas = Schemas(tokenizer, vocabulary)
        self._worker = Worker(batch, limits.waiting, self.metrics)

    async def start(self) -> None:
        self._worker.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._worker.stop, _STOP_SECONDS)

    def is_alive(self) -> bool:
        return self._worker.is_alive

    def gauges(self) -> Mapping[str, int]:
        return {
            "texts_waiting": len(self._batch.waiting),
            "texts_active": len(self._batch.active),
            "pages": self._batch.pool.count,
            "pages_free": self._batch.pool.free,
        }

    async def _page(self, _: Request) -> Response:
        page = resources.files("lamina.serving").joinpath("page.html").read_text(encoding="utf-8")
        return HTMLResponse(page, headers={"Content-Security-Policy": _PAGE_RULES})

    async def _embeddings(self, request: Request) -> Response:
        await self.body(request)
        reason = f"{self.name} writes text and makes no embeddings"
        raise ApiError(400, reason, "model", "unsupported_model")

    async def _chat(self, request: Request) -> Response:
        settings, messages = parse_chat(await self.body(request))
        self.check_model(settings.model)
        prompt = await self.made(self._tokenizer.chat, messages, "messages")
        constraint = await self._constraint(settings)
        texts = self._texts([prompt], settings, "messages", constraint)
        return await self._answer(request, settings, texts, ChatBodies(self.name))

    async def _completions(self, request: Request) -> Response:
        asked = parse_completion(await self.body(request))
        self.check_model(asked.settings.model)
        prompts = list[list[int]]()
        for prompt in asked.prompts:
            if isinstance(prompt, str):
                prompt = await self.made(self._tokenizer.encode, prompt, "prompt")
            prompts.append(prompt)
        texts = self._texts(prompts, asked.settings, "prompt")
        return await self._answer(request, asked.settings, texts, CompletionBodies(self.name))

    async def _constraint(self, settings: Settings) -> Constraint | None:
        if settings.schema is None:
            return None
        return await self.made(self._schemas.constraint, settings.schema, "response_format")

    def _texts(
        self, prompts: Sequence[Sequence[int]], settings: Settings, field: str,
        constraint: Constraint | None = None,
    ) -> list[Text]:  # fmt: skip
        """What the batch is to write: each prompt as often as is asked for."""
        texts, capacity = list[Text](), self._batch.capacity
        count = len(prompts) * settings.count
        if count > self._worker.most:
            reason = f"{count} texts are asked for; this server takes {self._worker.most} at most"
            raise ApiError(400, f"n: {reason}", "n")
        for prompt in prompts:
            if not prompt or not all(0 <= token < self._vocabulary for token in prompt):
                reason = f"one or more tokens from 0 to {self._vocabulary - 1} are needed"
                raise ApiError(400, f"{field}: {reason}", field)
            limit = settings.limit or min(self.limits.tokens, capacity - len(prompt))
            for _ in range(settings.count):
                sampling = settings.sampling_of(len(texts))
                copy = None if constraint is None else constraint.copy()
                texts.append(Text(prompt, limit, sampling, self._tokenizer.stops, copy))
            if limit < 1 or not self._batch.fits(texts[-1]):
                reason = f"{len(prompt)} tokens and {max(limit, 1)} new ones are asked for; "
                reason += f"{capacity} fit"
                raise ApiError(400, reason, field, "context_length_exceeded")
        return texts

    async def _answer(
        self, request: Request, settings: Settings, texts: Sequence[Text],
        bodies: ChatBodies | CompletionBodies,
    ) -> Response:  # fmt: skip
        goes_on = isinstance(bodies, CompletionBodies)
        streams = [
            StoppingStream(self._tokenizer, settings.stops, text.prompt if goes_on else ())
            for text in texts
        ]
        seconds = self.limits.seconds
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
