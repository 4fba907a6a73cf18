"""Bodies of requests and of answers, as OpenAI's API has them, and errors in its form.

A setting that would be ignored is refused, unless it changes nothing of the text.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from lamina.errors import ArgumentError
from lamina.models.sampling import Sampling

__all__ = [
    "ApiError", "Completion", "Embeddings", "Settings", "Usage", "parse_chat", "parse_completion",
    "parse_embeddings", "parse_object",
]  # fmt: skip

_MOST_CHOICES, _MOST_STOPS = 16, 16
_MOST_INPUTS = 2048  # texts to embed, as in OpenAI's API
_LONGEST_STOP = 256  # characters
_LONGEST_PARAM = 200  # characters of a field's name in an error
# Settings that change nothing of the text.
_IGNORED = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
    "prompt_cache_retention", "parallel_tool_calls",
})  # fmt: skip
# Settings of the API that lamina does not have, with the values that ask for nothing.
_NEUTRAL: Mapping[str, Sequence[Any]] = {
    "logprobs": (False,),  # 0 asks for those of the tokens that are written
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "response_format": ({"type": "text"},),  # chats have others
    "modalities": (["text"],),
}
_SETTINGS = frozenset({
    "model", "stream", "stream_options", "max_tokens", "n", "stop", "temperature", "top_k", "top_p",
    "min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "seed",
})  # fmt: skip
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def _sendable(text: str) -> str:
    """`text` with "?" for halves of pairs of surrogates, which JSON can name and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


class ApiError(Exception):
    """An answer with an error. kind, param and code are the fields of OpenAI's object: the class
    of the error, the field of the request that is wrong, and a word for programs."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.message = status, message
        self.param, self.code, self.kind = param, code, kind

    def body(self) -> dict[str, Any]:
        param = None if self.param is None else _sendable(self.param[:_LONGEST_PARAM])
        message = _sendable(self.message)
        return {"error": {"message": message, "type": self.kind, "param": param, "code": self.code}}


@dataclass(frozen=True)
class Settings:
    """How the texts of a request are written. limit: tokens of each, where the request says so.
    schema: of JSON, which they have to fit."""

    model: str
    sampling: Sampling
    limit: int | None
    count: int  # of texts for each prompt
    stops: tuple[str, ...]
    streams: bool
    shows_usage: bool
    schema: Mapping[str, Any] | None

    def sampling_of(self, choice: int) -> Sampling:
        """Of text number `choice` of the request: each has a seed of its own."""
        seed = (self.sampling.seed + choice) % (1 << 32)
        return replace(self.sampling, seed=seed)


@dataclass(frozen=True)
class Completion:
    """A request to write on. prompts: texts, or tokens by number."""

    settings: Settings
    prompts: list[str | list[int]]


@dataclass(frozen=True)
class Embeddings:
    """A request for vectors. inputs: texts, or tokens by number. is_base64: the vectors are wanted
    as the base64 of their float32 numbers."""

    model: str
    inputs: list[str | list[int]]
    is_base64: bool


@dataclass(frozen=True)
class Usage:
    """Tokens that were read, of these the ones that were in the caches, and tokens written."""

    prompt: int
    reused: int
    written: int

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.written,
            "total_tokens": self.prompt + self.written,
            "prompt_tokens_details": {"cached_tokens": self.reused},
        }


def parse_object(body: bytes) -> dict[str, Any]:
    """The JSON object in the body of a request; raises ApiError for anything else."""
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ApiError(400, "the body is not a JSON object")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def parse_chat(body: Mapping[str, Any]) -> tuple[Settings, list[dict[str, str]]]:
    """The settings and the messages, which have a role and a content. Raises ApiError, which names
    the field, for what makes no sense and for what lamina cannot do."""
    settings = _settings(_Fields(body), "messages", "max_completion_tokens", "response_format")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages: a list of one or more messages is needed", "messages")
    return settings, [_message(one, f"messages[{at}]") for at, one in enumerate(messages)]


def parse_completion(body: Mapping[str, Any]) -> Completion:
    """Raises ApiError as `parse_chat` does."""
    settings = _settings(_Fields(body), "prompt")
    prompts = _texts(body, "prompt")
    if len(prompts) * settings.count > _MOST_CHOICES:
        many = f"{len(prompts)} prompts times n = {settings.count}"
        raise ApiError(400, f"prompt: {many}: more than {_MOST_CHOICES} texts", "prompt")
    return Completion(settings, prompts)


def parse_embeddings(body: Mapping[str, Any], size: int) -> Embeddings:
    """size: of the model's vectors, as no others can be asked for. Raises ApiError as `parse_chat`
    does."""
    fields, known = _Fields(body), {"model", "input", "encoding_format", "dimensions", "user"}
    for name, value in body.items():
        if value is not None and name not in known:
            raise ApiError(400, f"{_shown(name)}: no such field", name, "unknown_parameter")
    encoding = fields.get("encoding_format", str, "'float' or 'base64'", "float")
    if encoding not in ("float", "base64"):
        reason = f"{_shown(encoding)}; 'float' or 'base64' is needed"
        raise ApiError(400, f"encoding_format: {reason}", "encoding_format")
    fields.whole("dimensions", size, size)
    inputs = _texts(body, "input")
    if not 0 < len(inputs) <= _MOST_INPUTS or "" in inputs:
        reason = f"1 to {_MOST_INPUTS} texts, none empty, are needed"
        raise ApiError(400, f"input: {reason}", "input")
    return Embeddings(_model(fields), inputs, encoding == "base64")


def _texts(body: Mapping[str, Any], name: str) -> list[str | list[int]]:
    """A field with one text or several, each of which may be a list of tokens."""
    value = body.get(name)
    texts: list[Any] = [value]
    if isinstance(value, list) and not all(map(_is_token, value)):
        texts = value
    for one in texts:
        is_tokens = isinstance(one, list) and bool(one) and all(map(_is_token, one))
        if not isinstance(one, str) and not is_tokens:
            reason = "a text, a list of tokens, or a list of these is needed"
            raise ApiError(400, f"{name}: {reason}", name)
    return texts


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _message(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ApiError(400, f"{where}: an object is needed", where)
    role = value.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        reason = f"{role!r} is not one of {', '.join(_ROLES)}"
        raise ApiError(400, f"{where}.role: {reason}", f"{where}.role")
    return {"role": _ROLES[role], "content": _content(value.get("content"), f"{where}.content")}


def _content(value: Any, where: str) -> str:
    """A text, or one in parts."""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [None]
    texts = [part.get("text") if isinstance(part, dict) else None for part in parts]
    kinds = [part.get("type") if isinstance(part, dict) else None for part in parts]
    # A kind is compared and not hashed: it may be a list.
    if all(isinstance(text, str) for text in texts) and all(kind == "text" for kind in kinds):
        return "".join(map(str, texts))
    raise ApiError(400, f"{where}: a text, or a list of parts of type 'text', is needed", where)


@dataclass(frozen=True)
class _Fields:
    """The fields of a body, each checked as it is read; null is as if it were missing."""

    values: Mapping[str, Any]

    def get(self, name: str, kind: type, what: str, fallback: Any) -> Any:
        """A value of `kind`, which an error calls `what`."""
        value = self.values.get(name)
        if value is None:
            return fallback
        is_kind = isinstance(value, (int, float) if kind is float else kind)
        if not is_kind or (isinstance(value, bool) and kind is not bool):
            raise ApiError(400, f"{name}: {_shown(value)}; {what} is needed", name)
        return value

    def number(self, name: str, fallback: float) -> float:
        try:
            return float(self.get(name, float, "a number", fallback))
        except OverflowError:
            raise ApiError(400, f"{name}: too large a number", name) from None

    def whole(self, name: str, least: int, most: int) -> int | None:
        value: int | None = self.get(name, int, "a whole number", None)
        if value is not None and not least <= value <= most:
            reason = f"{_shown(value)}; {least} to {most} is needed"
            raise ApiError(400, f"{name}: {reason}", name)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.get(name, bool, "true or false", False))


def _shown(value: Any) -> str:
    """A value in an error, of which a long one is cut."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a long integer"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _settings(fields: _Fields, *own: str) -> Settings:
    """own: the fields that the route has beside those of all."""
    _refuse_unknown(fields.values, own)
    model = _model(fields)
    most = (1 << 31) - 1
    limit = fields.whole("max_tokens", 1, most)
    if "max_completion_tokens" in own:
        limit = fields.whole("max_completion_tokens", 1, most) or limit
    options = _Fields(fields.get("stream_options", dict, "an object", {}))
    schema = _schema(fields) if "response_format" in own else None
    return Settings(
        model,
        _sampling(fields),
        limit,
        fields.whole("n", 1, _MOST_CHOICES) or 1,
        _stops(fields.values.get("stop")),
        fields.flag("stream"),
        options.flag("include_usage"),
        schema,
    )


def _schema(fields: _Fields) -> Mapping[str, Any] | None:
    """What `response_format` asks for."""
    value: dict[str, Any] = fields.get("response_format", dict, "an object", {"type": "text"})
    kind = value.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    given = value.get("json_schema")
    schema = given.get("schema") if isinstance(given, dict) else None
    if kind == "json_schema" and isinstance(schema, dict):
        return schema
    reason = "the type 'text', 'json_object', or 'json_schema' with a json_schema.schema is needed"
    raise ApiError(400, f"response_format: {reason}", "response_format")


def _model(fields: _Fields) -> str:
    model: str | None = fields.get("model", str, "the name of a model", None)
    if model is None:
        raise ApiError(400, "model: missing; GET /v1/models lists what is there", "model")
    return model


def _refuse_unknown(values: Mapping[str, Any], own: Sequence[str]) -> None:
    """Raises ApiError for fields that are none of the API, or ask for what lamina cannot do."""
    for name, value in values.items():
        if value is None or name in _SETTINGS or name in own or name in _IGNORED:
            continue
        if name not in _NEUTRAL:
            raise ApiError(400, f"{_shown(name)}: no such field", name, "unknown_parameter")
        # In Python 0 and False are equal.
        if not any(type(value) is type(one) and value == one for one in _NEUTRAL[name]):
            raise ApiError(400, f"{name}: not supported", name, "unsupported_parameter")


def _sampling(fields: _Fields) -> Sampling:
    seed = fields.whole("seed", -(1 << 63), (1 << 63) - 1)
    try:
        return Sampling(
            temperature=fields.number("temperature", 1.0),
            top_p=fields.number("top_p", 1.0),
            min_p=fields.number("min_p", 0.0),
            top_k=fields.whole("top_k", 0, (1 << 31) - 1) or 0,
            repetition_penalty=fields.number("repetition_penalty", 1.0),
            frequency_penalty=fields.number("frequency_penalty", 0.0),
            presence_penalty=fields.number("presence_penalty", 0.0),
            seed=secrets.randbits(32) if seed is None else seed % (1 << 32),
        )
    except ArgumentError as error:
        raise ApiError(400, error.message, error.operation) from None


def _stops(value: Any) -> tuple[str, ...]:
    stops = [] if value is None else value if isinstance(value, list) else [value]
    if len(stops) > _MOST_STOPS or not all(isinstance(one, str) and one for one in stops):
        raise ApiError(400, f"stop: a text, or up to {_MOST_STOPS}, none empty, is needed", "stop")
    longest = max(map(len, stops), default=0)
    if longest > _LONGEST_STOP:
        reason = f"{longest} characters; a text has {_LONGEST_STOP} at most"
        raise ApiError(400, f"stop: {reason}", "stop")
    return tuple(stops)
