"""The places where an elementwise operation stands, and which of them lack it.

An operation is one record (`lamina/ir/ops.py`), one function of the front, a row in each text that
calls a function for it, and a row of `tests/elementwise_cases.py`. Nothing here runs a
compiler.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

import lamina as lm
from lamina.frontend.functions import elementwise
from lamina.ir.ops import Group, Op, OpRecord
from lamina.targets.c.operations import OPERATIONS, VECTORS_OF_FLOAT64
from tests.elementwise_cases import CASES
from tests.test_layers import ROOT

TEXTS = "lamina/targets"
RECORDS = "lamina/ir/ops.py"
FRONT = "lamina/frontend"
TESTS = "tests/elementwise_cases.py"
LIBM = "tests/transcendental/c_check.py"

# What the interpreter evaluates with the node at hand, because the result's dtype decides.
CONVERSIONS = frozenset({"CAST", "BITCAST", "COMPLEX"})
# Functions that processors have an instruction for.
INSTRUCTIONS = frozenset({"SQRT"})
# Functions of one float in C's library, which CUDA has as well (C17, 7.12).
C_LIBRARY = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "ceil", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "expm1", "fabs", "floor", "lgamma", "log", "log10", "log1p", "log2",
    "logb", "nearbyint", "rint", "round", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc",
})  # fmt: skip
# The same of Metal's namespace precise (Metal Shading Language 3.1, 6.5).
METAL_LIBRARY = frozenset({
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "cospi", "exp",
    "exp10", "exp2", "fabs", "floor", "fract", "log", "log10", "log2", "rint", "round", "rsqrt",
    "sin", "sinh", "sinpi", "sqrt", "tan", "tanh", "tanpi", "trunc",
})  # fmt: skip


def read(name: str) -> str:
    """A file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def missing_places(
    name: str, row: OpRecord, cases: Collection[str], texts: Mapping[str, str] | None = None
) -> list[str]:
    """What the elementwise operation `name` with the record `row` still needs, each with the file
    and what to write there; nothing when it is complete. cases: the names that have a row of
    tests. texts: in place of files, their contents by name."""
    lacks = [*_missing_in_record(name, row), *_missing_in_front(name)]
    if _is_called(name):
        lacks += _missing_in_texts(name, row, texts or {})
    if row.group == "transcendental":
        if name not in cases:
            lacks.append(f"{TESTS} lacks Op.{name}: a formula, an interval and a bound")
        word = name.lower()
        if word not in C_LIBRARY and f"double {word}(double x)" not in read(LIBM):
            lacks.append(f"{LIBM} lacks double {word}(double x), and so does C's library")
    return lacks


def _missing_in_record(name: str, row: OpRecord) -> list[str]:
    where = f"{RECORDS}: the record of {name} lacks"
    lacks = []
    if not row.kinds:
        lacks.append(f"{where} kinds: the dtypes that it takes")
    if not row.numpy and name not in CONVERSIONS:
        lacks.append(f"{where} numpy: the name of NumPy's function, or a function")
    if not row.derivative:
        lacks.append(f"{where} derivative: a rule, or the reason why there is none")
    if row.group == "transcendental" and row.instructions == 1 and name not in INSTRUCTIONS:
        lacks.append(f"{where} instructions: those of its function of vectors")
    return lacks


def _missing_in_front(name: str) -> list[str]:
    formulas = [ROOT / "lamina/ir/node.py", ROOT / "lamina/ir/build.py"]  # which the front uses
    paths = [*(ROOT / FRONT).rglob("*.py"), *formulas]
    if any(re.search(rf"\bOp\.{name}\b", path.read_text(encoding="utf-8")) for path in paths):
        return []
    return [f"{FRONT}/functions: no function makes Op.{name}"]


def _is_called(name: str) -> bool:
    """Whether texts have a function of that name; an operation without an operator is called."""
    op = Op.__members__.get(name)
    called = [OPERATIONS[each] for each in (Op.IDIV, Op.MAX, Op.SHL)]
    return op is None or OPERATIONS.get(op) in called


def _missing_in_texts(name: str, row: OpRecord, texts: Mapping[str, str]) -> list[str]:
    word = name.lower()

    def text(path: str) -> str:
        return texts.get(path) or read(f"{TEXTS}/{path}")

    arithmetic = text("c/arithmetic.c")
    if row.group != "transcendental" or name == "SQRT":
        if re.search(rf"\b{word}_(##T|f32)\(", arithmetic):
            return []
        return [f"{TEXTS}/c/arithmetic.c lacks {word}_##T, a function for each type it takes"]
    lacks = []
    each = re.search(rf"^EACH_FLOAT\((\w+), {word}\)$", arithmetic, re.M)
    if each is None:
        lacks.append(f"{TEXTS}/c/arithmetic.c lacks EACH_FLOAT(LIBRARY, {word}), or a formula")
    elif f"\n#define {each[1]}(T, suffix, name) " not in arithmetic:
        lacks.append(f"{TEXTS}/c/arithmetic.c lacks the macro {each[1]}(T, suffix, name)")
    elif each[1] == "LIBRARY":
        if word not in C_LIBRARY:
            lacks.append(f"{TEXTS}/c/arithmetic.c: C's library has no {word}: write a formula")
        if word not in METAL_LIBRARY and f"\nusing ::{word};\n" not in text("metal/prelude.metal"):
            lacks.append(f"{TEXTS}/metal/prelude.metal lacks {word}, and so does Metal's library")
    vectors = text("c/math.c")
    if not re.search(rf"^INLINE f32xN {word}_f32xN\(f32xN x\)", vectors, re.M):
        lacks.append(f"{TEXTS}/c/math.c lacks {word}_f32xN, the same of vectors")
    if not re.search(rf"^#define EACH\(F\) .*\bF\({word}\)", vectors, re.M):
        lacks.append(f"{TEXTS}/c/math.c: EACH lacks F({word}), for kernels of many functions")
    if f"\nSCALAR({word}_f32, f32, f32)\n" not in vectors:
        lacks.append(f"{TEXTS}/c/math.c lacks SCALAR({word}_f32, f32, f32)")
    if Op.__members__.get(name) in VECTORS_OF_FLOAT64:
        doubles = text("c/doubles.c")
        for part in (f"INLINE f64xN {word}_f64xN(f64xN x)", f"CALLED({word})"):
            if part not in doubles:
                lacks.append(f"{TEXTS}/c/doubles.c lacks {part}, as VECTORS_OF_FLOAT64 has it")
    return lacks


def all_missing() -> list[str]:
    """The missing places of every operation."""
    cases = {op.name for op in CASES}
    lacks = [f"{FRONT}/functions/elementwise.py: __all__ lacks {name}"
             for name, value in vars(elementwise).items()
             if getattr(value, "__module__", "") == "lamina" and not name.startswith("_")
             and name not in lm.__all__]  # fmt: skip
    for op in sorted(Group.ELEMENTWISE, key=lambda one: one.name):
        lacks += missing_places(op.name, op.value, cases)
    spelled = set(OPERATIONS) | {Op.REAL, Op.IMAG, Op.COMPLEX}  # these are split into pairs before
    lacks += [f"lamina/targets/c/operations.py: OPERATIONS lacks Op.{op.name}"
              for op in Group.ELEMENTWISE - spelled]  # fmt: skip
    return lacks
