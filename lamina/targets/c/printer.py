"""C with the GCC and Clang vector extensions, for the CPU.

A program is one translation unit: a function a kernel, and `lamina_run`, which calls them in
order and hands loops bound to threads to the pool, after what it needs of the C texts beside this
file.

A vector of bool is a mask: signed integers, all bits set where true, as wide as the comparison
that made it. Floats of 16 and 8 bits are held as their bits. What C has no operator for is a
function of those texts, named after the operation and the type of its result.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence

from lamina.core.dtypes import SHORT, DType, bool_, float32, int32, int64
from lamina.fuse.program import Program
from lamina.graph import index as ix
from lamina.ir.build import cast
from lamina.ir.interpreter import evaluate, fold_constant
from lamina.ir.kernel import AnyKernel, SortKernel, Store, free_axes, points
from lamina.ir.node import Node, const
from lamina.ir.ops import Group, Op
from lamina.loops.moves import Plan
from lamina.loops.nest import UNCACHED, Nest
from lamina.runtime.source import Source
from lamina.targets.legalize import carrier
from lamina.targets.printer import Point, Scope, Value, digit_of
from lamina.targets.reductions import NestPrinter
from lamina.targets.texts import helper_text

# The order in which a program's helper texts are printed; each may use the ones before it.
TEXTS = (
    "c/prelude.c", "c/arithmetic.c", "c/vectors.c", "c/squares.c", "c/floats.c", "c/math.c",
    "c/dots.c",
)  # fmt: skip
TYPES = SHORT | {bool_: "_Bool"}
TYPES |= {dtype: f"u{dtype.bits}" for dtype in SHORT if dtype.is_small}
ELEMENTS = TYPES | {bool_: "u8"}  # in memory
TWO_PAGES = 8192  # bytes: how far ahead arithmetic on a large array prefetches

# The text of an operation on operands; the last argument is the result, with no text yet.
Spelling = Callable[["CPrinter", Node, list[Value], Value], str]


def _infix(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    a, b = operands[0].text, operands[1].text
    if out.mask and operands[0].dtype is bool_:
        a, b = (printer.widened(one, out) for one in operands)
        a, b = (b, a) if node.op is Op.LT else (a, b)  # as true is -1
    return f"({a} {SIGNS[node.op]} {b})"


def _call(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    """A function of vectors where there is one, else of scalars, lane by lane; of bools a sign."""
    if out.dtype is bool_:
        return _infix(printer, node, operands, out)
    name, whole = node.op.name.lower(), node.op in (Op.MAX, Op.MIN, Op.TRUNC)
    if out.dtype is float32 and node.op in Group.TRANSCENDENTAL - {Op.SQRT, Op.TRUNC}:
        printer.needed.add(("c/math.c", out.lanes))
        whole = True
    alike = node.op in (Op.SHL, Op.SHR) and operands[1].lanes == 1  # one number shifts all lanes
    if whole or alike or out.lanes == 1:
        arguments = (one.text if alike else printer.widened(one, out) for one in operands)
        return f"{name}_{printer.type(out)}({', '.join(arguments)})"
    lanes = (", ".join(printer.lane(one, at).text for one in operands) for at in range(out.lanes))
    calls = ", ".join(f"{name}_{TYPES[out.dtype]}({arguments})" for arguments in lanes)
    return f"({printer.type(out)}){{{calls}}}"


def _where(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    condition, yes, no = operands
    if condition.lanes == 1 and (yes.lanes, yes.mask) == (no.lanes, no.mask):
        return f"({condition.text} ? {yes.text} : {no.text})"
    mask = printer.widened(condition, out._replace(dtype=bool_, mask=out.mask or out.dtype.bits))
    arguments = f"{mask}, {printer.widened(yes, out)}, {printer.widened(no, out)}"
    return f"where_{printer.type(out)}({arguments})"


def _cast(printer: "CPrinter", node: Node, operands: list[Value], out: Value) -> str:
    value, text = operands[0], operands[0].text
    if out.dtype is bool_:
        return f"({text} != 0)"
    if value.dtype.is_small or out.dtype.is_small:
        printer.needed.add(("c/floats.c", out.lanes))
        lanes = f"x{out.lanes}" if out.lanes > 1 else ""
        return f"{SHORT[value.dtype]}_to_{SHORT[out.dtype]}{lanes}({text})"
    kind = printer.type(out)
    if out.lanes == 1:
        return f"({kind}){text}"
    if value.dtype is bool_:
        text = f"({printer.widened(value, out._replace(dtype=bool_, mask=out.dtype.bits))} & 1)"
    elif value.dtype.is_float != out.dtype.is_float and min(value.dtype.bits, out.dtype.bits) < 32:
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


class CPrinter(NestPrinter):
    """One kernel function."""

    def __init__(self, nest: Nest, name: str, needed: set[tuple[str, int]]) -> None:
        super().__init__(nest)
        self.function, self.opening = name, f"KERNEL({name})"
        self.needed = needed  # of `TEXTS`, and the lanes of vectors

    # Spelling.

    def type(self, value: Value) -> str:
        name = f"i{value.mask}" if value.mask else TYPES[value.dtype]
        return name if value.lanes == 1 else self._vector(name, value.lanes)

    def _vector(self, name: str, lanes: int) -> str:
        self.needed.add(("c/vectors.c", lanes))
        return f"{name}x{lanes}"

    def literal(self, node: Node) -> Value:
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
        lanes = max([one.lanes for one in operands])
        masked = lanes > 1 and node.dtype is bool_
        mask = max(one.mask or one.dtype.bits for one in operands) if masked else 0
        out = Value("", node.dtype, lanes, mask)
        return out._replace(text=OPERATIONS[node.op](self, node, operands, out))

    def widened(self, value: Value, to: Value) -> str:
        if (value.lanes, value.mask) == (to.lanes, to.mask):
            return value.text
        kind = self.type(to)
        if value.lanes > 1:
            return f"__builtin_convertvector({value.text}, {kind})"
        return f"splat_{kind}({'-' if to.mask else ''}{value.text})"

    def lane(self, value: Value, number: int) -> Value:
        text = f"{value.text}[{number}]" if value.lanes > 1 else value.text
        return Value(f"({text} != 0)" if value.mask else text, value.dtype)

    def half(self, vectors: Sequence[Value], side: int, run: int) -> Value:
        lanes = vectors[0].lanes // 2
        starts = range(side * lanes, (side + 1) * lanes, run)
        places = [(one, at + i) for at in starts for one in vectors for i in range(run)]
        if len(places) == 1:
            return self.lane(*places[0])
        half = vectors[0]._replace(lanes=len(places))
        elements = ", ".join(f"{one.text}[{lane}]" for one, lane in places)
        return half._replace(text=f"({self.type(half)}){{{elements}}}")

    def lane_numbers(self, lanes: int) -> Value:
        numbers = ", ".join(map(str, range(lanes)))
        return Value(f"({self._vector('i64', lanes)}){{{numbers}}}", int64, lanes)

    # Memory.

    def _lanes(self, index: Node, condition: Node) -> tuple[Node | None, int, int | None]:
        """The vector axis of an access, if any, its lanes, and the elements between them; None if
        data or a condition decide lane by lane."""
        terms, _ = ix.terms_of(index)
        for axis, lanes in self.vectors.items():
            if users := sum(axis in free_axes(node) for node in (*terms, condition)):
                return axis, lanes, terms.get(axis) if users == 1 else None
        return None, 1, 1

    def _each_lane(self, axis: Node, point: Point) -> Iterator[Point]:
        """The points of the lanes along `axis`, which meanwhile is unrolled."""
        self.unrolled[axis] = self.vectors.pop(axis)
        yield from (point | one for one in self.points((axis,)))
        self.vectors[axis] = self.unrolled.pop(axis)

    def load(self, node: Node, point: Point) -> Value:
        (index, *guard), dtype, array = node.src, node.dtype, f"p{node.arg.parameter}"
        condition = guard[0] if guard else ix.TRUE
        axis, lanes, stride = self._lanes(index, condition)
        if axis is None:
            text = f"{array}[{self.index_text(index, point)}]"
            if guard:
                text = f"({self.value(condition, point).text} ? {text} : 0)"
            return Value(text, dtype)
        kind = self._vector(ELEMENTS[dtype], lanes)
        for across, size in self.unrolled.items():
            whole = across not in free_axes(condition)
            if whole and size == lanes and stride not in (1, None) and ix.suits(across, index) == 1:
                there = self.value(condition, point).text if guard else "1"
                rows = f"{array} + {self.index_text(index, point | {across: 0})}, {stride}, {there}"
                self._names += 1
                self.needed.add(("c/squares.c", lanes))
                self.line(f"SQUARE({kind}, t{self._names}, {lanes}, {rows})")
                for place in range(lanes):
                    column = self._loaded(f"t{self._names}[{place}]", dtype, lanes)
                    self.scopes[-1].cache[self.key(node, point | {across: place})] = column
                return self.scopes[-1].cache[self.key(node, point)]
        start = self.index_text(index, point)
        if stride is None and (mask := self._mask(node, axis, point)):
            return self._loaded(f"masked_{kind}({array} + {start}, {mask})", dtype, lanes)
        if stride != 1:
            values = [self.value(node, one).text for one in self._each_lane(axis, point)]
            return self._loaded(f"({kind}){{{', '.join(values)}}}", dtype, lanes)
        text = f"*({kind}r *)({array} + {start})"
        own, terms = self.nest.kernel.stores[0], ix.terms_of(index)[0]
        carried = {*terms} & {*self.nest.row_loops} - {*own.axes}
        for step in carried if {*self.unrolled} - free_axes(node) else ():
            self.line(f"AHEAD({array} + {start}, {terms[step]}, 2);")
        near = index is own.index and own.axes == self.nest.kernel.row_axes  # no column's next one
        if near and self.nest.kernel.parameters[own.parameter].nbytes >= UNCACHED:
            self.line(f"AHEAD({array} + {start}, {TWO_PAGES // dtype.itemsize}, 3);")
        if guard:
            text = f"({self.value(condition, point).text} ? ({kind}){text} : ({kind}){{0}})"
        return self._loaded(text, dtype, lanes)

    def _mask(self, load: Node, axis: Node, point: Point) -> str:
        """The lanes where a load along neighbours happens, as bits, if these are runs of lanes."""
        sizes = ix.extents(*load.src[1:]) or {}
        steps = [self._lanes(index, ix.TRUE)[::2] for index in (load.src[0], *sizes)]
        if not sizes or steps[0] != (axis, 1) or not {*steps} <= {(axis, 1), (None, 1)}:
            return ""
        return " & ".join(
            f"lanes_in({self.index_text(index, point)}, {size}, {int(own is axis)})"
            for (index, size), (own, _) in zip(sizes.items(), steps[1:], strict=True)
        )

    def _loaded(self, text: str, dtype: DType, lanes: int) -> Value:
        if dtype is bool_ and lanes > 1:
            return Value(f"({self._vector('i8', lanes)})({text} != 0)", dtype, lanes, 8)
        return Value(text, dtype, lanes)

    def store(self, store: Store, value: Value, point: Point) -> None:
        axis, lanes, stride = self._lanes(store.index, store.condition)
        if axis is not None and stride != 1:
            for lane, one in enumerate(self._each_lane(axis, point)):
                self.store(store, self.lane(value, lane), one)
            return
        start, dtype = self.index_text(store.index, point), store.value.dtype
        array, kernel = f"p{store.parameter}", self.nest.kernel
        target = f"{array}[{start}]"
        if lanes > 1:
            kind = self._vector(ELEMENTS[dtype], lanes)
            target = f"*({kind}u *)({array} + {start})"
        old = self._loaded(target, dtype, lanes)
        if store.monoid is not None:
            (value,) = self.combined(store.monoid, (old,), (value,))
        text = self.widened(value, old)
        if old.mask:
            text = f"({kind})({text}) & 1"
        used = store.monoid or store.parameter in self.read or kernel.blocks or kernel.stores[1:]
        line = f"{target} = {text};"
        if lanes > 1 and not used and kernel.parameters[store.parameter].nbytes >= UNCACHED:
            self.opening = f"STREAMING({self.function}, {store.parameter})"
            line = f"STREAM({kind}u, {array}, {start}, {text})"
        if store.condition is not ix.TRUE:
            line = f"WHERE({self.value(store.condition, point).text}) {{ {line} }}"
        self.line(line)

    def elementwise(self, node: Node, point: Point) -> Value:
        """What four bits decide is looked up in a register, if there are so many lanes."""
        digit, lanes = digit_of(node), self.lanes_of(node)
        if digit is None or (node.dtype, lanes) != (float32, 16):
            return super().elementwise(node, point)
        every = [ix.replaced(node, {digit: const(i, digit.dtype)}) for i in range(lanes)]
        table = ", ".join(self.literal(const(one.item(), float32)).text for one in evaluate(every))
        bits = digit.src[0]
        if bits.op is Op.SHR and bits.dtype.bits < 32:  # as int32: processors do not shift bytes
            bits = Node(Op.SHR, tuple(cast(one, int32) for one in bits.src))
        kind, places = self._vector("f32", lanes), self.value(cast(bits, int32), point)
        return Value(f"lookup_{kind}(({kind}){{{table}}}, {places.text})", float32, lanes)

    # Dot products of four neighbours in each lane.

    def result(self, root: Node, point: Point) -> Value:
        quad = next((one for one in free_axes(root) if self.nest.bound(one) == "dot"), None)
        if quad is None:
            return super().result(root, point)
        rows, words = self.vectors, list[str]()
        axis, lanes = next(((one, rows[one]) for one in rows if one in free_axes(root)), (quad, 1))
        wide, out = ix.axis(-1, 4 * lanes), Value("", int32, lanes)
        self.starts[wide], self.depth_of[wide] = 4 * self.starts[axis], self.depth_of[quad]
        self.needed.add(("c/dots.c", lanes))
        for factor in (one.src[0] for one in root.src):
            self.vectors = {quad: 4}
            if axis in free_axes(factor):
                lane = dict(zip((axis, quad), ix.divided(wide, 4), strict=True))
                factor, self.vectors = ix.replaced(factor, lane), {wide: 4 * lanes}
            words.append(f"{TYPES[factor.dtype]}, {super().result(factor, point).text}")
        self.vectors = rows
        return self.declare(out._replace(text=f"DOT({self.type(out)}, {', '.join(words)})"))

    # The function.

    def print(self) -> tuple[str, int]:
        """The kernel's function, and the number of chunks it runs in."""
        pointers, lines = self.arrays()
        parallel = [axis for axis in self.nest.order if axis in self.given]
        lines = [*map("POINTER({});".format, pointers), *lines, *self.indices(parallel, "chunk")]
        body = self.body(lines)  # which decides how it opens
        return f"{self.opening} {{\n{body}}}", points(parallel)

    def arrays(self) -> tuple[list[str], list[str]]:
        """What macros take of each array in device memory, and the definitions of other arrays."""
        pointers, own = list[str](), list[str]()
        for number, parameter in enumerate(self.nest.kernel.parameters):
            const, kind = "" if parameter.written else "const ", ELEMENTS[parameter.dtype]
            if parameter.memory == "scratch":
                own.append(f"{kind} p{number}[{parameter.size}] SCRATCH;")
            else:
                pointers.append(f"{const}{kind}, {number}")
        return pointers, own

    def indices(self, axes: Sequence[Node], chunk: str) -> Iterator[str]:
        """Definitions of the indices of `axes`, the last the fastest, that `chunk` stands for."""
        rest = chunk
        for place, axis in reversed(list(enumerate(axes))):
            yield f"const {self.index} a{axis.arg.number} = {rest} % {axis.arg.size};"
            rest = f"({chunk} / {points(axes[place:])})"

    def body(self, lines: list[str]) -> str:
        """`lines` and every row."""
        for segment in self.segments_of(self.nest.kernel.row_axes):
            self.scopes = [Scope()]
            self.rows(segment)
            conditions = " && ".join(run.condition for run in segment.values() if run.condition)
            head = f"if ({conditions}) {{" if conditions else "{"
            lines += [head, *("    " + text for text in self.scopes[0].lines), "}"]
        return "".join(f"    {text}\n" for text in lines)


def print_program(program: Program, plans: Mapping[AnyKernel, Plan]) -> Source:
    """The translation unit of a program, of which each kernel has a plan."""
    needed = {(text, 0) for text in TEXTS[:2]}
    functions: dict[str, str] = {}  # text -> name
    entries: dict[AnyKernel, tuple[str, int]] = {}  # a function, and its chunks
    for kernel, (name, _, nest) in plans.items():
        if isinstance(nest, SortKernel):
            keys = SHORT[nest.parameters[0].dtype]
            text, chunks = f"SORT({name}, {keys}, {nest.length})", nest.rows
        else:
            text, chunks = CPrinter(nest, name, needed).print()
        functions[text] = name
        entries[kernel] = name, chunks
    body = []
    for number, chain in enumerate(program.chains):
        slots = dict.fromkeys(one for launch in chain for one in launch.slots)
        held = [one for one in slots if one.kind != "block"]
        name, chunks = entries[chain[0].kernel]
        if len(chain) > 1:
            # A function, its name still open, that runs every kernel for one block of rows, or for
            # `steps` blocks after each other, through which sums are carried.
            carries = any(store.monoid for one in chain for store in one.kernel.stores)
            steps = chain[0].kernel.block_axes[-1].arg.size if carries else 1
            chunks //= steps
            places = {one: f"block + {one.offset}" for one in slots}
            places |= {one: f"b[{at}]" for at, one in enumerate(held)}
            links = "".join(
                f"    LINK({entries[one.kernel][0]}, {', '.join(places[at] for at in one.slots)})\n"
                for one in chain
            )
            text = f"CHAIN({{name}}, {program.block}, {steps},\n{links})"
            name = functions.setdefault(text, f"chain{len(functions)}")
        arguments = ", ".join(f"AT{program.place(one)}" for one in held)
        call = f"parallel({chunks}, {name}, b)" if chunks > 1 else f"{name}(b, 0)"
        body.append(f"    LAUNCH({number}, {call}, {arguments})")
    needed |= {("c/vectors.c", lanes) for _, lanes in needed if lanes}
    texts = sorted(needed, key=lambda one: (TEXTS.index(one[0]), one[1]))
    helpers = "\n".join(helper_text(*helper) for helper in texts)
    kernels = {name: text.replace("{name}", name) for text, name in functions.items()}
    return Source(helpers, kernels, "\n".join(["RUN {", *body, "}\n"]))
