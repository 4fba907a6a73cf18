"""Operations that PyTorch runs, between programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from lamina.core.text import Text


@dataclass(frozen=True)
class Described:
    """A tensor as its FakeTensor says that it is. strides: in elements. is_conj, is_neg: marks of
    conjugates and negatives."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_conj: bool
    is_neg: bool

    def __call__(self, result: torch.Tensor) -> torch.Tensor:
        """The result with its elements where the description says, as programs read them there.
        PyTorch's kernels and their descriptions disagree at times: that of ``_fft_c2c`` does."""
        if self._fits(result):
            return result
        copied = torch.empty_strided(
            self.sizes, self.strides, dtype=result.dtype, device=result.device
        )
        return copied.copy_(result)

    def _fits(self, result: torch.Tensor) -> bool:
        """Whether the strides are the same, but of axes of one element, and the marks."""
        if result.is_conj() != self.is_conj or result.is_neg() != self.is_neg:
            return False
        if result.stride() == self.strides:
            return True
        steps = zip(result.shape, result.stride(), self.strides, strict=True)
        return all(size == 1 or step == said for size, step, said in steps)


@dataclass(frozen=True)
class DescribedParts:
    """Several results, of which some may be no tensors. Of those that only a derivative reads, the
    kernel may return None where the description has a tensor: ``mkldnn_rnn_layer`` does."""

    parts: tuple[Described | DescribedParts | None, ...]

    def __call__(self, results: Any) -> list[Any]:
        pairs = zip(self.parts, results, strict=True)
        return [
            result if part is None or result is None else part(result) for part, result in pairs
        ]


def described(fake: Any) -> Described | DescribedParts | None:
    """The description of an operation's result; None of what is no tensor."""
    if isinstance(fake, (list, tuple)):
        return DescribedParts(tuple([described(part) for part in fake]))
    if isinstance(fake, torch.Tensor):
        return Described(tuple(fake.shape), tuple(fake.stride()), fake.is_conj(), fake.is_neg())
    return None


def call_of(text: Text, node: fx.Node, names: Mapping[fx.Node, str]) -> str:
    """The expression that runs an operation on named values."""

    def source(value: Any) -> str:
        if isinstance(value, fx.Node):
            return names[value] if value in names else text.constant(value.meta["val"])
        if isinstance(value, (list, tuple)):
            parts = "".join(f"{source(part)}, " for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        return text.constant(value)

    arguments = [source(value) for value in node.args]
    arguments += [f"{name}={source(value)}" for name, value in node.kwargs.items()]
    target: Callable[..., Any] | str = node.target
    call = f"{text.name('operation', target)}({', '.join(arguments)})"
    description = described(node.meta.get("val"))
    if description is not None:
        call = f"{text.name('described', description)}({call})"
    return call
