"""An operation of a graph, by its row, on lamina's tensors."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx

import lamina as lm
from lamina.errors import LaminaError
from lamina.frontend.tensor import Tensor
from lamina.interop.torch.arrays import DTYPES
from lamina.interop.torch.broken import BrokenGraphError, fault_of
from lamina.interop.torch.rows import PROMOTED, ROWS
from lamina.interop.torch.rows.unread import Unread

# Where and how memory is laid out is not a row's business.
OF_MEMORY = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator")
# These number the elements as they are in memory.
_OF_MEMORY_ORDER = (
    "aten.as_strided.default", "aten.as_strided_copy.default", "aten.as_strided_scatter.default",
)  # fmt: skip


class RefusedError(LaminaError):
    """A row does not take an operation's arguments. PyTorch runs the operation, as it does where
    lamina's functions raise a LaminaError; any other exception in a row is a mistake in it."""


def interpreted(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    """The result of an operation on lamina's tensors, with PyTorch's dtypes. `values`: those of
    nodes before. Raises LaminaError where the row does not take the arguments, and
    BrokenGraphError, which is no refusal, where PyTorch does not either."""
    try:
        return _interpreted(node, values)
    except LaminaError:
        raise
    except Exception:
        fault = fault_of(node)
        if fault is None:
            raise  # a mistake in the row
        raise BrokenGraphError(f"{node.name} = {node.target}: {fault}") from None


def _interpreted(node: fx.Node, values: Mapping[fx.Node, Any]) -> Any:
    args, kwargs = fx.node.map_aggregate((node.args, node.kwargs), lambda one: _ours(one, values))
    if node.target is operator.getitem:
        return args[0][args[1]]
    name = str(node.target)
    if name in _OF_MEMORY_ORDER and not _is_row_major(node.args[0]):
        raise RefusedError("its operand is not row-major in memory")
    if name in PROMOTED:
        args, kwargs = _promoted(node, args, kwargs)
    kwargs = {name: value for name, value in kwargs.items() if name not in OF_MEMORY}
    return _as_promised(ROWS[name](*args, **kwargs), node.meta["val"], name)


def _is_row_major(node: fx.Node) -> bool:
    fake = node.meta["val"]
    return bool(fake.is_contiguous()) and fake.storage_offset() == 0


def _ours(value: Any, values: Mapping[fx.Node, Any]) -> Any:
    if isinstance(value, fx.Node):
        return values[value] if value in values else value.meta["val"]
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise RefusedError(f"lamina lacks {value}")
        return DTYPES[value]
    return value


def _promoted(node: fx.Node, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments in the dtype that PyTorch computes in: a tensor of shape () does not widen
    others of its kind, as in lamina it would."""
    from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
    from torch._prims_common import elementwise_dtypes

    fakes = [one.meta["val"] if isinstance(one, fx.Node) else one for one in node.args]
    operands = [
        one for one in fakes if isinstance(one, (torch.Tensor, int, float, complex))
    ]
    if not any(isinstance(one, torch.Tensor) for one in operands):
        return args, kwargs
    _, dtype = elementwise_dtypes(*operands, type_promotion_kind=KINDS.DEFAULT)
    ours = DTYPES[dtype]

    def converted(value: Any) -> Any:
        return value.cast(ours) if isinstance(value, Tensor) else value

    return [converted(one) for one in args], {name: converted(one) for name, one in kwargs.items()}


def _as_promised(result: Any, fake: Any, name: str) -> Any:
    """The result with the dtypes of `fake`; its shapes must be those already. What nobody reads is
    zeros."""
    if fake is None or result is None:
        return None
    if result is Unread.RESULT:
        is_tensor = isinstance(fake, torch.Tensor)
        return lm.zeros(tuple(fake.shape), dtype=DTYPES[fake.dtype]) if is_tensor else fake
    if isinstance(fake, torch.Tensor):
        if tuple(result.shape) != tuple(fake.shape):
            raise RefusedError(f"{name}: the row gave {result.shape}, not {tuple(fake.shape)}")
        return result.cast(DTYPES[fake.dtype])
    return tuple(_as_promised(*pair, name) for pair in zip(result, fake, strict=True))
