"""Mutants: one comparison, sign, bound or guard of a module changed."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# What a comparison, an operator or a function of two numbers becomes.
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult,
}  # fmt: skip
FUNCTIONS = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """A changed module: its path, the line, what became what, and its whole new text."""

    path: Path
    line: int
    change: str
    text: str


def _changed(node: ast.AST) -> ast.AST | None:
    """A copy of `node` with the change that it has, or None."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARISONS:
        new.ops[0] = COMPARISONS[type(new.ops[0])]()
    elif isinstance(new, ast.BinOp) and type(new.op) in OPERATORS:
        new.op = OPERATORS[type(new.op)]()
    elif isinstance(new, ast.BoolOp):
        new.values = new.values[:-1] if len(new.values) > 2 else new.values[:1]  # a dropped guard
        new = new if len(new.values) > 1 else new.values[0]  # type: ignore[assignment]
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        new = new.operand  # type: ignore[assignment]
    elif isinstance(new, ast.Call) and isinstance(new.func, ast.Name) and new.func.id in FUNCTIONS:
        new.func.id = FUNCTIONS[new.func.id]
    else:
        return None
    return new


def _sites(tree: ast.Module) -> Iterator[ast.expr]:
    """The expressions that a mutant may change: not those of errors, assertions and types."""
    skipped: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Raise | ast.Assert):
            parts = [node]
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            parts = [node.returns, *(each.annotation for each in arguments)]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        skipped.update(id(inner) for part in parts if part for inner in ast.walk(part))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and id(node) not in skipped and _changed(node) is not None:
            yield node


class _Replace(ast.NodeTransformer):
    def __init__(self, site: ast.AST, new: ast.AST) -> None:
        self.site, self.new = site, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.site else self.generic_visit(node)


def mutants(paths: list[Path], count: int, seed: int) -> list[Mutant]:
    """`count` random mutants of the modules at `paths`, at most one a site."""
    rng = random.Random(seed)
    sites = [
        (path, number)
        for path in paths
        for number, _ in enumerate(_sites(ast.parse(path.read_text(encoding="utf-8"))))
    ]
    return [_mutant(path, number) for path, number in rng.sample(sites, count)]


def _mutant(path: Path, number: int) -> Mutant:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    site = list(_sites(tree))[number]
    new = _changed(site)
    assert new is not None
    change = f"{ast.unparse(site)} -> {ast.unparse(new)}"
    text = ast.unparse(ast.fix_missing_locations(_Replace(site, new).visit(tree)))
    return Mutant(path, site.lineno, change, text)
