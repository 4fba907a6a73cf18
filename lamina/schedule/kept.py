"""Arrays that schedules keep from call to call, and the kernels that fill them once.

`Keep` moves a value of constants out of a kernel: the nest reads an array in its place. Here the
program gets that array, and the program `once` of it a kernel that fills it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lamina.fuse.launch import BufferView, Launch
from lamina.fuse.program import Program
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, Kernel, Parameter, Store, loads_beneath
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Load, Op
from lamina.ir.substitute import rebuilt_in_order
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest

_NOTHING_ONCE = Program((), (), 0, 0)


@dataclass(frozen=True)
class _Fill:
    """What fills an array: a kernel, and where it reads."""

    kernel: Kernel
    read: tuple[BufferView, ...]


@dataclass(frozen=True)
class Scheduled:
    """A program, and a plan for each of its kernels."""

    program: Program
    plans: dict[AnyKernel, Plan]


def with_kept_arrays(program: Program, plans: Mapping[AnyKernel, Plan]) -> Scheduled:
    """`program` with the arrays that its nests keep as parameters of its launches, and with the
    kernels that fill these in its program `once`, which has no plans yet.

    Launches that read one array in the same order, as those of the steps of a recurrent net do,
    share what is kept."""
    number_of: dict[_Fill, int] = {}  # of each array that is kept
    new_plans: dict[AnyKernel, Plan] = {}

    def kept_by(launch: Launch) -> Launch:
        plan = plans[launch.kernel]
        nest = plan.nest
        if not isinstance(nest, Nest) or not nest.kept:
            new_plans[launch.kernel] = plan
            return launch
        views = list(launch.arguments)
        for fill in nest.kept:
            made = _fill_of(nest, fill, views)
            number = number_of.setdefault(made, program.kept + len(number_of))
            array = nest.kernel.parameters[fill.parameter]
            views.append(BufferView("kept", number, array.dtype, array.size, constant=True))
        assert isinstance(launch.kernel, Kernel)
        parameters = nest.kernel.parameters[: len(views)]  # those after them are scratch memory
        kernel = replace(launch.kernel, parameters=parameters)
        new_plans[kernel] = plan
        return replace(launch, kernel=kernel, arguments=tuple(views))

    steps = tuple(tuple(kept_by(launch) for launch in step) for step in program.steps)
    if not number_of:
        return Scheduled(program, dict(plans))
    once = _with_fills(program.once or _NOTHING_ONCE, list(number_of))
    return Scheduled(replace(program, steps=steps, once=once), new_plans)


def _fill_of(nest: Nest, fill: Store, views: list[BufferView]) -> _Fill:
    """The kernel of `fill`: rows along all axes, which are no axes of reductions there. Where no
    loop of the nest runs, its loads read nothing, and it stores what it makes of zeros."""
    loads = loads_beneath([fill.value])
    sources = list(dict.fromkeys(load.arg.parameter for load in loads))
    axes = tuple(ix.axis(number, axis.arg.size) for number, axis in enumerate(fill.axes))
    known: dict[Node, Node] = dict(zip(fill.axes, axes, strict=True))

    done = rebuilt_in_order(toposort([fill.index, fill.condition]), known, ix.rebuild)
    renumbered = _renumbered_loads(sources, runs=done[fill.condition])
    done = rebuilt_in_order(toposort([fill.value]), done, renumbered)
    array = nest.kernel.parameters[fill.parameter]
    # The program that runs once keeps nothing itself.
    parameters = [replace(nest.kernel.parameters[number], constant=False) for number in sources]
    store = Store(len(sources), done[fill.index], done[fill.value], axes)
    written = Parameter(array.dtype, array.size, written=True)
    kernel = Kernel((*parameters, written), (store,), rows=len(axes))
    return _Fill(kernel, tuple(views[number] for number in sources))


def _renumbered_loads(sources: list[int], runs: Node) -> Callable[[Node, tuple[Node, ...]], Node]:
    """Builds a node anew over new operands. A LOAD of the parameter ``sources[n]`` becomes one of
    the parameter n, where the condition `runs` holds as well."""

    def rebuilt(node: Node, src: tuple[Node, ...]) -> Node:
        if node.op is not Op.LOAD:
            return ix.rebuild(node, src)
        index, *conditions = src
        condition = ix.both(*conditions, runs)
        guarded = (index,) if condition is ix.TRUE else (index, condition)
        return Node(Op.LOAD, guarded, Load(sources.index(node.arg.parameter), node.dtype))

    return rebuilt


def _with_fills(once: Program, fills: list[_Fill]) -> Program:
    """`once`, then the kernels of `fills`, each of which fills one more output."""
    steps = list(once.steps)
    outputs = list(once.outputs)
    for fill in fills:
        array = fill.kernel.parameters[-1]
        output = BufferView("output", len(outputs), array.dtype, array.size)
        outputs.append(output)
        read = [replace(view, kind="output") if view.kind == "kept" else view for view in fill.read]
        steps.append((Launch(fill.kernel, (*read, output)),))
    return replace(once, steps=tuple(steps), outputs=tuple(outputs))
