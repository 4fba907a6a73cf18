"""Which operations of a graph are one program, and what PyTorch does before and after it.

Operations with a row in the table run in programs, the others as host steps. Each has a stage: the
programs are stages 0, 1, ..., and host steps of stage s run after program s; those that wait for no
program have stage -1. So two operations of one program may not have a host step between them.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from lamina.core.options import current
from lamina.interop.torch.arrays import DTYPES, layout_of
from lamina.interop.torch.broken import BrokenGraphError
from lamina.interop.torch.draws import is_draw
from lamina.interop.torch.rows import ROWS

Refusals = dict[fx.Node, str]  # the operations left to PyTorch, with the reason

# These change neither values nor memory, only which elements of it are meant.
_VIEWS = frozenset({
    "aten.view.default", "aten.permute.default", "aten.transpose.int", "aten.t.default",
    "aten.expand.default", "aten.unsqueeze.default", "aten.squeeze.default", "aten.squeeze.dim",
    "aten.squeeze.dims", "aten.alias.default", "aten.detach.default", "aten.slice.Tensor",
    "aten.select.int",
})  # fmt: skip
_NUMBERS = (int, float, complex, torch.SymInt, torch.SymFloat, torch.SymBool)
_COPY = torch.ops.aten.copy_.default


@dataclass(frozen=True)
class Left:
    """An operation that PyTorch runs. line: the user's, as ``model.py:12: y = f(x)``, or empty."""

    operation: str
    line: str
    reason: str

    def __str__(self) -> str:
        place = f" ({self.line})" if self.line else ""
        return f"{self.operation}{place}: {self.reason}"


@dataclass(frozen=True)
class View:
    """A tensor over the memory of another one. offset: in elements, from that one's first."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, base: torch.Tensor) -> torch.Tensor:
        return base.as_strided(self.sizes, self.strides, base.storage_offset() + self.offset)


@dataclass(frozen=True)
class Result:
    """A result of the graph: a node's value, or a view of it; or a constant, such as None."""

    node: fx.Node | None
    view: View | None = None
    value: Any = None


@dataclass(eq=False)
class Segment:
    """The operations of one program. place: the device that runs it. inputs: tensors it reads or
    writes. outputs: those that it makes and others read. written: of values that an input of the
    graph gets, that input, whose memory the program writes."""

    nodes: list[fx.Node]
    place: torch.device
    inputs: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
    written: dict[fx.Node, fx.Node] = field(default_factory=dict)


@dataclass(eq=False)
class HostStep:
    """An operation that PyTorch runs, whose result others read."""

    node: fx.Node

    @property
    def inputs(self) -> list[fx.Node]:
        """The tensors and other results that it reads."""
        return [operand for operand in self.node.all_input_nodes if not is_number(operand)]

    @property
    def outputs(self) -> list[fx.Node]:
        return [self.node]


@dataclass(eq=False)
class Plan:
    """inputs: the placeholders in order. constants: the graph's attributes. produced: what the
    steps compute. made_as: of some of these, the view of their memory that they are made as.
    results: what the graph returns. refusals: the operations of the host steps that are no random
    draws."""

    inputs: list[fx.Node]
    constants: list[fx.Node]
    produced: list[fx.Node]
    made_as: dict[fx.Node, View]
    steps: list[Segment | HostStep]
    results: list[Result]
    refusals: Refusals

    @property
    def segments(self) -> list[Segment]:
        return [step for step in self.steps if isinstance(step, Segment)]

    @property
    def left(self) -> list[Left]:
        """The refusals as a user reads them; one that two nodes share comes once."""
        described = [
            Left(str(node.target), source_line(node), reason)
            for node, reason in self.refusals.items()
        ]
        return list(dict.fromkeys(described))


def make_plan(graph: fx.Graph, refused: Refusals) -> Plan:
    """`refused`: operations that have a row which does not take their arguments; those without a
    row are added."""
    nodes = list(graph.nodes)
    _check_descriptions(nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    constants = [node for node in nodes if node.op == "get_attr"]
    calls = [node for node in nodes if node.op == "call_function" and not is_number(node)]
    (output,) = graph.find_nodes(op="output")
    results = [_result(node) for node in output.args[0]]
    writes = [node for node in calls if node.target is _COPY]
    place = _place_of(nodes)
    here = _ours(calls, refused, place)
    stages = _stages(calls, here)
    needed = {result.node for result in results} | {node.args[1] for node in writes}
    steps: list[Segment | HostStep] = []
    for stage in range(-1, max(stages.values(), default=-1) + 1):
        members = [node for node in calls if stages[node] == stage]
        ours = [node for node in members if here[node]]
        if ours:
            steps.append(_segment(ours, needed, place))
        steps += [HostStep(node) for node in members if not here[node]]
    steps = _with_writes_in_programs(steps, {result.node for result in results})
    produced = [node for step in steps for node in step.outputs]
    made_as = _made_as(steps, results)
    results = [
        Result(result.node) if result.node in made_as else result for result in results
    ]
    return Plan(inputs, constants, produced, made_as, steps, results, dict(refused))


def _with_writes_in_programs(
    steps: Sequence[Segment | HostStep], returned: Collection[fx.Node]
) -> list[Segment | HostStep]:
    """The steps without assignments to inputs, as of running statistics, that a program can do: it
    writes the input's memory where it would have written a new tensor. `returned`: the tensors that
    results of the graph are, or view."""
    remaining: list[Segment | HostStep] = []
    for step in steps:
        segment = _writer(step, steps, returned) if isinstance(step, HostStep) else None
        if segment is None:
            remaining.append(step)
            continue
        target, value = step.inputs
        segment.outputs.remove(value)
        segment.written[value] = target
        if target not in segment.inputs:
            segment.inputs.append(target)
    return remaining


def _writer(
    step: HostStep, steps: Sequence[Segment | HostStep], returned: Collection[fx.Node]
) -> Segment | None:
    """The program that can write what a step assigns to an input of the graph: that which makes the
    value, if nothing outside needs the value and nothing after it reads the input; None if there is
    none. Programs of GPUs may get a copy of an input."""
    if step.node.target is not _COPY or len(step.inputs) != 2:
        return None
    target, value = step.inputs
    makers = [maker for maker in steps if isinstance(maker, Segment) and value in maker.outputs]
    if not makers or makers[0].place.type != "cpu" or target.op != "placeholder":
        return None
    (segment,) = makers
    later = steps[steps.index(segment) + 1 :]
    is_read_later = any(target in other.inputs for other in later if other is not step)
    is_read_outside = not {*segment.nodes, step.node}.issuperset(value.users)
    is_needed_outside = is_read_outside or value in returned
    if is_read_later or is_needed_outside or not _has_place_for(target, value):
        return None
    return segment


def _has_place_for(target: fx.Node, value: fx.Node) -> bool:
    """Whether the elements of an input's memory are those of a value, in some order."""
    to, of = target.meta["val"], value.meta["val"]
    is_marked = to.is_conj() or to.is_neg()
    is_alike = to.shape == of.shape and to.dtype == of.dtype and to.device == of.device
    return is_alike and not is_marked and layout_of(to.shape, to.stride()) is not None


def _made_as(
    steps: Sequence[Segment | HostStep], results: Sequence[Result]
) -> dict[fx.Node, View]:
    """The tensors of programs that are returned once, as a view of the whole, and that no step
    reads: they are made as that view, which costs no call of PyTorch. A program sees memory alone.
    So is the derivative of a weight, (K, N), made as that of the transposed weight, (N, K)."""
    counts = Counter(result.node for result in results)
    read = {operand for step in steps for operand in step.inputs}
    outputs = {node for step in steps if isinstance(step, Segment) for node in step.outputs}
    made_as: dict[fx.Node, View] = {}
    for result in results:
        node, view = result.node, result.view
        if node is None or view is None or node not in outputs - read or counts[node] > 1:
            continue
        if _is_whole(view, node.meta["val"]):
            made_as[node] = view
    return made_as


def _is_whole(view: View, base: torch.Tensor) -> bool:
    """Whether new memory of the view's strides has the elements of `base`, which is dense."""
    if base.numel() == 0 or layout_of(base.shape, base.stride()) is None:
        return False
    steps = zip(view.sizes, view.strides, strict=True)
    last = sum((size - 1) * stride for size, stride in steps)
    return view.offset == 0 and last + 1 == base.numel()


def _check_descriptions(nodes: Iterable[fx.Node]) -> None:
    """Raise BrokenGraphError for a node that does not say what its result is."""
    for node in nodes:
        if node.op == "call_function" and not _is_described(node):
            raise BrokenGraphError(f"{node.name} = {node.target}: its result is not described")
        if node.op not in ("call_function", "placeholder", "get_attr", "output"):
            raise BrokenGraphError(f"{node.name}: a graph of operations has no {node.op}")


def _is_described(node: fx.Node) -> bool:
    """Whether the description of a result may be that of the operation's."""
    value = node.meta.get("val", "")
    if node.target is operator.getitem:
        return _is_part(value, *node.args)
    if isinstance(node.target, torch._ops.OpOverload):
        returns = node.target._schema.returns
        if not returns:  # as of an assertion
            return True
        if len(returns) == 1 and isinstance(returns[0].type, torch.TensorType):
            return isinstance(value, torch.Tensor)
    return value is None or isinstance(value, (*_NUMBERS, torch.Tensor, list, tuple))


def _is_part(value: Any, whole: Any = None, place: Any = None, *_: Any) -> bool:
    """Whether ``whole[place]`` is described as `value` is. Sizes may be symbols, which several
    names may have."""
    parts = whole.meta.get("val") if isinstance(whole, fx.Node) else None
    if not isinstance(parts, (list, tuple)) or not isinstance(place, int) or place >= len(parts):
        return False
    part = parts[place]
    if not isinstance(part, torch.Tensor) or not isinstance(value, torch.Tensor):
        return isinstance(value, torch.Tensor) == isinstance(part, torch.Tensor)
    is_fixed = all(isinstance(size, int) for size in (*part.shape, *value.shape))
    return part.dtype == value.dtype and (not is_fixed or part.shape == value.shape)


def _place_of(nodes: Iterable[fx.Node]) -> torch.device:
    """Where the programs of a graph run: on the first GPU that has one of its tensors, and on the
    CPU if there is none, or the interpreter is to run them."""
    if current().device != "interp":
        for node in nodes:
            for tensor in tensors_in(node.meta.get("val")):
                if tensor.device.type == "cuda":
                    return tensor.device
    return torch.device("cpu")


def _ours(
    calls: Sequence[fx.Node], refused: Refusals, place: torch.device
) -> dict[fx.Node, bool]:
    """Whether a program runs each operation; the parts of a result are where the result is."""
    here: dict[fx.Node, bool] = {}
    for node in calls:
        if node.target is operator.getitem:
            here[node] = here.get(node.args[0], False)
            continue
        is_known = node.target is _COPY or is_draw(node)
        reason = None if is_known else _reason_against(node, place)
        if reason is not None:
            refused.setdefault(node, reason)
        here[node] = not (node in refused or is_draw(node) or node.target is _COPY)
    return here


def _reason_against(node: fx.Node, place: torch.device) -> str | None:
    """Why no program on `place` can run an operation, as far as its name and its tensors say."""
    if str(node.target) not in ROWS:
        return "it has no row"
    operands = [one.meta.get("val") for one in node.all_input_nodes]
    for value in [node.meta.get("val"), *operands]:
        for tensor in tensors_in(value):
            if tensor.dtype not in DTYPES:
                return f"lamina lacks {tensor.dtype}"
            if tensor.device != place and not _is_moved(tensor, operands):
                return f"it has a tensor on {tensor.device}, and the programs run on {place}"
    return None


def _is_moved(tensor: torch.Tensor, operands: Sequence[Any]) -> bool:
    """Whether an operand is copied to the place of a program: the CPU's tensors of shape (), which
    PyTorch allows beside those of a GPU."""
    is_operand = any(tensor is one for one in operands)
    return is_operand and tensor.device.type == "cpu" and tensor.ndim == 0


def is_number(node: fx.Node) -> bool:
    """Whether a node is a number, which is known once the sizes are."""
    return isinstance(node.meta.get("val"), (int, float, complex))


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    """The tensors of an operation's result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)


def _stages(calls: Sequence[fx.Node], here: dict[fx.Node, bool]) -> dict[fx.Node, int]:
    stages: dict[fx.Node, int] = {}
    last_host = -1  # random draws stay in their order
    for node in calls:
        stage = 0 if here[node] else -1
        for operand in node.all_input_nodes:
            if operand in stages:
                waits = here[node] and not here[operand]
                stage = max(stage, stages[operand] + waits)
        if not here[node] and node.target is not operator.getitem:
            stage = last_host = max(stage, last_host)
        stages[node] = stage
    writes = [node for node in calls if node.target is _COPY]
    for node in writes:  # whoever reads what was there comes before
        stages[node] = max(stages.values())
    return stages


def _segment(
    ours: list[fx.Node], needed: Iterable[fx.Node | None], place: torch.device
) -> Segment:
    members = set(ours)
    wanted = set(needed)
    segment = Segment(ours, place)
    for node in ours:
        for operand in node.all_input_nodes:
            is_known = operand in members or operand in segment.inputs or is_number(operand)
            if not is_known:
                segment.inputs.append(operand)
        is_read = node in wanted or any(user not in members for user in node.users
                                        if user.op != "output")  # fmt: skip
        if is_read and isinstance(node.meta.get("val"), torch.Tensor):
            segment.outputs.append(node)
    return segment


def _result(value: Any) -> Result:
    """A result that only views something else is not computed: it shares that memory."""
    if not isinstance(value, fx.Node):
        return Result(None, value=value)
    if is_number(value):
        return Result(None, value=value.meta["val"])
    base = value
    while True:
        if base.target is _COPY or (str(base.target) in _VIEWS and _has_whole_memory(base)):
            base = base.args[0]
        else:
            break
    if base is value:
        return Result(value)
    tensor, whole = value.meta["val"], base.meta["val"]
    offset = tensor.storage_offset() - whole.storage_offset()
    return Result(base, View(tuple(tensor.shape), tuple(tensor.stride()), offset))


def _has_whole_memory(node: fx.Node) -> bool:
    """Whether a view is better than a copy: a small part would keep the whole in memory, unless
    that is an input of the graph, which somebody else keeps."""
    base = node.args[0]
    assert isinstance(base, fx.Node)
    is_part = node.meta["val"].numel() < base.meta["val"].numel()
    return not is_part or base.op == "placeholder"


def source_line(node: fx.Node) -> str:
    """``model.py:12: y = f(x)``: the user's line, where PyTorch noted it; or nothing."""
    trace = node.meta.get("stack_trace")
    if not trace:
        return ""
    lines = [line.strip() for line in trace.splitlines()]
    lines = [line for line in lines if line.strip("^~ ")]  # without marks below the code
    if len(lines) < 2 or not lines[-2].startswith("File "):
        return ""
    place, code = lines[-2:]
    path, number = place.removeprefix("File ").split(", ")[:2]
    name = path.strip('"').rpartition("/")[2]
    return f"{name}:{number.removeprefix('line ')}: {code}"
