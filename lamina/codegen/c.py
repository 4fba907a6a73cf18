"""C with the GCC and Clang vector extensions, for the CPU.

A program is one translation unit: a function a kernel, and `lamina_run`, which calls them in
order and hands loops bound to threads to the pool. No header is included: that costs more time
than compiling a small kernel.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from math import prod

from lamina.codegen.base import NestPrinter, Point, Value
from lamina.codegen.segments import Extent, Run, Segment, segments
from lamina.codegen.spell_c import BITS, HELPERS, OPERATIONS, TYPES, splat
from lamina.dtypes import DType, bool_, float32, int64
from lamina.fuse.program import Program
from lamina.ir.kernel import Kernel, SortKernel, Store, free_axes
from lamina.ir.node import Node
from lamina.kernel.schedule import Nest
from lamina.simplify import index as ix

PRELUDE = """\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
typedef void (*lamina_body_fn)(void *, long);
typedef void (*lamina_parallel_fn)(long, lamina_body_fn, void *);
#define INLINE static inline __attribute__((always_inline))
"""


def literal(value: object, dtype: DType) -> str:
    """C text of a constant, exact."""
    if dtype.is_float:
        number = float(value)  # type: ignore[arg-type]
        suffix = "f" if dtype is float32 else ""
        if dtype is float32 and math.isfinite(number):
            number = _round_to_float32(number)
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
        return f"{number!r}{suffix}"
    if dtype is bool_:
        return str(int(bool(value)))
    text = str(int(value))  # type: ignore[call-overload]
    if dtype.bits == 64:
        text = "(-9223372036854775807LL - 1)" if int(text) == -(1 << 63) else text + (
            "ULL" if dtype.kind == "uint" else "LL")  # fmt: skip
    return f"({TYPES[dtype]}){text}" if dtype.bits != 64 else text


def _round_to_float32(number: float) -> float:
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


class CPrinter(NestPrinter):
    """One kernel function."""

    def __init__(self, nest: Nest, name: str, used: set[str]) -> None:
        super().__init__(nest)
        self.function = name
        self.used = used  # vector types and helper functions, by name

    # Spelling.

    def type(self, dtype: DType, lanes: int, mask: int = 0) -> str:
        if lanes == 1:
            return "_Bool" if dtype is bool_ else TYPES[dtype]
        name = f"i{mask}x{lanes}" if dtype is bool_ else f"{TYPES[dtype]}x{lanes}"
        self.used.add(name)
        return name

    def literal(self, node: Node) -> Value:
        return Value(literal(node.arg.value, node.dtype), node.dtype)

    def lane_numbers(self, lanes: int) -> Value:
        numbers = ", ".join(map(str, range(lanes)))
        return Value(f"({self.type(int64, lanes)}){{{numbers}}}", int64, lanes)

    def declare(self, value: Value, mutable: bool = False) -> Value:
        name = self.name()
        const = "" if mutable else "const "
        kind = self.type(value.dtype, value.lanes, value.mask)
        self.line(f"{const}{kind} {name} = {value.text};")
        return value._replace(text=name)

    def operation(self, node: Node, operands: list[Value], lanes: int) -> Value:
        return OPERATIONS[node.op](self, node, operands, lanes)

    def widened(self, value: Value, lanes: int, mask: int = 0) -> str:
        """`value` as a vector: scalars repeated, masks brought to `mask` bits."""
        if value.dtype is bool_:
            kind = self.type(bool_, lanes, mask)
            if value.lanes == 1:
                return f"(({kind}){{0}} - (i{mask})({value.text}))"
            if value.mask == mask:
                return value.text
            return f"__builtin_convertvector({value.text}, {kind})"
        if value.lanes == lanes:
            return value.text
        return splat(value.text, TYPES[value.dtype], self.type(value.dtype, lanes))

    def accumulator(self, identity: Value, lanes: int) -> Value:
        if lanes == 1:
            return self.declare(identity, mutable=True)
        mask = 8 if identity.dtype is bool_ else 0
        text = self.widened(identity, lanes, mask)
        return self.declare(Value(text, identity.dtype, lanes, mask), mutable=True)

    def assign(self, target: Value, value: Value) -> None:
        text = value.text
        if target.lanes > 1:
            text = self.widened(value, target.lanes, target.mask)
        self.line(f"{target.text} = {text};")

    def horizontal(self, values: tuple[Value, ...], lane: int) -> tuple[Value, ...]:
        return tuple(
            Value(f"({one.text}[{lane}] != 0)" if one.mask else f"{one.text}[{lane}]", one.dtype)
            for one in values
        )

    # Memory.

    def _lane_axis(self, *nodes: Node | None) -> Node | None:
        for axis in self.vectors:
            if any(node is not None and axis in free_axes(node) for node in nodes):
                return axis
        return None

    def _stride(self, index: Node, condition: Node | None, axis: Node) -> int | None:
        """Elements between lanes, or None if data or a condition decide lane by lane."""
        terms, _ = ix.terms_of(index)
        others = [term for term in terms if term is not axis]
        if condition is not None:
            others.append(condition)
        if any(axis in free_axes(one) for one in others):
            return None
        return terms.get(axis, 0)

    def load(self, node: Node, point: Point) -> Value:
        index = node.src[0]
        condition = node.src[1] if len(node.src) > 1 else None
        axis = self._lane_axis(node)
        base = f"p{node.arg.parameter}"
        if axis is None:
            text = f"{base}[{self.index_text(index, point)}]"
            if condition is not None:
                text = f"({self.value(condition, point).text} ? {text} : 0)"
            return Value(text, node.dtype)
        lanes = self.vectors[axis]
        stride = self._stride(index, condition, axis)
        if stride is None:
            return self._gathered(self._by_lane(node, axis, point), node.dtype)
        start = self.index_text(index, point)
        if stride == 1:
            text = self._contiguous(base, start, node.dtype, lanes)
        else:
            elements = [f"{base}[{start} + {lane * stride}]" for lane in range(lanes)]
            text = self._braced(elements, node.dtype)
        if condition is not None:
            kind = f"({self._storage(node.dtype, lanes)})"
            text = f"({self.value(condition, point).text} ? {kind}{text} : {kind}{{0}})"
        return self._from_storage(text, node.dtype, lanes)

    def _storage(self, dtype: DType, lanes: int) -> str:
        name = f"{'u8' if dtype is bool_ else TYPES[dtype]}x{lanes}"
        self.used.add(name)
        return name

    def _braced(self, elements: Sequence[str], dtype: DType) -> str:
        return f"({self._storage(dtype, len(elements))}){{{', '.join(elements)}}}"

    def _contiguous(self, base: str, start: str, dtype: DType, lanes: int) -> str:
        return f"*(const {self._storage(dtype, lanes)}u *)({base} + {start})"

    def _from_storage(self, text: str, dtype: DType, lanes: int) -> Value:
        if dtype is bool_:
            self.type(bool_, lanes, 8)
            return Value(f"(i8x{lanes})({text} != 0)", dtype, lanes, 8)
        return Value(text, dtype, lanes)

    def _gathered(self, elements: list[Value], dtype: DType) -> Value:
        text = self._braced([one.text for one in elements], dtype)
        return self._from_storage(text, dtype, len(elements))

    def _by_lane(self, node: Node, axis: Node, point: Point) -> list[Value]:
        """`node` once for each lane, as scalars."""
        lanes = self.vectors.pop(axis)
        self.unrolled[axis] = lanes
        values = [self.value(node, point | {axis: lane}) for lane in range(lanes)]
        del self.unrolled[axis]
        self.vectors[axis] = lanes
        return values

    def store(self, store: Store, value: Value, point: Point) -> None:
        axis = self._lane_axis(store.index, store.condition)
        if axis is None:
            self._store_scalar(store, value.text, point)
            return
        lanes = self.vectors[axis]
        if self._stride(store.index, store.condition, axis) == 1:
            self._store_vector(store, value, point, lanes)
            return
        del self.vectors[axis]
        self.unrolled[axis] = lanes
        for lane in range(lanes):
            text = value.text if value.lanes == 1 else self.horizontal((value,), lane)[0].text
            self._store_scalar(store, text, point | {axis: lane})
        del self.unrolled[axis]
        self.vectors[axis] = lanes

    def _guarded(self, store: Store, point: Point, text: str) -> None:
        if store.condition is not None:
            text = f"if ({self.value(store.condition, point).text}) {{ {text} }}"
        self.line(text)

    def _store_scalar(self, store: Store, text: str, point: Point) -> None:
        target = f"p{store.parameter}[{self.index_text(store.index, point)}]"
        if store.monoid is not None:
            dtype = store.value.dtype
            pair = (Value(target, dtype),), (Value(text, dtype),)
            text = self.combined(store.monoid, *pair)[0].text
        self._guarded(store, point, f"{target} = {text};")

    def _store_vector(self, store: Store, value: Value, point: Point, lanes: int) -> None:
        dtype = store.value.dtype
        start = self.index_text(store.index, point)
        target = f"*({self._storage(dtype, lanes)}u *)(p{store.parameter} + {start})"
        if store.monoid is not None:
            old = self._from_storage(target, dtype, lanes)
            wide = value._replace(text=self.widened(value, lanes, value.mask), lanes=lanes)
            value = self.combined(store.monoid, (old,), (wide,))[0]
        text = self.widened(value, lanes, 8)
        if dtype is bool_:
            text = f"({self._storage(dtype, lanes)})({text}) & 1"
        self._guarded(store, point, f"{target} = {text};")

    # The function.

    def print(self) -> tuple[str, int]:
        """The kernel's function, and the number of chunks it runs in."""
        kernel = self.nest.kernel
        rows = kernel.stores[0].axes[: kernel.rows]
        heads = [axis for axis in rows if self.nest.is_head(axis)]
        parallel = [head for head in heads if self.nest.bound(head) == "parallel"]
        chunks = prod(head.arg.size for head in parallel)
        rest = "chunk"
        for head in reversed(parallel):
            name = f"a{head.arg.number}"
            self.line(f"const i64 {name} = {rest} % {head.arg.size};")
            rest = f"(chunk / {prod(one.arg.size for one in parallel[parallel.index(head):])})"
        self._rows([self._row_segments(head, head in parallel) for head in heads], {}, [])
        return self._function(kernel, self.scopes[0].lines), chunks

    def _row_segments(self, head: Node, parallel: bool) -> list[tuple[str, Segment]]:
        """The segments of one row axis, each with a condition on the chunk number, or ""."""
        pieces, extent = self.nest.chain(head)
        if not parallel:
            return [("", one) for one in segments(self.nest, pieces, extent)]
        name = f"a{head.arg.number}"
        given = {head: Run("given", name)}
        if len(pieces) == 1:
            return [("", given)]
        block = prod(piece.arg.size for piece in pieces[1:])
        full, tail = divmod(extent, block)
        if not tail:
            return [("", given | one) for one in segments(self.nest, pieces[1:], block)]
        if len(pieces) == 2 and self.nest.bound(pieces[1]) == "serial":
            count: Extent = f"({name} < {full} ? {block} : {tail})"
            return [("", given | {pieces[1]: Run("loop", count)})]
        inside = [(f"{name} < {full}", given | one)
                  for one in segments(self.nest, pieces[1:], block)] if full else []  # fmt: skip
        return inside + [
            (f"{name} == {full}", given | one) for one in segments(self.nest, pieces[1:], tail)
        ]

    def _rows(
        self, choices: list[list[tuple[str, Segment]]], chosen: Segment, conditions: list[str]
    ) -> None:
        if choices:
            for condition, segment in choices[0]:
                more = [*conditions, condition] if condition else conditions
                self._rows(choices[1:], chosen | segment, more)
            return
        outer = self.scopes[0]
        scope = type(outer)()
        self.scopes[0] = scope
        self.rows(chosen)
        self.scopes[0] = outer
        outer.lines.append(f"if ({' && '.join(conditions)}) {{" if conditions else "{")
        outer.lines += ["    " + text for text in scope.lines] + ["}"]

    def _function(self, kernel: Kernel, body: list[str]) -> str:
        lines = [f"static void {self.function}(void *arg, long chunk) {{", "    void **b = arg;"]
        for number, parameter in enumerate(kernel.parameters):
            const = "" if parameter.written else "const "
            kind = "u8" if parameter.dtype is bool_ else TYPES[parameter.dtype]
            lines.append(f"    {const}{kind} *restrict p{number} = b[{number}];")
        return "\n".join([*lines, *("    " + text for text in body), "}"])


def vector_typedefs(used: set[str]) -> list[str]:
    """Definitions of the vector types among `used`, with a variant for unaligned memory."""
    lines = []
    for name in sorted(used):
        element, _, lanes = name.partition("x")
        if lanes.isdigit():
            size = BITS[element] // 8 * int(lanes)
            lines.append(
                f"typedef {element} {name} __attribute__((vector_size({size}))); typedef {element} "
                f"{name}u __attribute__((vector_size({size}), aligned({BITS[element] // 8}), "
                f"may_alias));"
            )
    return lines


SORT = """\
static void {name}(void *arg, long row) {{
    void **b = arg;
    const {kind} *restrict keys = ({kind} *)b[0] + row * {n};
    i64 *from = (i64 *)b[1] + row * {n}, *to = (i64 *)b[2] + row * {n};
    for (i64 i = 0; i < {n}; i++) from[i] = i;
    for (i64 width = 1; width < {n}; width *= 2) {{
        for (i64 start = 0; start < {n}; start += 2 * width) {{
            const i64 middle = start + width < {n} ? start + width : {n};
            const i64 end = start + 2 * width < {n} ? start + 2 * width : {n};
            i64 i = start, j = middle;
            for (i64 k = start; k < end; k++) {{
                _Bool right = i >= middle;
                if (!right && j < end) {{
                    const {kind} a = keys[from[i]], c = keys[from[j]];
                    right = c < a || (a != a && c == c);
                }}
                to[k] = from[right ? j++ : i++];
            }}
        }}
        i64 *swap = from; from = to; to = swap;
    }}
    if (from != (i64 *)b[1] + row * {n})
        for (i64 i = 0; i < {n}; i++) to[i] = from[i];
}}"""


def print_sort(kernel: SortKernel, name: str) -> tuple[str, int]:
    """A bottom-up merge sort of each row; NaN comes last."""
    dtype = kernel.parameters[0].dtype
    kind = "u8" if dtype is bool_ else TYPES[dtype]
    return SORT.format(name=name, kind=kind, n=kernel.length), kernel.rows


def print_program(program: Program, kernels: dict[object, tuple[str, str, int]],
                  used: set[str]) -> str:  # fmt: skip
    """The translation unit. `kernels` maps each kernel to its name, text and chunk count."""
    helpers = [text for name, text in HELPERS.items() if name in used]
    parts = [PRELUDE, *vector_typedefs(used), *helpers]
    parts += [text for _, text, _ in kernels.values()]
    arena = len(program.slots)
    body = ["double started = 0;"] if program.launches else []
    for number, launch in enumerate(program.launches):
        name, _, chunks = kernels[launch.kernel]
        pointers = ", ".join(_pointer(program, slot, arena) for slot in launch.slots)
        call = f"parallel({chunks}, {name}, b)" if chunks > 1 else f"{name}(b, 0)"
        body.append(f"{{ void *b[] = {{{pointers}}}; if (seconds) started = lamina_clock(); "
                    f"{call}; if (seconds) seconds[{number}] = lamina_clock() - started; }}")
    lines = "\n".join("    " + text for text in body)
    parts.append(
        "struct lamina_time { long seconds, nanoseconds; };\n"
        "int clock_gettime(int, struct lamina_time *);\n"
        "static double lamina_clock(void) { struct lamina_time t; clock_gettime(1, &t); "
        "return t.seconds + 1e-9 * t.nanoseconds; }\n"
        "void lamina_run(void **buffers, const i64 *variables, lamina_parallel_fn parallel, "
        f"double *seconds) {{\n{lines}\n}}\n"
    )
    return "\n".join(parts)


def _pointer(program: Program, slot: int, arena: int) -> str:
    if program.slots[slot].kind == "scratch":
        return f"(u8 *)buffers[{arena}] + {program.slots[slot].offset}"
    return f"buffers[{slot}]"
