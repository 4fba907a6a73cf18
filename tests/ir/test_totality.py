"""Every table covers every operation, or the exception is named here."""

from __future__ import annotations

from lamina.graph.autodiff import NOT_DIFFERENTIABLE, VJP
from lamina.ir.infer import INFER
from lamina.ir.interpreter import EVALUATE
from lamina.ir.ops import Group, Op
from lamina.targets.c.printer import OPERATIONS


def test_every_operation_infers_its_type() -> None:
    assert set(INFER) == set(Op)
    assert {op for op in Op if op.value.kinds} == Group.ELEMENTWISE


def test_every_graph_operation_has_a_reference_value() -> None:
    assert set(EVALUATE) - {Op.AFFINE} == set(Op) - Group.KERNEL - {Op.BUFFER}


def test_every_operation_has_a_derivative_or_a_reason() -> None:
    assert set(VJP) | set(NOT_DIFFERENTIABLE) == set(Op)
    assert not set(VJP) & set(NOT_DIFFERENTIABLE)
    assert all(NOT_DIFFERENTIABLE.values())


def test_every_elementwise_operation_is_spelled_in_c() -> None:
    complex_only = {Op.REAL, Op.IMAG, Op.COMPLEX}  # split into pairs before fusion
    assert set(OPERATIONS) == Group.ELEMENTWISE - complex_only


def test_groups_cover_every_operation_once() -> None:
    groups = (
        Group.LEAF, Group.ELEMENTWISE, Group.REDUCTION, Group.MOVEMENT, Group.EFFECT,
        Group.KERNEL, {Op.GATHER, Op.SCATTER, Op.ARGSORT},
    )  # fmt: skip
    assert sum(map(len, groups)) == len(Op)
    assert set().union(*groups) == set(Op)


def test_arguments_are_named_where_inference_reads_them() -> None:
    named = {op for op in Op if op.value.argument != ""}
    assert named >= Group.MOVEMENT | Group.REDUCTION | Group.LEAF | Group.KERNEL
