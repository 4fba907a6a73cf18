"""Random whole programs for the compiler: every kind of kernel, sizes around a vector's lanes.

Values are chosen so that results are exact in any order of summation: floats are whole numbers,
infinities or NaN. `exact_sinks` says where magnitudes stayed small enough for that.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.options import Options, using
from lamina.core.shape import Shape, prod
from lamina.frontend.execution import execute
from lamina.fuse.program import BufferView, Program
from lamina.graph.split_complex import split_complex
from lamina.ir import build
from lamina.ir.interpreter import evaluate
from lamina.ir.monoids import ADD, MAX, MUL, Monoid
from lamina.ir.node import Node, full, toposort
from lamina.ir.ops import Op, Reduce, Scatter
from lamina.runtime.buffer import Buffer
from tests.generators import Array, GraphGenerator, leaf, special_value

SIZES = (1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 100)
DTYPES = (
    dtypes.bool_, dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32,
    dtypes.uint32, dtypes.int64, dtypes.uint64, dtypes.float16, dtypes.bfloat16, dtypes.float32,
    dtypes.float32, dtypes.float32, dtypes.float64, dtypes.float64,
)  # fmt: skip
EXACT_BELOW = {
    dtypes.float16: 2.0**11, dtypes.bfloat16: 2.0**8, dtypes.float32: 2.0**24,
    dtypes.float64: 2.0**50,
}  # fmt: skip


class RandomProgram(NamedTuple):
    """Sinks (an ASSIGN writes in place), the content of the BUFFER leaves, and the sinks that are
    to be compared within a tolerance."""

    sinks: list[Node]
    leaves: dict[Node, Array]
    loose: frozenset[Node]


def random_program(rng: random.Random, max_nodes: int, first_leaf: int = 0) -> RandomProgram:
    """A program of one to a few sinks; its leaves are numbered from `first_leaf`."""
    return _ProgramGenerator(rng, first_leaf).program(max_nodes)


class _ProgramGenerator(GraphGenerator):
    max_size = 4000

    def __init__(self, rng: random.Random, first_leaf: int) -> None:
        super().__init__(rng, "loose")
        self.first_leaf = first_leaf
        self.dtypes = DTYPES
        self.loose: list[Node] = []

    def program(self, max_nodes: int) -> RandomProgram:
        sinks, leaves = self.graph(max_nodes)
        extra = [one for one in self.pool if self.rng.random() < 0.06]
        sinks = list(dict.fromkeys([*sinks, *extra, *self.loose]))
        self.rng.shuffle(sinks)
        if self.rng.random() < 0.4:
            sinks = self.assigned(sinks)
        loose = frozenset(
            one for one in sinks if (one.src[1] if one.op is Op.ASSIGN else one) in self.loose
        )
        return RandomProgram(sinks, leaves, loose)

    def steps(self) -> Sequence[Callable[[], Node | None]]:
        return (
            *super().steps(), *super().steps(), self.scan, self.scatter, self.gather, self.argsort,
            self.contraction, self.rows, self.iota, self.contiguous, self.reduce,
        )  # fmt: skip

    # Leaves.

    def shape(self) -> Shape:
        while True:
            rank = self.rng.choice([0, 1, 1, 2, 2, 3])
            shape = tuple(self.rng.choice(SIZES) for _ in range(rank))
            if prod(shape) <= 1000:
                return (*shape, 0) if self.rng.random() < 0.02 else shape

    def leaf(self) -> Node:
        return self.new_leaf(self.shape(), self.rng.choice(self.dtypes))

    def new_leaf(self, shape: Shape, dtype: DType) -> Node:
        node = leaf(self.first_leaf + len(self.leaves), shape, dtype)
        self.leaves[node] = self.values(shape, dtype)
        return node

    def values(self, shape: Shape, dtype: DType) -> Array:
        special = self.rng.random() < 0.25
        return np.array(
            [self.whole(dtype, special) for _ in range(prod(shape))], dtype.numpy
        ).reshape(shape)

    def whole(self, dtype: DType, special: bool) -> bool | int | float | complex:
        if dtype.is_float:
            if special and self.rng.random() < 0.1:
                return self.rng.choice([float("nan"), float("inf"), float("-inf"), -0.0])
            return float(self.rng.randint(-3, 3))
        if dtype.is_int and not special:
            return self.rng.randint(0 if dtype.kind == "uint" else -4, 5)
        return special_value(self.rng, dtype)

    # Elementwise: what is exact on whole numbers.

    def unary(self, dtype: DType) -> list[Op]:
        return [Op.NEG, Op.TRUNC] if dtype.is_float else super().unary(dtype)

    def binary(self, dtype: DType) -> list[Op]:
        return [op for op in super().binary(dtype) if op is not Op.DIV]

    def monoids(self, x: Node, axes: Sequence[int]) -> list[Monoid]:
        found = super().monoids(x, axes)
        count = prod(tuple(x.shape[axis] for axis in axes))
        return [one for one in found if one is not MUL or count < 20 or not x.dtype.is_float]

    def expand(self, x: Node) -> Node:
        shape = tuple(self.rng.choice(SIZES) if size == 1 else size for size in x.shape)
        front = (self.rng.choice(SIZES),) if self.rng.random() < 0.4 else ()
        return Node(Op.EXPAND, (x,), front + shape)

    def pad(self, x: Node) -> Node:
        before, after = ([self.rng.choice([0, 0, 1, 2, 9]) for _ in x.shape] for _ in range(2))
        return build.pad(x, before, after, self.rng.choice([0, 0, 1]))

    def shrink(self, x: Node) -> Node:
        if self.rng.random() < 0.9:
            start = [self.rng.randint(0, size // 3) for size in x.shape]
            stop = [
                self.rng.randint(min(size, a + 1 + size // 3), size)
                for a, size in zip(start, x.shape, strict=True)
            ]
            step = [self.rng.choice([1, 1, 1, 2, 3]) for _ in x.shape]
            return build.sliced(x, map(range, start, stop, step))
        return super().shrink(x)

    # The rest of the operations.

    def iota(self) -> Node:
        return build.iota(self.rng.choice(SIZES), self.rng.choice(DTYPES[1:]))

    def contiguous(self) -> Node:
        return Node(Op.CONTIGUOUS, (self.pick(),))

    def scan(self) -> Node | None:
        x = self.pick()
        if not x.shape:
            return None
        axis = self.rng.randrange(len(x.shape))
        monoids = self.monoids(x, [axis])
        if not monoids:
            return None
        return Node(Op.SCAN, (x,), Reduce(self.rng.choice(monoids), (axis,)))

    def indices(self, shape: Shape, size: int) -> Node:
        small = [dtypes.uint8] if size < 255 else []
        dtype = self.rng.choice([dtypes.int32, dtypes.int64, *small])
        node = leaf(self.first_leaf + len(self.leaves), shape, dtype)
        low = 0 if dtype.kind == "uint" else -2
        numbers = [self.rng.randint(low, size + 1) for _ in range(prod(shape))]
        self.leaves[node] = np.array(numbers, dtype.numpy).reshape(shape)
        return node

    def gather(self) -> Node | None:
        x = self.pick()
        if not x.shape:
            return None
        axis = self.rng.randrange(len(x.shape))
        shape = (*x.shape[:axis], self.rng.choice(SIZES), *x.shape[axis + 1 :])
        if prod(shape) > self.max_size:
            return None
        return Node(Op.GATHER, (x, self.indices(shape, x.shape[axis])), axis)

    def scatter(self) -> Node | None:
        update = self.pick()
        if not update.shape:
            return None
        axis = self.rng.randrange(len(update.shape))
        size = self.rng.choice(SIZES)
        shape = (*update.shape[:axis], size, *update.shape[axis + 1 :])
        if prod(shape) > self.max_size:
            return None
        same = [x for x in self.pool if (x.shape, x.dtype) == (shape, update.dtype)]
        base = self.rng.choice([*same, full(shape, 1, update.dtype)])
        monoids = [one for one in self.monoids(update, [axis]) if one is not MUL]
        monoid = self.rng.choice([None, *monoids])
        return Node(
            Op.SCATTER, (base, self.indices(update.shape, size), update), Scatter(axis, monoid)
        )

    def argsort(self) -> Node | None:
        x = self.pick()
        return build.argsort(x) if x.shape else None

    def contraction(self) -> Node | None:
        """A matmul: a product of expanded views, summed; with an epilogue at times."""
        same = [x for x in self.pool if len(x.shape) == 2 and x.dtype.kind != "bool"]
        a = self.rng.choice(same) if same else self.new_leaf(
            (self.rng.choice(SIZES), self.rng.choice(SIZES)), dtypes.float32)
        (m, k), n = a.shape, self.rng.choice(SIZES)
        if m * n > self.max_size or k * n > self.max_size or m * k * n > 200_000:
            return None
        b = self.new_leaf((k, n), a.dtype)
        if self.rng.random() < 0.3:
            b = build.permute(self.new_leaf((n, k), a.dtype), (1, 0))
        left = build.expand(build.reshape(a, (m, k, 1)), (m, k, n))
        right = build.expand(build.reshape(b, (1, k, n)), (m, k, n))
        out = build.reduce(ADD, [1], left * right)
        if self.rng.random() < 0.5:
            out = out + build.expand(self.new_leaf((n,), a.dtype), (m, n))
        if self.rng.random() < 0.5:
            out = Node(Op.MAX, (out, full((m, n), 0, a.dtype)))
        return out

    def rows(self) -> Node | None:
        """Softmax or layer normalisation; their sinks are compared within a tolerance."""
        x = self.new_leaf(self.shape(), self.rng.choice([dtypes.float32, dtypes.float64]))
        if len(x.shape) < 1 or not prod(x.shape):
            return None
        self.leaves[x] = np.asarray(
            [self.rng.uniform(-2, 2) for _ in range(prod(x.shape))], x.dtype.numpy
        ).reshape(x.shape)
        axis = self.rng.choice([len(x.shape) - 1, self.rng.randrange(len(x.shape))])
        make = softmax if self.rng.random() < 0.5 else layer_norm
        self.loose.append(make(x, axis))
        return None

    # Effects.

    def assigned(self, sinks: list[Node]) -> list[Node]:
        """Some sinks written into leaves, permuted and swapped leaves among them."""
        targets = list(self.leaves)
        self.rng.shuffle(targets)
        free = list(dict.fromkeys(targets))
        result: list[Node] = []
        for sink in sinks:
            home = [x for x in free if (x.shape, x.dtype) == (sink.shape, sink.dtype)]
            if home and self.rng.random() < 0.7:
                free.remove(home[0])
                result.append(Node(Op.ASSIGN, (home[0], sink)))
            else:
                result.append(sink)
        for target in list(free):
            if self.rng.random() < 0.4:
                kind = target.shape, target.dtype
                others = [x for x in self.leaves if (x.shape, x.dtype) == kind]
                value = self.hazard(self.rng.choice(others))
                if value.shape == target.shape:
                    result.append(Node(Op.ASSIGN, (target, value)))
        return result

    def hazard(self, x: Node) -> Node:
        """`x` in another order, or shifted, or what depends on all of it."""
        choice = self.rng.randrange(5)
        if choice == 0:
            return self.permute(x)
        if choice == 1:
            return self.flip(x)
        if choice == 2 and x.shape and x.shape[0] > 1:
            rest = (0,) * (len(x.shape) - 1)
            tail = build.sliced(x, map(range, (1, *rest), x.shape))
            return build.pad(tail, (0, *rest), (1, *rest))
        if choice == 3 and x.shape and x.dtype.kind != "bool":
            total = build.reduce(MAX, range(len(x.shape)), x)
            return build.expand(build.reshape(total, (1,) * len(x.shape)), x.shape)
        return x


def softmax(x: Node, axis: int) -> Node:
    """exp(x - max) / sum, along `axis`."""
    top = _along(build.reduce(MAX, [axis], x), axis, x.shape)
    raised = build.unary(Op.EXP, x - top)
    return raised / _along(build.reduce(ADD, [axis], raised), axis, x.shape)


def layer_norm(x: Node, axis: int) -> Node:
    """(x - mean) / sqrt(variance + 1e-3), along `axis`."""
    share = 1.0 / x.shape[axis]
    mean = build.reduce(ADD, [axis], x) * share
    off = x - _along(mean, axis, x.shape)
    variance = build.reduce(ADD, [axis], off * off) * share
    return off / _along(build.unary(Op.SQRT, variance + 1e-3), axis, x.shape)


def _along(x: Node, axis: int, shape: Shape) -> Node:
    return build.expand(build.insert_axes(x, [axis]), shape)


def reference(program: RandomProgram) -> tuple[list[Array], list[bool]]:
    """The value of each sink, and whether it can be compared: to the bit, or loosely."""
    order = toposort(program.sinks)
    values = dict(zip(order, evaluate(order, program.leaves), strict=True))
    safe: dict[Node, bool] = {}
    for node in order:
        safe[node] = all(safe[one] for one in node.src) and _is_exact(node, values)
    comparable = [safe[sink] or sink in program.loose for sink in program.sinks]
    return [values[sink] for sink in program.sinks], comparable


def _is_exact(node: Node, values: dict[Node, Array]) -> bool:
    limit = EXACT_BELOW.get(node.dtype)
    if limit is None:
        return True
    found = [np.abs(values[node])]
    if node.op in (Op.REDUCE, Op.SCAN):
        part = np.abs(values[node.src[0]])
        monoid = node.arg.monoid
        if monoid is ADD:
            found.append(np.sum(np.where(np.isfinite(part), part, 0), axis=node.arg.axes))
        elif monoid is MUL:
            wide = np.maximum(part, 1).astype(np.float64)
            found.append(np.prod(np.where(np.isfinite(wide), wide, 1), axis=node.arg.axes))
    if node.op is Op.SCATTER and node.arg.monoid is ADD:
        found.append(np.sum(np.abs(values[node.src[2]])))
    return all(_below(one, limit) for one in found)


def _below(array: Array, limit: float) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.all((array < limit) | ~np.isfinite(array)))


def differing(sink: Node, got: Array, want: Array, loose: bool) -> str | None:
    """What is wrong with `got`, or None."""
    if loose:
        tolerance = 2e-4 if sink.dtype is dtypes.float32 else 1e-9
        same = np.isclose(got, want, rtol=tolerance, atol=tolerance, equal_nan=True)
    else:
        same = (got == want) | ((got != got) & (want != want))
    if np.all(same):
        return None
    at = tuple(int(one) for one in np.argwhere(~same)[0])
    return f"{sink} at {at}: {got[at]}, not {want[at]}; {np.sum(~same)} of {same.size} differ"


def leaves_of(sinks: Iterable[Node]) -> list[Node]:
    """The BUFFER nodes of a program."""
    return [node for node in toposort(sinks) if node.op is Op.BUFFER]


def merged(programs: Sequence[RandomProgram]) -> RandomProgram:
    """Several programs with distinct leaves as one."""
    return RandomProgram(
        [sink for one in programs for sink in one.sinks],
        {leaf: array for one in programs for leaf, array in one.leaves.items()},
        frozenset().union(*(one.loose for one in programs)),
    )


def execute_on_buffers(sinks: Sequence[Node], device: str) -> list[Buffer]:
    """`execute` of nodes whose leaves hold the buffers themselves."""
    inputs: dict[Buffer, int] = {}
    memo: dict[Node, Node] = {}
    for node in toposort(sinks):
        arg = node.arg
        if node.op is Op.BUFFER:
            arg = arg._replace(storage=inputs.setdefault(arg.storage, len(inputs)))
        memo[node] = Node(node.op, tuple(memo[one] for one in node.src), arg)
    program = tuple(memo[sink] for sink in sinks)
    program = program if device == "interp" else split_complex(program)
    return execute(program, list(inputs), device)


def run(program: RandomProgram, options: Options) -> tuple[list[Array], dict[Node, Array]]:
    """Compile and run, on the GPU of `options` or on the CPU: the value of each sink, and the
    final content of each leaf."""
    device = "cpu" if options.device == "interp" else options.device
    buffers = {node: upload(array).to(device) for node, array in program.leaves.items()}
    memo: dict[Node, Node] = {}
    for node in toposort(program.sinks):
        src = tuple(memo[one] for one in node.src)
        arg = node.arg._replace(storage=buffers[node]) if node.op is Op.BUFFER else node.arg
        memo[node] = Node(node.op, src, arg)
    sinks = [memo[sink] for sink in program.sinks]
    with using(**asdict(options)):
        results = execute_on_buffers(sinks, device)
    return (
        [download(buffer, sink) for sink, buffer in zip(sinks, results, strict=True)],
        {node: download(buffer, node) for node, buffer in buffers.items()},
    )


def upload(array: Array) -> Buffer:
    """A buffer with a copy of `array`."""
    buffer = Buffer(array.nbytes)
    buffer.view()[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return buffer


def download(buffer: Buffer, like: Node) -> Array:
    """A copy of `buffer` with the shape and dtype of `like`."""
    return np.frombuffer(bytes(buffer.on_host().view()), like.dtype.numpy).reshape(like.shape)


def disagreement(program: RandomProgram, options: Options) -> str | None:
    """What the compiled `program` does otherwise than the interpreter, or None."""
    wanted, comparable = reference(program)
    results, after = run(program, options)
    for sink, got, want, fits in zip(program.sinks, results, wanted, comparable, strict=True):
        wrong = differing(sink, got, want, sink in program.loose) if fits else None
        if wrong is not None:
            return wrong
    targets = {sink.src[0] for sink in program.sinks if sink.op is Op.ASSIGN}
    for node, before in program.leaves.items():
        if node not in targets and after[node].tobytes() != before.tobytes():
            return f"{node} was overwritten"
    return None


def views_of(program: Program) -> list[BufferView]:
    """Whatever the kernels of a program read or write, and its results."""
    launched = (view for launch in program.launches for view in launch.arguments)
    return list(dict.fromkeys([*program.outputs, *launched]))


def numbered(program: RandomProgram) -> list[Node]:
    """The sinks of a program, whose leaves are inputs by their place."""
    inputs = list(program.leaves)
    memo: dict[Node, Node] = {}
    for node in toposort(program.sinks):
        src = tuple(memo[operand] for operand in node.src)
        arg = node.arg._replace(storage=inputs.index(node)) if node.op is Op.BUFFER else node.arg
        memo[node] = Node(node.op, src, arg)
    return [memo[sink] for sink in program.sinks]


def memory_of(program: Program, inputs: Mapping[int, Array]) -> dict[BufferView, Array]:
    """Flat arrays over the memory of each view: copies of the inputs, and garbage elsewhere."""
    sizes = [program.arena, *(one.nbytes for one in program.outputs)]
    table = [bytearray(b"\7" * size) for size in sizes]
    table += [bytearray(inputs[at].tobytes() if at in inputs else b"")
              for at in range(max(inputs, default=-1) + 1)]  # fmt: skip
    block = bytearray(b"\7" * program.block)
    found = {}
    for one in views_of(program):
        at, offset = program.location(one)
        memory = block if one.kind == "block" else table[at]
        found[one] = np.frombuffer(memory, one.dtype.numpy, one.size, offset)
    return found
