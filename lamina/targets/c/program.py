"""A program in C: one translation unit of helper texts, a function for each kernel, and RUN.

RUN is a macro that begins the function `lamina_run`, which calls the other functions in order. A
function whose work is divided into several chunks goes to the pool of threads.

Attention of 4 heads of 256 queries is three kernels in row blocks, one head in each block. A fourth
function calls the three functions for one block:

    KERNEL(reduce0_4x1x256x256) { ... }                  and two more
    ROW_BLOCKS(rows3, 524288, 1,
        ON_BLOCK(reduce0_4x1x256x256, b[0], block + 0)
        ON_BLOCK(reduce1_4x1x256x256, block + 0, block + 262144)
        ON_BLOCK(reduce2_4x1x256x64, block + 262144, b[0], b[1])
    )
    RUN {
        LAUNCH(0, parallel(4, rows3, b), AT(2, 0), AT(1, 0))
    }

LAUNCH has the number of the step, the call, and where each buffer begins: ``AT(2, 0)`` is byte 0 of
buffer 2 of the program. In a function, ``b[0]`` is the first of these buffers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lamina.core.dtypes import SHORT
from lamina.core.exchange import Exchange
from lamina.fuse.program import BufferView, Launch, Program
from lamina.ir.kernel import AnyKernel, BinKernel, Collective, SortKernel
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.runtime.source import Source
from lamina.targets.c.byte_tiles import BYTE_TILES, ByteTilePrinter
from lamina.targets.c.operations import VECTORS, CLanguage, NeededText
from lamina.targets.helpers import HelperText, used_fragments
from lamina.targets.texts import helper_text

# The order in which a program's helper texts are printed; each may use the ones before it.
SORTS = "c/sorts.c"
DOTS = "c/dots.c"
EXCHANGES = "c/exchanges.c"
TEXTS = (
    "c/prelude.c", "c/arithmetic.c", "c/vectors.c", "c/transposes.c", "c/strides.c", "c/floats.c",
    "c/math.c", "c/doubles.c", SORTS, DOTS, BYTE_TILES, EXCHANGES,
)  # fmt: skip
OF_SCALARS = TEXTS[:2]  # which are not written for a number of lanes; every program has them


@dataclass(frozen=True)
class Function:
    """A printed function: its name, and how many chunks its work is divided into."""

    name: str
    chunks: int

    @property
    def call(self) -> str:
        """The call that runs all chunks, on the threads of the pool if there are several."""
        if self.chunks > 1:
            return f"parallel({self.chunks}, {self.name}, b)"
        return f"{self.name}(b, 0)"


def print_program(program: Program, plans: Mapping[AnyKernel, Plan]) -> Source:
    """The translation unit of a program, of which each kernel has a plan."""
    return _ProgramPrinter(program, plans).source()


class _ProgramPrinter:
    """The functions of one program."""

    def __init__(self, program: Program, plans: Mapping[AnyKernel, Plan]) -> None:
        self.program = program
        self.texts: dict[str, str] = {}  # of each function by its name
        self.needed = {NeededText(path) for path in OF_SCALARS}
        self.functions: dict[AnyKernel, Function] = {}
        for kernel, (name, _, nest) in plans.items():
            assert not isinstance(nest, BinKernel)  # graphs for CPUs have none
            if not isinstance(nest, Collective):
                self.functions[kernel] = self._print_kernel(name, nest)
            else:
                self.needed.add(NeededText(EXCHANGES))
        self.row_blocks: dict[str, Function] = {}  # by their text after the name

    def source(self) -> Source:
        """The whole unit."""
        launches = []
        exchanges: list[Exchange] = []
        for number, step in enumerate(self.program.steps):
            first = step[0].kernel
            if isinstance(first, Collective):
                launches.append(self._exchange(number, len(exchanges), step[0], first))
                exchanges.append(first.exchange)
                continue
            function = self._print_row_blocks(step) if len(step) > 1 else self.functions[first]
            places = [self._place(view) for view in _memory_of(step)]
            arguments = ", ".join([str(number), function.call, *places])
            launches.append(f"    LAUNCH({arguments})")
        start = "EXCHANGES\nRUN {" if exchanges else "RUN {"
        entry = "\n".join([start, *launches, "}\n"])
        helpers = _helpers(self.needed, [*self.texts.values(), entry])
        return Source(helpers, self.texts, entry, tuple(exchanges))

    def _exchange(self, number: int, at: int, launch: Launch, collective: Collective) -> str:
        """The step of a collective, the one `at` of the program's. Two programs that differ in what
        they exchange alone have different texts, as the text says what it is."""
        places = ", ".join(map(self._place, launch.arguments))
        return f"    EXCHANGE({number}, {at}, {places}) /* {collective.exchange} */"

    def _print_kernel(self, name: str, nest: Nest | SortKernel) -> Function:
        """Print the function of one kernel."""
        if isinstance(nest, SortKernel):
            self.needed.add(NeededText(SORTS))
            self.texts[name] = _sort_text(name, nest)
            return Function(name, nest.rows)
        self.texts[name], chunks = ByteTilePrinter(nest, name, CLanguage(self.needed)).print()
        return Function(name, chunks)

    def _place(self, view: BufferView) -> str:
        """Where a view begins: ``AT(2, 0)``, byte 0 of buffer 2."""
        buffer, offset = self.program.location(view)
        return f"AT({buffer}, {offset})"

    def _print_row_blocks(self, step: Sequence[Launch]) -> Function:
        """Print the function that runs every kernel of `step` on one block of rows, unless an equal
        one is there. Where blocks add up sums in memory, it runs all blocks of a sum, one after the
        other, so that their order is always the same.

        Arrays of the program's memory are pointers ``b[0]``, ``b[1]``, ...; those of a block are
        ``block`` and an offset in bytes.
        """
        # A chunk of the first kernel is a block of rows; all kernels of the step have as many.
        blocks = self.functions[step[0].kernel].chunks
        accumulates = any(store.monoid for launch in step for store in launch.kernel.stores)
        blocks_of_sum = step[0].kernel.block_axes[-1].arg.size if accumulates else 1
        buffers = {view: f"b[{number}]" for number, view in enumerate(_memory_of(step))}
        calls = []
        for launch in step:
            pointers = [buffers.get(view) or f"block + {view.offset}" for view in launch.arguments]
            arguments = ", ".join([self.functions[launch.kernel].name, *pointers])
            calls.append(f"    ON_BLOCK({arguments})\n")
        rest = f"{self.program.block}, {blocks_of_sum},\n{''.join(calls)})"
        if rest not in self.row_blocks:
            name = f"rows{len(self.texts)}"
            self.texts[name] = f"ROW_BLOCKS({name}, {rest}"
            self.row_blocks[rest] = Function(name, blocks // blocks_of_sum)
        return self.row_blocks[rest]


def _sort_text(name: str, sort: SortKernel) -> str:
    """The call of a macro of `sorts.c` that defines the function of a sort: ``SORT(sort0_1x300,
    f32, 300, 1, 0)``, with ranks ``SELECT(sort0_1x300, f32, 300, 1, 0, 0, 5)``."""
    keys = SHORT[sort.parameters[0].dtype]
    arguments = [name, keys, sort.length, sort.apart, -1 if sort.order.descending else 0]
    macro = "SORT"
    if sort.ranks < sort.length:
        macro = "SELECT"
        arguments += [sort.order.first, sort.order.last]
    return f"{macro}({', '.join(map(str, arguments))})"


def _memory_of(step: Sequence[Launch]) -> list[BufferView]:
    """The views of a step's kernels but for blocks of rows, in the order of first use."""
    views = dict.fromkeys(view for launch in step for view in launch.arguments)
    return [view for view in views if view.kind != "block"]


def _helpers(needed: set[NeededText], users: Sequence[str]) -> str:
    """What the functions `users` use of the helper texts that are `needed`, each once for each
    number of lanes, in their order. Every text of vectors needs `vectors.c` for as many lanes."""
    vectors = {NeededText(VECTORS, text.lanes) for text in needed if text.lanes}
    order = sorted(needed | vectors, key=lambda text: (TEXTS.index(text.path), text.lanes))
    texts = [HelperText(helper_text(text.path), text.lanes) for text in order]
    # These texts paste names, and ask for registers when a program is loaded: they are printed as
    # a whole.
    whole = [helper_text(*text) for text in order if text.path in (DOTS, BYTE_TILES)]
    return used_fragments(texts, users, whole)
