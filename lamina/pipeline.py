"""The compiler's table of contents: from a graph to results in device buffers.

`PASSES` and `LOAD` are the whole compiler, in order. Each pass takes what the one before it
returned, in one of these dialects:

    graph     what is wanted, as array nodes           lamina.ir
    kernels   a program of scalar kernels              lamina.fuse
    nests     the same with a plan for each            lamina.schedule
    tiles     the same with programs on tiles          lamina.tiles
    source    the same with its translation unit       lamina.targets
    code      the same, loaded on a device             lamina.runtime

Some passes consist of subpasses that run interleaved, for each node or kernel. These are named here
too, each with the function that does it. ``lamina passes`` prints this table, ``lamina explain``
what each pass makes of a program, as ``LAMINA_DEBUG=3`` does; ``LAMINA_CHECK=1`` verifies after
each.
"""

import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lamina import stored
from lamina.backends import backend, by_hand, by_heuristic
from lamina.calibrate import rates_of
from lamina.compiled import Planned, share, stored_of, with_code
from lamina.core.collector import without_collections
from lamina.core.options import Options
from lamina.core.recent import cached
from lamina.errors import LaminaError, message_of
from lamina.explain.origins import lines_of_kernels
from lamina.explain.report import pass_lines, print_run
from lamina.fuse.channels_last import channels_last
from lamina.fuse.gather_layout import gathered_in_order
from lamina.fuse.layout import lay_out
from lamina.fuse.program import Program, build_program
from lamina.fuse.scatter_layout import scatters_as_read
from lamina.fuse.verify_memory import verify_memory
from lamina.graph.algebra import ALGEBRA
from lamina.graph.few_places import sums_over_places
from lamina.graph.flip_bytes import flip_bytes, flip_bytes_beside_tiles
from lamina.graph.movement import MOVEMENT
from lamina.graph.open_calls import open_without_detach
from lamina.graph.rewrite import rewrite
from lamina.graph.sent_rows import sums_as_rows
from lamina.graph.split_reductions import reduce_in_parts
from lamina.ir.invariants import located
from lamina.ir.kernel import AnyKernel, Kernel, kernel_name
from lamina.ir.node import Node
from lamina.ir.substitute import substitute
from lamina.ir.text import kernel_text
from lamina.ir.text import to_text as to_graph_text
from lamina.ir.verify import verify as verify_graph
from lamina.ir.verify_kernel import verify_kernel
from lamina.loops.moves import Plan, Schedule, apply
from lamina.loops.nest import Nest
from lamina.loops.text import parse
from lamina.loops.verify import verify_nest
from lamina.runtime.devices import target_of
from lamina.runtime.profile import passes
from lamina.schedule.cost import ProgramCost, program_cost
from lamina.schedule.kept import with_kept_arrays
from lamina.schedule.recipes import with_recipes
from lamina.targets.conditions import without_remainders
from lamina.targets.horizontal import LaunchSplitter
from lamina.targets.legalize import legalize
from lamina.targets.short_integers import without_conversions
from lamina.tiles.stage import (
    text_of_tiles,
    tile_programs,
    verify_tile_programs,
    with_pipelining,
)
from lamina.tuning import searched_schedule


@dataclass(frozen=True)
class Subpass:
    """A part of a pass that has no result of its own.

    name: of the subpass. does: one line. where: the function that does it, or the rules that do, as
    ``module:name``; `tests/test_pipeline.py` sees it called. devices: "CPUs", "GPUs" or "CUDA";
    "" where programs of all devices have it."""

    name: str
    does: str
    where: str
    devices: str = ""

    @property
    def line(self) -> str:
        """What it does, and on which devices."""
        return f"{self.does}, on {self.devices}" if self.devices else self.does


@dataclass(frozen=True)
class Pass:
    """One pass of the compiler.

    name: of the pass. does: one line, what it takes and gives. writes: the dialect that it writes,
    which the next pass reads. function: from what the pass before it returned, and the options.
    subpasses: what it consists of, in the order in which they begin; of rules of one rewrite, by
    device and by what they are about."""

    name: str
    does: str
    writes: str
    function: Callable[[Any, Options], Any]
    subpasses: tuple[Subpass, ...] = ()


@dataclass(frozen=True)
class PassRecord:
    """One run of a pass: what it took, what it returned, and how many seconds it ran."""

    pass_: Pass
    seconds: float
    before: Any
    after: Any
    options: Options


def _verified(sinks: Sequence[Node], options: Options) -> list[Node]:
    verify_graph(sinks)  # a node may have been made by hand
    return list(sinks)


def _simplify(sinks: list[Node], options: Options) -> list[Node]:
    return rewrite(sinks, (*ALGEBRA, *MOVEMENT))


def _suit_device(sinks: list[Node], options: Options) -> list[Node]:
    # First `sums_as_rows`, which looks for scatters: rules of devices replace some of these.
    sent = rewrite(sinks, (sums_as_rows,))
    # The first that fits applies.
    rules = (sums_over_places, *backend(options).graph_rules(options), reduce_in_parts)
    # In most graphs no rule fits any node. Then the nodes are the same objects as before, and need
    # not be simplified again.
    if rewrite(sent, rules) == sinks:
        return sinks
    # A rule may make nodes that can be simplified, such as reshapes of parts of one element.
    return rewrite(sent, (*ALGEBRA, *MOVEMENT, *rules))


def _lay_out(sinks: list[Node], options: Options) -> list[Node]:
    target = backend(options).fusion_target(options)
    if target.flips_bytes:
        rule = flip_bytes_beside_tiles if target.has_byte_tiles else flip_bytes
        sinks = rewrite(sinks, (rule,))
    if target.tiled_products:
        return lay_out(gathered_in_order(sinks), target.row_pitch)
    return channels_last(scatters_as_read(sinks)) if target.lanes_are_neighbours else sinks


def _fuse(sinks: list[Node], options: Options) -> Program:
    return build_program(sinks, backend(options).fusion_target(options))


def _schedule(program: Program, options: Options) -> Planned:
    # Schedules that the user wrote, by the names of kernels; "" is for all others.
    by_user = parse(options.schedule) if options.schedule else {}
    kernels = dict.fromkeys(launch.kernel for launch in program.launches)  # equal ones once
    plans: dict[AnyKernel, Plan] = {}
    for number, kernel in enumerate(kernels):
        name = kernel_name(kernel, number)
        if isinstance(kernel, Kernel):
            moves = by_user.get(name, by_user.get(""))
            plans[kernel] = _plan_of(kernel, name, moves, options)
        else:  # a sort or a collective has no loops to schedule
            plans[kernel] = Plan(name, (), kernel)
    scheduled = with_kept_arrays(program, plans)
    once = scheduled.program.once
    if once is None:
        return Planned(scheduled.program, scheduled.plans)
    once = with_recipes(once)
    planned_once = _schedule(once, replace(options, schedule=""))
    assert planned_once.once is None  # `run_once` gives it no kept arrays
    return Planned(replace(scheduled.program, once=once), scheduled.plans, once=planned_once)


def _plan_of(kernel: Kernel, name: str, by_user: Schedule | None, options: Options) -> Plan:
    """The plan of one kernel: by the user's moves, by search, or by the heuristic."""
    device, target = backend(options), target_of(options)
    if by_user is not None:
        return Plan(name, *by_hand(kernel, name, by_user, target))
    if options.search and not kernel.blocks:
        moves = searched_schedule(kernel, options, device, _from_kernels_to_source)
        nest = apply(kernel, moves)
    else:
        moves, nest = by_heuristic(device, kernel, options, target)
    return Plan(name, *with_pipelining(moves, nest, target))


def _of_both(function: Callable[[Planned, Options], Planned]) -> Callable[..., Planned]:
    """Makes of a pass over one program a pass over a program and its `Planned.once`."""

    @functools.wraps(function)
    def both(planned: Planned, options: Options) -> Planned:
        after = function(planned, options)
        once = planned.once
        return after if once is None else replace(after, once=both(once, options))

    return both


def _from_kernels_to_source(program: Program, options: Options) -> Planned:
    """From a program of kernels to the source that the search compiles and measures."""
    planned = _legalize(_schedule(program, options), options)
    return _print(_lower_to_tiles(planned, options), options)


@_of_both
def _legalize(planned: Planned, options: Options) -> Planned:
    """Runs after scheduling: heuristics ask how kernels access memory, which casts do not change,
    and are quicker without these casts."""
    is_gpu = target_of(options).warp > 1

    def for_target(nest: Nest) -> Nest:
        legal = legalize(nest)
        return without_conversions(without_remainders(legal)) if is_gpu else legal

    plans = {
        kernel: plan._replace(nest=for_target(plan.nest)) if isinstance(plan.nest, Nest) else plan
        for kernel, plan in planned.plans.items()
    }
    return replace(planned, plans=plans)


@_of_both
def _lower_to_tiles(planned: Planned, options: Options) -> Planned:
    target = target_of(options)
    tiles = tile_programs(planned.plans, target)
    program = planned.program
    if target.warp > 1:
        program = LaunchSplitter(planned.plans, tiles, target).split(program)
    return replace(planned, program=program, tiles=tiles)


@_of_both
def _print(planned: Planned, options: Options) -> Planned:
    source, launches = backend(options).print(
        planned.program, planned.plans, planned.tiles, options
    )
    return replace(planned, source=source, launches=launches)


PASSES = (
    Pass("graph", "takes what the frontend made by these subpasses; refuses a broken graph",
         "graph", _verified, (
        Subpass("cut", "replaces what was computed before by the memory that holds it",
                "lamina.frontend.realize:cut"),
        Subpass("open_calls", "replaces each CALL by the graph that was built once for many calls",
                "lamina.graph.open_calls:open_call"),
        Subpass("split_complex", "replaces complex numbers by pairs of real ones",
                "lamina.graph.split_complex:split_complex"),
        Subpass("lift_numbers", "replaces numbers that differ from run to run by inputs",
                "lamina.graph.lift_numbers:numbers_of"),
    )),
    Pass("simplify", "takes the graph; gives an equal one of fewer operations",
         "graph", _simplify, (
        Subpass("algebra", "folds constants; applies the equations of elementwise operations",
                "lamina.graph.algebra:ALGEBRA"),
        Subpass("movement", "joins movement with movement; drops what moves nothing",
                "lamina.graph.movement:MOVEMENT"),
    )),
    Pass("suit_device", "takes reductions, scans, scatters, sorts; gives what suits a device",
         "graph", _suit_device, (
        # Every device.
        Subpass("sums_as_rows", "sends the rows of a scatter, in place of a sum over ranks",
                "lamina.graph.sent_rows:sums_as_rows"),
        Subpass("sums_over_places", "adds up places in the stead of more elements of windows",
                "lamina.graph.few_places:sums_over_places"),
        Subpass("reduce_in_parts", "takes long reductions of few results in parts",
                "lamina.graph.split_reductions:reduce_in_parts"),
        Subpass("scan_in_parts", "takes long scans in parts",
                "lamina.graph.split_scans:scan_in_parts"),
        # CPUs: sums in parts, for all cores, for a cache, and to round less.
        Subpass("cached_products_in_parts", "takes products in parts whose factors a cache holds",
                "lamina.graph.split_products:cached_products_in_parts", "CPUs"),
        Subpass("gradients_in_parts", "takes gradients of convolutions in parts that a cache holds",
                "lamina.graph.split_reductions:gradients_in_parts", "CPUs"),
        Subpass("long_columns_in_parts", "takes long columns in parts, which round less",
                "lamina.graph.split_reductions:long_columns_in_parts", "CPUs"),
        Subpass("uneven_in_parts", "takes what has no equal parts in parts and a rest",
                "lamina.graph.split_reductions:uneven_in_parts", "CPUs"),
        # CPUs: factors of products in rows along which vectors go.
        Subpass("short_rows", "stores a factor or a result in rows as long as vectors",
                "lamina.graph.short_rows:short_rows", "CPUs"),
        Subpass("steps_in_rows", "transposes a factor whose steps lie apart in memory",
                "lamina.graph.steps_in_rows:steps_in_rows", "CPUs"),
        Subpass("windows_in_rows", "stores windows that are few beside weights as rows",
                "lamina.graph.windows_in_rows:windows_in_rows", "CPUs"),
        # CPUs: scatters, scans and sorts.
        Subpass("joined_scatters", "takes sums with scatters into zeros as scatters",
                "lamina.graph.joined_scatters:joined_scatters", "CPUs"),
        Subpass("log_sums_as_recurrences", "takes running sums of exponentials as scans",
                "lamina.graph.log_sums:log_sums_as_recurrences", "CPUs"),
        Subpass("shortest_orders", "replaces the sort of many rows of a few keys by counting",
                "lamina.graph.short_orders:shortest_orders", "CPUs"),
        Subpass("sorts_of_rows", "transposes keys that are sorted far apart",
                "lamina.graph.sort_axes:sorts_of_rows", "CPUs"),
        # GPUs: sums in parts, for all multiprocessors, and to round less.
        Subpass("untiled_products_in_parts", "takes products without tiles in parts",
                "lamina.schedule.gpu.parts:untiled_products_in_parts", "GPUs"),
        Subpass("short_lines_last", "reduces short lines in memory after the axes before them",
                "lamina.graph.split_reductions:short_lines_last", "GPUs"),
        Subpass("columns_in_parts", "takes long columns in parts, for more blocks",
                "lamina.graph.split_reductions:columns_in_parts", "GPUs"),
        Subpass("long_products_in_parts", "takes long float32 products in parts, which round less",
                "lamina.graph.split_reductions:long_products_in_parts", "GPUs"),
        # GPUs: sorts.
        Subpass("whole_sorts", "replaces any sort by one of whole rows that ascend",
                "lamina.graph.sort_axes:whole_sorts", "GPUs"),
        # CUDA: products as its tiles can take them.
        Subpass("bytes_as_floats", "replaces bytes by floats that tensor cores multiply exactly",
                "lamina.graph.exact_bytes:bytes_as_floats", "CUDA"),
        Subpass("folded_products", "adds up products of windows that overlap in one sum",
                "lamina.graph.folded_products:folded_products", "CUDA"),
        Subpass("gathered_windows", "stores windows of images with few channels, for tensor cores",
                "lamina.schedule.gpu.gathered_windows:gathered_windows", "CUDA"),
        Subpass("products_apart", "takes a sum of several products as a sum of each",
                "lamina.graph.split_products:products_apart", "CUDA"),
        Subpass("tiled_products_in_parts", "takes products in as many parts as cost tiles nothing",
                "lamina.schedule.gpu.parts:tiled_products_in_parts", "CUDA"),
        # CUDA: scatters, sorts and collectives.
        Subpass("scatters", "replaces sums at indices by reductions, or by sums of integers",
                "lamina.schedule.gpu.scatters:scatters", "CUDA"),
        Subpass("short_orders", "replaces the sort of many short rows by counting",
                "lamina.graph.short_orders:short_orders", "CUDA"),
        Subpass("as_nccl_combines", "replaces collectives on types that NCCL lacks",
                "lamina.graph.nccl_types:as_nccl_combines", "CUDA"),
    )),
    Pass("layout", "takes factors, scatters; gives them in an order that kernels read best",
         "graph", _lay_out, (
        Subpass("flip_bytes", "makes the bytes of one factor signed, of the other not",
                "lamina.graph.flip_bytes:flip_bytes", "CPUs"),
        Subpass("flip_bytes_beside_tiles", "the same, but for sums by tiles of bytes",
                "lamina.graph.flip_bytes:flip_bytes_beside_tiles", "CPUs"),
        Subpass("gathered_in_order", "copies inputs that gathers would read far apart",
                "lamina.fuse.gather_layout:gathered_in_order", "CUDA"),
        Subpass("lay_out", "stores factors with the axis last along which tiles read them",
                "lamina.fuse.layout:lay_out", "CUDA"),
        Subpass("scatters_as_read", "makes scatters into zeros in the order they are read",
                "lamina.fuse.scatter_layout:scatters_as_read", "CPUs"),
        Subpass("channels_last", "stores images that windows are taken of with the channels last",
                "lamina.fuse.channels_last:channels_last", "CPUs"),
    )),
    Pass("fuse", "takes the graph; gives kernels, their order and their memory",
         "kernels", _fuse, (
        Subpass("constants", "takes what depends on constants alone into a program that runs once",
                "lamina.fuse.constants:constants_apart"),
        Subpass("early", "puts collectives that could run at any time before their first use",
                "lamina.fuse.early:in_order_of_use"),
        Subpass("values", "chooses the nodes that get memory",
                "lamina.fuse.values:choose_values"),
        Subpass("groups", "joins values into kernels",
                "lamina.fuse.groups:group_values"),
        Subpass("row_blocks", "joins kernels into steps that run block of rows by block of rows",
                "lamina.fuse.row_blocks:steps_of"),
        Subpass("overlap", "moves collectives up, so that kernels run beside them",
                "lamina.fuse.overlap:overlapped"),
        Subpass("order", "moves kernels up that free memory",
                "lamina.fuse.order:in_least_memory"),
        Subpass("lower", "makes scalars over loop axes of a kernel's arrays",
                "lamina.fuse.lower:Lowering._value"),
        Subpass("narrow", "shortens loops to the elements that a store changes",
                "lamina.fuse.narrow:narrowed"),
        Subpass("in_place", "lets an assignment overwrite an array, after whoever reads that",
                "lamina.fuse.in_place:Overwriting.allow"),
        Subpass("horizontal", "puts short kernels that are independent in one step, for GPUs",
                "lamina.fuse.horizontal:fused_horizontally"),
        Subpass("memory_plan", "places arrays that do not live at one time in the same memory",
                "lamina.fuse.memory_plan:plan_memory"),
        Subpass("on_touched_lines", "cuts arrays to the cache lines that a kernel touches",
                "lamina.fuse.launch:on_touched_lines"),
    )),
    Pass("schedule", "takes kernels; gives a loop nest each, by the heuristic's or other moves",
         "nests", _schedule, (
        Subpass("by_hand", "takes the moves of the option `schedule`, and verifies what they give",
                "lamina.backends:by_hand"),
        Subpass("search", "measures schedules as the option `search` asks, and takes the fastest",
                "lamina.tuning:searched_schedule"),
        Subpass("heuristic", "chooses moves by the facts of the device",
                "lamina.backends:by_heuristic"),
        Subpass("apply", "applies the moves to the loops of the kernel",
                "lamina.loops.moves:apply"),
        Subpass("pipelining", "decides order, depth, roles and overlap of tiles, if moves do not",
                "lamina.tiles.stage:with_pipelining"),
        Subpass("kept", "fills the arrays of constants that nests keep once, before the first call",
                "lamina.schedule.kept:with_kept_arrays"),
        Subpass("recipes", "notes how these arrays are computed, for programs that keep equal ones",
                "lamina.schedule.recipes:with_recipes"),
    )),
    Pass("legalize", "takes arithmetic on floats of 16 and 8 bits; gives float32 and casts",
         "nests", _legalize, (
        Subpass("conditions", "says what holds for a run of neighbours once for all, for GPUs",
                "lamina.targets.conditions:without_remainders"),
        Subpass("short_integers", "makes floats of short integers from their bits, for GPUs",
                "lamina.targets.short_integers:without_conversions"),
    )),
    Pass("tiles", "takes products in tiles; gives what their blocks do, with barriers",
         "tiles", _lower_to_tiles, (
        Subpass("side_by_side", "splits steps of kernels that one launch cannot run side by side",
                "lamina.targets.horizontal:LaunchSplitter.split"),
    )),
    Pass("print", "takes nests; gives source text and launches",
         "source", _print, (
        Subpass("loops", "writes the loops of a nest, and each value where its operands are known",
                "lamina.targets.values:ValuePrinter.value"),
        Subpass("reductions", "writes the loops of reductions, and joins partial results",
                "lamina.targets.reductions:NestPrinter.print_reduction"),
        Subpass("texts", "puts the functions that the kernels use in front",
                "lamina.targets.texts:helper_text"),
    )),
)  # fmt: skip
GRAPH_PASSES = tuple(pass_.function for pass_ in PASSES if pass_.writes == "graph")
LOAD = Pass("load", "takes source; gives compiled code, from the disk cache if it is there",
            "code", with_code)  # fmt: skip


@without_collections()
def compile_source(
    sinks: Sequence[Node], options: Options,
    observe: Callable[[Pass, Any], object] = lambda pass_, value: None,
) -> Planned:  # fmt: skip
    """Run every pass. Returns a program that is printed, and not yet loaded.

    sinks: the nodes whose values are wanted. The storage of a BUFFER is the number of an input of
        the program
    observe: is called with each pass and what that returned

    Raises VerifyError for a graph that breaks an invariant, as nodes made by hand may."""
    value: Any = tuple(sinks)
    for pass_ in PASSES:
        value = _run_pass(pass_, value, options)
        observe(pass_, value)
        if pass_.name == "schedule":
            lines = lines_of_kernels(value.program, sinks, GRAPH_PASSES, options)
            value = replace(value, lines=lines)
    assert isinstance(value, Planned)
    return value


def _run_pass(pass_: Pass, before: Any, options: Options) -> Any:
    """What a pass makes of `before`. The result is verified and printed if options ask for that,
    and recorded for those who listen to `passes`."""
    started = time.perf_counter()
    after = pass_.function(before, options)
    seconds = time.perf_counter() - started
    if options.check:
        verify(pass_.writes, after)
    record = PassRecord(pass_, seconds, before, after, options)
    passes.publish(record)
    if options.debug >= 3:
        for line in pass_lines(record, text_of, with_source=options.debug >= 4):
            print(line, file=sys.stderr)
    return after


def cost_of(planned: Planned, options: Options) -> ProgramCost:
    """What a program is predicted to take on the device of `options`, computed once. The first
    call on a CPU measures for about four seconds. Raises as `rates_of` does."""
    if options not in planned.costs:
        rates, target = rates_of(options), target_of(options)
        planned.costs[options] = program_cost(planned.program, planned.plans, target, rates)
    return planned.costs[options]


@cached(64)
def _can_predict(options: Options) -> bool:
    """Whether the rates of the device of `options` are known; where they are not, a line on
    standard error says why, once."""
    try:
        rates_of(options)
    except (LaminaError, OSError) as error:  # OSError: a measuring library that does not load
        print(f"no times are predicted: {message_of(error)}", file=sys.stderr)
        return False
    return True


def text_of(dialect: str, value: Any) -> str:
    """A text, for readers, of `value`, which a pass returned that writes this dialect."""
    text = _TEXTS[dialect](value)
    once = None if dialect == "graph" else value.once
    return text if once is None else f"once:\n{text_of(dialect, once)}\nin every call:\n{text}"


def _text_of_kernels(program: Program) -> str:
    return "\n".join(kernel_text(launch.kernel) for launch in program.launches)


def _text_of_nests(planned: Planned) -> str:
    return "\n".join(
        f"[{plan.name}]\n{plan}\n{kernel_text(getattr(plan.nest, 'kernel', kernel))}"
        for kernel, plan in planned.plans.items()
    )


def _text_of_tiles(planned: Planned) -> str:
    """The tile programs; the nests, where no kernel has any."""
    has_tiles = bool(planned.tiles)
    return text_of_tiles(planned.plans, planned.tiles) if has_tiles else _text_of_nests(planned)


def _text_of_source(planned: Planned) -> str:
    return planned.listing


_TEXTS: dict[str, Callable[[Any], str]] = {
    "graph": to_graph_text,
    "kernels": _text_of_kernels,
    "nests": _text_of_nests,
    "tiles": _text_of_tiles,
    "source": _text_of_source,
    "code": _text_of_source,
}


def verify(dialect: str, value: Any) -> None:
    """Check the invariants of the dialect in which a pass wrote `value`. Raises VerifyError."""
    if dialect != "graph" and value.once is not None:
        verify(dialect, value.once)
    if dialect in _VERIFIERS:
        _VERIFIERS[dialect](value)


def _verify_kernels(program: Program) -> None:
    for launch in program.launches:
        verify_kernel(launch.kernel)
    verify_memory(program)


def _verify_nests(planned: Planned) -> None:
    for plan in planned.plans.values():
        if isinstance(plan.nest, Nest):
            # A split axis may cover more points than it runs, so indices are not checked again.
            verify_kernel(plan.nest.kernel, exact=False)
            with located(f"verify: {plan.name}"):
                verify_nest(plan.nest)


def _verify_tiles(planned: Planned) -> None:
    verify_tile_programs(planned.tiles)


# Source and code have no verifier: tests compare the results that they compute.
_VERIFIERS: dict[str, Callable[[Any], None]] = {
    "graph": verify_graph,
    "kernels": _verify_kernels,
    "nests": _verify_nests,
    "tiles": _verify_tiles,
}


def compile_stored(sinks: tuple[Node, ...], options: Options, key: str | None) -> Planned:
    """Run every pass, load the program, and store it where it has a name on disk, `key`."""
    planned = loaded(replace(compile_source(sinks, options), key=key), options)
    if key is not None and planned.source is not None:
        stored.store(key, stored_of(planned), options)
    return share(planned)


def loaded(planned: Planned, options: Options) -> Planned:
    """A printed program with its code, which runs on a table of buffers."""
    with_its_code: Planned = _run_pass(LOAD, planned, options)
    return with_its_code


@cached(1024)
def with_steps(graph: tuple[Node, ...], options: Options) -> Planned:
    """A program with its kernels and plans, for reports and checks. Of a program that was read from
    disk, which has none, `graph` is `Planned.graph`: it is compiled again."""
    opened = substitute(graph, {}, open_without_detach)
    return loaded(compile_source(opened, options), options)


def report(planned: Planned, seconds: list[float], options: Options) -> None:
    """Print the time of each step of a run, and the predicted one, for ``LAMINA_DEBUG=1``. seconds:
    of each step of the program."""
    cost = cost_of(planned, options) if _can_predict(options) else None
    print_run(planned, seconds, cost, options)
