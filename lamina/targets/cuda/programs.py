"""CUDA C++ of a product, printed from its tile program, statement by statement.

A kernel of ``a @ b`` in bfloat16, of 4096 x 4096 x 4096 elements:

    const u32 left = shared_address(shared + 16384);        `_print_memory`: what `alloc` says
    const u32 right = shared_address(shared + 81920);
    __shared__ u64 full[4], empty[4];                       `_print_barriers`
    ...
    if (THREAD >= 256) {  // producer                       `_print_filler`: the role that fills
        give_registers<24>();
        if (THREAD > 256) return;
        u32 slot = 0, parity = 1;
        for (u32 tile = 127 - BLOCK; tile < 512; tile += 128) {
            for (u32 step = 0; step < 64; step++) {
                while (!phase_has_ended(empty + slot, parity)) {}    wait before empty
                ...                                                  fill left, fill right
                if (++slot == 4) { slot = 0; parity ^= 1; }
            }
        }
        return;
    }
    take_registers<240>();                                  `_print_user`: the role that multiplies
    for (u32 tile = 127 - BLOCK; tile < 512; tile += 128) {
        ...
    }

A step is a function where the epilogue overlaps: it runs beside each slice of results, and in a
loop. `epilogues.py` prints what becomes of the sums, `walks.py` the loops over tiles.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from lamina.core.target import Target
from lamina.loops.nest import Nest
from lamina.runtime.buffer import Launch
from lamina.schedule.gpu.atoms import CHUNK_BYTES, LINE_BYTES
from lamina.targets.cuda.epilogues import EpiloguePrinter
from lamina.targets.cuda.tile_fills import tile_bytes
from lamina.targets.cuda.walks import join_lines, walk_of
from lamina.tiles.decisions import decide
from lamina.tiles.program import (
    GROUP_ROWS,
    Advance,
    Alloc,
    Drain,
    Epilogue,
    Fence,
    Fill,
    Join,
    Mma,
    Pause,
    Release,
    Resume,
    Role,
    Statement,
    StepLoop,
    Sync,
    TileLoop,
    Wait,
    statements,
)

Kind = TypeVar("Kind", bound=Statement)

WARP = 32
SUBSTEPS = 4  # products of a step: a line of 128 bytes is four times 32
GROUP_BYTES = GROUP_ROWS * LINE_BYTES  # of a tile, from one group's rows to the next one's
PAUSES = 1  # the number of the barrier at which a group pauses; 0 is that of `BARRIER`


@dataclass(frozen=True)
class _Names:
    """The variables of a role: where it is, which slot is its next one, and the tile's steps."""

    tile: str = "tile"
    step: str = "step"
    slot: str = "slot"


class ProgramPrinter(EpiloguePrinter):
    """One kernel; if it has a tile program, it is printed from that."""

    def __init__(self, nest: Nest, name: str, target: Target) -> None:
        super().__init__(nest, name, target)
        self.names_of_role = _Names()

    def print_kernel(self) -> tuple[str, Launch]:
        """The kernel's function, and how to launch it but for its arguments."""
        if self.program is None:
            return super().print_kernel()
        pointers, _ = self.arrays()
        self.decisions = decide(self.nest, self.target)
        filler, user = self.program.roles
        self.tile_loop = _tile_loop(user)
        self.walk = walk_of(self.tile_loop)
        self.threads = self.block_rows = WARP * user.warps
        for line in self.alignments(pointers):
            self.line(line)
        self._print_memory()
        self._print_barriers()
        for line in self.walk.opening:
            self.line(line)
        if filler.inside:
            self._print_inside_filler(filler)
        else:
            self._print_filler(filler)
        self._print_user(user)
        self.threads += WARP * filler.warps
        body = "".join(f"    {line}\n" for line in self.scopes[0].lines)
        maps = tuple(self.maps.values())
        launch = Launch(
            self.function, self.tile_loop.blocks, self.threads, (), self.shared_bytes, maps
        )
        return f"{self.head(pointers)} {{\n{body}}}", launch

    # Declarations.

    def _print_memory(self) -> None:
        """Print where tiles and lines of results lie: lines first, as swizzles begin at whole KiB
        and all tiles are such."""
        assert self.program is not None
        self.line("extern __shared__ __align__(1024) u8 shared[];")
        (mma,) = self._statements_of(Mma)
        factors = (mma.left, mma.right)
        shared = [alloc for alloc in self.program.allocs if alloc.memory == "shared"]
        for alloc in sorted(shared, key=lambda alloc: alloc.name in factors):
            self.offset_of[alloc.name] = self.shared_bytes
            self.shared_bytes += alloc.stages * tile_bytes(alloc)
        for name in factors:
            self.line(f"const u32 {name} = shared_address(shared + {self.offset_of[name]});")

    def _print_barriers(self) -> None:
        """Print the barriers, which the first thread starts; no kernel before may run any more
        when arrays are read."""
        assert self.program is not None
        self.line("FOLLOW;")
        barriers = self.program.barriers
        if not barriers:
            return
        names = ", ".join(f"{barrier.name}[{barrier.stages}]" for barrier in barriers)
        self.line(f"__shared__ u64 {names};")
        with self._function("if (THREAD == 0) {", (), "}"):
            for barrier in barriers:
                self.line(f"UNROLLED for (int slot = 0; slot < {barrier.stages}; slot++)")
                self.line(f"    start_barrier({barrier.name} + slot, {barrier.arrivals});")
            self.line("publish_barriers();")
        self.line("BARRIER;")

    def _statements_of(self, kind: type[Kind]) -> list[Kind]:
        """All statements of a kind."""
        assert self.program is not None
        return [
            one for role in self.program.roles for one in statements(role.body)
            if isinstance(one, kind)
        ]  # fmt: skip

    def _lines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.line(line)

    # Roles.

    def _print_filler(self, role: Role) -> None:
        """Print the role that fills, with warps of its own behind those that multiply. It asks the
        copy engine, which one thread does."""
        with self._function(f"if (THREAD >= {self.threads}) {{  // {role.name}", (), "}"):
            if role.registers:
                self.line(f"give_registers<{role.registers}>();")
            self.line(f"if (THREAD > {self.threads}) return;")
            self.line("u32 slot = 0, parity = 1;")
            with self._function(self.walk.head, self.grid, "}"):
                self._lines(self.walk.start)
                self._lines(list(self.indices(self.grid, "tile")))
                steps = _steps_of(role)
                with self._steps_opened(f"NOT_UNROLLED {self._step_head()}"):
                    for statement in steps.body:
                        self._print_statement(statement)
                    self._print_next_slot("slot", "parity ^= 1;")
            self.line("return;")

    def _print_inside_filler(self, role: Role) -> None:
        """Print the role that fills on the threads of the other one, a step ahead for each stage,
        as a function that fills the next slot."""
        place = self.walk.place
        self.names_of_role = _Names(place.tile, place.step, "fill_slot")
        self.line(place.declaration)
        self.line("u32 fill_slot = 0;")
        steps = _steps_of(role)
        with self._function(f"const auto {role.name} = [&]() INLINED {{", self.grid, "};"):
            self.line(f"if (!({place.has_step})) return;")
            self._lines(list(self.indices(self.grid, place.tile)))
            with self._steps_opened("{"):
                for statement in steps.body:
                    self._print_statement(statement)
            self._print_next_slot("fill_slot")
            self._lines(place.advance)
        self.names_of_role = _Names()

    def _print_user(self, role: Role) -> None:
        """Print the role that multiplies and stores."""
        if role.registers:
            self.line(f"take_registers<{role.registers}>();")
        if role.groups > 1:
            self.line("const u32 group = warp_group();")
        self._lines(list(self.indices(self.rows_inside, "THREAD")))
        (sums,) = (alloc for alloc in self._allocs() if alloc.memory == "registers")
        count = sums.shape[0] * sums.shape[1] // self.threads
        self.line(f"f32 {sums.name}[{count}];")
        oldest = "" if self._statements_of(Advance) else ", oldest = 0"
        parity = ", parity = 0" if self._statements_of(Wait) else ""
        self.line(f"u32 slot = 0{parity}, held = 0{oldest};  // held: slots that are not released")
        self.print_row_functions(self.row_lines(self.decisions.row_stores))
        (epilogue,) = self._statements_of(Epilogue)
        if epilogue.kept:
            self.print_slices(epilogue, self.decisions, count)
        for statement in role.body:
            if isinstance(statement, TileLoop):
                axes = [*self.grid, *self.rows_inside]
                with self._function(self.walk.head, axes, "}", self.registers):
                    self._print_tile(statement, epilogue)
            else:
                self._print_statement(statement)
        if epilogue.kept:
            self.print_last_slices(epilogue)

    def _allocs(self) -> tuple[Alloc, ...]:
        assert self.program is not None
        return self.program.allocs

    def _print_tile(self, loop: TileLoop, epilogue: Epilogue) -> None:
        """Print what becomes of one tile: its steps, and the statements after these."""
        self._lines(self.walk.start)
        self._lines(list(self.indices(self.grid, "tile")))
        self.keep_sums(self.decisions.reduction)
        steps, *after = loop.body
        assert isinstance(steps, StepLoop)
        self._print_steps(steps, epilogue)
        for statement in after:
            self._print_statement(statement)

    def _print_steps(self, steps: StepLoop, epilogue: Epilogue) -> None:
        """Print the steps of a tile: the first ones beside slices of the tile before, if the
        epilogue overlaps with them. Between these and the others, what results need is loaded."""
        if not epilogue.kept:
            self.print_early_loads(self.decisions.reduction)
            with self._steps_in_turn():
                for statement in steps.body:
                    self._print_statement(statement)
            return
        self.line("u32 step = 0;")
        with self._function("const auto next_step = [&]() INLINED {", (), "};"):
            for statement in steps.body:
                self._print_statement(statement)
            self._print_next_slot("slot", "parity ^= 1;")
            self.line("step++;")
        self.print_beside_steps(epilogue)
        self.print_early_loads(self.decisions.reduction)
        self.line(f"while (step < {self.walk.end}) next_step();")

    def _step_head(self) -> str:
        return f"for (u32 step = {self.walk.first}; step < {self.walk.end}; step++) {{"

    @contextmanager
    def _steps_in_turn(self) -> Iterator[None]:
        """A loop over steps, whose body the ``with`` prints. A product whose left factor threads
        have read into registers runs on in the next step, which reads others: the body is printed
        twice."""
        flips = "parity ^= 1;" if self._statements_of(Wait) else ""
        (mma,) = self._statements_of(Mma)
        if mma.unit != "wgmma_left_in_registers":
            with self._function(self._step_head(), (), "}"):
                yield
                self._print_next_slot("slot", flips)
            return
        self.line(f"u32 step = {self.walk.first};")
        with self._function("const auto next_step = [&]() INLINED {", (), "};"):
            yield
            self._print_next_slot("slot", flips)
            self.line("step++;")
        with self._function("while (true) {  // two in turn, in other registers", (), "}"):
            for _ in range(2):
                self.line("next_step();")
                self.line(f"if (step == {self.walk.end}) break;")

    def _print_next_slot(self, slot: str, flip: str = "") -> None:
        """Go on to the next slot. After the last one comes the first, in the other phase."""
        stages = self._stages
        if not flip:
            self.line(f"if (++{slot} == {stages}) {slot} = 0;")
            return
        with self._function(f"if (++{slot} == {stages}) {{", (), "}"):
            self.line(f"{slot} = 0;")
            self.line(flip)

    @property
    def _stages(self) -> int:
        (mma,) = self._statements_of(Mma)
        assert self.program is not None
        return self.program.alloc(mma.left).stages

    @contextmanager
    def _steps_opened(self, head: str) -> Iterator[None]:
        """A block for a step of a role that fills, with the indices along all reduced axes."""
        steps = self.decisions.steps
        step = self.names_of_role.step
        with self._function(head, steps.outer, "}"):
            self._lines(list(self.indices(steps.outer, f"{step} / {steps.lines_of_inner}")))
            agents = {fill.agent for fill in self._statements_of(Fill)}
            self.print_step_indices(self.decisions, step, agents)
            yield

    # Statements.

    def _print_statement(self, statement: Statement) -> None:
        match statement:
            case Fill():
                self._print_fill(statement)
            case Mma():
                self._print_mma(statement)
            case Wait(barrier):
                self.line(f"while (!phase_has_ended({barrier} + slot, parity)) {{}}")
            case Pause():
                self._print_pause(statement)
            case Resume(least):
                condition = f"group == 0 && {self._is_step(1)}{self._at_least(least)}"
                self.line(f"if ({condition}) arrive_at<{PAUSES}, {self.threads}>();")
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
                (sums,) = (alloc for alloc in self._allocs() if alloc.memory == "registers")
                count = sums.shape[0] * sums.shape[1] // self.threads
                self._lines(join_lines(self.tile_loop, count, self.threads, self.walk.leave))
            case Epilogue():
                self.print_epilogue(statement, self.decisions)

    def _print_fill(self, fill: Fill) -> None:
        """Print what fills a tile: where the role runs inside another one, of all its threads the
        first one asks the copy engine."""
        assert self.program is not None
        alloc = self.program.alloc(fill.buffer)
        number = [one.buffer for one in self._statements_of(Fill)].index(fill.buffer)
        tile, copy = self.nest.tiles[number], self.decisions.copies[number]
        slot = self.names_of_role.slot
        if copy is None:
            self.print_fill_by_threads(alloc, tile, slot)
        elif slot == "slot":
            self.print_copy(fill, alloc, tile, copy, slot)
        else:
            with self._function("if (THREAD == 0) {", (), "}"):
                self.print_copy(fill, alloc, tile, copy, slot)

    def _print_mma(self, mma: Mma) -> None:
        """Print the products of a step, of 32 bytes of each line at a time, which come after those
        of earlier steps."""
        left, right = (alloc for alloc in self._allocs() if alloc.name in (mma.left, mma.right))
        is_left_in_registers = mma.unit == "wgmma_left_in_registers"
        rows = f"{left.name} + {tile_bytes(left)} * slot"
        if tile_bytes(left) > GROUP_BYTES:
            rows += f" + {GROUP_BYTES} * group"
        columns = f"({right.name} + {tile_bytes(right)} * slot) / {CHUNK_BYTES}"
        kind = self.atom.kind
        transposed = [alloc.axes[0].name == "step" for alloc in (left, right)]
        types = "" if kind == "tf32" else f"<{transposed[0]:d}, {transposed[1]:d}>"
        # In chunks from 32 bytes of lines to the next; in a transposed tile 16 lines.
        left_stride, right_stride = (128 if one else 2 for one in transposed)
        if is_left_in_registers:
            self.line(f"const u32 rows = {rows}, columns = {columns};")
            self.line(f"u32 factors[{SUBSTEPS}][4];")
            for number in range(SUBSTEPS):
                self.line(f"load_transposed(factors[{number}], rows, {number});")
        else:
            self.line(f"const u32 rows = ({rows}) / {CHUNK_BYTES}, columns = {columns};")
        self.line("wgmma_fence();")
        for number in range(SUBSTEPS):
            first = f"descriptor(rows + {number * left_stride})"
            if is_left_in_registers:
                first = f"factors[{number}]"
            second = f"descriptor(columns + {number * right_stride})"
            more = "true" if number else f"step > {self.walk.first}"
            self.line(f"wgmma_{kind}{types}({mma.sums}, {first}, {second}, {more});")
        self.line("wgmma_commit();")
        self.line("held++;")

    def _print_pause(self, pause: Pause) -> None:
        """Print how the second group gives its slots back and waits for the first one."""
        condition = f"group == 1 && {self._is_step(pause.last)}{self._at_least(pause.least)}"
        with self._function(f"if ({condition}) {{", (), "}"):
            for statement in pause.body:
                self._print_statement(statement)
            self.line(f"wait_at<{PAUSES}, {self.threads}>();")

    def _is_step(self, left: int) -> str:
        """The condition that so many steps of a tile are left, with this one."""
        end = self.walk.end
        return f"step == {int(end) - left}" if end.isdigit() else f"step + {left} == {end}"

    def _at_least(self, least: int) -> str:
        """The condition that a block has so many steps of a tile, unless it has all of them."""
        first, end = self.walk.first, self.walk.end
        return "" if end.isdigit() else f" && {end} - {first} >= {least}"

    def _print_release(self, to: str, but: int) -> None:
        """Print how the oldest slots are given back: each warp tells a barrier, or all threads are
        done with the slot and fill it."""
        with self._function(f"NOT_UNROLLED for (; held > {but}; held--) {{", (), "}"):
            assert self.program is not None
            if to in {role.name for role in self.program.roles}:
                self.line("BARRIER;")
                self.line(f"{to}();")
            else:
                self.line(f"if (THREAD % {WARP} == 0) arrive({to} + oldest);")
                self._print_next_slot("oldest")

    def _print_drain(self, running: int) -> None:
        """Print the wait for products, after which, if none runs, sums may be read."""
        self.line(f"wgmma_wait<{running}>();")
        if not running:
            (mma,) = self._statements_of(Mma)
            self.line(f"UNROLLED for (f32 &sum : {mma.sums}) hold(sum);")


def _tile_loop(role: Role) -> TileLoop:
    (loop,) = (one for one in role.body if isinstance(one, TileLoop))
    return loop


def _steps_of(role: Role) -> StepLoop:
    (steps,) = (one for one in statements(role.body) if isinstance(one, StepLoop))
    return steps
