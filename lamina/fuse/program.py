"""From grouped values to a program: kernels in order, the buffers they use, a memory plan."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lamina.core.dtypes import int64
from lamina.core.shape import prod
from lamina.fuse.constants import Kept, constants_apart
from lamina.fuse.early import early_collectives
from lamina.fuse.groups import group_values, readers_of
from lamina.fuse.horizontal import fused_horizontally
from lamina.fuse.in_place import Overwriting, can_replace
from lamina.fuse.kernel_group import KernelGroup
from lamina.fuse.kernels import expected_kernel, kernel_of, parameters_of
from lamina.fuse.launch import ALIGNMENT, on_touched_lines
from lamina.fuse.launch import BufferView as BufferView
from lamina.fuse.launch import Launch as Launch
from lamina.fuse.launch import Program as Program
from lamina.fuse.members import array_of
from lamina.fuse.memory_plan import Lifetime, MemoryPlan, plan_memory
from lamina.fuse.narrow import narrowed, narrowing_of
from lamina.fuse.order import Steps, in_least_memory
from lamina.fuse.overlap import overlapped, ready_before_others
from lamina.fuse.row_blocks import Step, steps_of
from lamina.fuse.target import FusionTarget
from lamina.ir.kernel import BinKernel, Collective, SortKernel, points
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op


def build_program(sinks: Sequence[Node], target: FusionTarget) -> Program:
    """Fuse, order and plan. An ASSIGN writes into the input buffer that it names, any other sink
    into a fresh output. A BUFFER has the number of a program input as its storage.

    What depends on constants alone is a program of its own, `Program.once`."""
    apart = constants_apart(sinks)
    program = _built(apart.every_call, target)
    return replace(program, once=_built(apart.once, target)) if apart.once else program


def _built(sinks: Sequence[Node], target: FusionTarget) -> Program:
    """The program of a graph, all of which every call computes."""
    results = [_result_of(sink) for sink in sinks]
    groups = _kernels_of([result.value for result in results], target)
    return _Builder(results, groups, target).build()


def _kernels_of(values: Sequence[Node], target: FusionTarget) -> list[KernelGroup]:
    """The kernels that compute `values`.

    They may compute sums of products again inside their own sums (`values._recomputed`). Whether a
    kernel gains by that is known only when it is complete. If one does not, kernels are formed
    anew, with its sums in memory. Each time there are more of these, so this ends.
    """
    in_order = values
    if target.overlaps_collectives and _has_collectives(values):
        in_order = values[::-1]  # gradients of the last parameters are the first to be ready
        in_order = [*ready_before_others(in_order), *in_order]
    never_recomputed = frozenset[Node]()
    while True:
        groups = group_values(in_order, target, never_recomputed)
        without_gain = _recomputed_without_gain(groups, values, target)
        if not without_gain:
            return groups
        never_recomputed |= without_gain


def _recomputed_without_gain(
    groups: Sequence[KernelGroup], results: Iterable[Node], target: FusionTarget
) -> frozenset[Node]:
    """The sums of products that kernels among `groups` compute again, and gain nothing by it."""
    gains = target.gains_by_recomputing
    if gains is None:
        return frozenset()
    used = readers_of(groups).keys() | set(results)
    without_gain = frozenset[Node]()
    for group in groups:
        stored = [node for node in group.members if node in used]
        is_launched = any(points(group.stores[node].axes) for node in stored)
        if group.recomputed and is_launched and not gains(expected_kernel(group, stored)):
            without_gain |= group.recomputed
    return without_gain


@dataclass(frozen=True)
class _Result:
    """A sink: `value` is to be in a fresh output, or in the buffer `assigned`."""

    value: Node
    assigned: Node | None


def _result_of(sink: Node) -> _Result:
    """The value of a sink, and the buffer that it is to be in if the sink is an ASSIGN. The value
    of a program that returns its argument is a copy of that."""
    assigned: Node | None = None
    value = sink
    if sink.op is Op.ASSIGN:
        assigned, value = sink.src
    if value.op is Op.BUFFER:
        value = Node(Op.CONTIGUOUS, (value,))  # a kernel copies it
    return _Result(value, assigned)


@dataclass(frozen=True)
class _Copy:
    """`value`, once its kernel has stored it elsewhere, is to be copied to `view`."""

    value: Node
    view: BufferView


class _Builder:
    """Collects views and launches. An array in memory has one view, its home. A block value, of
    which only blocks of rows exist, has a view in each step that computes it: several steps may."""

    def __init__(
        self, results: Sequence[_Result], groups: Sequence[KernelGroup], target: FusionTarget
    ) -> None:
        self.target = target
        self.results = results
        self.group_steps = steps_of(groups, [result.value for result in results], target)
        self.step_of = {group: step for step in self.group_steps for group in step.groups}
        self.readers = readers_of(self.step_of)
        self.group_of = {node: group for group in groups for node in group.members}
        self.overwriting = Overwriting(self.group_of, self.step_of, self.readers)
        self.steps: list[list[Launch]] = []  # launches are added to the last one
        # Arrays by `array_of`; of blocks by the number of their step and the value.
        self.view_of: dict[object, BufferView] = {}
        self.numbers = itertools.count()  # of scratch views and of those for blocks

    def build(self) -> Program:
        """Launch all kernels, in an order in which each runs after those that it needs."""
        outputs, copies = self._assign_views()
        for step in self._ordered(copies):
            for group in step.groups:
                self._launch_initial(group)
            self.steps.append([])
            for group in step.groups:
                self._launch(group)
        for copy in copies:
            value = copy.value
            in_memory = {value: value.shape}  # so that the kernel reads it
            group = KernelGroup(Node(Op.CONTIGUOUS, (value,)), in_memory)
            self._launch_alone(group, copy.view)
        if self.target.max_horizontal > 1 and not self._exchanged_views():
            steps = [step for step in self.steps if step]
            self.steps = fused_horizontally(steps, self.target.max_horizontal)
        return self._planned(outputs)

    def _ordered(self, copies: Sequence[_Copy]) -> list[Step]:
        """All steps in the order in which they run. Those of several processes keep an order in
        which their collectives meet, and run beside kernels where the target can do that."""
        # Sorted only now, as kernels that overwrite a buffer have come to need its readers.
        steps = toposort(self.group_steps)
        if _has_collectives(result.value for result in self.results):
            if self.target.overlaps_collectives:
                values = [result.value for result in self.results]
                steps = overlapped(steps, early_collectives(values))
            return steps
        arrays = Steps(
            steps,
            before={step: step.src for step in steps},
            makes={step: self._arrays_made(step) for step in steps},
            reads={step: _arrays_read(step) for step in steps},
            kept={copy.value for copy in copies},
            over={value: over for step in steps for value, over in self._replaceable(step)},
        )
        ordered = in_least_memory(arrays)
        for value, replaced in arrays.taken_in(ordered):
            self.view_of[value] = self._home(replaced)
        return ordered

    def _arrays_made(self, step: Step) -> dict[Node, int]:
        """The scratch arrays that a step makes, in bytes."""
        return {
            node: prod(group.values[node]) * node.dtype.itemsize
            for group in step.groups
            for node in group.members
            if self._is_scratch(node) and self._is_used(group, node)
            and group.block.shape(node) is None
        }  # fmt: skip

    def _replaceable(self, step: Step) -> Iterator[tuple[Node, list[Node]]]:
        """The scratch arrays that a step makes, each with those that it may take the place of."""
        if len(step.groups) > 1:
            return
        (group,) = step.groups
        operands = [node for node in group.operands if self._is_scratch(node)]
        for value in self._arrays_made(step):
            yield value, [node for node in operands if can_replace(group, value, node)]

    def _is_scratch(self, node: Node) -> bool:
        """Whether a value is neither a result nor in the buffer of one."""
        return node not in self.view_of

    def _planned(self, outputs: Sequence[BufferView]) -> Program:
        """The program, with a place for everything that is scratch or belongs to a block."""
        scratch = self._memory_plan("scratch")
        block = self._memory_plan("block")
        offsets = scratch.offsets | block.offsets
        steps = tuple(
            tuple(on_touched_lines(launch, offsets) for launch in step)
            for step in self.steps
            if step  # one whose arrays have no elements launches nothing
        )
        return Program(steps, tuple(outputs), arena=scratch.nbytes, block=block.nbytes)

    # Arrays.

    def _home(self, node: Node) -> BufferView:
        """The view of `node` in memory, made if nothing asked for it yet: that of an input, or else
        scratch memory, with padding if the groups give the value any."""
        array = array_of(node)
        if array not in self.view_of:
            group = self.group_of.get(node)
            shape = group.values.get(node, node.shape) if group else node.shape
            is_constant = node.op is Op.BUFFER and node.arg.constant
            if node.op is not Op.BUFFER:
                kind, number = "scratch", next(self.numbers)
            elif isinstance(node.arg.storage, Kept):
                kind, number = "kept", node.arg.storage.number
            else:
                kind, number = "input", node.arg.storage
            self.view_of[array] = BufferView(
                kind, number, node.dtype, prod(shape), constant=is_constant
            )
        return self.view_of[array]

    def _view_in(self, group: KernelGroup, node: Node) -> BufferView:
        """The view where `group`, of the step that is being launched, reads or stores `node`: its
        home, or memory for a block of it, which belongs to the step."""
        shape = group.block.shape(node)
        if shape is None:
            return self._home(node)
        step_number = len(self.steps)
        key = (step_number, node)
        if key not in self.view_of:
            self.view_of[key] = BufferView("block", next(self.numbers), node.dtype, prod(shape))
        return self.view_of[key]

    def _assign_views(self) -> tuple[list[BufferView], list[_Copy]]:
        """A view for each result, and the copies that fill some of them at the end.

        The kernel of a result stores it right in the view of the result, but for two exceptions: a
        value that is a result twice, which the first one's view has; and an ASSIGN to a buffer that
        kernels still read. These results are copied into their views at the end.
        """
        outputs: list[BufferView] = []
        copies: list[_Copy] = []
        for number, result in enumerate(self.results):
            value, assigned = result.value, result.assigned
            is_direct = value not in self.view_of
            if assigned is None:
                view = BufferView("output", number, value.dtype, prod(value.shape))
            else:
                view = self._home(assigned)
                is_direct = is_direct and self.overwriting.allow(value, assigned)
            if is_direct:
                self.view_of[value] = view
            else:
                self._home(value)  # a view for the copy to read
                copies.append(_Copy(value, view))
            outputs.append(view)
        for step in reversed(toposort(self.group_steps)):
            for group in step.groups:
                self._begin_in_place(group)
        return outputs, copies

    def _begin_in_place(self, group: KernelGroup) -> None:
        """Let a scatter add to the array that it begins with, its base, in place of a copy of that,
        if a kernel computes the base for this scatter alone. An embedding that is also the output
        layer has such a gradient: the scatter adds that of the lookup to that of the output layer.
        Not if the result is in a buffer that is assigned to, which keeps its values until all of
        its readers have run."""
        scatter = group.first
        if scatter.op is not Op.SCATTER:
            return
        base = scatter.src[0]
        maker = self.group_of.get(base)
        if maker is None or maker.block.shape(base) is not None or base in self.view_of:
            return
        view = self._home(scatter)
        is_own = view.kind in ("output", "scratch")
        if is_own and base not in group.reads and self.readers.get(base) == [group]:
            self.view_of[base] = view

    # Launches.

    def _launch(self, group: KernelGroup) -> None:
        """Launch the kernel of `group` in the last step. It stores each member that is used."""
        stored = [node for node in group.members if self._is_used(group, node)]
        read = self._views_read(group)
        written = [self._view_in(group, node) for node in stored]
        self._add_launches(group, stored, read, written)

    def _launch_initial(self, group: KernelGroup) -> None:
        """Launch the kernel that stores the array which `group` updates, or adds to. Where that is
        an array that `group` updates in place, it is there already."""
        if group.initial is None:
            return
        view = self._home(group.first)
        (start,) = group.initial.first.src
        if self.view_of.get(array_of(start)) == view:
            return
        self._launch_alone(group.initial, view)

    def _launch_alone(self, group: KernelGroup, view: BufferView) -> None:
        """Launch the kernel of `group` in a step of its own. It stores its one member in `view`."""
        self.steps.append([])
        self._add_launches(group, group.members, self._views_read(group), [view])

    def _views_read(self, group: KernelGroup) -> list[BufferView]:
        """The views that the kernel of `group` reads, in the order of its parameters."""
        return [self._view_in(group, array.node) for array in group.lowered.parameters.values()]

    def _add_launches(
        self,
        group: KernelGroup,
        stored: Sequence[Node],
        read: Sequence[BufferView],
        written: Sequence[BufferView],
    ) -> None:
        """Launch the kernel of `group`, or the kernels of its sort, or a collective. The members
        `stored` go to the views `written`. Nothing is launched for arrays without elements."""
        if not any(points(group.stores[node].axes) for node in stored):
            return
        if group.first.op is Op.ARGSORT:
            self._launch_sort(group.first, read, written)
        elif group.first.op is Op.BIN_SUM:
            self._launch_bins(group.first, read, written)
        elif group.first.op in Group.COLLECTIVE:
            self._launch_collective(group.first, read, written)
        else:
            self._launch_kernel(group, stored, read, written)

    def _is_used(self, group: KernelGroup, node: Node) -> bool:
        """Whether the member `node` has to be in memory: kernels of the same blocks read it there,
        other kernels do, or it is a result, which has a view from the start."""
        in_block = group.block.shape(node) is not None
        return in_block or node in self.readers or node in self.view_of

    def _launch_kernel(
        self,
        group: KernelGroup,
        stored: Sequence[Node],
        read: Sequence[BufferView],
        written: Sequence[BufferView],
    ) -> None:
        """Launch a kernel that reads the views `read`, and stores `stored` in the views `written`.

        Its loops are narrowed to what it changes. Not in row blocks: all kernels of a step run the
        same blocks.
        """
        kernel, views = kernel_of(group, stored, read, written)
        narrowing = None if group.block_axes else narrowing_of(kernel.stores)
        self.steps[-1].append(Launch(narrowed(kernel, narrowing), views, tuple(group.members)))

    def _launch_collective(
        self, value: Node, read: Sequence[BufferView], written: Sequence[BufferView]
    ) -> None:
        """Add the step of a collective, which reads a whole array and writes another one."""
        views, parameters = parameters_of(read, written)
        (operand,) = value.src
        step = Collective(parameters, value.op, value.arg, operand.shape)
        self.steps[-1].append(Launch(step, views, (value,)))

    def _launch_sort(
        self, order: Node, read: Sequence[BufferView], written: Sequence[BufferView]
    ) -> None:
        """Launch the kernels that sort the rows of the ARGSORT `order`, each as a step.

        One kernel sorts rows of any length on a CPU, and rows of up to `sort_run` keys on a GPU. A
        GPU sorts longer rows byte by byte, the lowest byte of the keys first, and needs three
        kernels for each byte: the first counts how many keys of each block of threads have each of
        the 256 values of the byte; the second adds up the counts, which gives where each block puts
        its keys; the third moves them. float32 keys take 3 * 4 = 12 kernels.

        Scratch memory holds an int64 for each key: a word of the key and its place. On a CPU it
        holds two where not all ranks are asked for, or rows are columns; on a GPU there are the
        counts behind those of all rows.
        """
        sizes, axis = order.src[0].shape, order.arg.axis
        length, apart = sizes[axis], prod(sizes[axis + 1 :])
        rows = prod(sizes[:axis]) * apart
        keys = read[0]
        run = self.target.sort_run
        kernels = 1
        count_elements = 0  # of int64, for each row
        if run and length > run:
            blocks = -(-length // run)
            kernels = 3 * keys.dtype.itemsize
            # 256 counts of 32 bits take 128 int64: for each block, and once more for their sums.
            count_elements = 128 * (blocks + 1)
        held = length if order.shape == sizes and apart == 1 else 2 * length
        size = rows * (held + count_elements)
        scratch = BufferView("scratch", next(self.numbers), order.dtype, size)
        views, parameters = parameters_of(read, [*written, scratch])
        for left in reversed(range(kernels)):
            sort = SortKernel(parameters, rows, length, apart, order.arg, kernels, left)
            self.steps.append([Launch(sort, views, (order,))])

    def _launch_bins(
        self, total: Node, read: Sequence[BufferView], written: Sequence[BufferView]
    ) -> None:
        """Launch the two kernels of a BIN_SUM, each as a step."""
        size = BinKernel.scratch(prod(total.src[2].shape), total.arg)
        scratch = BufferView("scratch", next(self.numbers), int64, size)
        views, parameters = parameters_of(read, [*written, scratch])
        first, second, third = (views.index(self._home(operand)) for operand in total.src)
        for left in (1, 0):
            kernel = BinKernel(parameters, (first, second, third), total.arg, left)
            self.steps.append([Launch(kernel, views, (total,))])

    def _memory_plan(self, kind: str) -> MemoryPlan[BufferView]:
        """Where the views of `kind`, "scratch" or "block", lie in the memory of that kind.

        Arrays may share memory if they are used at different times. For scratch, the time is the
        number of the step: all kernels of a step use it at one time, as their blocks run in
        parallel. For blocks it is the step and the position in it, as each thread runs the kernels
        of a block one after the other.
        """
        lifetimes: dict[BufferView, Lifetime] = {}
        for number, step in enumerate(self.steps):
            for position, launch in enumerate(step):
                time = (number, position) if kind == "block" else (number,)
                for view in launch.arguments:
                    if view.kind == kind:
                        lifetime = lifetimes.setdefault(view, Lifetime(view.nbytes, time, time))
                        lifetime.last = time
        if self.target.overlaps_collectives:
            self._keep_operands(lifetimes)
        # `plan_memory` keeps this order among views of one size.
        in_order = sorted(lifetimes.items(), key=lambda item: item[0].number)
        return plan_memory(dict(in_order), ALIGNMENT, self._exchanged_views())

    def _exchanged_views(self) -> set[BufferView]:
        """The operands and results of collectives. Programs that exchange the same arrays should
        have these at the same places, whatever else they compute, as windows of other GPUs are
        agreed on once for all of them: see `lamina.runtime.windows`."""
        launches = (launch for step in self.steps for launch in step)
        return {
            view
            for launch in launches
            if isinstance(launch.kernel, Collective)
            for view in launch.arguments
        }

    def _keep_operands(self, lifetimes: dict[BufferView, Lifetime]) -> None:
        """Let the operand of each collective live until a step touches the result: the collective
        may run until then, beside steps that would get the memory of its operand."""
        # By the result, operands that may still be read.
        running: dict[BufferView, list[BufferView]] = {}
        for number, step in enumerate(self.steps):
            for launch in step:
                for view in launch.arguments:
                    _extend(lifetimes, running.pop(view, []), number)
                if isinstance(launch.kernel, Collective):
                    operand, result = launch.arguments
                    running.setdefault(result, []).append(operand)
        for operands in running.values():
            _extend(lifetimes, operands, len(self.steps))


def _arrays_read(step: Step) -> set[Node]:
    """The values of other steps that a step reads."""
    arrays = {array for group in step.groups for array in group.arrays_read}
    return {array for array in arrays if isinstance(array, Node)}


def _has_collectives(values: Iterable[Node]) -> bool:
    return any(node.op in Group.COLLECTIVE for node in toposort(values))


def _extend(
    lifetimes: dict[BufferView, Lifetime], views: Sequence[BufferView], number: int
) -> None:
    """Let those of `views` that have a lifetime live until the step of a number."""
    for view in views:
        if view in lifetimes:
            lifetimes[view].last = max(lifetimes[view].last, (number,))
