"""From graphs to memory: which nodes have a buffer, running the rest, and writing in place.

A realised tensor keeps its graph node, so that it can still be differentiated; the session knows
the BUFFER node that holds its value. At execution the graph is cut at these.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from threading import get_ident
from typing import TYPE_CHECKING, Any

from lamina.core.dtypes import DType
from lamina.core.recent import memoized, recent
from lamina.core.shape import Shape, prod
from lamina.errors import GradientError, JitError, LaminaError
from lamina.explain.origins import ORIGINS, carried, known
from lamina.frontend.session import (
    SESSION,
    Leaf,
    content_of,
    elsewhere,
    operands_of,
    tracers,
)
from lamina.graph.lift_numbers import (
    History,
    Number,
    input_leaf,
    numbers_of,
    skeleton_of,
    update_histories,
    with_inputs,
)
from lamina.graph.open_calls import input_leaves_of, open_call, open_without_detach
from lamina.graph.split_complex import split_complex
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Op
from lamina.ir.substitute import substitute, with_operands
from lamina.runtime.buffer import ALIGNMENT, HOST_DEVICES, Buffer
from lamina.runtime.profile import counter

if TYPE_CHECKING:
    from lamina.frontend.tensor import Tensor

__all__ = ["realize"]

Nodes = Sequence[Node | None]

home_of = SESSION.home_of
_graphs = recent("graphs over input leaves", 2048)  # that were built before
_numbers = recent("numbers of programs", 2048)  # what is known of the numbers of programs
_steps = recent("programs of single operations", 2048)  # that ran before


def not_yet() -> JitError:
    """What to raise when a traced value is asked for."""
    if tracers.get() is None:
        return JitError(
            "a value was asked for that a traced function left behind, and that existed only while "
            "it was traced: return it from the function, or make it outside"
        )
    return JitError(
        "a traced value was asked for; it exists only when the compiled program runs: return it "
        "from the function, or choose with where() in place of if"
    )


# Nodes over memory.


def leaf(node: Node, device: str) -> Node:
    """A leaf of its own identity with the value of `node`."""
    return Node.unique(Leaf(node), node.shape, node.dtype, device)


def stored_leaf(node: Node, device: str) -> Node:
    """A `leaf`, whose value is in memory if that of `node` is; in a trace, which knows by `node`
    what it reads, nothing says so."""
    new = leaf(node, device)
    place = None if tracers.get() else home_of(node)
    if place is not None:
        SESSION.place(new, place)
    return new


def buffer_node(buffer: Buffer, shape: Shape, dtype: DType) -> Node:
    """A BUFFER node over `buffer`."""
    return Node(Op.BUFFER, (), BufferRef(buffer, shape, dtype, buffer.device))


def numbered(place: Node, inputs: dict[Buffer, int]) -> Node:
    """The BUFFER node `place` with the number that `inputs` give its memory in place of storage,
    so that equal programs are one graph."""
    number = inputs.setdefault(place.arg.storage, len(inputs))
    return input_leaf(number, place, place.arg.device)


def pending(sinks: Iterable[Node]) -> dict[Node, Node | None]:
    """What `sinks` have to be computed from, operands first, down to the nodes that a BUFFER
    holds; each with that BUFFER."""
    places: dict[Node, Node | None] = {}

    def below(node: Node) -> tuple[Node, ...]:
        places[node] = place = home_of(node)
        return operands_of(node) if place is None else ()

    return {node: places[node] for node in toposort(sinks, below=below)}


def is_everywhere(node: Node) -> bool:
    """Is `node` made of constants alone? Then it is one node on every device."""
    first = node
    while first.src:
        first = first.src[0]
    if first.op is Op.BUFFER:
        return False
    return all(operand.op is not Op.BUFFER for operand in toposort([node]))


# Graphs over input leaves, which stand for any memory.


def called(key: Hashable, leaves: Sequence[Node], make: Callable[[], Nodes]) -> Nodes:
    """The graphs over input leaves that `make` returned when `key` was new, each with `leaves` as
    its operands: one node, whose content is built where it is needed."""
    graphs = _graphs.get(key)
    if graphs is None:
        graphs = [None if graph is None else _with_numbers(graph) for graph in make()]
        _graphs.put(key, graphs)
    return [graph and graph.called(leaves) for graph in graphs]


@dataclass(frozen=True, slots=True)
class _Graph:
    """A graph over input leaves, and the numbers of these in the order of their first use."""

    content: Node
    input_numbers: list[int]

    def called(self, leaves: Sequence[Node]) -> Node:
        """The graph with `leaves`, by their numbers, in place of its input leaves."""
        operands = tuple([leaves[number] for number in self.input_numbers])
        return Node(Op.CALL, operands, self.content)


def _with_numbers(graph: Node) -> _Graph:
    """Raises TypeError for a graph that reads memory of its own, which no number names."""
    return _Graph(graph, [int(node.arg.storage) for node in input_leaves_of(graph)])


def without_leaves(graph: Node) -> Node:
    """`graph` with what each leaf stands for in its place, of leaves that nobody else has."""
    done: dict[Node, Node] = {}
    for node in toposort([graph], below=operands_of):
        content = content_of(node)
        src = tuple([done[operand] for operand in node.src])
        done[node] = with_operands(node, src) if content is node else done[content]
    return done[graph]


def over(sinks: Sequence[Node], leaves: Sequence[Node]) -> list[Node]:
    """`sinks` with input leaves in place of `leaves`, numbered from 0 on."""
    return substitute(sinks, {node: input_leaf(number, node) for number, node in enumerate(leaves)})


def on_device(sinks: Sequence[Node], device: str) -> list[Node]:
    """`sinks` over input leaves of the same numbers on another device."""
    leaves = [node for node in toposort(sinks) if node.op is Op.BUFFER]
    return substitute(sinks, {node: input_leaf(node.arg.storage, node, device) for node in leaves})


def replaced_as_computed(sinks: Sequence[Node], done: dict[Node, Node]) -> list[Node]:
    """`sinks` with nodes replaced as `done` says; what is computed is computed then as well."""
    return substitute(sinks, done, lambda node, src: _as_computed(node, with_operands(node, src)))


def opened_as_computed(sinks: Sequence[Node], done: dict[Node, Node]) -> list[Node]:
    """`replaced_as_computed`, with the content of each CALL in its place."""
    return substitute(sinks, done, lambda node, src: _as_computed(node, open_call(node, src)))


def _as_computed(old: Node, new: Node) -> Node:
    """`new`, whose value is where that of `old` is, if anywhere."""
    place = SESSION.places.find(old)
    if place is not None:
        SESSION.place(new, place)
    return new


# Cutting: programs read memory by number.


def cut(
    sinks: Sequence[Node], inputs: dict[Buffer, int], written: Container[Node] | None = None,
    homes: dict[Node, Node] | None = None,
) -> list[Node]:  # fmt: skip
    """`sinks` with every computed node replaced by its BUFFER, `numbered`, and `opened`; raises
    GradientError where the value of a BUFFER is lost. Of others than those `written`, if given, a
    `stretch` is an input as well: then no program knows where it begins. `homes`: other BUFFERs."""
    return opened(tuple(cut_closed(sinks, inputs, written, homes)))


def cut_closed(
    sinks: Sequence[Node], inputs: dict[Buffer, int], written: Container[Node] | None = None,
    homes: dict[Node, Node] | None = None,
) -> list[Node]:  # fmt: skip
    """`cut`, but not yet `opened`: what walks this graph passes a call in one step."""
    done: dict[Node, Node] = {}
    for node, place in pending(sinks).items():
        if place is not None:
            home = homes.get(node) if homes else None
            done[node] = numbered(home or place, inputs)
        elif written is not None and (part := _unwritten_stretch(node, written)):
            done[node] = Node(Op.RESHAPE, (numbered(part, inputs),), node.shape)
        elif node.op not in (Op.BUFFER, Op.DETACH):
            done[node] = with_operands(node, tuple([done[operand] for operand in node.src]))
        elif below := operands_of(node):
            done[node] = done[below[0]]
        else:
            if (storage := elsewhere(node)) is not None:
                storage.refuse(node)
            raise GradientError(
                f"{node}: the value was overwritten by assign, and a derivative or a "
                "recomputation needs it; differentiate first, or keep a clone"
            )
    return [done[sink] for sink in sinks]


@memoized(256)
def opened(sinks: tuple[Node, ...]) -> list[Node]:
    """What is cut, which has no memory, with the content of each CALL, and without the DETACH of
    that: whether a step was built before makes no other program."""
    return substitute(sinks, {}, open_without_detach)


def _unwritten_stretch(node: Node, written: Container[Node]) -> Node | None:
    part = stretch(node)
    return None if part is None or home_of(node.src[0]) in written else part


def stretch(node: Node) -> Node | None:
    """A BUFFER of its own for a part of what another one holds, if it is one stretch of memory."""
    if node.op is not Op.SHRINK or 0 in node.shape:
        return None
    place = home_of(node.src[0])
    first = None if place is None else _first_of_stretch(node.src[0].shape, node.arg)
    if place is None or first is None:
        return None
    whole: Buffer = place.arg.storage
    offset = first * place.dtype.itemsize  # bytes
    if offset % ALIGNMENT and whole.device not in HOST_DEVICES:  # which can read it anywhere
        return None
    count = prod(node.shape)
    size = count * place.dtype.itemsize
    part = Buffer.wrap(whole.pointer + offset, size, whole.device, whole)
    return buffer_node(part, (count,), place.dtype)


def _first_of_stretch(shape: Shape, ranges: Sequence[range]) -> int | None:
    """The number of the first element of ``array[ranges]`` in a row-major array of `shape`, if its
    elements are neighbours: rows 2 and 3 of (4, 5) begin at 10; columns 2 and 3 are apart."""
    first, stride = 0, 1
    inner_is_whole = True
    for size, elements in zip(reversed(shape), reversed(ranges), strict=True):
        if len(elements) > 1 and not (inner_is_whole and elements.step == 1):
            return None
        inner_is_whole = inner_is_whole and len(elements) == size
        first += elements.start * stride
        stride *= size
    return first


@memoized(256)
def lifted(
    sinks: tuple[Node, ...], count: int, device: str
) -> tuple[tuple[Node, ...], list[Buffer]]:
    """`sinks`, which have `count` inputs, without complex numbers; and more inputs of theirs, in
    place of the numbers by which alone they differ from earlier ones: one program serves all of
    those."""
    if device == "interp":
        return sinks, []
    sinks = split_complex(sinks)
    numbers = numbers_of(sinks)
    history = _history(sinks, numbers, count, device)
    values: dict[int, Node] = {}  # by the place of the first number that always had this value
    for number, seen in zip(numbers, history, strict=True):
        if seen.value is None:
            values[seen.twin] = number.value
    input_of = {twin: at for at, twin in enumerate(values, count)}
    changing = {
        number: input_of[seen.twin]
        for number, seen in zip(numbers, history, strict=True)
        if seen.value is None
    }
    if not changing:
        return sinks, []
    held = [upload(value.arg.value, value.dtype, device) for value in values.values()]
    return tuple(with_inputs(sinks, changing, device)), [node.arg.storage for node in held]


def _history(
    sinks: tuple[Node, ...], numbers: Sequence[Number], count: int, device: str
) -> Sequence[History]:
    """What is known of `numbers`, after all graphs that differed from `sinks` in them alone."""
    key = count, device, skeleton_of(sinks, numbers)
    seen = update_histories(_numbers.get(key) or (), numbers)
    _numbers.put(key, seen)
    return seen


# Running.


def realize(*tensors: Tensor) -> None:
    """Compute `tensors` and carry out their assignments, all in one program a device."""
    while SESSION.first:
        numbers = list(SESSION.first)
        parameters = [SESSION.first.pop(number, None) for number in numbers]
        realize(*[tensor for tensor in parameters if tensor is not None])
    thread = get_ident()
    with SESSION.turn:
        batch = {
            tensor: None for tensor in tensors
            if tensor.assigned == thread or home_of(tensor.node) is None
        }  # fmt: skip
        traced = tracers.get()
        if batch and traced:
            batch = _untraced(batch, traced)
        _protect(batch)
        if len(batch) == 1 and _run_step(*batch):
            return
        for device in dict.fromkeys(tensor.device for tensor in batch):
            _run([tensor for tensor in batch if tensor.device == device], device)


def _untraced(batch: dict[Tensor, None], traced: Set[Node]) -> dict[Tensor, None]:
    """Those of `batch` that depend neither on tracers nor on what an assignment will change."""
    assigned = SESSION.all_assigned()
    written = {tensor.target for tensor in assigned if tensor.target is not None}
    readers = readers_of(batch, written.union(traced))
    return {tensor: None for tensor in batch if not (tensor.assigned or tensor.node in readers)}


def _protect(batch: dict[Tensor, None]) -> None:
    """Extend `batch` by every tensor whose value the batch's assignments would change."""
    thread = get_ident()
    if not any(map(_target, batch)):
        return
    SESSION.settle()
    held = {
        tensor.target or home_of(tensor.node)
        for tensor in SESSION.all_assigned()
        if tensor.assigned != thread
    }
    handled: set[Node] = set()
    while targets := _claim_targets(batch, held) - handled:
        handled |= targets
        for tensor in SESSION.all_assigned():
            if tensor.target in targets and tensor not in batch:
                tensor.target = None
        readers = [tensor for tensor in SESSION.readers_of(targets) if tensor not in batch]
        lost = readers_of(readers, SESSION.traced)  # values that existed in a trace alone
        batch |= {tensor: None for tensor in readers if tensor.node not in lost}


def readers_of(tensors: Iterable[Tensor], targets: Set[Any]) -> set[Node]:
    """What `tensors` are computed from that is in the BUFFER nodes `targets` or reads them."""
    readers: set[Node] = set()
    for node, place in pending(tensor.node for tensor in tensors).items():
        if place in targets or (place is None and not readers.isdisjoint(operands_of(node))):
            readers.add(node)
    return readers


def _claim_targets(batch: Iterable[Tensor], held: Set[Node | None]) -> set[Node]:
    """The buffers that `batch` overwrites: of those that hold the value of another tensor, or are
    another's to write, none."""
    claimed: set[Node] = set()
    for tensor in batch:
        target = _target(tensor)
        if target is None:
            continue
        is_held = target in held or target.arg.storage.exported or SESSION.tensors_in(target)
        if target in claimed or is_held:
            tensor.target = None
        else:
            claimed.add(target)
    return claimed


def _target(tensor: Tensor) -> Node | None:
    """The BUFFER that this thread is to write the new value of `tensor` to."""
    return tensor.target if tensor.assigned == get_ident() else None


def _run_step(tensor: Tensor) -> bool:
    """Run one operation on operands in memory, if that is all that `tensor` takes: `_run` in fewer
    steps, as nothing has to be searched for what is computed. Whether it did."""
    node = tensor.node
    if node.op is not Op.CALL or tensor.assigned or ORIGINS.lines is not None:
        return False  # a program that is made while notes are taken knows the user's lines
    inputs: dict[Buffer, int] = {}
    places = []
    for operand in node.src:
        place = home_of(operand)
        if place is None:
            return False
        number = inputs.setdefault(place.arg.storage, len(inputs))
        places.append((number, place.shape, place.dtype))
    key = node.arg, tuple(places), tensor.device
    step = _steps.get(key)
    if step is None:
        numbered_inputs: dict[Buffer, int] = {}
        sinks = tuple(cut([node], numbered_inputs))
        is_in_memory = sinks[0].op is Op.BUFFER  # below nothing but DETACH
        if is_in_memory or numbered_inputs != inputs:
            return False
        step = lifted(sinks, len(inputs), tensor.device)
        _steps.put(key, step)
    program, numbers = step
    from lamina.frontend.execution import execute  # as in `_execute`, which handles what is written

    (buffer,) = execute(program, [*inputs, *numbers], tensor.device)
    _file(tensor, node, buffer)
    return True


def _run(batch: list[Tensor], device: str) -> None:
    """Execute one device's share and note where the results are."""
    inputs: dict[Buffer, int] = {}
    written = {place: tensor for tensor in batch if (place := _target(tensor))}
    targets = {place: numbered(place, inputs) for place in written}
    nodes = [tensor.node for tensor in batch]
    noted = ORIGINS.of(pending(nodes)) if ORIGINS.lines else {}
    values = cut([*nodes, *noted], inputs, targets)
    lines = dict(zip(values[len(nodes) :], noted.values(), strict=True))
    sinks = _sinks(batch, values[: len(nodes)], targets)
    distinct = list(dict.fromkeys(sink for sink in sinks if sink is not None))
    program, numbers = lifted(tuple(distinct), len(inputs), device)
    with known(carried(distinct, program, lines)):
        buffers = _execute(program, [*inputs, *numbers], device, written)
    results = dict(zip(distinct, buffers, strict=True))
    for tensor, node, sink in zip(batch, nodes, sinks, strict=True):
        if sink is None:  # below nothing but DETACH
            (place,) = [place for place in pending([node]).values() if place is not None]
            SESSION.place(node, place)
        elif sink.op is not Op.ASSIGN:
            _file(tensor, node, results[sink])


def _sinks(batch: list[Tensor], values: Sequence[Node], targets: dict[Node, Node]) -> Nodes:
    """What to compute for each tensor of `batch`, whose values over numbered memory are `values`:
    None for a value that is in memory as it is."""
    thread = get_ident()
    leaves = set(targets.values())
    sinks: list[Node | None] = []
    for tensor, value in zip(batch, values, strict=True):
        place = _target(tensor)
        if place is not None:
            sinks.append(Node(Op.ASSIGN, (targets[place], value)))
        elif value.op is Op.BUFFER and value not in leaves and tensor.assigned != thread:
            sinks.append(None)
        else:
            sinks.append(value)
    return sinks


class _Changes:
    """Changes of attributes that are noted first, and then made together by `commit`.

    `commit` is one call of C functions, none of them Python's own steps: an interrupt, such as a
    KeyboardInterrupt of a handler of signals, comes before all changes or after all of them.
    """

    def __init__(self) -> None:
        self._noted: list[tuple[object, str, object]] = []
        self.commit: Callable[[], object] = partial(deque, starmap(setattr, self._noted), 0)

    def note(self, changed: object, **attributes: object) -> None:
        """Have `commit` set these attributes of an object."""
        self._noted += [(changed, name, value) for name, value in attributes.items()]


def _execute(
    program: tuple[Node, ...], inputs: list[Buffer], device: str, written: dict[Node, Tensor]
) -> list[Buffer]:
    """Run `program`, which writes the new values of tensors to their BUFFERs, `written`; these
    tensors then are new leaves over the same memory."""
    from lamina.frontend.execution import execute  # it loads when it is first needed

    if not program:
        return []
    lost = [entry for place in written for entry in SESSION.nodes_in(place)]
    changes = _Changes()
    for place, tensor in written.items():
        old: Buffer = place.arg.storage
        owner = old if old.owner is None else old.owner
        same = Buffer.wrap(old.pointer, old.nbytes, old.device, owner)
        new = buffer_node(same, tensor.shape, tensor.dtype)
        changes.note(old, overwritten=True, writes=old.writes + 1)
        changes.note(tensor, node=new, assigned=0, target=None)
        SESSION.unsettle(tensor, new)
    ran, refused, buffers = counter.kernels, False, list[Buffer]()
    try:
        buffers = execute(program, inputs, device)
    except LaminaError:
        refused = True
        raise
    finally:
        # If the program ran, even if it was interrupted, memory was overwritten: it must not run
        # again on what it has written.
        if buffers or (counter.kernels > ran and not refused):
            changes.commit()
            for tensor in written.values():
                SESSION.unsettle(tensor)  # again: another thread may have settled it meanwhile
            while lost:  # what was there is stored nowhere; no reference stays to outlive it
                SESSION.places.pop(lost.pop(), None)
    return buffers


def _file(tensor: Tensor, node: Node, buffer: Buffer) -> None:
    """Note where the value `node` of `tensor` is stored now; what this thread assigned becomes a
    new leaf without history."""
    place = buffer_node(buffer, node.shape, node.dtype)
    was_assigned = tensor.assigned == get_ident()
    if tensor.node is node and (was_assigned or is_everywhere(node)):
        node = tensor.node = leaf(place, tensor.device)
    if was_assigned:
        tensor.assigned, tensor.target = 0, None
    SESSION.unsettle(tensor)
    SESSION.place(node, place)


# Between memory and the host.


def upload(array: Any, dtype: Any, device: str) -> Node:
    """A BUFFER node with a copy of the content of a NumPy array, or with a number."""
    import numpy as np

    array = np.asarray(array, dtype.numpy)
    buffer = Buffer.staging(array.size * dtype.itemsize, device)
    np.frombuffer(buffer.view(), dtype.numpy)[:] = array.reshape(-1)
    return buffer_node(buffer.sent(device), array.shape, dtype)


def memory_of(tensor: Tensor) -> Buffer:
    """The buffer that holds `tensor`, computed when necessary."""
    storage = getattr(tensor.node.arg, "storage", None)
    if type(storage) is Buffer and not (storage.overwritten or tensor.assigned):
        return storage  # its own, as that of most tensors: some hundred are asked for a token
    asked: Node | None = None
    while (place := None if tensor.assigned == get_ident() else home_of(tensor.node)) is None:
        if tensor.node is asked:  # and no other thread or handler of signals assigned meanwhile
            raise not_yet()
        asked = tensor.node
        realize(tensor)
    buffer: Buffer = place.arg.storage
    return buffer


def download(tensor: Tensor) -> Any:
    """A NumPy view of the memory of `tensor`, or of a copy where the host cannot see it."""
    import numpy as np

    view = memory_of(tensor).on_host().view()
    return np.frombuffer(view, tensor.dtype.numpy).reshape(tensor.shape)


def fetch(tensor: Tensor) -> bool:
    """Begin to copy the memory of `tensor` to the host, for who looks at its value later and has
    other work for the device meanwhile. False where the host sees that memory."""
    return memory_of(tensor).fetch()


def native(tensor: Tensor) -> Any:
    """The values in a dtype of NumPy's own: small floats as float32."""
    array = download(tensor)
    return array.astype("float32") if tensor.dtype.is_small else array


def copy_to(tensor: Tensor, device: str) -> Node:
    """A computed node with the value of `tensor` on another device."""
    node = Node(Op.COPY, (tensor.node,), device)
    SESSION.place(node, buffer_node(memory_of(tensor).to(device), tensor.shape, tensor.dtype))
    return node
