"""The page of operations, docs/ops.md, made from the op table itself."""

from __future__ import annotations

from lamina.graph.autodiff import NOT_DIFFERENTIABLE, VJP
from lamina.ir.ops import Op

_INTRODUCTION = """\
# Operations

This page is printed from the op table in `lamina/ir/ops.py`; do not edit it. An argument names
the fields of the node's `arg`. "Derivative" says whether a VJP rule exists, or why none does.
"""


def ops_markdown() -> str:
    """Every operation with its dtypes, argument, meaning and derivative, as Markdown."""
    parts = [_INTRODUCTION]
    for group in dict.fromkeys(op.value.group for op in Op):
        parts += [f"## {group.capitalize()}\n",
                  "| operation | dtypes | argument | meaning | derivative |",
                  "|---|---|---|---|---|"]  # fmt: skip
        for op in (op for op in Op if op.value.group == group):
            argument = op.value.argument
            fields = argument if isinstance(argument, str) else ", ".join(argument.__annotations__)
            derivative = "yes" if op in VJP else NOT_DIFFERENTIABLE[op]
            meaning = op.value.meaning.replace("|", "\\|")
            cells = (op.name, ", ".join(op.value.kinds), fields, meaning, derivative)
            parts.append(f"| {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)
