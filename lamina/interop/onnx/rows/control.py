"""Rows of control flow. Conditions and counts are read when a model is called: each branch that is
not taken is not computed."""

from __future__ import annotations

from typing import Any

from lamina.interop.onnx.rows import Context, row


@row("If")
def if_(context: Context, condition: Any, *, then_branch: Any, else_branch: Any) -> Any:
    is_true = bool(context.host(condition).reshape(()))
    return tuple(then_branch() if is_true else else_branch())
