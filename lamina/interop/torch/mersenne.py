"""The numbers of PyTorch's generator of the CPU, drawn a block at a time.

PyTorch draws one number after the other, 7 to 12 ns each on the machine where this was measured:
more than the rest of a training step does with an element of a small network. In blocks each takes
0.8 ns.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from lamina.core.options import current
from lamina.errors import CompilerNotFoundError
from lamina.runtime.cpu import build

_SOURCE = Path(__file__).with_name("mersenne.c")
_PROBED = 1001  # numbers: more than three blocks of words


def bernoulli(
    sizes: Sequence[int], strides: Sequence[int], probability: float,
    generator: torch.Generator = torch.default_generator,
) -> torch.Tensor:  # fmt: skip
    """True with a probability, of shape `sizes` and without gaps between its elements: the same as
    ``bernoulli_`` gives, which draws in the order of memory, and the same state of the generator
    after it."""
    result = torch.empty_strided(sizes, strides, dtype=torch.bool)
    draw = _drawing()
    if draw is None:
        return result.bernoulli_(probability, generator=generator)
    _draw(draw, generator, result, probability)
    return result


def _draw(
    draw: Callable[..., Any], generator: torch.Generator, result: torch.Tensor, probability: float
) -> None:
    state = generator.get_state()
    limit = math.ceil(probability * 2**53)  # PyTorch compares numbers of 53 bits
    draw(state.data_ptr(), result.data_ptr(), result.numel(), limit)
    generator.set_state(state)


@functools.cache
def _drawing() -> Callable[..., Any] | None:
    """`lamina_bernoulli`; None where this PyTorch does not draw so, as builds with other libraries
    do not, or there is no C compiler. It is called with the interpreter's lock held, so that no
    other thread of Python draws meanwhile."""
    try:
        library = build(_SOURCE.read_text(encoding="utf-8"), current())
    except CompilerNotFoundError:
        return None
    draw: Callable[..., Any] = ctypes.PyDLL(library._name).lamina_bernoulli
    draw.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64  # type: ignore[attr-defined]
    draw.restype = None  # type: ignore[attr-defined]
    return draw if _draws_alike(draw) else None


def _draws_alike(draw: Callable[..., Any]) -> bool:
    ours, theirs = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    drawn = torch.empty(_PROBED, dtype=torch.bool).reshape(-1, 7).t()
    expected = torch.empty_like(drawn).bernoulli_(0.5, generator=theirs)
    if ours.get_state().numel() < 8 * (3 + 624):  # bytes of what the text in C reads
        return False
    _draw(draw, ours, drawn, 0.5)
    has_same_state: bool = torch.equal(ours.get_state(), theirs.get_state())
    return has_same_state and bool(torch.equal(drawn, expected))
