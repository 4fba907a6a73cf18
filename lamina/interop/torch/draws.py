"""Random numbers: PyTorch draws them, so that they are those of its seed, and the rest of the
operation stays in the program."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from lamina.interop.torch.mersenne import bernoulli
from lamina.interop.torch.rows import ROWS

aten = torch.ops.aten


def dropout_mask(
    sizes: list[int], strides: list[int], p: float, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Where elements are kept; the same numbers as of ``torch.native_dropout``, whose kernel for
    GPUs draws others than ``bernoulli_``. Both draw in the order of memory, which the strides of
    the mask say."""
    if device.type == "cpu":
        return bernoulli(sizes, strides, 1 - p)
    kept = torch.empty_strided(sizes, strides, dtype=dtype, device=device).fill_(1)
    return torch.native_dropout(kept, p, True)[1]


def is_draw(node: fx.Node) -> bool:
    """Whether an operation draws random numbers, of which PyTorch has the seed. One with a row may
    draw for some arguments only, as attention does with dropout; its row refuses these."""
    if str(node.target) in ROWS:
        return False
    tags = getattr(node.target, "tags", ())
    return node.target is dropout_mask or torch.Tag.nondeterministic_seeded in tags


def draw_apart(graph: fx.Graph) -> None:
    """Replace each dropout by a mask, which PyTorch draws, and two products."""
    for node in graph.find_nodes(op="call_function", target=aten.native_dropout.default):
        x, p, train = node.args
        if train and 0 < p < 1:
            _replace_dropout(graph, node, x, p)


def _replace_dropout(graph: fx.Graph, node: fx.Node, x: fx.Node, p: float) -> None:
    value, mask_value = node.meta["val"]

    def call(target: Any, arguments: tuple[Any, ...], meta: Any) -> fx.Node:
        new = graph.call_function(target, arguments)
        new.meta = {**node.meta, "val": meta}
        return new

    with graph.inserting_before(node):
        sizes, strides = list(mask_value.shape), list(mask_value.stride())
        arguments = (sizes, strides, p, value.dtype, value.device)
        mask = call(dropout_mask, arguments, mask_value)
        factor = call(aten._to_copy.default, (mask,), value)
        kept = call(aten.mul.Tensor, (x, factor), value)
        scaled = call(aten.mul.Tensor, (kept, 1 / (1 - p)), value)
    for user in list(node.users):
        user.replace_all_uses_with((scaled, mask)[user.args[1]])
        graph.erase_node(user)
    graph.erase_node(node)
