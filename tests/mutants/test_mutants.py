"""The mutants themselves: each is another program, and tests are named for it that exist."""

from __future__ import annotations

import ast

from tests.mutants.__main__ import FOLDERS, ROOT, SUITES, TEXTS, suites_of
from tests.mutants.mutate import mutants

MODULES = sorted(path for one in FOLDERS for path in (ROOT / "lamina" / one).rglob("*.py"))


def test_every_module_has_tests_that_exist() -> None:
    for path in MODULES:
        assert suites_of(path)[: len(TEXTS)] == TEXTS
    for test in {*TEXTS, *(test for tests in SUITES.values() for test in tests)}:
        assert list((ROOT / test).glob("test_*.py")), test


def test_a_mutant_is_another_program() -> None:
    for mutant in mutants(MODULES[:9], 20, seed=0):
        original = ast.unparse(ast.parse(mutant.path.read_text(encoding="utf-8")))
        assert ast.unparse(ast.parse(mutant.text)) != original
        before, after = mutant.change.split(" -> ")
        assert before != after
