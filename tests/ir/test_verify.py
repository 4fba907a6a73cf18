"""The verifier accepts what builders make and names every planted violation."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given

import lamina as lm
from lamina import Tensor
from lamina.core import dtypes
from lamina.core.dtypes import bool_, float32, float64, int8, int32, int64, uint8
from lamina.core.options import using
from lamina.errors import VerifyError
from lamina.ir import build
from lamina.ir.monoids import ADD, ARGMAX, COMPLEX_MUL
from lamina.ir.node import Node
from lamina.ir.ops import (
    Affine,
    Axis,
    Broadcast,
    BufferRef,
    Const,
    Group,
    Hole,
    Iota,
    Load,
    LoopReduce,
    Op,
    Order,
    Pad,
    Reduce,
    Scatter,
    SendTo,
    Shear,
)
from lamina.ir.verify import verify
from tests.ir.graphs import graphs


def plant(op: Any, src: Any, arg: Any, dtype: Any, shape: Any) -> Node:
    """A node that no inference has seen."""
    node = object.__new__(Node)
    for name, value in zip(
        ("op", "src", "arg", "dtype", "shape"), (op, src, arg, dtype, shape), strict=True
    ):
        object.__setattr__(node, name, value)
    return node


def buffer(
    shape: tuple[int, ...],
    dtype: dtypes.DType = float32,
    storage: object = 0,
    device: str = "cpu",
) -> Node:
    return Node(Op.BUFFER, (), BufferRef(storage, shape, dtype, device))


X = buffer((2, 3))
FLAGS = buffer((2, 3), bool_, 1)
INDEX = buffer((2, 3), int64, 2)
ONE = build.const(1.0, float32)


@given(graphs())
def test_what_builders_make_is_accepted(sinks: list[Node]) -> None:
    verify(sinks)


def test_movement_that_moves_nothing_and_used_assignments_are_accepted() -> None:
    stay = Node(Op.PERMUTE, (Node(Op.RESHAPE, (X,), (2, 3)),), (0, 1))
    assigned = Node(Op.ASSIGN, (X, Node(Op.SHRINK, (stay,), (range(2), range(3)))))
    verify([assigned + stay])


VIOLATIONS = {
    # 1. Operations of other dialects.
    "unknown operation": (("add", (X, X), None, float32, (2, 3)), "'add' is not an operation"),
    "axis": ((Op.AXIS, (), Axis(0, 4), int64, ()), "axis: it does not belong in a graph"),
    "affine": ((Op.AFFINE, (), Affine((), 1), int64, ()), "affine: it does not belong"),
    "load": ((Op.LOAD, (), Load(0, float32), float32, ()), "load: it does not belong"),
    "loop_reduce": (
        (Op.LOOP_REDUCE, (ONE,), LoopReduce(ADD), float32, ()), "loop_reduce: it does not belong"),
    "loop_scan": (
        (Op.LOOP_SCAN, (ONE,), LoopReduce(ADD), float32, ()), "loop_scan: it does not belong"),
    "hole": ((Op.HOLE, (), Hole("a", float32), float32, ()), "hole: it does not belong"),
    "call": ((Op.CALL, (X,), X, float32, (2, 3)), "call: it does not belong"),
    # 2. Operands.
    "list of operands": ((Op.NEG, [X], None, float32, (2, 3)), "not a tuple"),
    "no operands": ((Op.NEG, None, None, float32, (2, 3)), "the operands are None"),
    "missing operand": ((Op.ADD, (X,), None, float32, (2, 3)), "takes 2 operands, and has 1"),
    "extra operand": ((Op.NEG, (X, X), None, float32, (2, 3)), "takes 1 operands, and has 2"),
    "leaf with operand": (
        (Op.CONST, (X,), Const(1.0, float32), float32, ()), "takes 0 operands, and has 1"),
    # 3. Arguments.
    "argument of add": ((Op.ADD, (X, X), 1, float32, (2, 3)), "argument=1 is not None"),
    "argument of detach": ((Op.DETACH, (X,), "x", float32, (2, 3)), "argument='x' is not None"),
    "list as shape": ((Op.RESHAPE, (X,), [6], float32, (6,)), "not tuple[int, ...]"),
    "bool as size": ((Op.RESHAPE, (X,), (6, True), float32, (6, 1)), "not tuple[int, ...]"),
    "negative size": ((Op.EXPAND, (ONE,), (-1,), float32, (-1,)), "a negative size"),
    "NumPy integer": (
        (Op.RESHAPE, (X,), (np.int64(6),), float32, (6,)), "not tuple[int, ...]"),
    "list as axes": ((Op.PERMUTE, (X,), [1, 0], float32, (3, 2)), "not tuple[int, ...]"),
    "repeated axis": ((Op.PERMUTE, (X,), (0, 0), float32, (2, 2)), "do not fit: (0, 0)"),
    "plain tuple for pad": ((Op.PAD, (X,), ((1, 0), (0, 0), 0.0), float32, (3, 3)), "ir.ops.Pad"),
    "negative pad": (
        (Op.PAD, (X,), Pad((-1, 0), (0, 0), 0.0), float32, (1, 3)),
        "(2, 3) do not fit: (-1, 0) and (0, 0) are no sizes"),
    "size for a range": ((Op.SHRINK, (X,), (2, 3), float32, (2, 3)), "not tuple[range, ...]"),
    "too few ranges": ((Op.SHRINK, (X,), (range(2),), float32, (2,)), "(2, 3) do not fit: (range("),
    "range beyond the end": (
        (Op.SHRINK, (X,), (range(2), range(4)), float32, (2, 4)), "do not fit: range(0, 4)"),
    "range before the start": (
        (Op.SHRINK, (X,), (range(2), range(2, -2, -1)), float32, (2, 4)), "fit: range(2, -2"),
    "bool shear": (
        (Op.SHEAR, (X,), Shear(0, 1, True), float32, (4, 3)), "step=True is not int"),
    "shear by itself": (
        (Op.SHEAR, (X,), Shear(0, 0, 1), float32, (3, 3)), "do not fit: 0 and 0 are not two"),
    "name of a dtype": (
        (Op.CAST, (X,), "float64", float64, (2, 3)), "not lamina.core.dtypes.DType"),
    "bitcast of another size": (
        (Op.BITCAST, (X,), float64, float64, (2, 3)), "do not fit: lamina.float64"),
    "tuple as gather's axis": ((Op.GATHER, (X, INDEX), (0,), float32, (2, 3)), "not int"),
    "float index": ((Op.GATHER, (X, X), 0, float32, (2, 3)), "the index is no integer"),
    "bool scatter axis": (
        (Op.SCATTER, (X, INDEX, X), Scatter(False, ADD), float32, (2, 3)), "axis=False"),
    "copy to nowhere": ((Op.COPY, (X,), None, float32, (2, 3)), "device=None is not str"),
    "buffer of lists": (
        (Op.BUFFER, (), BufferRef(3, [2], float32, "cpu"), float32, (2,)), "shape=[2]"),
    "buffer without dtype": (
        (Op.BUFFER, (), BufferRef(3, (2,), "float32", "cpu"), float32, (2,)), "dtype='float32'"),
    "buffer nowhere": (
        (Op.BUFFER, (), BufferRef(3, (2,), float32, None), float32, (2,)), "device=None"),
    "iota of bool": ((Op.IOTA, (), Iota(2, bool_), bool_, (2,)), "does not count"),
    "negative iota": ((Op.IOTA, (), Iota(-2, int64), int64, (-2,)), "a negative size"),
    # 4. Scalars.
    "int for float": (
        (Op.CONST, (), Const(1, float32), float32, ()), "1 is not a Python float"),
    "bool for int": (
        (Op.CONST, (), Const(True, int64), int64, ()), "True is not a Python int"),
    "int for bool": ((Op.CONST, (), Const(1, bool_), bool_, ()), "1 is not a Python bool"),
    "float for complex": (
        (Op.CONST, (), Const(1.0, dtypes.complex64), dtypes.complex64, ()), "a Python complex"),
    "NumPy float": (
        (Op.CONST, (), Const(np.float64(1), float64), float64, ()), "is not a Python float"),
    "too large": ((Op.CONST, (), Const(128, int8), int8, ()), "128 is not a Python int within"),
    "negative unsigned": ((Op.CONST, (), Const(-1, uint8), uint8, ()), "within the range of uint8"),
    "untyped pad": (
        (Op.PAD, (X,), Pad((1, 0), (0, 0), 0), float32, (3, 3)), "0 is not a Python float"),
    # 5. Monoids.
    "name for a monoid": (
        (Op.REDUCE, (X,), Reduce("ADD", (1,)), float32, (2,)), "'ADD' is not lamina.ir."),
    "too few components": (
        (Op.REDUCE, (X,), Reduce(ARGMAX, (1,)), float32, (2,)), "ARGMAX does not combine float32"),
    "sum of bools": (
        (Op.REDUCE, (FLAGS,), Reduce(ADD, (1,)), bool_, (2,)), "add: bool () and bool ()"),
    "variance of mixed dtypes": (
        (Op.REDUCE, (INDEX, X), Reduce(COMPLEX_MUL, (1,)), int64, (2,)),
        "int64 () and float32 () do not fit: dtypes differ"),
    "unsorted axes": (
        (Op.REDUCE, (X,), Reduce(ADD, (1, 0)), float32, ()), "(1, 0) are not some axes in order"),
    "list of axes": (
        (Op.REDUCE, (X,), Reduce(ADD, [1]), float32, (2,)), "not tuple[int, ...]"),
    "no axes": (
        (Op.REDUCE, (X,), Reduce(ADD, ()), float32, (2, 3)), "do not fit: () are not some axes"),
    "axis out of range": (
        (Op.REDUCE, (X,), Reduce(ADD, (2,)), float32, (2, 3)), "fit: (2,) are not some axes"),
    "missing component": (
        (Op.REDUCE, (X, INDEX), Reduce(ARGMAX, (1,), 2), int64, (2,)), "component=2 is not"),
    "bool component": (
        (Op.REDUCE, (X, INDEX), Reduce(ARGMAX, (1,), True), int64, (2,)), "component=True is not"),
    "scan of two axes": (
        (Op.SCAN, (X,), Reduce(ADD, (0, 1)), float32, (2, 3)), "is not one axis"),
    "scatter of pairs": (
        (Op.SCATTER, (X, INDEX, X), Scatter(0, ARGMAX), float32, (2, 3)), "ARGMAX does not"),
    # 6. Types.
    "wrong dtype": (
        (Op.ADD, (X, X), None, float64, (2, 3)), "its type is lamina.float64 (2, 3), and"),
    "wrong shape": ((Op.ADD, (X, X), None, float32, (3, 2)), "its type is lamina.float32 (3, 2)"),
    "list for a shape": ((Op.ADD, (X, X), None, float32, [2, 3]), "float32 [2, 3]"),
    "bool in a shape": (
        (Op.RESHAPE, (X,), (6, 1), float32, (6, True)), "its type is lamina.float32 (6, True)"),
    "broadcast": ((Op.ADD, (X, ONE), None, float32, (2, 3)), "shapes differ"),
    "mixed dtypes": ((Op.ADD, (X, INDEX), None, float32, (2, 3)), "dtypes differ"),
    "comparison without bool": ((Op.LT, (X, X), None, float32, (2, 3)), "its type is"),
    "condition of numbers": ((Op.WHERE, (X, X, X), None, float32, (2, 3)), "condition is no bool"),
    "negated bool": (
        (Op.NEG, (FLAGS,), None, bool_, (2, 3)), "bool (2, 3) do not fit: the dtype is not"),
    "reshape of another count": ((Op.RESHAPE, (X,), (5,), float32, (5,)), "do not fit: (5,)"),
    "condition of another shape": (
        (Op.WHERE, (FLAGS, ONE, ONE), None, float32, (2, 3)), "the condition has another shape"),
    "expanded to fewer axes": ((Op.EXPAND, (X,), (3,), float32, (3,)), "fit: (3,) has fewer axes"),
    "expanded along an axis of 3": (
        (Op.EXPAND, (X,), (2, 4), float32, (2, 4)), "fit: (2, 4) has another size along an axis"),
    "gather along no axis": (
        (Op.GATHER, (X, INDEX), 2, float32, (2, 3)), "fit: both have no axis 2"),
    "gather of other rows": (
        (Op.GATHER, (X, buffer((1, 3), int64)), 1, float32, (1, 3)),
        "fit: sizes differ along other axes than 1"),
    "scatter of fewer updates": (
        (Op.SCATTER, (X, INDEX, ONE), Scatter(0, ADD), float32, (2, 3)), "have other shapes"),
    "scatter of integers": (
        (Op.SCATTER, (X, INDEX, INDEX), Scatter(0, ADD), float32, (2, 3)), "has another dtype"),
    "order along no axis": (
        (Op.ARGSORT, (X,), Order(2, False, 0, 3), int64, (2, 3)), "fit: there is no axis 2"),
    "order of too many ranks": (
        (Op.ARGSORT, (X,), Order(1, False, 0, 4), int64, (2, 4)), "there are no ranks 0 to 4"),
    "sum by bins at places of int64": (
        (Op.BIN_SUM, (X, INDEX, X), 3, float32, (2, 3)), "the places are no int32"),
    "sum by bins of fewer updates": (
        (Op.BIN_SUM, (X, buffer((2, 3), int32), ONE), 3, float32, (2, 3)), "have other shapes"),
    "sum by no bins": (
        (Op.BIN_SUM, (X, buffer((2, 3), int32), X), 0, float32, (2, 3)), "there are 0 bins"),
    "broadcast from no rank": (
        (Op.BROADCAST, (X,), Broadcast(2, 2, 1), float32, (2, 3)), "there is no rank 2 of 2"),
    "sent to nobody": (
        (Op.COLLECTIVE_PERMUTE, (X,), SendTo((0,), 2, 1), float32, (2, 3)),
        "(0,) are no targets of 2 ranks"),
    # 7. Assignments.
    "assigned value": (
        (Op.ASSIGN, (X + X, X), None, float32, (2, 3)), "the target is no buffer"),
}  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_planted_violation_is_named(name: str) -> None:
    parts, message = VIOLATIONS[name]
    bad = plant(*parts)
    with pytest.raises(VerifyError) as caught:
        verify([bad])
    assert message in str(caught.value)
    name = bad.op.name if isinstance(bad.op, Op) else bad.op
    assert re.match(f"verify: %\\d+ = '?{name}", str(caught.value), re.IGNORECASE)


def test_an_operand_that_is_no_node_is_found() -> None:
    bad = plant(Op.ADD, (X, 1.0), None, float32, (2, 3))
    with pytest.raises(VerifyError, match="an operand is not a node: 'float'"):
        verify([bad])


def test_every_foreign_operation_is_planted() -> None:
    assert {parts[0] for parts, _ in VIOLATIONS.values()} >= Group.KERNEL


def test_a_violation_below_a_sound_sink_is_found() -> None:
    bad = plant(Op.NEG, (X,), None, float32, (9,))
    above = plant(Op.NEG, (bad,), None, float32, (9,))
    with pytest.raises(VerifyError, match=r"^verify: %1 = neg: its type is lamina.float32 \(9,\)"):
        verify([above])


def test_one_storage_has_one_device_and_size() -> None:
    verify([X, buffer((3, 2)), buffer((3,), float64)])
    with pytest.raises(VerifyError, match=r"one storage is .* \('cpu', 24\) and \('cpu', 12\)"):
        verify([X, buffer((3,))])
    with pytest.raises(VerifyError, match=r"\('cpu', 24\) and \('interp', 24\)"):
        verify([X, buffer((2, 3), device="interp")])


def test_only_copy_crosses_devices() -> None:
    far = buffer((2, 3), storage=9, device="interp")
    verify([X + Node(Op.COPY, (far,), "cpu")])
    with pytest.raises(VerifyError, match="add: its operands live on cpu and interp"):
        verify([X + -far])
    with pytest.raises(VerifyError, match="assign: its operands live on cpu and interp"):
        verify([Node(Op.ASSIGN, (X, far))])


def test_a_node_outside_the_table_is_found() -> None:
    sound = -X
    twin = plant(sound.op, sound.src, sound.arg, sound.dtype, sound.shape)
    verify([sound])
    with pytest.raises(VerifyError, match="and Node\\(\\) makes another"):
        verify([twin])


@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_a_broken_graph_is_refused_when_it_runs(device: str) -> None:
    """Without LAMINA_CHECK: the message says what is wrong, and at which line of the program."""
    # An int, not a float; of a number that no other node has, which would be taken for this one.
    broken = Node(Op.CONST, (), Const(170_141, float32))
    with using(device=device):
        tensor = Tensor.of(Node(Op.EXPAND, (broken,), (2,)) + lm.ones(2).node, device)
        with pytest.raises(VerifyError) as caught:
            tensor.numpy()
    what, where = str(caught.value).splitlines()
    assert re.fullmatch(
        r"verify: %\d+ = const: 170141 is not a Python float within the range of float32", what
    )
    assert where.endswith("tensor.numpy()")
