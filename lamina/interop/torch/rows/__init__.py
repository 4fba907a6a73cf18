"""The table from ATen's overloads to functions on lamina's tensors.

A row is a function of an overload's arguments in ATen's order, with lamina's tensors and dtypes in
place of PyTorch's, and without those that say where and how memory is laid out. It returns the
overload's results; `interpret` gives these the dtypes that PyTorch says they have, so that a row
need not. An overload without a row runs in PyTorch.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lamina.interop.torch.rows import (
    attention,
    bags,
    elementwise,
    indexing,
    movement,
    neural,
    pooling,
    products,
    reductions,
    segments,
)  # fmt: skip

Row = Callable[..., Any]

# Of these, all tensors are first converted to the dtype that PyTorch computes in.
PROMOTED: Mapping[str, Row] = elementwise.ROWS
ROWS: Mapping[str, Row] = {
    **PROMOTED, **elementwise.UNPROMOTED, **movement.ROWS, **indexing.ROWS, **reductions.ROWS,
    **products.ROWS, **attention.ROWS, **neural.ROWS, **pooling.ROWS, **segments.ROWS,
    **bags.ROWS,
}  # fmt: skip
