"""Chat templates are programs of strangers."""

from __future__ import annotations

import sys

import pytest

from lamina.errors import FormatError, MissingPackageError
from lamina.text.chat import ChatTemplate

pytest.importorskip("jinja2")
USER = [{"role": "user", "content": "hi"}]
HOSTILE = {
    "attribute": ("{{ messages.__class__.__mro__ }}", "unsafe"),
    "function": ("{{ raise_exception.__globals__['os'] }}", "unsafe"),
    "change": ("{{ messages.append(1) }}", "not safely callable|unsafe"),
    "range": ("{% for i in range(10 ** 9) %}x{% endfor %}", "[Rr]ange"),
    "module": ("{% import 'os' as os %}", "no loader"),
    "syntax": ("{% for %}", "^chat template: Expected"),
    "its own refusal": (
        "{{ raise_exception('only ' + messages[0].role) }}", "^chat template: only user"
    ),
    "type": ("{{ messages + 1 }}", "template: "),
    "division": ("{{ 1 / 0 }}", "template: division by zero"),
    "calls of itself": (
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "template: maximum recursion"
    ),
    "size": ("{{ 'x' * 10 ** 17 }}", "template: MemoryError"),
    "nesting": ("{{ " + "(" * 2000 + ")" * 2000 + " }}", "template: "),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_and_wrong_templates_are_refused(name: str) -> None:
    source, message = HOSTILE[name]
    with pytest.raises(FormatError, match=message):
        ChatTemplate(source).render(USER)


def test_what_templates_use() -> None:
    template = ChatTemplate(
        "{% for one in messages %}\n  {% if loop.index > 1 %}{% break %}{% endif %}\n"
        "{{ one | tojson }}{% endfor %}{{ bos_token }}{{ add_generation_prompt }}", "<s>",
    )  # fmt: skip
    assert template.render(USER * 2) == '{"role": "user", "content": "hi"}<s>True'
    assert len(ChatTemplate("{{ strftime_now('%Y-%m-%d') }}").render([])) == 10


OPTIONAL = (
    "{% if tools is not none %}tools{% endif %}{% if documents is not none %}papers{% endif %}"
    "{{ messages | tojson(indent=2, sort_keys=true) }}"
    "{{ messages | tojson(ensure_ascii=true, separators=(',', ':')) }}"
)


def test_arguments_are_those_of_transformers() -> None:
    transformers, tokenizers = map(pytest.importorskip, ("transformers", "tokenizers"))
    backend = tokenizers.Tokenizer(tokenizers.models.BPE())
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=backend)
    messages = [{"role": "user", "content": "naïve"}]
    wanted = theirs.apply_chat_template(messages, chat_template=OPTIONAL, tokenize=False)
    assert ChatTemplate(OPTIONAL).render(messages, asks=False) == wanted


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingPackageError, match=r"jinja2: pip install 'lamina\[text\]'"):
        ChatTemplate("x").render([])
