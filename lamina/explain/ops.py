"""The page of operations, docs/ops.md, made from the op table itself."""

from __future__ import annotations

import inspect
import re

from lamina.autodiff.rules import NOT_DIFFERENTIABLE, VJP
from lamina.ir.infer import KINDS
from lamina.ir.ops import ARGUMENT, Group, Op

_SECTIONS: tuple[tuple[str, frozenset[Op]], ...] = (
    ("Leaves", Group.LEAF - Group.KERNEL),
    ("Elementwise, one operand", Group.UNARY),
    ("Elementwise, two operands", Group.BINARY),
    ("Elementwise, three operands", frozenset({Op.WHERE})),
    ("Reductions", Group.REDUCTION),
    ("Movement", Group.MOVEMENT),
    ("Data-dependent movement", frozenset({Op.GATHER, Op.SCATTER, Op.ARGSORT})),
    ("Effects", Group.EFFECT),
    ("Kernel dialect", Group.KERNEL),
)
_INTRODUCTION = """\
# Operations

This page is printed from the op table in `lamina/ir/ops.py`; do not edit it. An argument names
the fields of the node's `arg`. "Derivative" says whether a VJP rule exists, or why none does.
"""


def ops_markdown() -> str:
    """Every operation with its dtypes, argument, meaning and derivative, as Markdown."""
    meanings = _meanings()
    parts = [_INTRODUCTION]
    for title, members in _SECTIONS:
        parts.append(f"## {title}\n")
        parts.append("| operation | dtypes | argument | meaning | derivative |")
        parts.append("|---|---|---|---|---|")
        parts.extend(_row(op, meanings) for op in Op if op in members)
        parts.append("")
    return "\n".join(parts)


def _row(op: Op, meanings: dict[str, str]) -> str:
    kinds = ", ".join(KINDS.get(op, ()))
    derivative = "yes" if op in VJP else NOT_DIFFERENTIABLE[op]
    meaning = meanings.get(op.name, "").replace("|", "\\|")
    return f"| {op.name} | {kinds} | {_argument(op)} | {meaning} | {derivative} |"


def _argument(op: Op) -> str:
    argument = ARGUMENT.get(op, "")
    if isinstance(argument, str):
        return argument
    return ", ".join(argument.__annotations__)


def _meanings() -> dict[str, str]:
    """The comment beside each operation in the source of `Op`."""
    found = re.findall(r"^ +(\w+) = enum\.auto\(\)(?:  # (.*))?$", inspect.getsource(Op), re.M)
    return dict(found)
