"""GPUs: a program is one translation unit in a C++ without headers, and a launch for each kernel.

What dialects of that language do not share is in preludes, of which `gpu.c` says what they have:
`prelude.cu` is that of CUDA.

Rows bound to the grid are run by a thread each or, where a loop inside them is bound to threads,
by a block each, in which neighbouring threads take the rows bound to threads. Such a loop goes in
steps of the threads a row has, or is none if one step is enough: what a pass over the row reads and
computes then stays in registers for the next. A reduction over it ends with exchanges. What is
outside of all of these loops, every thread of a row computes, and its first one stores.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from lamina.core.dtypes import SHORT, float64
from lamina.errors import DTypeError
from lamina.fuse.program import Program
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, SortKernel, Store, bound_axes, bounds, free_axes, points
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.loops.moves import Plan
from lamina.loops.nest import WARP, Nest, operands_of
from lamina.runtime.buffer import Launch, Map
from lamina.runtime.metal import TABLE
from lamina.runtime.source import Source
from lamina.targets.blocks import Cut
from lamina.targets.c.printer import CPrinter
from lamina.targets.printer import Point, Run, Segment, Value
from lamina.targets.reductions import Accumulation
from lamina.targets.texts import helper_text

BLOCK = 256  # threads, each with a row
LONGEST_BLOCK = 1024  # threads that share a row; half of them share a long loop
KEYS, RUN = 8, 4096  # of a thread in a block that sorts few, and of a block at most
BEYOND = 1 << 20  # by which the index of a loop passes its end, at most: a block of 1024 iterations
FEW = 8  # results that are computed before they are stored: registers are full


class GpuPrinter(CPrinter):
    """One kernel; `threads` is the size of its blocks."""

    preludes: ClassVar[tuple[str, ...]]  # below targets/
    direct: ClassVar[int] = 1 << 16  # arrays that are arguments; a table has the others' addresses

    def __init__(self, nest: Nest, name: str) -> None:
        tiles = {one: "unroll" for one in nest.order if nest.bound(one) in ("vector", "dot")}
        nest = replace(nest, binding={**nest.binding, **tiles})
        super().__init__(nest, name, set())
        threads = [axis for axis in nest.order if nest.bound(axis) == "thread"]
        self.rows_inside = [axis for axis in threads if axis in self.given]
        self.shared = [axis for axis in threads if axis not in self.given]
        self.grid = [one for one in nest.order if one in self.given - set(self.rows_inside)]
        self.width = points(self.rows_inside)  # threads side by side with a row each
        self.cooperates = bool(threads)  # else a thread has a row, and a block has many
        longest = max([1, *(axis.arg.size for axis in self.shared)]) * self.width
        rows = not all(map(nest.is_head, self.shared))  # in registers; loops need fewer threads
        self.threads = _power(longest, LONGEST_BLOCK // (2 - rows)) if threads else BLOCK
        few = FEW if len(nest.tiles) < 3 else 4 * FEW  # nested sums leave registers
        self.together = few if nest.product or rows else self.together
        self.room, self.share = 0, ""  # bytes that a block shares; how many blocks share registers
        self.around, self.blocks = ("", ""), 0  # the loop and the number of blocks that do several
        self.maps: dict[str, Map] = {}  # by name, what the copy engine reads
        self.results: dict[Store, list[str]] = {}  # so far, of what is stored by whole rows

    def loop(self, axis: Node, name: str, start: int | str, stop: int | str) -> str:
        if axis not in self.shared:
            store, lane = self.nest.kernel.stores[0], self.grid[-1:]
            asked = free_axes(store.condition) if store.monoid else frozenset()
            if axis in asked and asked.isdisjoint(lane) and points(lane) % WARP == 0:
                return f"EACH_HIT({self.index}, {name}, {stop}) {{"  # all lanes of a warp alike
            return super().loop(axis, name, start, stop)
        step, first = self.stride(axis), f"{start} + own"
        return f"UNROLL for ({self.index} {name} = {first}; {name} < {stop}; {name} += {step}) {{"

    def stride(self, axis: Node) -> int:
        return self.threads // self.width if axis in self.shared else 1

    def segments(self, pieces: Sequence[Node], extent: int) -> list[Segment]:
        """In place of a loop of one step its index, which threads beyond the end have of the last
        one, to add and store nothing, as threads beyond the last of their rows have of that."""
        found, step = super().segments(pieces, extent), self.threads // self.width
        for segment in found:
            for axis, (how, count, condition, start) in segment.items():
                if axis in self.rows_inside and condition:
                    order, end = condition.split()[1:]
                    last = f"min({count}, ({self.index}){int(end) - 1})" if order == "<" else end
                    segment[axis] = Run("fixed", last)
                if axis in self.shared and how == "loop" and not start and int(count) <= step:
                    last = f"min(own, ({self.index}){int(count) - 1})"
                    some = Run("fixed", last, f"own < {count}")
                    segment[axis] = Run("fixed", "own") if count == step else some
        return found

    def value(self, node: Node, point: Point) -> Value:
        new = self.key(node, point) not in self.scopes[self.home(node)].cache
        if new and len(self.nest.tiles) < 3 and node.op is Op.LOAD:
            for other in self.batch or self.points(free_axes(node)):  # of the tile, read at once
                super().value(node, point | other)
        return super().value(node, point)

    def _join(self, sums: Iterable[Accumulation]) -> None:
        ready = list(sums)
        super()._join(ready)
        if ready and not set(self.shared).isdisjoint(bound_axes(ready[0].reduction)):
            self.line(f"REDUCE({self.threads}, {self.width}) {{")
            for one in ready:  # with the total of another of the row's threads
                others = (value._replace(text=f"exchange({value.text}, s)") for value in one.total)
                self.update(one.reduction.arg.monoid, one.total, tuple(map(self.declare, others)))
            self.line("}")

    def _scan_cut_of(self, segment: Segment, scans: Sequence[Node]) -> Cut | None:
        """None where threads share a row: each adds up its neighbours, and few steps follow."""
        cut = super()._scan_cut_of(segment, scans)
        return None if cut and not segment.keys().isdisjoint(self.shared) else cut

    def prefix(self, node: Node, point: Point) -> None:
        """A thread runs along its neighbours, from where the threads before it end, which they tell
        each other; the first one goes on from the step before."""
        along, rows, monoid = bound_axes(node), self.nest.kernel.row_axes, node.arg.monoid
        if set(self.shared).isdisjoint(along):
            super().prefix(node, point)
            return
        near = [point | one for one in self.points(along[along.index(self.shared[0]) + 1 :])]
        parts = [tuple(self.value(one, at) for one in operands_of(node)) for at in near]
        sums = tuple(self.declare(one, mutable=True) for one in self._tree(monoid, parts))
        depth = max(map(self.depth_of.__getitem__, rows), default=0)
        begun, row = self.scopes[depth].begun, tuple(point[one] for one in rows if one in point)
        if row not in begun:
            begun[row] = self.start(node, 1, depth)
        self.line(f"SCAN({self.threads}, {self.width}) {{")
        before = tuple(self.declare(one._replace(text=f"earlier({one.text}, {last.text}, s)"))
                       for one, last in zip(sums, begun[row], strict=True))  # fmt: skip
        self.line("if (!precedes(s)) continue;")
        self.update(monoid, sums, before)
        self.line("}")
        for at, part in zip(near, parts, strict=True):
            self.update(monoid, sums, part)
            self._keep(node, at, tuple(map(self.declare, sums)))

    def store(self, store: Store, value: Value, point: Point) -> None:
        super().store(store, value, point)
        own = self.nest.kernel.parameters[store.parameter].memory == "scratch"  # of each thread
        inside = any(axis in self.depth_of for axis in self.shared)
        alone = self.cooperates and self.threads > self.width and not inside
        guard = self.guard or f"if (THREAD < {self.width}) " * alone
        guard += "".join(f"if (a{one.arg.number} == {at}) " for one in self.rows_inside
                         if (at := self.text_of[one]) != f"a{one.arg.number}")  # fmt: skip
        if guard and not own:
            line = self.scopes[-1].lines.pop()
            if alone and not self.nest.tiles and store.parameter in self.read:
                self.line("BARRIER;")  # the others have read what is overwritten
            self.line(f"{guard}{{ {line} }}")

    def print_kernel(self) -> tuple[str, Launch]:
        """The kernel's function, and how to launch it but for its arguments."""
        workers, word = points(self.grid), "u32" if points(self.grid) < 1 << 32 else "u64"
        pointers, lines = self.arrays()
        sizes = [one.nbytes for one in self.nest.kernel.parameters if one.memory != "scratch"]
        written = max(one.nbytes for one in self.nest.kernel.parameters if one.written)
        wide = zip(pointers, sizes, strict=True) if "unroll" in self.nest.binding.values() else ()
        each = "TILE" if self.nest.tiles else "BLOCK" if self.cooperates else "THREAD"
        given, rest = pointers[: self.direct], pointers[self.direct :]
        lines = [
            *(f"FROM_TABLE({one}, {at});" for at, one in enumerate(rest)),
            *(f"ALIGNED({one}, {size}, {written});" for one, size in wide), *lines,
            f"EACH_{each}({word}, {self.threads}, {workers});",
            *self.indices(self.grid, "worker"), *self.indices(self.rows_inside, "THREAD"),
            *[f"const {self.index} own = THREAD / {self.width};"] * bool(self.shared),
        ]  # fmt: skip
        body = self.body(lines)
        arguments = [*map("POINTER({})".format, given), *[f"TABLE({self.direct})"] * bool(rest),
                     *map("MAP({})".format, self.maps)]  # fmt: skip
        head = f"KERNEL({self.threads}{self.share}) {self.function}({', '.join(arguments)} PLACE)"
        blocks = self.blocks or (workers if self.cooperates else -(-workers // BLOCK))
        if self.blocks:
            body = f"    {self.around[0]} {{\n{body}    }}{self.around[1]}\n"
        extra = self.room, tuple(self.maps.values())
        return f"{head} {{\n{body}}}", Launch(self.function, blocks, self.threads, (), *extra)


class MetalPrinter(GpuPrinter):
    """One kernel for Apple's GPUs, which have no 64-bit floats. Arithmetic on 64-bit integers takes
    them many instructions: an index has 32 bits wherever all that it is computed from fits."""

    preludes, direct = ("metal/prelude.metal",), TABLE

    def __init__(self, nest: Nest, name: str) -> None:
        super().__init__(nest, name)
        if any(one.dtype is float64 for one in nest.kernel.nodes):
            raise DTypeError(f"kernel {name}: Metal has no float64; cast to float32 or complex64")
        self.index = "i32" if all(map(_is_short, nest.kernel.nodes)) else "i64"


def _is_short(node: Node) -> bool:
    """Do 32 bits hold each sum that `node`, if it is an index, is computed by?"""
    terms, constant = ix.terms_of(node) if node.op in (Op.AXIS, Op.AFFINE) else ({}, 0)
    sizes = (abs(by) * max(map(abs, bounds(term))) for term, by in terms.items() if not term.src)
    return abs(constant) + sum(sizes) < (1 << 31) - BEYOND


def _power(threads: int, most: int) -> int:
    """A power of two, of warps, that is no smaller, but for what exceeds `most`."""
    return min(max(1 << (threads - 1).bit_length(), WARP), most)


def print_program(
    printer: type[GpuPrinter], program: Program, plans: Mapping[AnyKernel, Plan]
) -> tuple[Source, tuple[Launch, ...]]:
    """The translation unit of a program in the dialect of a printer, and its launches."""
    functions, shapes = dict[str, str](), dict[AnyKernel, Launch]()
    for kernel, (name, _, nest) in plans.items():
        if isinstance(nest, SortKernel):
            threads = _power(-(-nest.length // KEYS), RUN // (2 * KEYS))
            each = min(-(-nest.length // threads), 2 * KEYS)
            blocks = -(-nest.length // (each * threads))
            what = "SORT" + ("_MOVE", "_SUM", "_COUNT")[nest.left % 3] * (blocks > 1)
            shapes[kernel] = Launch(name, nest.rows * blocks, threads, ())
            sizes = f"{nest.rows}, {nest.length}, {nest.left}, {each}, {threads}"
            text = f"{what}({name}, {SHORT[nest.parameters[0].dtype]}, {sizes})"
        else:
            text, shapes[kernel] = printer(nest, name).print_kernel()
        functions[name] = text
    launches = (shapes[one.kernel]._replace(arguments=tuple(map(program.place, one.slots)))
                for one in program.launches)  # fmt: skip
    helpers = "\n".join(map(helper_text, (*printer.preludes, "c/arithmetic.c", "gpu.c")))
    return Source(helpers, functions), tuple(launches)
