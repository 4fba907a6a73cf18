"""CUDA C++ of a product that has a tile program.

Loops, roles, buffers, barriers and their order are printed from the program. What fills read, the
indices of a step, the value that threads keep and the stores are printed from the nest and
`ProductDecisions`, from which the program was lowered.

A kernel of ``a @ b`` in bfloat16, of 4096 x 4096 x 4096 elements:

    const u32 left = shared_address(shared + 16384);        `print_memory`: what `alloc` says
    const u32 right = shared_address(shared + 81920);
    __shared__ u64 full[4], empty[4];                       `print_barriers`
    ...
    if (THREAD >= 256) {  // producer                       `_print_producer`
        give_registers<24>();
        if (THREAD > 256) return;
        u32 slot = 0, parity = 1;
        for (u32 tile = 127 - BLOCK; tile < 512; tile += 128) {
            for (u32 step = 0; step < 64; step++) {
                while (!phase_has_ended(empty + slot, parity)) {}    acquire empty
                ...                                                  fill left, fill right
                if (++slot == 4) { slot = 0; parity ^= 1; }
            }
        }
        return;
    }
    take_registers<240>();                                  `_print_consumers`
    for (u32 tile = 127 - BLOCK; tile < 512; tile += 128) {
        ...
    }

A step is a function where the epilogue overlaps: it runs beside each slice of results, and in a
loop. `multiplications.py` prints the products of a step, `epilogues.py` what becomes of the sums,
`tile_loops.py` the loops over tiles.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from lamina.ir.kernel import free_axes, points
from lamina.ir.ops import Op
from lamina.schedule.gpu.atoms import FMA_UNROLLED, multiplied_k
from lamina.targets.cuda.epilogues import EpiloguePrinter
from lamina.targets.cuda.multiplications import EIGHTS, Multiplication, transpose_lines
from lamina.targets.cuda.printer import CudaPrinter
from lamina.targets.cuda.tile_loops import join_lines, text_of_loop
from lamina.targets.cuda.tile_programs import WARP, TileProgramPrinter
from lamina.targets.gpu_printer import PrintedKernel
from lamina.tiles.decisions import decide
from lamina.tiles.program import (
    UNITS,
    Advance,
    Alloc,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Join,
    Mma,
    NextStep,
    Pause,
    Release,
    Resume,
    Role,
    Set,
    Statement,
    StepLoop,
    Sync,
    TileError,
    TileLoop,
    TileProgram,
    Transpose,
    Wait,
    statements_of,
)

PAUSE_BARRIER = 1  # the number of the barrier at which a group pauses; 0 is that of `BARRIER`


@dataclass(frozen=True)
class _ProductProgram:
    """The parts of the tile program of one product: the producer, which fills buffers, and its
    steps; the consumers, which multiply, their loop over tiles and their statements; the buffers.
    """

    producer: Role
    producer_steps: StepLoop
    consumers: Role
    tile_loop: TileLoop
    mma: Mma
    epilogue: Epilogue
    left: Alloc
    right: Alloc
    sums: Alloc
    buffers: tuple[str, ...]  # of both factors, in the order of their fills
    agents: frozenset[str]  # of the fills
    waits: bool  # whether consumers wait for barriers, so that roles know phases
    advances: bool  # whether the consumers advance the producer, which runs inside them

    @staticmethod
    def of(program: TileProgram) -> "_ProductProgram":
        """The parts of a program that `lower` has made."""
        producer, consumers = program.roles
        (producer_steps,) = statements_of(producer.body, StepLoop)
        (tile_loop,) = statements_of(consumers.body, TileLoop)
        (mma,) = statements_of(consumers.body, Mma)
        (product,) = mma.products
        (epilogue,) = statements_of(consumers.body, Epilogue)
        fills = statements_of(producer.body, Fill)
        return _ProductProgram(
            producer,
            producer_steps,
            consumers,
            tile_loop,
            mma,
            epilogue,
            left=program.alloc(product.left),
            right=program.alloc(product.right),
            sums=program.alloc(product.sums),
            buffers=tuple(fill.buffer for fill in fills),
            agents=frozenset(fill.agent for fill in fills),
            waits=bool(statements_of(consumers.body, Wait)),
            advances=bool(statements_of(consumers.body, Advance)),
        )

    @property
    def consumer_threads(self) -> int:
        """Of all consumers: 256 of two warpgroups."""
        return WARP * self.consumers.warps

    @property
    def sums_of_thread(self) -> int:
        """128 of 128 rows and 256 columns, which 256 threads have."""
        rows, columns = self.sums.shape
        return rows * columns // self.consumer_threads

    @property
    def is_left_in_registers(self) -> bool:
        """Whether threads read the left factor into registers before they multiply."""
        return self.mma.unit == "wgmma_left_in_registers"

    @property
    def runs_by_itself(self) -> bool:
        """Whether products run while threads do other things."""
        return UNITS[self.mma.unit].runs_by_itself

    @property
    def is_ahead(self) -> bool:
        """Whether a step goes on to the next slot in its midst, and not at its end."""
        return bool(statements_of(self.consumers.body, NextStep))


@dataclass(frozen=True)
class _ProducerVariables:
    """The variables of the producer. is_inside: whether it runs on all threads of the consumers,
    and not on one of its own."""

    tile: str
    step: str
    slot: str
    is_inside: bool


class ProductPrinter(TileProgramPrinter):
    """Prints a kernel of one product.

    product    its program, by its parts
    decisions  what the program was lowered from, besides the nest
    loop_text  the texts of the loop over tiles
    """

    def __init__(self, printer: CudaPrinter, program: TileProgram) -> None:
        super().__init__(printer, program)
        self.product = _ProductProgram.of(program)
        self.decisions = decide(printer.nest, printer.target)
        self.loop_text = text_of_loop(self.product.tile_loop)

    def print(self) -> PrintedKernel:
        """The kernel's function."""
        printer, product = self.printer, self.product
        pointers, _ = printer.arrays()
        self.lines(printer.alignments(pointers))
        self.print_memory()
        self.print_barriers()
        self.lines(self.loop_text.opening)
        if product.producer.inside:
            self._print_inside_producer()
        else:
            self._print_producer()
        self._print_consumers()
        side_by_side = self.decisions.side_by_side(printer.target)
        return self.function(
            pointers,
            product.tile_loop.blocks,
            threads=product.consumer_threads + WARP * product.producer.warps,
            # Without tensor cores a thread holds the factors of a step in registers too, and may
            # have as many as so many blocks leave it.
            min_blocks=side_by_side if product.mma.unit == "fma" else None,
        )

    @cached_property
    def _epilogues(self) -> EpiloguePrinter:
        """What prints results; first used once lines of results lie in memory."""
        lines_of = self.row_lines(self.decisions.row_stores)
        return EpiloguePrinter(self.printer, self.product.epilogue, self.decisions, lines_of)

    # The producer.

    def _print_producer(self) -> None:
        """Print the producer, with warps of its own behind the consumers. It asks the copy engine,
        which one thread does."""
        role, first_thread = self.product.producer, self.product.consumer_threads
        variables = _ProducerVariables("tile", "step", "slot", is_inside=False)
        with self.block(f"if (THREAD >= {first_thread}) {{  // {role.name}"):
            if role.registers:
                self.line(f"give_registers<{role.registers}>();")
            self.line(f"if (THREAD > {first_thread}) return;")
            self.line(f"u32 slot = 0, parity = {_first_parity(role)};")
            with self.block(self.loop_text.head, self.printer.threads.grid):
                self.lines(self.loop_text.start)
                self.lines(self.printer.indices(self.printer.threads.grid, "tile"))
                with self._producer_step(f"NOT_UNROLLED {self._step_head()}", variables):
                    self._print_producer_step(variables)
                    self._print_next_slot_and_phase()
            self.line("return;")

    def _print_inside_producer(self) -> None:
        """Print the producer on the threads of the consumers, a step ahead for each stage, as a
        function that fills the next slot."""
        text = self.loop_text.producer
        variables = _ProducerVariables(text.tile, text.step, "fill_slot", is_inside=True)
        self.line(text.declaration)
        self.line("u32 fill_slot = 0;")
        name = self.product.producer.name
        with self.block(f"const auto {name} = [&]() INLINED {{", self.printer.threads.grid, "};"):
            self.line(f"if (!({text.has_step})) return;")
            self.lines(self.printer.indices(self.printer.threads.grid, text.tile))
            with self._producer_step("{", variables):
                self._print_producer_step(variables)
            self._print_next_slot("fill_slot")
            self.lines(text.advance)

    @contextmanager
    def _producer_step(self, head: str, variables: _ProducerVariables) -> Iterator[None]:
        """A step of the producer, with the indices along all reduced axes."""
        steps, step = self.decisions.steps, variables.step
        with self.block(head, steps.outer):
            self.lines(self.printer.indices(steps.outer, f"{step} / {steps.lines_of_inner}"))
            self.fills.print_step_indices(self.decisions, step, self.product.agents)
            yield

    def _print_producer_step(self, variables: _ProducerVariables) -> None:
        """Print the statements of a step of the producer."""
        for statement in self.product.producer_steps.body:
            if isinstance(statement, Fill):
                self._print_fill(statement, variables)
            else:
                self._print_statement(statement)

    def _print_fill(self, fill: Fill, variables: _ProducerVariables) -> None:
        """Print what fills a tile: where all threads run the producer, the first one asks the copy
        engine."""
        alloc = self.program.alloc(fill.buffer)
        number = self.product.buffers.index(fill.buffer)
        tile, copy = self.printer.nest.tiles[number], self.decisions.copies[number]
        if copy is None:
            threads = self.product.consumer_threads
            self.fills.print_by_threads(alloc, tile, variables.slot, threads)
        elif variables.is_inside:
            with self.block("if (THREAD == 0) {"):
                self.fills.print_copy(fill, alloc, tile, copy, variables.slot)
        else:
            self.fills.print_copy(fill, alloc, tile, copy, variables.slot)

    # The consumers.

    def _print_consumers(self) -> None:
        """Print the consumers, which multiply and store."""
        product, role = self.product, self.product.consumers
        if role.registers:
            self.line(f"take_registers<{role.registers}>();")
        if role.warpgroups > 1:
            self.line("const u32 group = warp_group();")
        threads = self.printer.threads
        self.lines(self.printer.indices(threads.rows, "THREAD"))
        self._print_consumer_variables()
        for lines in self._epilogues.lines_of.values():
            self.lines(lines.function())
        if product.epilogue.kept:
            self._epilogues.print_slices(product.sums_of_thread)
        for statement in role.body:
            if isinstance(statement, TileLoop):
                axes = [*threads.grid, *threads.rows]
                with self.block(self.loop_text.head, axes, unrolled=self.printer.registers):
                    self._print_tile(statement)
            else:
                self._print_statement(statement)
        if product.epilogue.kept:
            self._epilogues.print_last_slices()

    def _print_consumer_variables(self) -> None:
        """Print the sums of a thread, and in which slot its step is."""
        product = self.product
        self.line(f"f32 {product.sums.name}[{product.sums_of_thread}];")
        if product.mma.unit == "fma":
            self.line("const f32 nothing = opaque(-0.0f);")
        parity = f", parity = {_first_parity(product.consumers)}" if product.waits else ""
        if product.runs_by_itself:
            held = "held = 0" if product.advances else "held = 0, oldest = 0"
            self.line(f"u32 slot = 0{parity}, {held};  // held: slots that are not released")
        else:
            self.line(f"u32 slot = 0{parity};")

    def _print_tile(self, loop: TileLoop) -> None:
        """Print what becomes of one tile: its steps, and the statements after these."""
        self.lines(self.loop_text.start)
        self.lines(self.printer.indices(self.printer.threads.grid, "tile"))
        self._epilogues.name_sums()
        for statement in loop.body:
            if isinstance(statement, StepLoop):
                self._print_steps_of_tile(statement)
            else:
                self._print_statement(statement)

    def _print_steps_of_tile(self, steps: StepLoop) -> None:
        if self.product.epilogue.kept:
            self._print_steps_beside_slices(steps)
        else:
            self._print_early_loads()
            self._print_steps(steps)

    def _print_steps_beside_slices(self, steps: StepLoop) -> None:
        """Print the steps of a tile, the first ones beside slices of the results of the tile
        before. Between these and the others, what results need is loaded."""
        self._print_step_function(steps)
        self._epilogues.print_beside_steps()
        self._print_early_loads()
        self.line(f"while (step < {self.loop_text.end}) next_step();")

    def _print_steps(self, steps: StepLoop) -> None:
        """Print a loop over steps. A product whose left factor threads have read into registers
        runs on in the next step, which reads others: that loop has two steps."""
        if not self.product.is_left_in_registers:
            pragma = "" if self.product.runs_by_itself else "NOT_UNROLLED "
            with self.block(f"{pragma}{self._step_head()}"):
                self._print_step(steps)
            return
        self._print_step_function(steps)
        with self.block("while (true) {  // two in turn, in other registers"):
            for _ in range(2):
                self.line("next_step();")
                self.line(f"if (step == {self.loop_text.end}) break;")

    def _print_early_loads(self) -> None:
        """Print, before the steps, the loads of the epilogue that are worth registers meanwhile.

        These are values of 16 bits that do not depend on the row of a thread, such as a bias of the
        columns in bfloat16: a thread has two rows, and reads one value for both. Their latency
        passes while products run. A residual, a value for each result, takes as many registers as
        the sums themselves, and is read in the epilogue.
        """
        printer = self.printer
        row_half = printer.registers[1]  # by the order of `Atom.register_loops`
        shared = free_axes(self.decisions.reduction) - {row_half}
        for node in printer.nest.kernel.nodes:
            if node.op is Op.LOAD and node.dtype.itemsize == 2 and free_axes(node) <= shared:
                printer.value(node, dict.fromkeys(printer.registers, 0))

    def _print_step_function(self, steps: StepLoop) -> None:
        """Print a function of the next step, and the number of that."""
        self.line(f"u32 step = {self.loop_text.first};")
        with self.block("const auto next_step = [&]() INLINED {", tail="};"):
            self._print_step(steps)
            self.line("step++;")

    def _print_step(self, steps: StepLoop) -> None:
        for statement in steps.body:
            self._print_statement(statement)
        if not self.product.is_ahead:
            self._print_next_step_slot()

    def _step_head(self) -> str:
        text = self.loop_text
        return f"for (u32 step = {text.first}; step < {text.end}; step++) {{"

    # Slots. After the last one comes the first.

    def _print_next_step_slot(self) -> None:
        """Print how consumers go on to the slot of the next step."""
        if self.product.waits:
            self._print_next_slot_and_phase()
        else:
            self._print_next_slot("slot")

    def _print_next_slot(self, slot: str) -> None:
        self.line(f"if (++{slot} == {self.product.left.stages}) {slot} = 0;")

    def _print_next_slot_and_phase(self) -> None:
        """Print how a role goes on to the next slot; the first one is then in the other phase."""
        with self.block(f"if (++slot == {self.product.left.stages}) {{"):
            self.line("slot = 0;")
            self.line("parity ^= 1;")

    # Statements.

    def _print_statement(self, statement: Statement) -> None:
        match statement:
            case Set(registers, 0.0):  # wgmma of the first step begins sums anew instead
                if not self.product.runs_by_itself:
                    self.line(f"UNROLLED for (f32 &sum : {registers}) sum = 0;")
            case Mma():
                self._print_mma(statement)
            case Wait(barrier):  # whether it `acquires` is in the parity: `_first_parity`
                self.line(f"while (!phase_has_ended({barrier} + slot, parity)) {{}}")
            case Transpose():
                self._print_transpose(statement)
            case NextStep(body):
                self._print_next_step_slot()
                with self.block(f"if (step + 1 < {self.loop_text.end}) {{"):
                    for each in body:
                        self._print_statement(each)
            case Pause():
                self._print_pause(statement)
            case Resume():
                self._print_resume(statement)
            case Release(to, but):
                self._print_release(to, but)
            case Advance(role, count):
                self.line(f"NOT_UNROLLED for (int i = 0; i < {count}; i++) {role}();")
            case Drain(running):
                self._print_drain(running)
            case Fence():
                self.line("publish();")
            case Sync():
                self.line("BARRIER;")
            case Join():
                self._print_join()
            case Epilogue():
                self._epilogues.print_epilogue()
            case _:
                raise TileError(f"tiles: no text for {type(statement).__name__} here")

    def _print_join(self) -> None:
        """Print how blocks add up the sums of a tile whose steps they share."""
        product, leave = self.product, self.loop_text.leave
        count, threads = product.sums_of_thread, product.consumer_threads
        sum_text = self._epilogues.sum_text
        self.lines(join_lines(product.tile_loop, count, threads, leave, sum_text))

    def _print_mma(self, mma: Mma) -> None:
        """Print the products of a step, which come after those of earlier steps."""
        product = self.product
        multiplication = Multiplication(
            kind=self.printer.atom.kind,
            unit=mma.unit,
            left=product.left,
            right=product.right,
            sums=product.sums.name,
            count=product.sums_of_thread,
            first_step=self.loop_text.first,
            eights=self._eights(),
        )
        self.lines(multiplication.lines())

    def _eights(self) -> str:
        """How many times eight k of a step fused multiply-adds multiply: all of a line, but in the
        last line of a row no more than have one of its elements. 2 of 4 in the second line of 48.
        """
        steps = self.decisions.steps
        last = steps.lines_of_inner - 1
        of_row = multiplied_k(points(steps.inner)) // FMA_UNROLLED
        eights = of_row - last * EIGHTS  # of the last line
        if eights >= EIGHTS or not last:
            return str(min(eights, EIGHTS))
        return f"(step % {steps.lines_of_inner} == {last} ? {eights} : {EIGHTS})"

    def _print_pause(self, pause: Pause) -> None:
        """Print how the second group gives its slots back and waits for the first one."""
        text = self.loop_text
        condition = f"group == 1 && {text.has_left(pause.last)}{text.has_steps(pause.least)}"
        with self.block(f"if ({condition}) {{"):
            for statement in pause.body:
                self._print_statement(statement)
            self.line(f"wait_at<{PAUSE_BARRIER}, {self.product.consumer_threads}>();")

    def _print_resume(self, resume: Resume) -> None:
        """Print how the first group lets the second one go on."""
        text, threads = self.loop_text, self.product.consumer_threads
        condition = f"group == 0 && {text.has_left(1)}{text.has_steps(resume.least)}"
        self.line(f"if ({condition}) arrive_at<{PAUSE_BARRIER}, {threads}>();")

    def _print_transpose(self, transpose: Transpose) -> None:
        """Print how squares of a tile are transposed in its slot."""
        alloc, offset = self.program.alloc(transpose.buffer), self.offset_of[transpose.buffer]
        threads = self.product.consumer_threads
        self.lines(transpose_lines(alloc, transpose.apart, offset, threads))

    def _print_release(self, to: str, but: int) -> None:
        """Print how the oldest slots are given back: each warp tells a barrier, or all threads are
        done with the slot and fill it."""
        if not self.product.runs_by_itself:  # a step has one slot, which no product reads any more
            self.line("BARRIER;")
            self.line(f"{to}();")
            return
        with self.block(f"NOT_UNROLLED for (; held > {but}; held--) {{"):
            if to == self.product.producer.name:
                self.line("BARRIER;")
                self.line(f"{to}();")
            else:
                self.line(f"if (THREAD % {WARP} == 0) arrive({to} + oldest);")
                self._print_next_slot("oldest")

    def _print_drain(self, running: int) -> None:
        """Print the wait for products, after which, if none runs, sums may be read."""
        self.line(f"wgmma_wait<{running}>();")
        if not running:
            self.line(f"UNROLLED for (f32 &sum : {self.product.sums.name}) hold(sum);")


def _first_parity(role: Role) -> int:
    """The last bit of the phase that the first wait of a role asks for: 0, of phase 0; or 1, of the
    phase before that, which counts as ended. All waits of a role ask for the same."""
    kinds = {wait.acquires for wait in statements_of(role.body, Wait)}
    if len(kinds) != 1:
        raise TileError(f"tiles: role {role.name} has no parity that all of its waits ask for")
    (acquires,) = kinds
    return int(acquires)
