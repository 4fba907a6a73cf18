"""CUDA C++: what the macros of its prelude do not say."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import ceil, gcd

from lamina.core.dtypes import SHORT, int8, uint8, uint16
from lamina.core.target import Target
from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes
from lamina.ir.node import Node
from lamina.loops.nest import Nest, sends_updates
from lamina.runtime.buffer import Launch
from lamina.schedule.gpu.atoms import ATOMS, Atom
from lamina.targets.c.operations import ELEMENTS
from lamina.targets.cuda.language import CudaLanguage
from lamina.targets.cuda.private_results import ResultsOfBlock
from lamina.targets.cuda.results import RowLines, RowStore
from lamina.targets.gpu_printer import GpuPrinter
from lamina.targets.kernel import index_and_condition
from lamina.targets.language import Point, Value
from lamina.targets.names import monoid_name
from lamina.targets.parts import Fixed, NestPart, Unrolled
from lamina.targets.scopes import Scope
from lamina.tiles.decisions import ResultSide

MAX_ACCESS_BYTES = 16  # of a thread's longest load
# Threads of a multiprocessor up to which each may have 64 of 65,536 registers, twice as many as
# where 2048 run.
FEW_THREADS = 1024


class CudaPrinter(GpuPrinter):
    """One kernel. Where it has a product in tiles, `ProductPrinter` or `AttentionPrinter` prints
    what blocks do with these, and asks this class for values, loops and stores."""

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        super().__init__(nest, name, target, CudaLanguage(nest))
        self.row_stores: dict[Store, RowStore] = {}  # of stores by whole rows that have begun
        self.results = ResultsOfBlock.of(self.nest) if self.nest.private else None
        self.finds_tops = False  # whether updates are gone through for their exponents alone

    def min_blocks(self) -> int | None:
        """All blocks that a multiprocessor gets, where their threads are few and go through loops.
        What registers they take is free then, as no other block waits for these.

        Without the bound ptxas keeps to about 32 registers, and moves loads to just before their
        uses. A product of (309, 2, 320) by (309, 320, 192) has 232 blocks of 256 threads. Of eight
        steps, which ptxas unrolls, it loaded factors at five places, each of which waits for
        memory: 81 us on an H200. With 2 as the bound all loads come first."""
        launch = self.launch()
        blocks = ceil(launch.blocks / self.target.multiprocessors)
        has_loop = any(self.nest.bound(axis) == "serial" for axis in self.nest.order)
        is_few = blocks * launch.threads <= FEW_THREADS
        return blocks if has_loop and is_few else None

    # Results of a block.

    def opening(self, pointers: list[str], scratch: list[str], block: str = "") -> list[str]:
        """Where a block has results of its own, they are made ready."""
        lines = super().opening(pointers, scratch, block)
        return [*lines, self.results.opening(self)] if self.results else lines

    def blocks(self) -> list[str]:
        """Where a block has results of its own, they are combined with the array at the end. For
        those of float32 the updates are gone through twice, if exponents have to be found."""
        if not self.results:
            return super().blocks()
        lines: list[str] = []
        scale = self.results.private.scale
        if scale and not scale.top:
            self.finds_tops = True
            lines += [*super().blocks(), "BARRIER;"]
            self.finds_tops = False
        closing = self.results.closing(self)
        return [*lines, *super().blocks(), *closing]

    def launch(self) -> Launch:
        """With the memory of a block's results."""
        launch = super().launch()
        return launch._replace(shared=self.results.nbytes) if self.results else launch

    # Values.

    def load_together(self, node: Node, point: Point) -> None:
        """Neighbours that NVCC would load one by one: runs under one condition, pairs of bytes."""
        if index_and_condition(node)[1] is ix.TRUE:
            self._load_pair(node, point)
        else:
            self._load_run(node, point)

    def _load_run(self, node: Node, point: Point) -> None:
        """Up to 16 bytes by one access, if a condition holds for all or for none of them. Of
        8 elements of 16 bits, the first half of a row:

            const auto run_2 = load_run_where<8>(lt_1, p0 + 8 * column_outer);
            const u16 load_3 = run_2.of[0];
            const u16 load_4 = run_2.of[1];
        """
        run = self._run_of_neighbours(node, point)
        if run is None:
            return
        axis, length = run
        start = point[axis] // length * length
        first = point | {axis: start}
        index, condition = index_and_condition(node)
        cache = self.scopes[self.home(node)].cache
        with self.at_depth(self.home(node)):
            holds = self.value(condition, first).text
            place = f"p{node.arg.parameter} + {self.index_text(index, first)}"
            name = self.fresh_name("run")
            self.line(f"const auto {name} = load_run_where<{length}>({holds}, {place});")
            for number in range(length):
                element = Value(f"{name}.of[{number}]", node.dtype)
                at = point | {axis: start + number}
                cache[self.key(node, at)] = self.declare(element, "load")

    def _run_of_neighbours(self, node: Node, point: Point) -> tuple[Node, int] | None:
        """The unrolled axis along which a load under a condition reads neighbours, and how many one
        access can read; None where that is one, and where the kernel writes to the array."""
        index, condition = index_and_condition(node)
        array = self.nest.kernel.parameters[node.arg.parameter]
        axis = self._axis_of_neighbours(index)
        if axis is None or array.written or array.memory == "scratch" or array.size == 1:
            return None
        terms, constant = ix.terms_of(index)
        others = [stride for term, stride in terms.items() if term is not axis]
        copies = self.unrolled[axis]
        aligned = gcd(constant, copies.first, copies.copies, *others)
        length = gcd(aligned, MAX_ACCESS_BYTES // node.dtype.itemsize)
        while length > 1 and not ix.is_uniform_in_runs(condition, axis, length):
            length //= 2
        return (axis, length) if length > 1 else None

    def _axis_of_neighbours(self, index: Node) -> Node | None:
        """The one unrolled axis along which an index reads neighbours; None if there is none, as
        of ``8 * (k // 4) + k``."""
        terms, _ = ix.terms_of(index)
        near = [axis for axis in self.unrolled if terms.get(axis) == 1]
        if len(near) != 1:
            return None
        (axis,) = near
        others = [term for term in terms if term is not axis]
        return None if any(axis in free_axes(term) for term in others) else axis

    def _load_pair(self, node: Node, point: Point) -> None:
        """Two bytes by one access, where a longer one is not aligned: NVCC joins 4 and more. Of a
        block of 18 bytes:

            const u16 pair_1 = *(const u16 *)(p1 + 18 * thread_in_row + 2);
            const u8 load_2 = (u8)pair_1;
            const u8 load_3 = (u8)(pair_1 >> 8);
        """
        axis = self._axis_of_pairs(node, point)
        if axis is None:
            return
        first = point | {axis: point[axis] & ~1}
        index, kind = node.src[0], SHORT[node.dtype]
        cache = self.scopes[self.home(node)].cache
        with self.at_depth(self.home(node)):
            place = f"p{node.arg.parameter} + {self.index_text(index, first)}"
            pair = self.declare(Value(f"*(const u16 *)({place})", uint16), "pair").text
            for text, at in ((pair, first), (f"({pair} >> 8)", first | {axis: first[axis] + 1})):
                byte = Value(f"({kind}){text}", node.dtype)
                cache[self.key(node, at)] = self.declare(byte, "load")

    def _axis_of_pairs(self, node: Node, point: Point) -> Node | None:
        """The unrolled axis along which bytes are neighbours that are aligned as pairs, and no
        better; None where there is none, and where the kernel writes to the array."""
        is_read_only = not self.nest.kernel.parameters[node.arg.parameter].written
        axis = self._axis_of_neighbours(node.src[0])
        if node.dtype not in (uint8, int8) or axis is None or not is_read_only:
            return None
        terms, constant = ix.terms_of(node.src[0])
        others = [stride for term, stride in terms.items() if term is not axis]
        alignment = gcd(constant, *others)
        copies = self.unrolled[axis]
        is_even = copies.first % 2 == 0 and copies.copies % 2 == 0
        return axis if is_even and alignment % 4 == 2 else None

    def index_text(self, index: Node, point: Point) -> str:
        """The common factor apart: compilers see the alignment of no long sum. ``8 * a + 16 * b +
        3`` is ``8 * (a + 2 * b) + 3``."""
        terms, constant = ix.terms_of(index)
        offset = constant + sum(terms[axis] * at for axis, at in point.items() if axis in terms)
        rest = {term: factor for term, factor in terms.items() if term not in point}
        common = gcd(*rest.values())
        if common < 2 or len(rest) < 2:  # there is no factor, or no sum
            return super().index_text(index, point)
        divided = {term: factor // common for term, factor in rest.items()}
        inner = super().index_text(ix.affine(divided, 0), point)
        return f"{common} * ({inner}) + {offset}"

    # Blocks of text.

    @contextmanager
    def block(
        self,
        head: str,
        axes: Sequence[Node] = (),
        tail: str = "}",
        unrolled: Sequence[Node] = (),
    ) -> Iterator[None]:
        """Print a block, such as a loop or a function, around what the body of the ``with`` prints:
        `head`, these lines, which are indented, and `tail`. In it `axes` have the names of their
        indices, and `unrolled` axes are printed once for each index. What it computes is not known
        after it.
        """
        self.scopes.append(Scope())
        text_outside, depth_outside = dict(self.index_texts), dict(self.depth_of)
        parts: NestPart = {axis: Fixed(self.axis_name(axis)) for axis in axes}
        parts |= {axis: Unrolled(0, axis.arg.size) for axis in unrolled}
        with self.opened_in_order(parts, (*axes, *unrolled)):
            yield
        self.index_texts, self.depth_of = text_outside, depth_outside
        lines = self.scopes.pop().lines
        self.braced(head, lines, tail)

    def walk(self, axes: Sequence[Node], start: str = "", kind: str = "i64") -> str:
        """Print the index that walks `axes` as one, if it has a `start`, and the index of each
        axis. The result is the name of the former.

        For k0 of 3 and k1 of 5, from "64" on: ``const i64 k0_k1 = 64;``, then k1 as ``k0_k1 % 5``
        and k0 as ``(k0_k1 / 5) % 3``. One axis has its name alone: ``const i64 k = 64;``. kind: the
        type of the former index.
        """
        name = "_".join(map(self.axis_name, axes))
        if start:
            self.line(f"const {kind} {name} = {start};")
        if len(axes) > 1:
            self.lines(self.indices(axes, name))
        return name

    # Products in tiles.

    @property
    def atom(self) -> Atom:
        """The atom of the kernel's products."""
        return ATOMS[self.nest.atom]

    @property
    def registers(self) -> list[Node]:
        """The unrolled sub-loops, which number the sums of a thread."""
        return [axis for axis in self.nest.order if self.nest.bound(axis) == "unroll"]

    def corner(self, *more: Node) -> Point:
        """The point at which rows and columns of a block begin: sub-loops of tiles, and `more`
        axes, at 0."""
        return dict.fromkeys((*self.threads.rows, *self.registers, *more), 0)

    # Stores.

    def atomic(self, store: Store, value: str, point: Point) -> str:
        """``atomic_sum(&p2[load_1], 1);``, of `atomics.cu`, or an update of a block's results."""
        assert store.monoid is not None
        if self.results:
            return self.results.update(self, value, point, finds_tops=self.finds_tops)
        return f"atomic_{monoid_name(store.monoid)}(&{self.place(store, point)}, {value});"

    def assignment(self, store: Store, value: Value, point: Point) -> str:
        """``send_sum(&p2[load_1], load_3);``, of `atomics.cu`, where memory can add an update by
        itself."""
        kernel = self.nest.kernel
        if store in kernel.stores and sends_updates(kernel):
            return f"send_sum(&{self.place(store, point)}, {value.text});"
        return super().assignment(store, value, point)

    def helper_texts(self) -> tuple[str, ...]:
        """Atomic operations."""
        kernel = self.nest.kernel
        has_atomics = any(store.atomic for store in kernel.stores)
        return ("cuda/atomics.cu",) if has_atomics or sends_updates(kernel) else ()

    def begin_row_stores(
        self,
        lines_of: Mapping[Store, RowLines],
        rows: ResultSide,
        columns: ResultSide,
        first: int = 0,
    ) -> None:
        """From here on, the values of stores by whole rows fill their lines, from those of the sum
        of number `first` on."""
        corner = self.corner()
        rows_left, columns_left = (
            f"{side.extent} - ({self.index_text(side.index, corner)})" for side in (rows, columns)
        )
        has_matrices = "tma" in self.target.engines
        for store, lines in lines_of.items():
            place = f"p{store.parameter} + {self.index_text(store.index, corner)}"
            self.row_stores[store] = RowStore(
                lines, place, rows_left, columns_left, has_matrices, first
            )

    def print_store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store of one element, or what its value does to a store by whole rows."""
        if store in self.row_stores:
            element = f"({ELEMENTS[value.dtype]}){value.text}"
            self.lines(self.row_stores[store].put(element))
        else:
            super().print_store(store, value, point)
