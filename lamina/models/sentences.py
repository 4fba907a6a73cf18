"""How texts become vectors, as a folder of the package sentence-transformers says it: in
``modules.json`` and the files that it names. Modules that lamina does not know are refused."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from lamina.errors import FormatError
from lamina.models.fields import Fields, check_flags, read_json, read_object

__all__ = ["Pooling", "SentenceSettings"]


class Pooling(Enum):
    """What of the vectors of all tokens is the vector of a text."""

    MEAN = "mean"
    FIRST = "cls"  # the vector of the token that begins each text


@dataclass(frozen=True)
class SentenceSettings:
    """longest: tokens of a text, the special ones included; what is behind them is left out.
    normalizes: vectors have length 1."""

    longest: int
    pooling: Pooling = Pooling.MEAN
    normalizes: bool = False

    @classmethod
    def from_folder(cls, folder: Path, size: int, context: int) -> SentenceSettings:
        """Of a model with vectors of `size` elements for up to `context` tokens. A folder without
        ``modules.json`` has the mean of the vectors, as in sentence-transformers. Raises
        FormatError, which names the field, for what is not supported."""
        longest = _longest(folder, context)
        modules = _modules(folder / "modules.json")
        if modules is None:
            return cls(longest)
        kinds = [kind for kind, _ in modules]
        if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            reason = "a Transformer, a Pooling and perhaps a Normalize are needed"
            raise FormatError(f"{folder / 'modules.json'}: modules {', '.join(kinds)}; {reason}")
        _, pooling_folder = modules[1]
        pooling = _pooling(_fields(folder / pooling_folder / "config.json"), size)
        return cls(longest, pooling, normalizes="Normalize" in kinds)


def _longest(folder: Path, context: int) -> int:
    """The most tokens of a text."""
    _check_prompts(_fields(folder / "config_sentence_transformers.json"))
    fields = _fields(folder / "sentence_bert_config.json")
    check_flags(fields, "do_lower_case", value=False)
    return min(fields.size("max_seq_length", context), context)


def _check_prompts(fields: Fields) -> None:
    name = fields.get("default_prompt_name")
    if name is not None:
        reason = f"{name!r}; texts that are put before each text are not supported"
        raise fields.fail("default_prompt_name", reason)


def _modules(path: Path) -> list[tuple[str, str]] | None:
    """The kind of each module, and its folder; None without the file."""
    if not path.exists():
        return None
    modules = list[tuple[str, str]]()
    values = read_json(path)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise FormatError(f"{path}: a list of objects is needed")
    for value in values:
        fields = Fields(value, str(path))
        place = fields.text("path")
        if place in (".", "..") or "/" in place or "\\" in place:
            raise fields.fail("path", f"{place!r} is no folder beside this file")
        modules.append((fields.text("type").rpartition(".")[2], place))
    return modules


def _pooling(fields: Fields, size: int) -> Pooling:
    width = fields.size("word_embedding_dimension", size)
    if width != size:
        reason = f"{width}; the model's vectors have {size} elements"
        raise fields.fail("word_embedding_dimension", reason)
    prefix = "pooling_mode_"  # of flags, which newer files have one word in place of
    flags = {name for name, value in fields.values.items() if name.startswith(prefix) and value}
    if flags == {"pooling_mode_mean_tokens"}:
        return Pooling.MEAN
    if flags == {"pooling_mode_cls_token"}:
        return Pooling.FIRST
    mode = ", ".join(sorted(flags)) if flags else fields.text("pooling_mode", "")
    if mode in (Pooling.MEAN.value, Pooling.FIRST.value):
        return Pooling(mode)
    raise fields.fail("pooling_mode", f"{mode!r}; 'mean' or 'cls' is needed")


def _fields(path: Path) -> Fields:
    """The fields of a file; none without it."""
    return Fields(read_object(path) if path.exists() else {}, str(path))
