"""Run the samples of PyTorch's OpInfo database through lamina and compare the results.

The database is `torch.testing._internal.common_methods_invocations.op_db`. An operation is found by
name: a row of `tests.opinfo.spellings` first, then a function of lamina, then a method of `Tensor`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import lamina as lm
from lamina.errors import LaminaError

RENAMED = {
    "dim": "axis", "dims": "axis", "dim1": "axis1", "dim2": "axis2", "keepdim": "keepdims",
}  # fmt: skip
DROPPED = ("device", "layout", "memory_format", "non_blocking", "pin_memory", "requires_grad")
NAMESPACES = ("nn.functional.", "special.", "linalg.", "masked.", "signal.windows.")
# Relative and absolute tolerance, in float32: several roundings in another order than PyTorch's.
TOLERANCE = 2e-4
# Operations that no array library without these features could have.
LEFT_OUT = ("jiterator_", "torch.ops.", "sparse.", "to_sparse", "torch._scaled", "hash_tensor")


@dataclass
class Outcome:
    """The samples of one operation."""

    name: str
    passed: int = 0
    refused: int = 0
    wrong: int = 0
    reason: str = ""

    def __str__(self) -> str:
        counts = f"{self.passed} pass, {self.refused} refused, {self.wrong} wrong"
        return f"{self.name}: {counts}; {self.reason[:300]}"

    @property
    def whole(self) -> bool:
        return self.passed > 0 and not self.refused and not self.wrong


class WrongResultError(Exception):
    """A result differs from PyTorch's."""


def database() -> dict[str, list[Any]]:
    """The entries of the database that take float32, by operation."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    entries: dict[str, list[Any]] = {}
    for entry in op_db:
        if torch.float32 in entry.dtypes and not entry.name.startswith(LEFT_OUT):
            entries.setdefault(entry.name, []).append(entry)
    return entries


def to_lamina(value: Any) -> Any:
    """A sample's argument with lamina's tensors and dtypes in place of PyTorch's."""
    import torch

    if isinstance(value, torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg().contiguous()
        if plain.dtype is torch.bfloat16:
            return lm.Tensor(plain.float().numpy()).cast(lm.bfloat16)
        return lm.Tensor(plain.numpy())
    if isinstance(value, torch.dtype):
        return getattr(lm, str(value).removeprefix("torch."))
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, (list, tuple)):
        return type(value)(map(to_lamina, value))
    return value


def keywords(values: dict[str, Any]) -> dict[str, Any]:
    """A sample's keyword arguments under lamina's names, without those about PyTorch's storage."""
    return {
        RENAMED.get(name, name): to_lamina(value)
        for name, value in values.items()
        if name not in DROPPED
    }


def function_for(name: str) -> Callable[..., Any] | None:
    """The function that a user of lamina calls for an operation of PyTorch."""
    from tests.opinfo.spellings import SPELLINGS

    if name in SPELLINGS:
        return SPELLINGS[name]
    plain = name
    for prefix in NAMESPACES:
        plain = plain.removeprefix(prefix)
    function = getattr(lm, plain, None) or getattr(lm.Tensor, plain, None)
    return function if callable(function) else None


def check_type(actual: Any, expected: Any) -> None:
    """Raise WrongResultError unless both have the same dtype and shape."""
    if isinstance(actual, lm.Tensor) and f"torch.{actual.dtype.name}" != str(expected.dtype):
        raise WrongResultError(f"dtype {actual.dtype.name} is not {expected.dtype}")
    if np.shape(actual) != tuple(expected.shape):
        raise WrongResultError(f"shape {np.shape(actual)} is not {tuple(expected.shape)}")


def compare(actual: Any, expected: Any) -> None:
    """Raise WrongResultError unless both have the same structure, dtypes, shapes and values."""
    import torch

    if isinstance(expected, (list, tuple)):
        if not isinstance(actual, (list, tuple)) or len(actual) != len(expected):
            raise WrongResultError(f"{len(expected)} results are expected, not {actual!r}")
        for actual_part, expected_part in zip(actual, expected, strict=True):
            compare(actual_part, expected_part)
        return
    if not isinstance(expected, torch.Tensor):
        if not math.isclose(actual, expected, rel_tol=TOLERANCE):
            raise WrongResultError(f"{actual} is not {expected}")
        return
    check_type(actual, expected)
    reference = expected.detach().resolve_conj().resolve_neg()
    array = actual.numpy() if isinstance(actual, lm.Tensor) else np.asarray(actual)
    wide = reference.double() if reference.dtype is torch.bfloat16 else reference
    values = wide.numpy()
    if values.dtype.kind in "fc":
        scale = np.abs(values[np.isfinite(values)]).max(initial=0.0)
        absolute = TOLERANCE * max(min(scale, 1.0), 1e-3)
        same = np.allclose(array, values, rtol=TOLERANCE, atol=absolute, equal_nan=True)
    else:
        same = np.array_equal(array, values)
    if not same:
        raise WrongResultError(f"values differ: {array.ravel()[:4]} is not {values.ravel()[:4]}")


def is_random(name: str, sample: Any) -> bool:
    """Whether the values of a sample's result are drawn at random."""
    from tests.opinfo.spellings import RANDOM

    if sample.kwargs.get("dropout_p"):
        return True
    return name in RANDOM and sample.kwargs.get("training", True)


def check_sample(name: str, function: Callable[..., Any], entry: Any, sample: Any) -> None:
    """Compare one sample; raises WrongResultError, or the LaminaError of a refusal."""
    inputs = to_lamina(sample.input)
    positional = [to_lamina(value) for value in sample.args]
    named = keywords(sample.kwargs)
    expected = entry(sample.input, *sample.args, **sample.kwargs)
    actual = function(inputs, *positional, **named)
    if is_random(name, sample):
        check_type(actual, expected)
        return
    compare(actual, expected)


def samples_of(entry: Any, limit: int | None) -> Iterator[Any]:
    import torch

    samples = entry.sample_inputs("cpu", torch.float32)
    for number, sample in enumerate(samples):
        if number == limit:
            return
        yield sample


def run_operation(name: str, entries: list[Any], limit: int | None = None) -> Outcome:
    """Every sample of an operation, or the first `limit` of each of its entries."""
    import torch

    outcome = Outcome(name)
    function = function_for(name)
    if function is None:
        outcome.refused += 1
        outcome.reason = "there is no such name"
        return outcome
    for entry in entries:
        torch.manual_seed(0)
        for sample in samples_of(entry, limit):
            try:
                check_sample(name, function, entry, sample)
                outcome.passed += 1
            except WrongResultError as error:
                outcome.wrong += 1
                outcome.reason = f"wrong: {error} {describe(sample)}"
            except (LaminaError, TypeError, AttributeError, ValueError, IndexError, KeyError,
                    NotImplementedError) as error:  # fmt: skip
                outcome.refused += 1
                if not outcome.wrong:
                    outcome.reason = f"{type(error).__name__}: {error} {describe(sample)}"
    return outcome


def describe(sample: Any) -> str:
    """The shapes and the other arguments of a sample, in a line."""

    def text(value: Any) -> str:
        if hasattr(value, "shape"):
            return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(text, value)) + "]"
        return repr(value)

    named = [f"{name}={text(value)}" for name, value in sample.kwargs.items()]
    return "(" + ", ".join([text(sample.input), *map(text, sample.args), *named]) + ")"
