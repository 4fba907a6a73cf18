"""``python -m tests.interop.opinfo [NAME ...]``: PyTorch's database of operations (OpInfo) through
``torch.compile(..., backend="lamina")``, values and derivatives beside PyTorch's.

Programs run in the reference interpreter, unless LAMINA_DEVICE says otherwise. A line for each
operation that is not wholly lamina's says why; the last one counts.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

import lamina as lm
from lamina.interop.torch import UnsupportedOperationError, backend

LEFT_OUT = ("linalg.", "fft.", "special.", "jiterator_")  # the last is for GPUs
# What they return nobody has written.
UNINITIALISED = frozenset({
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
})  # fmt: skip
OK, LEFT, REFUSED, WRONG = "ok", "left to PyTorch", "refused by Dynamo", "wrong"


@dataclass(frozen=True)
class Outcome:
    """What became of an operation's samples: the worst of OK, LEFT, REFUSED and WRONG."""

    name: str
    status: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.status}; {self.reason[:300]}"


def _database() -> Any:
    """PyTorch's module, which freezes flags of its process: only a run imports it."""
    from torch.testing._internal import common_methods_invocations

    return common_methods_invocations


def entries(names: list[str]) -> Iterator[Any]:
    """The entries of the database that take float32, all or those of `names`."""
    for entry in _database().op_db:
        is_wanted = entry.name in names if names else not entry.name.startswith(LEFT_OUT)
        if is_wanted and torch.float32 in entry.dtypes and entry.name not in UNINITIALISED:
            yield entry


def run(entry: Any, limit: int) -> Outcome:
    """Compare the first samples of an entry."""
    name = ".".join(filter(None, (entry.name, entry.variant_test_name)))
    samples = entry.sample_inputs("cpu", torch.float32, requires_grad=entry.supports_autograd)
    for _, sample in zip(range(limit), samples, strict=False):
        torch._dynamo.reset()
        try:
            _compare(entry, sample)
        except AssertionError as error:
            return Outcome(name, WRONG, " ".join(str(error).split()))
        except Exception as error:  # PyTorch's tracer raises errors of many types
            inner = getattr(error, "inner_exception", error)
            status = LEFT if isinstance(inner, UnsupportedOperationError) else REFUSED
            return Outcome(name, status, f"{type(inner).__name__}: {' '.join(str(inner).split())}")
    return Outcome(name, OK)


def _compare(entry: Any, sample: Any) -> None:
    """Raise AssertionError where a value or a derivative differs from PyTorch's."""
    def call(*args: Any, **kwargs: Any) -> Any:
        return entry.op(*args, **kwargs)

    torch.manual_seed(0)
    args, kwargs = _arguments(sample)
    expected = _tensors(call(*args, **kwargs))
    torch.manual_seed(0)
    args, kwargs = _arguments(sample)
    results = _tensors(torch.compile(call, backend=backend, fullgraph=True)(*args, **kwargs))
    torch.testing.assert_close(results, expected, rtol=2e-4, atol=2e-5, equal_nan=True)
    leaves = [x for x in _tensors((sample.input, sample.args, sample.kwargs)) if x.requires_grad]
    pairs = [pair for pair in zip(results, expected, strict=True) if pair[1].requires_grad]
    if leaves and pairs:
        _compare_derivatives(leaves, pairs)


def _compare_derivatives(leaves: list[Any], pairs: list[Any]) -> None:
    weights = [torch.randn_like(theirs) for _, theirs in pairs]
    ours, theirs = (
        torch.autograd.grad(
            [pair[side] for pair in pairs], leaves, weights, materialize_grads=True,
            allow_unused=True,
        )
        for side in (0, 1)
    )  # fmt: skip
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4, equal_nan=True)


def _arguments(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """With copies of what an operation may change in place."""
    def fresh(value: Any) -> Any:
        is_changeable = isinstance(value, torch.Tensor) and not value.requires_grad
        return value.detach().clone() if is_changeable else value

    values = (sample.input, sample.args, sample.kwargs)
    first, args, kwargs = torch.utils._pytree.tree_map(fresh, values)
    return (first, *args), kwargs


def _tensors(tree: Any) -> list[Any]:
    return [
        one for one in torch.utils._pytree.tree_leaves(tree) if isinstance(one, torch.Tensor)
    ]


def draw_in_place() -> None:
    """Let random operations draw from the seed that is set, as Inductor's tests do: Dynamo cannot
    trace the forks of the generator that the database wraps them in."""
    _database().wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="operations; all by default")
    parser.add_argument("--limit", type=int, default=2, help="samples of each entry")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    draw_in_place()
    count: Counter[str] = Counter()
    with lm.using(device=os.environ.get("LAMINA_DEVICE", "interp")):
        for entry in entries(options.names):
            outcome = run(entry, options.limit)
            count[outcome.status] += 1
            if outcome.status != OK:
                print(outcome, flush=True)
    print(", ".join(f"{number} {status}" for status, number in count.most_common()))


if __name__ == "__main__":
    main()
