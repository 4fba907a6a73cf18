"""The text form prints and parses back to the same objects."""

from __future__ import annotations

import pytest
from hypothesis import given, seed, settings

from lamina.core import dtypes
from lamina.errors import FormatError
from lamina.ir import build
from lamina.ir.kernel import BinKernel, Kernel, Parameter, SortKernel, Store
from lamina.ir.monoids import ADD, ARGMAX, MAX
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Affine, Axis, BufferRef, Group, Load, LoopReduce, Op, Order, Pad, Reduce
from lamina.ir.parse import parse
from lamina.ir.text import kernel_text, to_text
from tests.ir.graphs import graphs

SOFTMAX = """\
%0 = buffer storage=0 device=cpu : f32[64,32]
%1 = reduce %0 monoid=MAX axes=(1,) component=0 : f32[64]
%2 = reshape %1 : f32[64,1]
%3 = expand %2 : f32[64,32]
%4 = neg %3 : f32[64,32]
%5 = add %0, %4 : f32[64,32]
%6 = exp %5 : f32[64,32]
%7 = reduce %6 monoid=ADD axes=(1,) component=0 : f32[64]
%8 = reshape %7 : f32[64,1]
%9 = expand %8 : f32[64,32]
%10 = div %6, %9 : f32[64,32]
return %10"""


def _softmax(x: Node) -> Node:
    top = build.reshape(build.reduce(MAX, (1,), x), (64, 1))
    numerator = Node(Op.EXP, (x - build.expand(top, x.shape),))
    total = build.reshape(build.reduce(ADD, (1,), numerator), (64, 1))
    return numerator / build.expand(total, x.shape)


def _buffer(shape: tuple[int, ...], storage: object = 0) -> Node:
    return Node(Op.BUFFER, (), BufferRef(storage, shape, dtypes.float32, "cpu"))


def test_a_program_reads_as_written() -> None:
    program = _softmax(_buffer((64, 32)))
    assert to_text([program]) == SOFTMAX
    assert parse(SOFTMAX) == [program]


@given(graphs())
def test_random_graphs_round_trip_to_the_same_objects(sinks: list[Node]) -> None:
    text = to_text(sinks)
    parsed = parse(text)
    assert len(parsed) == len(sinks)
    assert all(a is b for a, b in zip(parsed, sinks, strict=True)), text


def test_random_graphs_reach_every_operation() -> None:
    seen: set[Op] = set()

    @settings(max_examples=25)
    @given(graphs(20, 40))
    def collect(sinks: list[Node]) -> None:
        seen.update(node.op for node in toposort(sinks))

    rare = set(Op) - Group.KERNEL - Group.TRANSCENDENTAL - Group.BINARY - {Op.TRUNC}
    for number in range(60):
        if not rare <= seen:
            seed(number)(collect)()
    assert rare <= seen
    assert seen & Group.BINARY


@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 0.1])
def test_every_float_survives_as_constant_and_as_padding(value: float) -> None:
    x = _buffer((2,))
    for node in (
        build.const(value, dtypes.float32),
        build.const(complex(value, -value), dtypes.complex128),
        Node(Op.PAD, (x,), Pad((1,), (0,), value)),
    ):
        assert parse(to_text([node]))[0] is node


def test_signed_zeros_are_different_padding() -> None:
    x = _buffer((2,))
    plus, minus = (Node(Op.PAD, (x,), Pad((1,), (0,), value)) for value in (0.0, -0.0))
    assert plus is not minus


def test_constants_that_compare_equal_are_told_apart() -> None:
    pairs = (0.0, -0.0, dtypes.float32), (1 + 0j, complex(1, -0.0), dtypes.complex64)
    for one, other, dtype in pairs:
        assert build.full((2,), one, dtype) is build.full((2,), one, dtype)
        assert build.full((2,), one, dtype) is not build.full((2,), other, dtype)


def test_the_last_line_names_the_sinks() -> None:
    x = _buffer((3,))
    y = -x
    assert to_text([y, x]).endswith("\nreturn %1, %0")
    assert parse(to_text([y, x, y])) == [y, x, y]
    assert parse(to_text([])) == []
    assert parse("# nothing\n\n") == []


def test_foreign_scalars_print_but_do_not_parse() -> None:
    combined = MAX.combine((build.const(1.0, dtypes.float32),), (build.const(2.0, dtypes.float32),))
    assert parse(to_text(combined)) == list(combined)
    with pytest.raises(FormatError, match="an operation of the graph, not 'hole'"):
        parse("%0 = hole name=a : f32[]")


X = "%0 = buffer storage=0 device=cpu : f32[2,3]\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add %0", r"line 1: expected '%name = operation"),
        ("%0 = frobnicate : f32[]", "expected an operation of the graph, not 'frob"),
        ("%0 = const value=1.0 : f33[]", "line 1: expected a dtype, not 'f33'"),
        ("%0 = const value=one : f32[]", "line 1: expected a number .*, not 'one'"),
        ("%0 = const value=one : i32[]", "line 1: expected a number .*, not 'one'"),
        (
            "%0 = const value=1.5 : i32[]",
            "line 1: 1.5 is not a Python int within the range of int32",
        ),
        (
            "%0 = const value=300 : u8[]",
            "line 1: 300 is not a Python int within the range of uint8",
        ),
        ("%0 = const value=1 : bool[]", "line 1: 1 is not a Python bool"),
        ("%0 = iota : i32[]", r"line 1: expected '%0 = iota : i32\[1\]', not"),
        (X + "%1 = shear %0 axis=0 by=1 : f32[2,3]", "step=None is not int"),
        (X + "%1 = neg %7 : f32[2,3]", "line 2: expected a node that is defined above, not '%7'"),
        (X + "%0 = neg %0 : f32[2,3]", "line 2: expected a new name, and %0 is defined above"),
        (X + "%1 = neg %0 axis=1 : f32[2,3]", "line 2: expected '%1 = neg %0 : .*', not"),
        (X + "%1 = neg %0, %0 : f32[2,3]", "line 2: it takes 1 operands, and has 2"),
        (X + "%1 = add %0 : f32[2,3]", "line 2: it takes 2 operands, and has 1"),
        (X + "%1 = neg %0 : f32[3,2]", r"f32\[2,3\]', not .* f32\[3,2\]'"),
        (X + "%1 = neg %0 : f64[2,3]", r"f32\[2,3\]', not .* f64\[2,3\]'"),
        (X + "%1 = reshape %0 : f32[4]", r"line 2: reshape: .* do not fit: \(4,\)"),
        (X + "%1 = permute %0 axes=1 : f32[2,3]", "line 2: axes=1 is not tuple"),
        (X + "%1 = permute %0 axes=(1,1) : f32[2,3]", "line 2: .* do not fit"),
        (X + "%1 = reduce %0 monoid=SUM axes=(1,) component=0 : f32[2]", "expected a monoid, not"),
        (X + "%1 = reduce %0 monoid=ADD axes=(1,) component=2 : f32[2]", "component=2 is not one"),
        (X + "return %0\n%1 = neg %0 : f32[2,3]", "line 3: expected nothing after the line 'retur"),
        (X + "return 0", "line 2: expected '%name"),
    ],
)
def test_mistakes_are_reported_with_their_line(text: str, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        parse(text)


def test_a_reduction_of_several_components_parses() -> None:
    values, indices = (
        _buffer((4, 2)),
        build.expand(build.reshape(build.iota(4, dtypes.int64), (4, 1)), (4, 2)),
    )
    text = to_text([Node(Op.REDUCE, (values, indices), Reduce(ARGMAX, (0,), 1))])
    assert text.endswith("reduce %0, %3 monoid=ARGMAX axes=(0,) component=1 : i64[2]\nreturn %4")
    assert to_text(parse(text)) == text


def test_a_kernel_prints_its_indices_where_they_are_used() -> None:
    row, column = (Node(Op.AXIS, (), Axis(i, 4, reduce=i > 0)) for i in range(2))
    index = Node(Op.AFFINE, (row, column), Affine((4, 1), 2))
    load = Node(Op.LOAD, (index,), Load(0, dtypes.float32))
    total = Node(Op.LOOP_REDUCE, (load, column), LoopReduce(MAX))
    parameters = (Parameter(dtypes.float32, 18), Parameter(dtypes.float32, 4, True))
    kernel = Kernel(parameters, (Store(1, row, total, (row,), row < 3, ADD),), 1)
    assert kernel_text(kernel).splitlines() == [
        "kernel p0: f32[18], p1: f32[4] written",
        "  %0 = load 4*a0 + r1 + 2 parameter=0 : f32[]",
        "  %1 = loop_reduce %0, r1 monoid=MAX component=0 : f32[]",
        "  %2 = lt a0, 3 : bool[]",
        "  for a0 < 4 if %2: p1[a0] ADD= %1",
    ]
    sort = SortKernel(parameters, 2, 9, 1, Order(1, True, 0, 9), 1, 0)
    assert kernel_text(sort).splitlines() == [
        "sort p0: f32[18], p1: f32[4] written",
        "  2 rows of 9, 0 kernels left, descending, ranks 0 to 9",
    ]
    bins = BinKernel(parameters, (0, 2, 1), 3, 1)
    assert kernel_text(bins).splitlines() == [
        "bin_sum p0: f32[18], p1: f32[4] written",
        "  p0 + p1 at p2, 3 bins, 1 kernels left",
    ]
