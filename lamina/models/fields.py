"""Fields of configurations, from files of strangers: each is checked as it is read."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lamina.errors import FormatError
from lamina.models.rope import LinearScaling, Llama3Scaling, LongScaling, Rope, Scaling, YarnScaling

__all__ = [
    "MAX_LAYERS", "Fields", "HeadCounts", "bound_of", "check_activation", "check_flags",
    "head_count", "head_counts", "head_size_of", "labels_of", "layer_kinds", "pair_of",
    "read_json", "read_object", "rope_of", "scaling_of", "sizes_of", "theta_of", "token_of",
    "tokens_of",
]  # fmt: skip

_Number = int | float
_MAX_SIZE = 1 << 24  # no model is near, and products of a few sizes are no memory errors
MAX_LAYERS = 1 << 12  # each becomes a dozen objects before its weights are found missing
_MAX_JSON = 64 << 20  # bytes; an index of 1,000 files and 100,000 weights has 10 MB


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises FormatError for what is none, and OSError."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise FormatError(f"{path}: a {type(value).__name__}, not an object")
    return value


def read_json(path: Path) -> Any:
    """What a file of JSON says. Raises FormatError for what is none, and OSError."""
    if path.stat().st_size > _MAX_JSON:
        raise FormatError(f"{path}: more than {_MAX_JSON} bytes")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path}: not JSON: {error}") from None


@dataclass(frozen=True)
class Fields:
    """Values by name, from a file. Methods, and functions of this module, check what they read:
    they raise FormatError, which names the file and the field, for a value that is missing and has
    no fallback, or that is not what they say.

    prefix: of the names in errors and in the file. origin: the name of the file."""

    values: Mapping[str, Any]
    origin: str
    prefix: str = ""

    def fail(self, name: str, reason: str) -> FormatError:
        """The error to raise for the value of a field."""
        return FormatError(f"{self.origin}: {self.prefix}{name}: {reason}")

    def get(self, name: str, fallback: Any = None) -> Any:
        """A value; the fallback for one that is missing or null."""
        value = self.values.get(self.prefix + name)
        return fallback if value is None else value

    def text(self, name: str, fallback: str | None = None) -> str:
        """A text."""
        value = self.get(name, fallback)
        if value is None:
            raise self.fail(name, "missing")
        if not isinstance(value, str):
            raise self.fail(name, f"{value!r}; a text is needed")
        return value

    def size(self, name: str, fallback: int | None = None, largest: int = _MAX_SIZE) -> int:
        """A whole number from 1 on."""
        value = self.get(name, fallback)
        if value is None:
            raise self.fail(name, "missing")
        if not _is_size(value, largest):
            raise self.fail(name, f"{value!r}; an integer from 1 to {largest} is needed")
        return int(value)

    def number(self, name: str, fallback: float | None = None) -> float:
        """A positive number that a float can be."""
        value = self.get(name, fallback)
        if value is None:
            raise self.fail(name, "missing")
        is_number = isinstance(value, _Number) and not isinstance(value, bool)
        if not is_number or not 0 < value <= sys.float_info.max:
            raise self.fail(name, f"{value!r}; a positive number is needed")
        return float(value)

    def flag(self, name: str, fallback: bool = False) -> bool:
        """True or false."""
        value = self.get(name, fallback)
        if not isinstance(value, bool):
            raise self.fail(name, f"{value!r}; true or false is needed")
        return value

    def part(self, name: str) -> Fields:
        """The fields of an object in a field; none where it is missing."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise self.fail(name, f"{value!r}; an object is needed")
        return Fields(value, f"{self.origin}: {name}")


def _is_size(value: Any, largest: int = _MAX_SIZE) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= largest


def bound_of(fields: Fields, name: str, fallback: float) -> float | None:
    """A number, or None where the file says null: there is no bound then."""
    is_null = name in fields.values and fields.values[name] is None
    return None if is_null else fields.number(name, fallback)


def check_flags(fields: Fields, *names: str, value: bool = True) -> None:
    """Raises FormatError for a flag that is there and has another value."""
    for name in names:
        if fields.flag(name, value) is not value:
            raise fields.fail(name, f"{not value}; models of this family have {value}")


def check_activation(fields: Fields, name: str, *known: str) -> None:
    """Raises FormatError for a function between layers that is none of `known`, the names of one
    function."""
    activation = fields.text(name, known[0])
    if activation not in known:
        raise fields.fail(name, f"{activation!r}; models of this family have {known[0]!r}")


def sizes_of(fields: Fields, name: str, fallback: tuple[int, ...]) -> tuple[int, ...]:
    """A list of whole numbers from 1 on, of which there is at least one."""
    values = fields.get(name, fallback)
    is_list = isinstance(values, (list, tuple)) and 0 < len(values) <= MAX_LAYERS
    if not is_list or not all(_is_size(value) for value in values):
        raise fields.fail(name, f"{values!r}; a list of integers from 1 to {_MAX_SIZE} is needed")
    return tuple(values)


def pair_of(fields: Fields, name: str, fallback: int) -> tuple[int, int]:
    """Of two axes: one whole number for both, or a list of two."""
    if not isinstance(fields.get(name), list):
        size = fields.size(name, fallback)
        return size, size
    sizes = sizes_of(fields, name, ())
    if len(sizes) != 2:
        raise fields.fail(name, f"{list(sizes)}; one integer or two are needed")
    return sizes[0], sizes[1]


def token_of(fields: Fields, name: str, fallback: Any, vocabulary: int) -> int:
    """The number of a token, from 0 on."""
    value = fields.get(name, fallback)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocabulary:
        raise fields.fail(name, f"{value!r}; a number from 0 to {vocabulary - 1} is needed")
    return value


def tokens_of(fields: Fields, name: str, fallback: Any, vocabulary: int) -> tuple[int, ...]:
    """The numbers of tokens: one, or a list."""
    values = fields.get(name, fallback)
    if not isinstance(values, list):
        return (token_of(fields, name, fallback, vocabulary),)
    each = (Fields({name: value}, fields.origin) for value in values)
    return tuple(token_of(part, name, None, vocabulary) for part in each)


def labels_of(fields: Fields) -> tuple[str, ...]:
    """The names of classes, by number; two without names where the file has none."""
    names = fields.get("id2label", {"0": "LABEL_0", "1": "LABEL_1"})
    if not isinstance(names, dict) or not names:
        raise fields.fail("id2label", f"{names!r}; an object of numbers to names is needed")
    labels: list[Any] = [names.get(str(number)) for number in range(len(names))]
    if not all(isinstance(label, str) for label in labels):
        raise fields.fail("id2label", f"names of the numbers 0 to {len(names) - 1} are needed")
    return tuple(labels)


def head_count(fields: Fields, name: str, size: int, fallback: int | None = None) -> int:
    """The number of heads, which have equal parts of `size` elements."""
    heads = fields.size(name, fallback)
    if size % heads:
        raise fields.fail(name, f"{heads} heads do not divide {size} elements")
    return heads


@dataclass(frozen=True)
class HeadCounts:
    """Heads of queries, and of keys and values, each of which serves as many of the queries."""

    queries: int
    keys: int


def head_counts(fields: Fields) -> HeadCounts:
    """The heads of a model whose keys may have fewer than its queries."""
    queries = fields.size("num_attention_heads")
    keys = fields.size("num_key_value_heads", queries)
    if queries % keys:
        raise fields.fail("num_key_value_heads", f"{keys} do not divide {queries} heads")
    return HeadCounts(queries, keys)


def head_size_of(fields: Fields, name: str, fallback: int) -> int:
    """The size of a head, whose elements are turned in pairs."""
    size = fields.size(name, max(fallback, 1))
    if size % 2:
        raise fields.fail(name, f"{size} elements of a head; an even number is needed")
    return size


def layer_kinds(
    fields: Fields, usual: Sequence[str], local: str = "sliding_attention"
) -> Sequence[str]:
    """What each layer sees, as ``layer_types`` says: ``full_attention`` or `local`. usual: of
    models without that field."""
    kinds = fields.get("layer_types", usual)
    known = ("full_attention", local)
    is_list = isinstance(kinds, list) and len(kinds) == len(usual)
    if not is_list or not all(kind in known for kind in kinds):
        reason = f"{' or '.join(known)} for each of {len(usual)} layers is needed"
        raise fields.fail("layer_types", reason)
    return list[str](kinds)


def rope_of(
    fields: Fields, head_size: int, context: int, *, turned_share: float | None = None,
    theta: float = 10000.0,
) -> Rope:  # fmt: skip
    """The rotary embedding: ``rope_parameters``, or ``rope_theta`` and ``rope_scaling`` in older
    files. turned_share: of a head, where the file does not say it; None for families that turn
    whole heads alone. theta: where the file does not say it."""
    scaling = fields.part("rope_parameters")
    theta = theta_of(scaling, "rope_theta", theta_of(fields, "rope_theta", theta))
    holder = scaling if "partial_rotary_factor" in scaling.values else fields
    share = holder.number("partial_rotary_factor", turned_share or 1.0)
    if share != 1.0 and turned_share is None:
        reason = f"{share}; models of this family turn whole heads"
        raise holder.fail("partial_rotary_factor", reason)
    turned = int(head_size * min(share, 2.0))  # bounded, so that it fits an integer
    if turned % 2 or not 0 < turned <= head_size:
        reason = f"{share} of {head_size} elements of a head; an even number is turned"
        raise holder.fail("partial_rotary_factor", reason)
    if not scaling.values:
        scaling = fields.part("rope_scaling")
    if scaling.text("rope_type", scaling.text("type", "default")) in ("longrope", "su"):
        return Rope(turned, theta, _long_scaling(fields, scaling, turned // 2, context))
    return Rope(turned, theta, scaling_of(scaling, context))


def theta_of(fields: Fields, name: str, fallback: float) -> float:
    """The base of the frequencies. At 1 all would be equal, and YaRN's formula divides by zero."""
    theta = fields.number(name, fallback)
    if theta <= 1.0:
        raise fields.fail(name, f"{theta}; a number above 1 is needed")
    return theta


def _long_scaling(fields: Fields, scaling: Fields, pairs: int, context: int) -> LongScaling:
    """Of `pairs` frequencies, for texts of up to `context` tokens. How many the first training had
    is said beside the fields of the scaling, or among them."""
    holder = fields if "original_max_position_embeddings" in fields.values else scaling
    original = holder.size("original_max_position_embeddings")
    factor = scaling.number("factor", context / original)
    length = 1.0
    if factor > 1 and original > 1:
        length = math.sqrt(1 + math.log(factor) / math.log(original))
    return LongScaling(
        _divisors(scaling, "short_factor", pairs),
        _divisors(scaling, "long_factor", pairs),
        original,
        scaling.number("attention_factor", length),
    )


def _divisors(fields: Fields, name: str, count: int) -> tuple[float, ...]:
    """A list of `count` positive numbers."""
    values = fields.get(name)
    if not isinstance(values, list) or len(values) != count:
        raise fields.fail(name, f"a list of {count} numbers is needed")
    return tuple(Fields({name: value}, fields.origin).number(name) for value in values)


def scaling_of(fields: Fields, context: int) -> Scaling | None:
    """How the frequencies of a rotation are scaled; None where they are not. context: tokens of the
    first training, where the fields do not say it."""
    kind = fields.text("rope_type", fields.text("type", "default"))
    original = fields.size("original_max_position_embeddings", context)
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(fields.number("factor"))
    if kind == "llama3":
        low, high = fields.number("low_freq_factor"), fields.number("high_freq_factor")
        if high <= low:
            raise fields.fail("high_freq_factor", f"{high}; more than {low}, low_freq_factor")
        return Llama3Scaling(fields.number("factor"), low, high, original)
    if kind == "yarn":
        has_factor = fields.get("attention_factor") is not None
        return YarnScaling(
            fields.number("factor"),
            original,
            fields.number("beta_fast", 32.0),
            fields.number("beta_slow", 1.0),
            fields.number("attention_factor") if has_factor else None,
        )
    known = "default, linear, llama3, longrope and yarn"
    raise fields.fail("rope_type", f"{kind!r}; known are {known}")
