"""Graphs that PyTorch did not make: what is wrong with a node, if its row fails on it."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from lamina.errors import LaminaError


class BrokenGraphError(LaminaError):
    """A node of a graph has arguments that its operation does not take, or another result than its
    operation gives."""


def fault_of(node: fx.Node) -> str | None:
    """Why PyTorch cannot run a node on what the nodes before it give, or how its result differs
    from the described one; None where it fits."""
    try:
        args, kwargs = fx.node.map_arg(
            (node.args, node.kwargs), lambda operand: operand.meta["val"]
        )
        result = _result(node, args, kwargs)
    except Exception as error:  # PyTorch's operations raise errors of many types
        return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
    found, said = _described(result), _described(node.meta.get("val"))
    return None if found == said else f"it gives {found}, and the graph says {said}"


def _result(node: fx.Node, args: Any, kwargs: Any) -> Any:
    """What the operation gives of FakeTensors, which have no memory."""
    if node.target is operator.getitem:
        return args[0][args[1]]
    if not isinstance(node.target, torch._ops.OpOverload):
        raise TypeError(f"{node.target!r} is no operation of PyTorch's")
    from torch._guards import detect_fake_mode
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = detect_fake_mode((args, kwargs)) or FakeTensorMode(allow_non_fake_inputs=True)
    with mode, torch.no_grad():
        return node.target(*args, **kwargs)


def _described(value: Any) -> Any:
    """Shapes and dtypes of tensors, the rest by its type."""
    if isinstance(value, torch.Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    if isinstance(value, (list, tuple)):
        return [_described(one) for one in value]
    return type(value).__name__
