"""Generated text without the parts that a renaming changes: comments, temporaries, spacing."""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any

from lamina.runtime.source import Source

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_IDENTIFIER = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
# Names that the printers number: temporaries, axes, kernels. Other names of axes.
_NUMBERED = re.compile(r"(?:[a-z]{1,4}\d+|[a-z_]+\d+(?:_\w+)?)\Z")
_AXIS = re.compile(r"(?:batch|row|column|k|i)\d*(?:_\w+)?\Z")

_TYPE = re.compile(r"(?:[iuf]|bf|m|f8e\dm\d)\d+(?:x\d+)?r?\Z")


def normalised(text: str) -> str:
    """`text` with numbered names in the order of their first use and single spaces."""
    names: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        name = match[0]
        kind = _kind_of(name)
        if not kind or (kind == "axis" and match.string.startswith("[", match.end())):
            return name  # an array may be named as an axis is
        return names.get(name) or names.setdefault(name, f"n{len(names)}")

    plain = _IDENTIFIER.sub(renamed, _COMMENT.sub("", text))
    lines = (" ".join(line.split()) for line in plain.splitlines())
    return "\n".join(line for line in lines if line)


@lru_cache(maxsize=1 << 14)
def _kind_of(name: str) -> str:
    """Whether a name is a "temporary", which the printers number, or the "axis" of a loop, such as
    row or k_outer; "" for any other, and for scalar and vector types, such as i32 and f32x8."""
    if _TYPE.match(name):
        return ""
    if _NUMBERED.match(name):
        return "temporary"
    return "axis" if _AXIS.match(name) else ""


def record(source: Source) -> dict[str, Any]:
    """What is compared of one program: each kernel in order, the entry function, and a
    digest of the helpers."""
    return {
        "kernels": [normalised(text) for text in source.kernels.values()],
        "entry": normalised(source.entry),
        "helpers": hashlib.blake2b(normalised(source.prelude).encode()).hexdigest(),
    }


def rename(value: Any, names: dict[str, str]) -> Any:
    """A record with some identifiers renamed, which a deliberate renaming is declared by."""
    if isinstance(value, dict):
        return {key: rename(part, names) for key, part in value.items()}
    if isinstance(value, list):
        return [rename(part, names) for part in value]
    return _IDENTIFIER.sub(lambda match: names.get(match[0], match[0]), value)
