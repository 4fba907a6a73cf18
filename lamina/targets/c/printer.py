"""C with the GCC and Clang vector extensions, for the CPU.

A vector of bool is a mask: signed integers, all bits set where true, as wide as the comparison
that made it. Floats of 16 and 8 bits are held as their bits. What C has no operator for is a
function of those texts, named after the operation and the type of its result.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, NamedTuple

from lamina.core.dtypes import SHORT, DType, bool_, float32, float64, int32, int64
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.interpreter import evaluate, fold_constant
from lamina.ir.kernel import Store, free_axes, points
from lamina.ir.node import Node, const
from lamina.ir.ops import Group, Op
from lamina.loops.nest import UNCACHED, Nest
from lamina.targets.legalize import carrier
from lamina.targets.printer import LOOKUP_LANES, Point, Scope, Value, digit_of
from lamina.targets.reductions import NestPrinter

TYPES = SHORT | {bool_: "_Bool"}
TYPES |= {dtype: f"u{dtype.bits}" for dtype in SHORT if dtype.is_small}
ELEMENTS = TYPES | {bool_: "u8"}  # in memory
PANEL_STEPS = 8  # of a reduction: how far ahead a product prefetches from a packed panel
NEAREST_CACHE = 1 << 15  # bytes that stay in the first-level cache, which has 32 KiB or more
TWO_PAGES = 8192  # bytes: how far ahead arithmetic on a large array prefetches
# The functions in `doubles.c`. Processors have an instruction for square roots of vectors.
VECTORS_OF_FLOAT64 = frozenset({
    Op.EXP, Op.EXP2, Op.LOG, Op.LOG2, Op.SIN, Op.COS, Op.ATAN, Op.ERF, Op.LOGISTIC,
})  # fmt: skip

# The text of an operation on operands; the last argument is the result, with no text yet.
Spelling = Callable[["CPrinter", Node, list[Value], Value], str]


def _infix(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    """Two operands with a sign between them; masks as operands become as wide as the result."""
    left, right = operands[0].text, operands[1].text
    if out.mask and operands[0].dtype is bool_:
        left, right = (printer.widened(operand, out) for operand in operands)
        if node.op is Op.LT:  # in a mask true is -1, which is less than false
            left, right = right, left
    return f"({left} {SIGNS[node.op]} {right})"


def _call(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    """A function of vectors where there is one, else of scalars, lane by lane; of bools, of which
    only maximum and minimum come here, a sign.

    Functions of vectors are MAX, MIN and TRUNC of `vectors.c`, those of float32 in `math.c`, which
    has them for any number of lanes, one too, and those of float64 in `doubles.c`.
    """
    if out.dtype is bool_:
        return _infix(printer, node, operands, out)
    name, of_vectors = node.op.name.lower(), node.op in (Op.MAX, Op.MIN, Op.TRUNC)
    text = _functions_of_vectors(node.op, out)
    if text:
        printer.needed.add((text, out.lanes))
        of_vectors = True
        printer.transcendental += 1
        if printer.transcendental > printer.max_inlined:
            name = f"called_{name}"
    if node.op in (Op.SHL, Op.SHR) and operands[1].lanes == 1:  # one number shifts all lanes
        return f"{name}_{printer.type(out)}({operands[0].text}, {operands[1].text})"
    if of_vectors or out.lanes == 1:
        arguments = [printer.widened(operand, out) for operand in operands]
        return f"{name}_{printer.type(out)}({', '.join(arguments)})"
    calls = []
    for number in range(out.lanes):
        lanes = [printer.lane(operand, number).text for operand in operands]
        calls.append(f"{name}_{TYPES[out.dtype]}({', '.join(lanes)})")
    return f"({printer.type(out)}){{{', '.join(calls)}}}"


def _functions_of_vectors(op: Op, out: Value) -> str:
    """The text that has `op` for vectors of the dtype and lanes of `out`; "" if that is left to the
    C library."""
    if out.dtype is float32 and op in Group.TRANSCENDENTAL - {Op.SQRT, Op.TRUNC}:
        return "c/math.c"
    if out.dtype is float64 and out.lanes > 1 and op in VECTORS_OF_FLOAT64:
        return "c/doubles.c"
    return ""


def _where(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    """C's choice where one condition decides for all lanes, else a function of a mask as wide as
    the result."""
    condition, yes, no = operands
    # The operands of C's choice have one type.
    if condition.lanes == 1 and (yes.lanes, yes.mask) == (no.lanes, no.mask):
        return f"({condition.text} ? {yes.text} : {no.text})"
    mask = printer.widened(condition, out._replace(dtype=bool_, mask=out.mask or out.dtype.bits))
    arguments = f"{mask}, {printer.widened(yes, out)}, {printer.widened(no, out)}"
    return f"where_{printer.type(out)}({arguments})"


def _cast(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    """A cast of C, or of all lanes at once; small floats, which C lacks, have functions."""
    value, text = operands[0], operands[0].text
    if out.dtype is bool_:  # of a vector a mask, of which C makes the elements as wide as `value`
        return f"({text} != 0)"
    if value.dtype.is_small or out.dtype.is_small:
        printer.needed.add(("c/floats.c", out.lanes))
        lanes = f"x{out.lanes}" if out.lanes > 1 else ""
        return f"{SHORT[value.dtype]}_to_{SHORT[out.dtype]}{lanes}({text})"
    kind = printer.type(out)
    if out.lanes == 1:
        return f"({kind}){text}"
    crosses = value.dtype.is_float != out.dtype.is_float
    if value.dtype is bool_:  # true is -1 in a mask, and & 1 makes it 1
        text = f"({printer.widened(value, out._replace(dtype=bool_, mask=out.dtype.bits))} & 1)"
    elif crosses and min(value.dtype.bits, out.dtype.bits) < 32:
        # Processors convert floats from and to int32; compilers go lane by lane from shorter ones.
        text = f"__builtin_convertvector({text}, {printer.type(out._replace(dtype=int32))})"
    return f"__builtin_convertvector({text}, {kind})"


SIGNS = {
    Op.ADD: "+", Op.MUL: "*", Op.DIV: "/", Op.LT: "<", Op.EQ: "==", Op.AND: "&", Op.OR: "|",
    Op.XOR: "^", Op.MAX: "|", Op.MIN: "&",  # the last two of bools
}  # fmt: skip
OPERATIONS: dict[Op, Spelling] = {
    **dict.fromkeys(Group.ELEMENTWISE - {Op.REAL, Op.IMAG, Op.COMPLEX}, _call),
    **dict.fromkeys(SIGNS.keys() - {Op.MAX, Op.MIN}, _infix),
    # A space, as -- before a literal would be a decrement.
    Op.NEG: lambda printer, node, operands, out: f"(- {operands[0].text})",
    Op.NOT: lambda printer, node, operands, out: (
        f"({'!' if out.dtype is bool_ and not out.mask else '~'}{operands[0].text})"
    ),
    Op.WHERE: _where,
    Op.CAST: _cast,
    Op.BITCAST: lambda printer, node, operands, out: (
        f"BITS({printer.type(operands[0])}, {printer.type(out)}, {operands[0].text})"
    ),
}


class Access(NamedTuple):
    """How a vector reads or writes an array."""

    axis: Node | None  # the vector axis, if any
    lanes: int
    # Elements from lane to lane; None if data or a condition decide for each.
    stride: int | None


class CPrinter(NestPrinter):
    """One kernel function."""

    # Transcendental functions that a kernel inlines: the first ones, as whole tiles come before
    # the rows and columns left over. It calls the others, which takes 10 to 20 % longer, as GCC's
    # time grows faster than the length of a kernel. 16 are four vectors of four functions.
    max_inlined: ClassVar[float] = 16

    def __init__(self, nest: Nest, name: str, needed: set[tuple[str, int]]) -> None:
        super().__init__(nest)
        self.function, self.opening = name, f"KERNEL({name})"
        self.needed = needed  # of `TEXTS`, and the lanes of vectors
        self.transcendental = 0  # functions of vectors in the text so far

    # Spelling.

    def type(self, value: Value) -> str:
        name = f"i{value.mask}" if value.mask else TYPES[value.dtype]
        return name if value.lanes == 1 else self._vector(name, value.lanes)

    def _vector(self, name: str, lanes: int) -> str:
        self.needed.add(("c/vectors.c", lanes))
        return f"{name}x{lanes}"

    def literal(self, node: Node) -> Value:
        """The text of a constant: ``1.5f``, ``inf_f64``, ``(i64)3``; of a small float, its bits."""
        value, dtype = node.arg
        if dtype.is_small:
            value, dtype = fold_constant(Op.BITCAST, (node,), carrier(dtype)).arg
        if dtype.is_float:
            suffix = "f" if dtype is float32 else ""
            text = repr(ctypes.c_float(value).value if suffix else value)
            text += suffix if text[-1].isdigit() else f"_{TYPES[dtype]}"  # as of nan and -inf
        else:
            text = f"({TYPES[dtype]}){int(value)}"
        return Value(text, node.dtype)

    def operation(self, node: Node, operands: list[Value]) -> Value:
        """One elementwise operation; a mask is as wide as the widest value it is made of."""
        lanes = max([operand.lanes for operand in operands])
        is_mask = lanes > 1 and node.dtype is bool_
        mask = max(operand.mask or operand.dtype.bits for operand in operands) if is_mask else 0
        out = Value("", node.dtype, lanes, mask)
        return out._replace(text=OPERATIONS[node.op](self, node, operands, out))

    def widened(self, value: Value, to: Value) -> str:
        if (value.lanes, value.mask) == (to.lanes, to.mask):
            return value.text
        kind = self.type(to)
        if value.lanes > 1:  # a mask, whose elements become wider or narrower
            return f"__builtin_convertvector({value.text}, {kind})"
        # True is -1 in a mask.
        return f"splat_{kind}({'-' if to.mask else ''}{value.text})"

    def lane(self, value: Value, number: int) -> Value:
        """One lane as a scalar; a scalar as it is."""
        text = f"{value.text}[{number}]" if value.lanes > 1 else value.text
        return Value(f"({text} != 0)" if value.mask else text, value.dtype)

    def half(self, vectors: Sequence[Value], side: int, run: int) -> Value:
        # Of a and b of 4 lanes: side 0 and runs of 1 give a[0], b[0], a[1], b[1].
        lanes = vectors[0].lanes // 2
        starts = range(side * lanes, (side + 1) * lanes, run)
        places = [(vector, at + i) for at in starts for vector in vectors for i in range(run)]
        if len(places) == 1:
            return self.lane(*places[0])
        half = vectors[0]._replace(lanes=len(places))
        elements = ", ".join(f"{vector.text}[{lane}]" for vector, lane in places)
        return half._replace(text=f"({self.type(half)}){{{elements}}}")

    def lane_numbers(self, lanes: int) -> Value:
        numbers = ", ".join(map(str, range(lanes)))
        return Value(f"({self._vector('i64', lanes)}){{{numbers}}}", int64, lanes)

    # Memory.

    def _access(self, index: Node, condition: Node) -> "Access":
        """How vectors read or write at `index` where `condition` holds.

        With 16 lanes along j: ``x[100 * i + 2 * j]`` has stride 2; ``x[i]`` has no vector axis, one
        lane, and stride 1; ``x[y[j]]`` has stride None.
        """
        terms, _ = ix.terms_of(index)
        for axis, lanes in self.vectors.items():
            users = sum(axis in free_axes(node) for node in (*terms, condition))
            if users:
                # The axis has a coefficient if it is a term by itself. If it is in another term or
                # the condition too, lanes are no constant distance apart, or not all there.
                return Access(axis, lanes, terms.get(axis) if users == 1 else None)
        return Access(None, 1, 1)

    def _each_lane(self, axis: Node, point: Point) -> Iterator[Point]:
        """The points of the lanes along `axis`, which meanwhile is unrolled: what is printed for
        each is a scalar."""
        self.unrolled[axis] = self.vectors.pop(axis)
        yield from (point | lane for lane in self.points((axis,)))
        self.vectors[axis] = self.unrolled.pop(axis)

    def load(self, node: Node, point: Point) -> Value:
        """The first of these that fits: a scalar; a column of a block that is transposed;
        neighbours under a mask of lanes; lanes one by one; neighbours. Where the condition of the
        load does not hold, it reads nothing and gives 0."""
        (index, *guard), dtype, array = node.src, node.dtype, f"p{node.arg.parameter}"
        condition = guard[0] if guard else ix.TRUE
        access = self._access(index, condition)
        if access.axis is None:
            text = f"{array}[{self.index_text(index, point)}]"
            if guard:
                text = f"({self.value(condition, point).text} ? {text} : 0)"
            return Value(text, dtype)
        rows = self._transposing_axis(index, condition, access)
        if rows is not None:
            return self._transposed(node, point, rows, access)
        lanes, kind = access.lanes, self._vector(ELEMENTS[dtype], access.lanes)
        start = self.index_text(index, point)
        if access.stride is None:
            mask = self._mask(node, access.axis, point)
            if mask:
                return self._loaded(f"masked_{kind}({array} + {start}, {mask})", dtype, lanes)
        if access.stride != 1:  # a load for each lane
            values = [self.value(node, lane).text for lane in self._each_lane(access.axis, point)]
            return self._loaded(f"({kind}){{{', '.join(values)}}}", dtype, lanes)
        text = f"*({kind}r *)({array} + {start})"
        self._prefetch(node, f"{array} + {start}")
        if guard:
            text = f"({self.value(condition, point).text} ? ({kind}){text} : ({kind}){{0}})"
        return self._loaded(text, dtype, lanes)

    def _transposing_axis(self, index: Node, condition: Node, access: "Access") -> Node | None:
        """The unrolled axis whose vectors together are a square block of an array, with rows that
        lie along this axis in memory; None if there is no such axis.

        ``x[100 * i + j]`` with 16 lanes along i, and j unrolled 16 times: the 16 vectors
        that the points need are the columns of a block, whose rows are neighbours along j.
        """
        if access.stride in (1, None):
            return None
        for axis, points_along in self.unrolled.items():
            is_square = points_along == access.lanes
            is_along_memory = ix.suits(axis, index) == ix.NEIGHBOURS
            # The block is read as a whole, under one condition.
            is_same_condition = axis not in free_axes(condition)
            if is_square and is_along_memory and is_same_condition:
                return axis
        return None

    def _transposed(self, node: Node, point: Point, rows: Node, access: "Access") -> Value:
        """Read a square block along its rows, which are in the order of memory, transpose it in
        registers, and remember a vector for each of its columns."""
        lanes, guard, cache = access.lanes, node.src[1:], self.scopes[-1].cache
        array, kind = f"p{node.arg.parameter}", self._vector(ELEMENTS[node.dtype], lanes)
        condition = self.value(guard[0], point).text if guard else "1"
        first = f"{array} + {self.index_text(node.src[0], point | {rows: 0})}"
        self.needed.add(("c/transposes.c", lanes))
        name = self.fresh_name("columns")
        arguments = f"{kind}, {name}, {lanes}, {first}, {access.stride}, {condition}"
        self.line(f"TRANSPOSED({arguments})")
        for number in range(lanes):
            column = self._loaded(f"{name}[{number}]", node.dtype, lanes)
            cache[self.key(node, point | {rows: number})] = column
        return cache[self.key(node, point)]

    def _prefetch(self, load: Node, address: str) -> None:
        """Print requests for what the hardware prefetcher does not see coming; `AHEAD` says why."""
        kernel, terms = self.nest.kernel, ix.terms_of(load.src[0])[0]
        store, dtype = kernel.stores[0], load.dtype
        # Does a register tile use the load more than once, as in a product?
        reuses_load = not self.unrolled.keys() <= free_axes(load)
        # The next step of a loop whose sums are accumulated in memory: a row loop that the first
        # store, which stores the identity, does not have. Into levels 2 and 1.
        for axis in self.nest.row_loops:
            if reuses_load and axis in terms and axis not in store.axes:
                self.line(f"AHEAD({address}, {terms[axis]}, 2);")
        # The next steps of a product, in the packed panel that it reads from end to end.
        array = kernel.parameters[load.arg.parameter]
        is_panel = array.memory == "scratch" and array.nbytes > NEAREST_CACHE
        reduced = [axis for axis in self.nest.order if axis.arg.reduce and axis in terms]
        if is_panel and reuses_load and reduced:
            self.line(f"AHEAD({address}, {PANEL_STEPS * terms[reduced[-1]]}, 3);")
        # The next pages of an array that no cache holds, where each element goes to its own place.
        in_place = load.src[0] is store.index and store.axes == kernel.row_axes
        if in_place and kernel.parameters[store.parameter].nbytes >= UNCACHED:
            self.line(f"AHEAD({address}, {TWO_PAGES // dtype.itemsize}, 3);")

    def _mask(self, load: Node, axis: Node, point: Point) -> str:
        """The lanes where a load along neighbours happens, as bits; "" if these are no runs of
        lanes.

        ``x[100 * i + j - 1] if 0 <= j - 1 < 100`` with lanes along j gives
        ``lanes_in(j + -1, 100, 1)``, where the last argument is by how much the index grows from
        lane to lane: 1, or 0 for a condition on i, which holds for all lanes or none.
        """
        sizes = ix.extents(*load.src[1:])
        if not sizes:
            return ""
        neighbours, one_element = (axis, 1), (None, 1)
        read = self._access(load.src[0], ix.TRUE)
        if (read.axis, read.stride) != neighbours:
            return ""
        runs = []
        for index, size in sizes.items():
            limited = self._access(index, ix.TRUE)
            if (limited.axis, limited.stride) not in (neighbours, one_element):
                return ""
            step = int(limited.axis is axis)
            runs.append(f"lanes_in({self.index_text(index, point)}, {size}, {step})")
        return " & ".join(runs)

    def _loaded(self, text: str, dtype: DType, lanes: int) -> Value:
        """What memory holds, as a value: a vector of bytes that are bools becomes a mask."""
        if dtype is bool_ and lanes > 1:
            return Value(f"({self._vector('i8', lanes)})({text} != 0)", dtype, lanes, 8)
        return Value(text, dtype, lanes)

    def store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store of a scalar or of a vector of neighbours; of other vectors, one a lane."""
        access = self._access(store.index, store.condition)
        if access.axis is not None and access.stride != 1:
            for number, lane in enumerate(self._each_lane(access.axis, point)):
                self.store(store, self.lane(value, number), lane)
            return
        start, dtype, lanes = self.index_text(store.index, point), store.value.dtype, access.lanes
        array = f"p{store.parameter}"
        kind = self._vector(ELEMENTS[dtype], lanes) if lanes > 1 else ""
        target = f"*({kind}u *)({array} + {start})" if lanes > 1 else f"{array}[{start}]"
        old = self._loaded(target, dtype, lanes)
        if store.monoid is not None:
            (value,) = self.combined(store.monoid, (old,), (value,))
        text = self.widened(value, old)
        if old.mask:  # in memory true is 1
            text = f"({kind})({text}) & 1"
        line = f"{target} = {text};"
        if lanes > 1 and self._streams(store):
            self.opening = f"STREAMING({self.function}, {store.parameter})"
            line = f"STREAM({kind}u, {array}, {start}, {text})"
        if store.condition is not ix.TRUE:
            line = f"{self.where(self.value(store.condition, point).text)} {{ {line} }}"
        self.line(line)

    def _streams(self, store: Store) -> bool:
        """May `store` go past the caches? If no load of this kernel reads what it writes, it is the
        only store, and its array is too large to be in a cache when another kernel reads it. In a
        group that runs by blocks of rows the next kernel reads each block at once."""
        kernel = self.nest.kernel
        is_read = store.monoid is not None or store.parameter in self.read
        is_alone = not kernel.blocks and len(kernel.stores) == 1
        return is_alone and not is_read and kernel.parameters[store.parameter].nbytes >= UNCACHED

    def where(self, condition: str) -> str:
        """The head of a store that happens only under a condition."""
        return f"if ({condition})"

    def elementwise(self, node: Node, point: Point) -> Value:
        """A float32 that four bits decide, such as a number of 4 bits with its scale, is looked up
        in a register, if that has as many lanes."""
        digit, lanes = digit_of(node), self.lanes_of(node)
        if digit is None or (node.dtype, lanes) != (float32, LOOKUP_LANES):
            return super().elementwise(node, point)
        every = [ix.replaced(node, {digit: const(i, digit.dtype)}) for i in range(lanes)]
        numbers = [const(result.item(), float32) for result in evaluate(every)]
        table = ", ".join(self.literal(number).text for number in numbers)
        bits = digit.src[0]  # before the ``& 15``: a lookup takes the last four bits itself
        if bits.op is Op.SHR and bits.dtype.bits < 32:  # as int32: processors do not shift bytes
            bits = Node(Op.SHR, tuple(cast(operand, int32) for operand in bits.src))
        kind, places = self._vector("f32", lanes), self.value(cast(bits, int32), point)
        return Value(f"lookup_{kind}(({kind}){{{table}}}, {places.text})", float32, lanes)

    # The function.

    def print(self) -> tuple[str, int]:
        """The kernel's function, and the number of chunks it runs in."""
        pointers, scratch = self.arrays()
        parallel = [axis for axis in self.nest.order if axis in self.launch_axes]
        lines = [f"POINTER({pointer});" for pointer in pointers]
        body = self.body([*lines, *scratch, *self.indices(parallel, "chunk")])
        return f"{self.opening} {{\n{body}}}", points(parallel)  # a store may set the opening

    def arrays(self) -> tuple[list[str], list[str]]:
        """What macros take of each array in device memory, and the definitions of other arrays."""
        pointers, scratch = list[str](), list[str]()
        for number, parameter in enumerate(self.nest.kernel.parameters):
            const, kind = "" if parameter.written else "const ", ELEMENTS[parameter.dtype]
            if parameter.memory == "scratch":
                scratch.append(f"{kind} p{number}[{parameter.size}] SCRATCH;")
            else:
                pointers.append(f"{const}{kind}, {number}")
        return pointers, scratch

    def indices(self, axes: Sequence[Node], chunk: str) -> Iterator[str]:
        """Definitions of the indices of `axes`, the last the fastest, that `chunk` stands for. Axes
        of 3 and 8: ``chunk % 8`` for the second and ``(chunk / 8) % 3`` for the first."""
        rest = chunk
        for place, axis in reversed(list(enumerate(axes))):
            yield f"const {self.index} {self.axis_name(axis)} = {rest} % {axis.arg.size};"
            rest = f"({chunk} / {points(axes[place:])})"

    def body(self, lines: list[str]) -> str:
        """The text of `lines` and of every row: each group of parts of the rows is a block of text
        of its own, under the conditions on the index of a chunk by which it runs."""
        for group in self.sharing_fills(self.nest_parts(self.nest.kernel.row_axes)):
            self.scopes = [Scope()]
            self.rows(group)
            conditions = [run.condition for run in group[0].values() if run.condition]
            # The parts of a group are alike in the axes of the launch, which have the conditions.
            head = f"if ({' && '.join(conditions)}) {{" if conditions else "{"
            lines += [head, *("    " + text for text in self.scopes[0].lines), "}"]
        return "".join(f"    {text}\n" for text in lines)
