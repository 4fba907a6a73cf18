"""Nested containers of tensors: dicts, lists and tuples, read in a fixed order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lamina.tensor.core import Tensor


def leaves(tree: Any) -> Iterator[Tensor]:
    """Every tensor in `tree`, dicts in the order of their insertion."""
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from leaves(value)


def map_tree(function: Callable[[Tensor], Any], tree: Any) -> Any:
    """The same containers with `function` applied to every tensor; anything else stays."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_tree(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tree(function, value) for value in tree))
    if isinstance(tree, (list, tuple)):
        return type(tree)(map_tree(function, value) for value in tree)
    return tree
