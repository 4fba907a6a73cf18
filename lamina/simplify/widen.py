"""Rules that keep small dtypes out of what only wide ones do well.

A sort compares its keys in place, and a scatter combines updates with what lies in memory: both
need arithmetic on the stored values. A scattered sum of small floats gains precision by it.
"""

from __future__ import annotations

from lamina.dtypes import STORAGE_ONLY, bfloat16, bool_, float16, float32, uint8
from lamina.ir.build import cast
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.rewrite.compiled import RuleSet
from lamina.rewrite.rules import on

_WIDE = dict.fromkeys((float16, bfloat16, *STORAGE_ONLY), float32)


@on(Op.ARGSORT)
def sort_wide_keys(node: Node) -> Node | None:
    """The order of small floats is that of the same numbers in float32."""
    keys = node.src[0]
    wide = uint8 if keys.dtype is bool_ else _WIDE.get(keys.dtype, keys.dtype)
    return Node(Op.ARGSORT, (cast(keys, wide),))


@on(Op.SCATTER)
def scatter_into_float32(node: Node) -> Node | None:
    """Combine in float32 and round once."""
    base, places, updates = node.src
    if node.arg.monoid is None or node.dtype not in _WIDE:
        return None
    wide = Node(Op.SCATTER, (cast(base, float32), places, cast(updates, float32)), node.arg)
    return cast(wide, node.dtype)


WIDEN = RuleSet("widen", [sort_wide_keys, scatter_into_float32])
