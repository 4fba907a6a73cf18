"""CUDA C++ of products back to back, such as attention, that have a tile program.

Loops, roles, buffers, barriers and their order are printed from the program. What fills read, and
the arithmetic between products and after them, is printed from the nest (`attention_elements.py`).
The body of a `Compute` says this arithmetic as well, for the interpreter: of it only `Drain` and
`Arrive` are printed. Both come from one nest, and have to be changed together.

Attention of 2 heads of 4096 queries and keys with 64 elements, without a mask, in bfloat16:

    const u32 tile0 = shared_address(shared + 16384);       `print_memory`
    ...
    __shared__ u64 drawn[4], full_rows[2], empty_rows[2];   `print_barriers`
    ...
    if (THREAD >= 256) {  // producer                       `_print_role_of_producer`
        ...
        for (u32 taken = 0, done = 0;; taken++) {           `_print_row_tile`
            ...
        }
        return;
    }
    take_registers<240>();                                  `_print_role_of_consumers`
    ...

Where one role does all, its threads draw a ticket, fill tiles and multiply one after the other,
with a BARRIER between (`barriers_of_attention.py`).

Slots and phases are numbers: of tiles of rows that a block has `taken`, and of all steps so far,
``done + step``. Number 9 of a buffer of 4 slots is in slot 1, for the third time: its phase is 2,
of which hardware knows the last bit. The constant divisors are powers of two as a rule.
"""

from dataclasses import dataclass, field, replace
from math import inf

from lamina.core.dtypes import float32
from lamina.schedule.gpu.atoms import CHUNK_BYTES, LINE_BYTES
from lamina.targets.cuda.attention_elements import ElementPrinter
from lamina.targets.cuda.attention_masks import MaskPrinter
from lamina.targets.cuda.multiplications import lies_across, lines_in_registers, tile_bytes
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.cuda.tickets import draw_lines, tile_lines
from lamina.targets.cuda.tile_programs import WARP, TileProgramPrinter
from lamina.targets.gpu_printer import PrintedKernel
from lamina.tiles.attention import BackToBackParts
from lamina.tiles.program import (
    UNITS,
    WARPGROUP_ROWS,
    Alloc,
    Arrive,
    Compute,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Mma,
    Previous,
    Product,
    Rescale,
    Role,
    Set,
    Statement,
    StepLoop,
    StepMask,
    StepsOf,
    Sync,
    TileAxis,
    TileError,
    TileLoop,
    TileProgram,
    Wait,
    statements_of,
)

SUBSTEP = 16  # elements of 16 bits that one instruction multiplies
STARTS = {0.0: "0", 1.0: "1", -inf: "-inff()"}  # what registers of float32 begin with
# The ends of loops over steps: `attention_masks.py` has the names.
ENDS = {
    StepsOf.BROUGHT: ("first", "stop"),
    StepsOf.COMPUTED: ("from", "to"),
    StepsOf.FIRST: ("from", "from + 1"),
    StepsOf.OTHERS: ("from + 1", "to"),
    StepsOf.LAST: ("to - 1", "to"),
    StepsOf.SKIPPED_BEFORE: ("first", "from"),
    StepsOf.SKIPPED_BEHIND: ("to", "stop"),
}


@dataclass(frozen=True)
class _Position:
    """Where statements are.

    number   the text of the number by which slots and phases go
    step     that of the step; "" outside of steps
    running  the sums of products that have begun, oldest first
    """

    number: str
    step: str = ""
    running: list[tuple[str, ...]] = field(default_factory=list)


class AttentionPrinter(TileProgramPrinter):
    """Prints a kernel of products back to back.

    parts     of its nest
    threads   of a block
    masks     prints what masks leave out
    elements  prints the arithmetic between products, and after them
    """

    def __init__(self, printer: CudaPrinter, program: TileProgram) -> None:
        super().__init__(printer, program)
        self.parts = BackToBackParts(printer.nest)
        self.threads = WARP * sum(role.warps for role in program.roles)
        self.masks = MaskPrinter(printer, self.parts)
        self.elements = ElementPrinter(printer, self.parts)

    def print(self) -> PrintedKernel:
        """The kernel's function."""
        pointers, _ = self.printer.arrays()
        *producers, consumers = self.program.roles
        self.lines(self.printer.alignments(pointers))
        self.print_memory()
        self.print_barriers()
        self.line(f"__shared__ u32 drawn_tickets[{self._ticket_slots}];")
        for producer in producers:
            self._print_role_of_producer(producer, WARP * consumers.warps)
        self._print_role_of_consumers(consumers)
        return self.function(
            pointers, self._row_loop.blocks, self.threads, min_blocks=1
        )

    @property
    def _row_loop(self) -> TileLoop:
        """The loop over tiles of rows, which all roles have."""
        *_, consumers = self.program.roles
        (loop,) = statements_of(consumers.body, TileLoop)
        return loop

    @property
    def _drawn(self) -> str:
        """The barrier that tells that a ticket is drawn; "" where one role does all."""
        assert self._row_loop.tickets is not None
        return self._row_loop.tickets.barrier

    @property
    def _ticket_slots(self) -> int:
        return self.program.barrier(self._drawn).stages if self._drawn else 1

    # Roles.

    def _print_role_of_producer(self, role: Role, first_thread: int) -> None:
        """Print the producer, whose first thread draws tickets and asks the copy engine."""
        (loop,) = statements_of(role.body, TileLoop)
        with self.block(f"if (THREAD >= {first_thread}) {{  // {role.name}"):
            self.line(f"give_registers<{role.registers}>();")
            self.line(f"if (THREAD > {first_thread}) return;")
            with self.block("for (u32 taken = 0, done = 0;; taken++) {", self.printer.threads.grid):
                slot = self._slot(self._drawn, "taken")
                self.lines(draw_lines(loop, f"taken % {self._ticket_slots}"))
                self.line(f"arrive({slot});")
                self._print_row_tile(loop)
            self.line("return;")

    def _print_role_of_consumers(self, role: Role) -> None:
        """Print the consumers, which multiply, compute and store."""
        (loop,) = statements_of(role.body, TileLoop)
        if role.registers:
            self.line(f"take_registers<{role.registers}>();")
        self.line("const int group = warp_group();")
        self.lines(self.printer.indices(self.printer.threads.rows, "THREAD"))
        lane = self.printer.axis_name(self.parts.reductions.keys.lane)
        self.line(f"const {self.printer.language.index_type} {lane} = THREAD % 4;")
        lines_of = self.row_lines(self.parts.row_stores)
        for lines in lines_of.values():
            self.lines(lines.function())
        axes = [*self.printer.threads.grid, *self.printer.threads.rows]
        registers = list(vars(self.parts.registers).values())
        with self.block("for (u32 taken = 0, done = 0;; taken++) {", axes, unrolled=registers):
            self._print_ticket(loop)
            self._print_row_tile(loop)

    def _print_ticket(self, loop: TileLoop) -> None:
        """Print how consumers learn the ticket: from the producer; where there is none, the first
        thread draws it, which the others have read before it comes here again."""
        if self._drawn:
            self._print_wait(Wait(self._drawn), _Position("taken"))
            slot = self._slot("drawn_tickets", "taken", self._drawn)
            self.line(f"const u32 ticket = __shfl_sync(~0u, *({slot}), 0);")
            return
        with self.block("if (THREAD == 0) {"):
            self.lines(draw_lines(loop, "0"))
        self.line("BARRIER;")
        self.line("const u32 ticket = drawn_tickets[0];")

    def _print_row_tile(self, loop: TileLoop) -> None:
        """Print what becomes of a tile of rows, once its ticket is known."""
        self.lines(tile_lines(loop))
        self.lines(self.printer.indices(self.printer.threads.grid, "tile"))
        # A group has the steps of its block where these are filled, and others where it leaves out
        # some of them.
        which = {steps.which for steps in statements_of(loop.body, StepLoop)}
        self.masks.print_bounds(of_group=which != {StepsOf.BROUGHT})
        if statements_of(loop.body, Mma):
            self._print_registers_of_tile()
            self.elements.print_elements(self.masks.tests())
        # Step `i` of this tile is number ``before + i`` of all that have passed by.
        self.line("const u32 before = done - first;")
        self.line("done += stop - first;")
        self._print_statements(loop.body, _Position("taken"))

    def _print_registers_of_tile(self) -> None:
        """Print the registers of a thread, which has two rows, and a quarter of each."""
        for alloc in self.program.allocs:
            if alloc.memory != "registers":
                continue
            count, word = self._count(alloc), "f32"
            if alloc.dtype.itemsize == 2:
                count, word = count // 2, "u32"
            self.line(f"{word} {alloc.name}[{count}];")

    @staticmethod
    def _count(alloc: Alloc) -> int:
        """Elements of a thread: 32 of a row of 64, 2 of a row of 1."""
        return max(alloc.shape[1] // 2, 2)

    # Statements.

    def _print_statements(self, body: tuple[Statement, ...], position: _Position) -> None:
        for statement in body:
            self._print_statement(statement, position)

    def _print_statement(self, statement: Statement, position: _Position) -> None:
        match statement:
            case StepMask():  # `print_bounds` prints it
                pass
            case StepLoop():
                self._print_step_loop(statement)
            case Fill():
                self._print_fill_of(statement, position)
            case Wait():
                self._print_wait(statement, position)
            case Arrive():
                self._print_arrival(statement, position)
            case Mma(unit=unit) if UNITS[unit].runs_by_itself:
                self._print_mmas(statement, position)
                position.running.append(statement.sums)
            case Mma():
                for product in statement.products:
                    self._print_product_in_registers(product, statement.adds, position)
            case Fence():
                self.line("publish();")
            case Sync() if not self._drawn:  # no thread has another role
                self.line("BARRIER;")
            case Drain(running):
                self._print_drain(running, position)
            case Previous(body):
                number, step = f"({position.number} - 1)", f"({position.step} - 1)"
                self._print_statements(body, replace(position, number=number, step=step))
            case Compute():
                self._print_compute(statement, position)
            case Rescale(sums):
                with self.block("if (__any_sync(~0u, factor[0] != 1 || factor[1] != 1)) {"):
                    self.elements.print_rescale(sums)
            case Set():
                self._print_set(statement)
            case Epilogue():
                self.elements.print_finish()
                lines_of = self.row_lines(self.parts.row_stores)
                self.printer.begin_row_stores(lines_of, *self.parts.result_sides)
                self.printer.print_stores(self.printer.nest.kernel.stores)
            case _:
                raise TileError(f"tiles: no text for {type(statement).__name__} here")

    def _print_step_loop(self, loop: StepLoop) -> None:
        keys = self.parts.reductions.keys
        step = self.printer.axis_name(keys.tile)
        begin, end = ENDS[loop.which]
        is_one_step = loop.which in (StepsOf.FIRST, StepsOf.LAST)
        bounds = f"u32 number = before + {begin}; number < before + {end}; number++"
        head = f"NOT_UNROLLED for ({bounds}) {{"
        if is_one_step:
            head = "{"
        with self.block(head, (keys.tile,)):
            if is_one_step:
                self.line(f"const u32 number = before + {begin};")
            self.line(f"const {self.printer.language.index_type} {step} = number - before;")
            self._print_statements(loop.body, _Position("number", step))

    def _slot(self, name: str, number: str, barrier: str = "") -> str:
        """The text of a slot of a barrier, or of what has as many as one: ``full_tile1 + number %
        4``."""
        stages = self.program.barrier(barrier or name).stages
        return f"{name} + {number} % {stages}" if stages > 1 else name

    def _print_wait(self, wait: Wait, position: _Position) -> None:
        stages = self.program.barrier(wait.barrier).stages
        parity = f"{position.number} / {stages} & 1"
        if wait.acquires:  # which for the first use counts as ended
            parity += " ^ 1"
        slot = self._slot(wait.barrier, position.number)
        self.line(f"while (!phase_has_ended({slot}, {parity})) {{}}")

    def _print_arrival(self, arrive: Arrive, position: _Position) -> None:
        if not position.step:
            self.line("WARP_BARRIER;  // after which all lanes have read the ticket")
        slot = self._slot(arrive.barrier, position.number)
        self.line(f"if (THREAD % {WARP} == 0) arrive({slot});")

    def _print_fill_of(self, fill: Fill, position: _Position) -> None:
        tile, copy = self.parts.tile_in(fill.buffer)
        alloc, keys = self.program.alloc(fill.buffer), self.parts.reductions.keys
        corner = self.printer.corner(keys.column_group, keys.lane, keys.neighbour)
        slot = f"({position.number} % {alloc.stages})" if alloc.stages > 1 else "0"
        with self.block("{"):
            if fill.agent == "threads":
                self.fills.print_first([tile.element_axis], "0")
                self.fills.print_by_threads(alloc, tile.fill, slot, self.threads, corner)
            else:
                assert copy is not None
                self.printer.walk([tile.element_axis], "0")
                self.fills.print_copy(fill, alloc, tile.fill, copy, slot, corner)

    def _print_mmas(self, mma: Mma, position: _Position) -> None:
        """Print products of 16 elements of each line at a time, and mark their end."""
        self.line("wgmma_fence();")
        for product in mma.products:
            self._print_product_of(product, mma.adds, position)
        self.line("wgmma_commit();")

    def _print_product_of(self, product: Product, adds: bool, position: _Position) -> None:
        left, right = self.program.alloc(product.left), self.program.alloc(product.right)
        k = _common_axis(left, right)
        with self.block("{"):
            columns = _descriptor(right, self._tile_text(right, position))
            self.line(f"const u32 columns = {columns};")
            if left.memory == "shared":
                rows = _descriptor(left, self._rows_text(left, k))
                self.line(f"const u32 rows = {rows};")
            for number in range(k.size // SUBSTEP):
                self.line(self._wgmma(product, k, number, adds=adds or number > 0))

    def _wgmma(self, product: Product, k: TileAxis, number: int, *, adds: bool) -> str:
        """The line that multiplies the 16 elements of this number along `k`, and adds the products
        to the sums, or replaces these by them."""
        left, right = self.program.alloc(product.left), self.program.alloc(product.right)
        kind, is_right_across = self.printer.atom.kind, lies_across(right, k.name)
        columns = f"descriptor_of(columns + {_substep_chunks(right, k, number)})"
        if left.memory == "registers":
            function = f"wgmma_of_registers_{kind}<{is_right_across:d}>"
            return f"{function}({product.sums}, {product.left} + {4 * number}, {columns});"
        function = f"wgmma_{kind}<{lies_across(left, k.name):d}, {is_right_across:d}>"
        rows = f"descriptor_of(rows + {_substep_chunks(left, k, number)})"
        text_of_adds = "true" if adds else "false"
        return f"{function}({product.sums}, {rows}, {columns}, {text_of_adds});"

    def _print_product_in_registers(
        self, product: Product, adds: bool, position: _Position
    ) -> None:
        """Print a product for which threads wait, of what warps load into registers."""
        left, right = self.program.alloc(product.left), self.program.alloc(product.right)
        k, sums = _common_axis(left, right), self.program.alloc(product.sums)
        if not adds:
            self.line(f"UNROLLED for (f32 &x : {sums.name}) x = 0;")
        with self.block("{"):
            self.line(f"const u32 columns = {self._tile_text(right, position)};")
            if left.memory == "shared":
                self.line(f"const u32 rows = {self._rows_text(left, k)};")
            kind, count = self.printer.atom.kind, self._count(sums)
            self.lines(lines_in_registers(kind, left, right, k.name, sums.name, count))

    @staticmethod
    def _tile_text(alloc: Alloc, position: _Position) -> str:
        """The text of where the current slot of a buffer is."""
        if alloc.stages == 1:
            return alloc.name
        return f"{alloc.name} + {tile_bytes(alloc)} * ({position.number} % {alloc.stages})"

    def _rows_text(self, alloc: Alloc, k: TileAxis) -> str:
        """The text of where the group's rows of a tile that stays are: from one group's rows to the
        next one's there are 64 lines, or a panel."""
        lines = alloc.shape[0] if lies_across(alloc, k.name) else WARPGROUP_ROWS
        return f"{self._tile_text(alloc, _Position('taken'))} + {lines * LINE_BYTES} * group"

    def _print_drain(self, running: int, position: _Position) -> None:
        """Print the wait for all products but the last `running`; the sums of the others may be
        read then."""
        self.line(f"wgmma_wait<{running}>();")
        while len(position.running) > running:
            for name in position.running.pop(0):
                self._print_hold(name)

    def _print_hold(self, name: str) -> None:
        self.line(f"UNROLLED for (f32 &x : {name}) hold(x);")

    def _print_compute(self, compute: Compute, position: _Position) -> None:
        """Print a call of the function that computes, with what it waits for. `print_elements`
        has printed the function from the nest, so that arithmetic in the body is not read here;
        `print_finish` has what is computed after the last step."""
        if not position.step:
            return
        with self.block(f"elements({position.step}, [&]() INLINED {{", tail="});"):
            for statement in compute.body:
                if isinstance(statement, (Drain, Arrive)):
                    self._print_statement(statement, position)
        if position.running:  # keeps arithmetic before the wait for these
            for part in statements_of(compute.body, Set):
                if part.registers.startswith("parts"):
                    self._print_hold(part.registers)

    def _print_set(self, statement: Set) -> None:
        """Print how registers get a number, or values in pairs of 16 bits."""
        alloc, value = self.program.alloc(statement.registers), statement.value
        if isinstance(value, str):
            count = self._count(alloc) // 2
            pair = f"{value}[2 * i], {value}[2 * i + 1]"
            packed = f"{alloc.name}[i] = pack_{self.printer.atom.kind}({pair})"
            self.line(f"UNROLLED for (int i = 0; i < {count}; i++) {packed};")
            return
        if value not in STARTS or alloc.dtype is not float32:
            raise TileError(f"tiles: no text for {statement}")
        self.line(f"UNROLLED for (f32 &x : {alloc.name}) x = {STARTS[value]};")


def _common_axis(left: Alloc, right: Alloc) -> TileAxis:
    """The axis that both factors of a product have: its k."""
    (k,) = (axis for axis in left.axes if axis.name in {other.name for other in right.axes})
    return k


def _descriptor(alloc: Alloc, tile: str) -> str:
    """The text of the lower word of a tile's descriptor: its place in chunks of 16 bytes, and from
    bit 16 on the chunks from panel to panel. Compilers add a constant to this sum in one
    instruction, as they could not to words that are combined by OR."""
    panel = alloc.shape[0] * LINE_BYTES // CHUNK_BYTES
    return f"({tile}) / {CHUNK_BYTES} + ({panel} << 16)"


def _substep_chunks(alloc: Alloc, k: TileAxis, number: int) -> int:
    """Chunks of 16 bytes from the beginning of a tile to where the 16 elements along `k` of this
    number begin: in lines, or across 16 lines."""
    if lies_across(alloc, k.name):
        return number * SUBSTEP * LINE_BYTES // CHUNK_BYTES
    of_line = LINE_BYTES // (2 * SUBSTEP)  # 4 in a panel
    panel, within = divmod(number, of_line)
    return (panel * alloc.shape[0] * LINE_BYTES + within * 2 * SUBSTEP) // CHUNK_BYTES
