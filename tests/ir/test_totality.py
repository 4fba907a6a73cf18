"""Every table covers every operation, or the exception is named here."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from lamina.frontend.functions import elementwise
from lamina.graph.autodiff import NOT_DIFFERENTIABLE, VJP
from lamina.ir.infer import INFER
from lamina.ir.interpreter import EVALUATE
from lamina.ir.ops import Group, Kinds, Op, OpRecord
from tests.ir.places import TEXTS, all_missing, missing_places, read


def test_every_operation_infers_its_type() -> None:
    assert set(INFER) == set(Op)
    assert {op for op in Op if op.value.kinds} == Group.ELEMENTWISE


def test_every_graph_operation_has_a_reference_value() -> None:
    assert set(EVALUATE) - {Op.AFFINE} == set(Op) - Group.KERNEL - {Op.BUFFER}


def test_every_operation_has_a_derivative_or_a_reason() -> None:
    assert set(VJP) | set(NOT_DIFFERENTIABLE) == set(Op)
    assert not set(VJP) & set(NOT_DIFFERENTIABLE)
    assert all(NOT_DIFFERENTIABLE.values())


def test_every_elementwise_operation_is_complete() -> None:
    lacks = all_missing()
    assert not lacks, "\n".join(lacks)


COMPLETE = OpRecord(
    "transcendental", Kinds.FLOAT, numpy="cbrt",
    derivative=lambda g, z, x: (g / (z * z * 3.0),), instructions=90,
)  # fmt: skip


def lacking(row: OpRecord = COMPLETE, cases: Collection[str] = (), **rows: str) -> list[str]:
    """What an operation of the name TEST needs, with a few rows appended to texts; cases: the
    names that have a row of tests."""
    paths = {"arithmetic": "c/arithmetic.c", "math": "c/math.c", "metal": "metal/prelude.metal"}
    texts = {paths[key]: read(f"{TEXTS}/{paths[key]}") + f"\n{row}\n" for key, row in rows.items()}
    lacks = missing_places("TEST", row, cases, texts)
    return [one.removeprefix("lamina/") for one in lacks]


LIBM = "tests/transcendental/c_check.py lacks double test(double x), and so does C's library"


def test_a_planted_operation_names_every_place_that_lacks_it() -> None:
    assert lacking(OpRecord("transcendental")) == [
        "ir/ops.py: the record of TEST lacks kinds: the dtypes that it takes",
        "ir/ops.py: the record of TEST lacks numpy: the name of NumPy's function, or a function",
        "ir/ops.py: the record of TEST lacks derivative: a rule, or the reason why there is none",
        "ir/ops.py: the record of TEST lacks instructions: those of its function of vectors",
        "frontend/functions: no function makes Op.TEST",
        "targets/c/arithmetic.c lacks EACH_FLOAT(LIBRARY, test), or a formula",
        "targets/c/math.c lacks test_f32xN, the same of vectors",
        "targets/c/math.c: EACH lacks F(test), for kernels of many functions",
        "targets/c/math.c lacks SCALAR(test_f32, f32, f32)",
        "tests/elementwise_cases.py lacks Op.TEST: a formula, an interval and a bound",
        LIBM,
    ]


def test_a_place_that_has_the_planted_operation_is_not_named() -> None:
    vectors = "INLINE f32xN test_f32xN(f32xN x) { return x; }\n#define EACH(F) F(exp) F(test)\n"
    vectors += "SCALAR(test_f32, f32, f32)"
    formula = "#define TEST(T, suffix, name) INLINE T name##_##T(T x) { return x; }\n"
    formula += "EACH_FLOAT(TEST, test)"
    rest = ["frontend/functions: no function makes Op.TEST", LIBM]
    assert lacking(cases=["TEST"], arithmetic=formula, math=vectors) == rest


def test_a_macro_that_is_nowhere_is_named() -> None:
    named = [one for one in lacking(arithmetic="EACH_FLOAT(TEST, test)") if "arithmetic" in one]
    assert named == ["targets/c/arithmetic.c lacks the macro TEST(T, suffix, name)"]


def test_a_public_function_without_a_name_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elementwise, "planted", elementwise.FLOATS.unary("planted", "", Op.EXP),
                        raising=False)  # fmt: skip
    assert "lamina/frontend/functions/elementwise.py: __all__ lacks planted" in all_missing()


def test_a_function_that_a_library_lacks_is_named() -> None:
    library = "EACH_FLOAT(LIBRARY, test)"
    named = [one for one in lacking(arithmetic=library) if "ibrary" in one and one != LIBM]
    assert named == [
        "targets/c/arithmetic.c: C's library has no test: write a formula",
        "targets/metal/prelude.metal lacks test, and so does Metal's library",
    ]
    own = "using ::test;"
    assert not [one for one in lacking(arithmetic=library, metal=own) if "metal" in one]


def test_a_binary_operation_needs_a_function_of_each_type() -> None:
    row = OpRecord("binary", Kinds.FLOAT, numpy="hypot", derivative="none yet")
    needs = "targets/c/arithmetic.c lacks test_##T, a function for each type it takes"
    assert needs in lacking(row)
    assert needs not in lacking(row, arithmetic="INLINE T test_##T(T a, T b) { return a; }")


def test_groups_cover_every_operation_once() -> None:
    groups = (
        Group.LEAF, Group.ELEMENTWISE, Group.REDUCTION, Group.MOVEMENT, Group.EFFECT,
        Group.COLLECTIVE, Group.KERNEL, {Op.GATHER, Op.SCATTER, Op.ARGSORT, Op.BIN_SUM},
    )  # fmt: skip
    assert sum(map(len, groups)) == len(Op)
    assert set().union(*groups) == set(Op)


def test_arguments_are_named_where_inference_reads_them() -> None:
    named = {op for op in Op if op.value.argument != ""}
    assert named >= Group.MOVEMENT | Group.REDUCTION | Group.LEAF | Group.KERNEL
