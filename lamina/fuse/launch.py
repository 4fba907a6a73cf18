"""What a program runs: kernels, and the parts of buffers that they read and write."""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property

from lamina.core.dtypes import DType
from lamina.graph import index as ix
from lamina.ir.kernel import AnyKernel, Kernel, Store, bounds
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.ir.substitute import rebuilt_in_order

ALIGNMENT = 64  # bytes; a cache line
Memory = tuple[str, int]  # the kind and the number of a view


@dataclass(frozen=True, slots=True)
class BufferView:
    """A buffer view: a buffer of a program, or the part of one that begins `offset` bytes after its
    start.

    The buffer, by `kind`:

    - "input": parameter `number` of the program
    - "kept": array `number` of those that the program `once` of this one makes
    - "output": its fresh result `number`
    - "scratch": the arena; `number` only tells views apart
    - "block": the memory that each thread has for a block of rows; `number` as for scratch
    """

    kind: str
    number: int
    dtype: DType
    size: int  # in elements
    offset: int = 0  # in bytes
    constant: bool = False  # it is the same in most calls

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def memory(self) -> Memory:
        """What tells the buffer from others; views of one may differ in dtype and size."""
        return self.kind, self.number


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel, and its arguments: a view for each of its parameters. For reports, `values` are
    the nodes that the kernel computes."""

    kernel: AnyKernel
    arguments: tuple[BufferView, ...]
    values: tuple[Node, ...] = field(default=(), compare=False)

    @property
    def written(self) -> list[BufferView]:
        """The arguments that the kernel writes."""
        pairs = zip(self.arguments, self.kernel.parameters, strict=True)
        return [view for view, parameter in pairs if parameter.written]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an output is computed. Outputs of two programs with equal digests, made of the same
    inputs, are equal.

    digest: of the kernels, with their inputs in the order in which they come
    inputs: the numbers of these, in that order
    """

    digest: str
    inputs: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """Steps in order. A step is the launches of one kernel, or of several that run together: on a
    CPU for one block of rows after the other, on a GPU side by side, as none needs another one.
    `outputs` holds a view for each requested result.

    A call of the program brings a table of buffers: number 0 is the arena, with all scratch memory;
    then comes a buffer for each output, then one for each array that is kept from call to call,
    then one for each input. `once` is a program of its own, with the same inputs, whose outputs are
    the arrays that are kept; None if there are none. `recipes`: of a program that fills such
    arrays, how each output is computed (`lamina.schedule.recipes`)."""

    steps: tuple[tuple[Launch, ...], ...]
    outputs: tuple[BufferView, ...]
    arena: int  # bytes of scratch memory
    block: int  # bytes that each thread needs for a block of rows
    once: "Program | None" = None
    recipes: tuple[Recipe, ...] = ()

    @property
    def kept_views(self) -> tuple[BufferView, ...]:
        """The arrays that are kept from call to call, as the outputs of `once`."""
        return self.once.outputs if self.once is not None else ()

    @property
    def kept(self) -> int:
        """How many arrays are kept from call to call."""
        return len(self.kept_views)

    @cached_property
    def launches(self) -> list[Launch]:
        """All launches of all steps."""
        return [launch for step in self.steps for launch in step]

    def location(self, view: BufferView) -> tuple[int, int]:
        """Where `view` begins: the number of its buffer in the table, and the byte in that buffer.

        With 2 outputs, input 3 is buffer 1 + 2 + 3 = 6. Memory for a block of rows is in no buffer
        of the table, as each thread has its own: it has the number 0 too, and its kind tells.
        """
        number = 0
        if view.kind == "output":
            number = 1 + view.number
        elif view.kind == "kept":
            number = 1 + len(self.outputs) + view.number
        elif view.kind == "input":
            number = 1 + len(self.outputs) + self.kept + view.number
        return number, view.offset


def on_touched_lines(launch: Launch, offsets: dict[BufferView, int]) -> Launch:
    """`launch` with just the cache lines of each array that its kernel touches as parameters.

    `offsets` says where whole views begin in their buffers, in bytes; a view that is not in it
    begins at 0. Kernels that differ in nothing else, as those of steps in time do, are equal then:
    ``x[32:40] + 1`` and ``x[48:56] + 1``, of x with 64 float32, both add 1 to the first 8 elements
    of a view of 16.
    """
    touched = _touched_indices(launch.kernel)
    views: list[BufferView] = []
    starts: list[int] = []  # of each parameter, the first element that it keeps
    for number, view in enumerate(launch.arguments):
        elements = _line_elements(view, touched[number])
        offset = offsets.get(view, 0) + elements.start * view.dtype.itemsize
        views.append(replace(view, size=len(elements), offset=offset))
        starts.append(elements.start)
    if not isinstance(launch.kernel, Kernel):  # it has no indices, so it keeps whole arrays
        return replace(launch, arguments=tuple(views))
    kernel = _moved(launch.kernel, views, starts)
    return replace(launch, kernel=kernel, arguments=tuple(views))


def _touched_indices(kernel: AnyKernel) -> defaultdict[int, list[Node]]:
    """The indices at which a kernel reads or writes each of its parameters, by number; no index
    for any other number."""
    touched = defaultdict[int, list[Node]](list)
    for node in kernel.nodes:
        if node.op is Op.LOAD:
            touched[node.arg.parameter].append(node.src[0])
    for store in kernel.stores:
        touched[store.parameter].append(store.index)
    return touched


def _line_elements(view: BufferView, indices: list[Node]) -> range:
    """The elements of the cache lines of `view` that `indices` reach; all if there are none.

    An index may leave the array where a condition keeps the kernel from reading: ``i - 1`` for
    i < 8 over padding. Only its part inside the array counts, -1 to 6 as 0 to 6: of 100 float32 in
    lines of 16, that is range(0, 16). A single element is taken without its line, so that kernels
    are equal that read an element each of one table, as the rate of a parameter.
    """
    if not indices:
        return range(view.size)
    line = ALIGNMENT // view.dtype.itemsize  # elements
    all_bounds = [bounds(index) for index in indices]
    lowest = min(low for low, _ in all_bounds)
    highest = max(high for _, high in all_bounds)
    last = max(view.size - 1, 0)  # 0 for an array without elements
    first_touched = min(max(lowest, 0), last)
    last_touched = min(max(highest, 0), last)
    if first_touched == last_touched:
        return range(first_touched, min(first_touched + 1, view.size))
    start = first_touched // line * line
    stop = min((last_touched // line + 1) * line, view.size)
    return range(start, stop)


def _moved(kernel: Kernel, views: list[BufferView], starts: list[int]) -> Kernel:
    """`kernel` over `views`, parts of its parameters that begin at the elements `starts`: with
    start 16, what it read at ``i + 20`` is at ``i + 4``."""

    def moved(node: Node, src: tuple[Node, ...]) -> Node:
        if node.op is Op.LOAD:
            src = (ix.scale(src[0], 1, -starts[node.arg.parameter]), *src[1:])
        return ix.rebuild(node, src)

    done = rebuilt_in_order(kernel.nodes, {}, moved)
    parameters = tuple(
        replace(parameter, size=view.size)
        for parameter, view in zip(kernel.parameters, views, strict=True)
    )
    stores = tuple(_moved_store(store.rebuilt(done), starts) for store in kernel.stores)
    return replace(kernel, parameters=parameters, stores=stores)


def _moved_store(store: Store, starts: list[int]) -> Store:
    """`store` over the part of its parameter that begins at one of the elements `starts`."""
    return replace(store, index=ix.scale(store.index, 1, -starts[store.parameter]))
