"""Conversations as the text that a model was trained on, by the template that comes with it.

Templates are programs in Jinja, and come from strangers: the sandbox of the package `jinja2` (the
extra ``text``) runs them, which lets them reach no attribute with an underscore and change nothing
they are given. A template can still take long.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, NoReturn

from lamina.errors import FormatError
from lamina.text.extra import package

__all__ = ["ChatTemplate"]

_FAILURES = TypeError, ValueError, ArithmeticError, LookupError  # of a template as it runs


@dataclass(frozen=True)
class ChatTemplate:
    """The text of a template, and what it calls `bos_token` and `eos_token`."""

    source: str
    bos: str = ""
    eos: str = ""

    def render(self, messages: Iterable[Mapping[str, str]], asks: bool = True) -> str:
        """The conversation as one text. asks: up to where the model's answer begins.

        Raises FormatError for a template that is none, that fails, or that refuses these messages.
        """
        failure = package("jinja2").TemplateError
        compiled = self._compiled
        values = {"bos_token": self.bos, "eos_token": self.eos, "add_generation_prompt": asks}
        # Templates ask whether these are none. A name that is missing would not be.
        values |= {"tools": None, "documents": None}
        try:
            text: str = compiled.render(messages=[dict(one) for one in messages], **values)
        except FormatError:
            raise  # its own refusal
        except (failure, RecursionError, MemoryError, *_FAILURES) as error:
            raise FormatError(f"chat template: {str(error) or type(error).__name__}") from None
        return text

    @cached_property
    def _compiled(self) -> Any:
        jinja2, sandbox = package("jinja2"), package("jinja2.sandbox")
        environment = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        environment.filters["tojson"] = _to_json
        try:
            return environment.from_string(self.source)
        except (jinja2.TemplateError, RecursionError) as error:
            raise FormatError(f"chat template: {error}") from None


# What templates call.


def _refuse(message: str) -> NoReturn:
    raise FormatError(f"chat template: {message}")


def _now(form: str) -> str:
    return datetime.now().strftime(form)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None,
    separators: tuple[str, str] | None = None, sort_keys: bool = False,
) -> str:  # fmt: skip
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
