"""The cost of a whole program: that of its launches, and a bound of what comes in and goes out."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from lamina.core.rates import Rates
from lamina.core.target import Target
from lamina.fuse.launch import BufferView, Launch
from lamina.fuse.program import Program
from lamina.ir.kernel import AnyKernel, BinKernel, Collective
from lamina.loops.moves import Plan
from lamina.loops.nest import Nest
from lamina.schedule.cost.bins import bin_cost
from lamina.schedule.cost.bound import Need
from lamina.schedule.cost.operations import Demand
from lamina.schedule.cost.predict import predict
from lamina.schedule.cost.report import KernelCost, KernelTime, in_us
from lamina.schedule.cost.sorts import sort_cost


@dataclass(frozen=True)
class ProgramCost:
    """What a program is predicted to take.

    seconds: of one call after another. bound: seconds with perfect reuse: each byte of its inputs
    is read once, each of its results written once, and everything overlaps
    kernels: the cost of each kernel, by its function's name
    steps: the cost of each step; of several kernels that run together, the sum
    """

    seconds: float
    bound: float
    kernels: Mapping[str, KernelCost]
    steps: tuple[KernelCost, ...]

    def __str__(self) -> str:
        """The program in one line, then two for each kernel: its times, and its demands."""
        lines = [f"{in_us(self.seconds)}, bound {in_us(self.bound)}"]
        for name, cost in self.kernels.items():
            lines += [f"{name}: {cost.times}", f"  {cost.largest_demands}"]
        return "\n".join(lines)


def program_cost(
    program: Program, plans: Mapping[AnyKernel, Plan], target: Target, rates: Rates
) -> ProgramCost:
    """The cost of a program whose kernels have these plans."""
    views = {view for launch in program.launches for view in launch.arguments}
    # What a run touches before a kernel runs again; blocks of rows are left out, as caches keep
    # them.
    around = sum(view.nbytes for view in views if view.kind != "block")
    cost_of: dict[AnyKernel, KernelCost] = {}
    for kernel, plan in plans.items():
        if isinstance(plan.nest, Nest):
            cost_of[kernel] = predict(plan.nest, target, rates, around)
        elif isinstance(plan.nest, Collective):
            cost_of[kernel] = _collective_cost(plan.nest, target, rates)
        elif isinstance(plan.nest, BinKernel):
            cost_of[kernel] = bin_cost(plan.nest, target, rates)
        else:
            cost_of[kernel] = sort_cost(plan.nest, target, rates)
    steps = tuple(_step_costs(program, cost_of, target, rates))
    by_name = {plan.name: cost_of[kernel] for kernel, plan in plans.items()}
    of_host = _host_seconds(program, views, rates)
    of_device = rates.start + sum(step.seconds for step in steps)
    # A CPU is its own host; the host of a GPU goes on meanwhile.
    seconds = of_host + of_device if target.warp == 1 else max(of_host, of_device)
    bound = _need(program.launches, cost_of).seconds(rates, target)
    return ProgramCost(seconds, bound, by_name, steps)


def _step_costs(
    program: Program, cost_of: Mapping[AnyKernel, KernelCost], target: Target, rates: Rates
) -> Iterator[KernelCost]:
    """The cost of each step, with the seconds in which workers of a CPU read what others have
    written in steps before: that is in the caches of these."""
    written_by_all = dict[BufferView, bool]()  # what steps have written: by all workers, or by one
    for step in program.steps:
        costs = [cost_of[launch.kernel] for launch in step]
        cost = joined(costs)
        if target.warp > 1:  # no array is between kernels side by side
            cost = replace(cost, bound=sum(each.bound for each in costs))
        readers = target.multiprocessors if cost.demands.get("fork") else 1
        lines = 0.0
        for launch in step:
            for view, kept in _kept_lines(launch, cost_of[launch.kernel], rates):
                if view in written_by_all and (readers > 1 or written_by_all[view]):
                    lines += kept
        yield _with_lines_of_others(cost, lines, readers, target, rates)
        for launch in step:
            for view, parameter in zip(launch.arguments, launch.kernel.parameters, strict=False):
                if parameter.written and view.kind != "block":
                    written_by_all[view] = readers > 1


def _kept_lines(
    launch: Launch, cost: KernelCost, rates: Rates
) -> Iterator[tuple[BufferView, float]]:
    """For each array that a kernel reads, the lines that it finds in caches that each worker has
    for itself."""
    private_levels = sum(not level.shared for level in rates.levels)
    for part in cost.lines:
        number = part.reference.parameter
        if not part.reference.is_store and number < len(launch.arguments):
            yield launch.arguments[number], max(part.distinct - part.moved[private_levels - 1], 0.0)


def _with_lines_of_others(
    cost: KernelCost, lines: float, readers: int, target: Target, rates: Rates
) -> KernelCost:
    """`cost` with the seconds in which `readers` read `lines` from the caches of all workers: each
    has its part of them, and gets those of others by the level that all share.

    Of 1000 lines, 2 workers get 500 from each other, in the time of 250 for each.
    """
    workers = target.multiprocessors
    if not lines or workers == 1 or target.warp > 1:
        return cost
    shared = next(level for level in rates.levels if level.shared)
    of_others = lines * rates.line * (1 - 1 / workers)
    seconds = of_others / min(readers * shared.read, shared.all_read)
    demands = {**cost.demands, "caches of others": seconds}
    return replace(cost, seconds=cost.seconds + seconds, demands=demands)


def _host_seconds(program: Program, views: Collection[BufferView], rates: Rates) -> float:
    """The seconds of the host in one call of a program whose kernels have these views of arrays:
    those that come in and go out have their addresses put into a job, each once."""
    arrays = {view.memory for view in views if view.kind in ("input", "output")}
    return rates.call + rates.array * len(arrays) + rates.enqueue * len(program.steps)


def joined(costs: Sequence[KernelCost]) -> KernelCost:
    """The cost of the kernels of one step, which take turns at each row block.

    seconds: see `joined_seconds`
    demands: the sums
    bound: the largest, as arrays between the kernels need not leave the caches
    need: that of the first kernel; no report reads it of a step, and a program adds up those of its
        kernels
    """
    if len(costs) == 1:
        return costs[0]
    demands = dict[str, float]()
    for cost in costs:
        for name, seconds in cost.demands.items():
            demands[name] = demands.get(name, 0.0) + seconds
    bound = max(cost.bound for cost in costs)
    lines = tuple(line for cost in costs for line in cost.lines)
    return KernelCost(joined_seconds(costs), demands, bound, costs[0].need, lines)


def joined_seconds(times: Sequence[KernelTime]) -> float:
    """The seconds of the kernels of one step, which take turns at each row block of a CPU, and of
    which a GPU has one launch: their sum, but that work is handed out once, so that only the
    longest fork and launch counts. Two kernels of 5 us, 1 us of each for fork and launch,
    take 9 us."""
    if len(times) == 1:
        return times[0].seconds
    starts = [time.demands["fork"] + time.demands["launch"] for time in times]
    return sum(time.seconds for time in times) - sum(starts) + max(starts)


def _collective_cost(step: Collective, target: Target, rates: Rates) -> KernelCost:
    """The cost of a collective. Between GPUs bytes go over links; among processes of one machine
    each goes to memory that they share, and from there to the result. How long one waits for
    another is not predicted."""
    operand, result = step.parameters
    memory = rates.levels[-1]
    nbytes = operand.nbytes + result.nbytes
    if rates.link:
        sent = rates.exchange + step.exchange.sent_bytes / rates.link
    else:
        sent = nbytes / memory.read + nbytes / memory.write
    demands = {"exchange": sent, "fork": 0.0, "launch": rates.launch}
    need = Need({0: operand.nbytes}, {1: result.nbytes}, Demand())
    return KernelCost(sum(demands.values()), demands, need.seconds(rates, target), need)


def _need(launches: Iterable[Launch], costs: Mapping[AnyKernel, KernelCost]) -> Need:
    """What comes into a program, goes out, and is computed on the way. An input that several
    kernels read is read once, as much of it as the kernel that reads most; an output that a kernel
    has written before is not read. Scratch memory of the program (other views) may stay in caches.
    """
    read, written = dict[object, float](), dict[object, float]()
    operations = Demand()
    for launch in launches:
        need = costs[launch.kernel].need
        operations = operations.plus(need.operations)
        for view, nbytes in _from_outside(launch, need.read):
            if view not in written:
                read[view] = max(read.get(view, 0.0), nbytes)
        for view, nbytes in _from_outside(launch, need.written):
            written[view] = max(written.get(view, 0.0), nbytes)
    return Need(read, written, operations)


def _from_outside(
    launch: Launch, bytes_of: Mapping[object, float]
) -> Iterator[tuple[BufferView, float]]:
    """The inputs and outputs of the program among the arrays of a launch, each with its bytes.
    bytes_of: by number of the kernel's parameter"""
    for number, nbytes in bytes_of.items():
        assert isinstance(number, int)
        view = launch.arguments[number]
        if view.kind in ("input", "output"):
            yield view, nbytes
