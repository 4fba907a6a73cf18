"""Rows of strings, which are NumPy arrays of Python's strings on the host."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import lamina as lm
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row


@row("StringConcat")
def string_concat(context: Context, x: Any, y: Any) -> Any:
    return np.asarray(x + y, dtype=object)


@row("StringSplit")
def string_split(
    context: Context, x: Any, *, delimiter: str | None = None, maxsplit: int | None = None
) -> Any:
    limit = -1 if maxsplit is None else maxsplit
    parts = [text.split(delimiter or None, limit) for text in x.reshape(-1)]
    counts = np.array([len(line) for line in parts], np.int64)
    table = np.full((len(parts), counts.max(initial=0)), "", object)
    for place, line in enumerate(parts):
        table[place, : len(line)] = line
    return table.reshape(*x.shape, table.shape[1]), counts.reshape(x.shape)


@row("StringNormalizer")
def string_normalizer(
    context: Context, x: Any, *, case_change_action: str = "NONE", is_case_sensitive: int = 0,
    locale: str | None = None, stopwords: Sequence[str] = (),
) -> Any:  # fmt: skip
    changes: dict[str, Callable[[str], str]] = {
        "NONE": str, "LOWER": str.lower, "UPPER": str.upper,
    }  # fmt: skip
    if case_change_action not in changes:
        raise OnnxError(f"case_change_action={case_change_action!r}")
    key: Callable[[str], str] = str if is_case_sensitive else str.lower
    stopped = {key(word) for word in stopwords}
    kept = [text for text in x.reshape(-1) if key(text) not in stopped] or [""]
    changed = [changes[case_change_action](text) for text in kept]
    shape = (1, len(changed)) if len(x.shape) == 2 else (len(changed),)
    return np.array(changed, object).reshape(shape)


@row("RegexFullMatch")
def regex_full_match(context: Context, x: Any, *, pattern: str) -> Any:
    """The patterns are RE2's; those without look-around and references mean the same in Python."""
    matches = [re.fullmatch(pattern, text) is not None for text in x.reshape(-1)]
    return np.array(matches, bool).reshape(x.shape)


@row("TfIdfVectorizer")
def tfidf_vectorizer(
    context: Context, x: Any, *, max_gram_length: int, max_skip_count: int, min_gram_length: int,
    mode: str, ngram_counts: list[int], ngram_indexes: list[int],
    pool_int64s: list[int] | None = None, pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Any:  # fmt: skip
    """Counts of n-grams in each row. The pool has the n-grams of one element first, then those of
    two, ...: those of n elements begin at ``ngram_counts[n - 1]``."""
    items: Sequence[Any] = pool_strings if pool_strings is not None else pool_int64s or []
    grams: dict[tuple[Any, ...], int] = {}
    for order, start in enumerate(ngram_counts, 1):
        stop = ngram_counts[order] if order < len(ngram_counts) else len(items)
        for place in range(start, stop, order):
            grams[tuple(items[place : place + order])] = len(grams)
    host = context.host(x)
    lines = host.reshape(1, -1) if host.ndim < 2 else host
    counts = np.zeros((len(lines), max(ngram_indexes, default=-1) + 1), np.float32)
    scales = np.zeros(counts.shape[1], np.float32)
    for place, index in enumerate(ngram_indexes):
        scales[index] = 1 if weights is None else weights[place]
    for line, result in zip(lines, counts, strict=True):
        for gram in _grams(line.tolist(), min_gram_length, max_gram_length, max_skip_count):
            if gram in grams:
                result[ngram_indexes[grams[gram]]] += 1
    if mode == "IDF":
        counts = (counts > 0).astype(np.float32)
    if mode != "TF":
        counts = counts * scales
    return lm.asarray(counts.reshape(counts.shape[1:]) if host.ndim < 2 else counts)


def _grams(
    line: Sequence[Any], shortest: int, longest: int, skips: int
) -> list[tuple[Any, ...]]:
    """The n-grams of a line, their elements up to `skips` elements apart; skipping makes no
    difference to single elements, which count once."""
    grams = []
    for order in range(max(shortest, 1), min(longest, len(line)) + 1):
        farthest = 1 if order == 1 else min(skips + 1, len(line) // (order - 1))
        for step in range(1, farthest + 1):
            span = (order - 1) * step
            grams += [
                tuple(line[start : start + span + 1 : step]) for start in range(len(line) - span)
            ]
    return grams
