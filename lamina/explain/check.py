"""What ``LAMINA_CHECK=1`` adds: each step of a program, a kernel or several in row blocks, runs
alone and is compared with the reference of kernels, `run_kernel`: NumPy, slow and plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from lamina.compiled import runner
from lamina.core.dtypes import accumulator
from lamina.core.options import Options
from lamina.errors import VerifyError
from lamina.explain.collectives import collective_value
from lamina.fuse.program import BufferView, Launch, Program
from lamina.ir.interpreter import (
    EVALUATE,
    Array,
    Arrays,
    bin_sum,
    evaluate,
    ordered,
    put,
    reduce,
    scan,
)  # fmt: skip
from lamina.ir.kernel import (
    AnyKernel,
    BinKernel,
    Collective,
    SortKernel,
    Store,
    bound_axes,
    roots_of,
)  # fmt: skip
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Op, Reduce
from lamina.runtime.buffer import Buffer

if TYPE_CHECKING:
    from lamina.backends import Backend
    from lamina.compiled import Planned

# How far floats may be apart, as a share of the largest number that the kernel reads or writes: by
# the shortest dtype that a result was rounded to on the way.
TOLERANCE = {
    "float8_e4m3fn": 0.13, "float8_e5m2": 0.26, "float16": 2e-3, "bfloat16": 2e-2,
    "float32": 1e-5, "float64": 1e-13,
}  # fmt: skip
ROUNDED = 0.01  # the share of integers or bools made from rounded floats that may differ
Memory = dict[BufferView, Array]
EXACT = frozenset({Op.NEG, Op.MAX, Op.MIN, Op.WHERE, Op.LOAD, Op.CONST, Op.TRUNC, Op.BITCAST})


def run_checked(
    planned: Planned, table: Sequence[Buffer], options: Options, target: Backend
) -> list[float]:
    """Run each step as a program of its own; the seconds of each. Raises VerifyError, naming the
    kernels, the element and the schedule, if one wrote what the reference does not write."""
    program, seconds = planned.program, list[float]()
    for step in program.steps:
        plans = {launch.kernel: planned.plans[launch.kernel] for launch in step}
        alone = replace(program, steps=(step,))
        source, launches = target.print(alone, plans, planned.tiles, options)
        before = _arrays(program, step, table)
        seconds += runner(options).load(source, launches, options).run(table, 1)
        if wrong := difference(step, before, _arrays(program, step, table)):
            names = "+".join(plan.name for plan in plans.values())
            moves = "\n".join(map(str, plans.values()))
            raise VerifyError(f"check: kernel {names}: {wrong}\nits schedule:\n{moves}")
    return seconds


def _arrays(program: Program, step: Iterable[Launch], table: Sequence[Buffer]) -> Memory:
    """Flat arrays over copies of the memory that a step uses; that of a block begins as zeros."""
    arrays, copies = dict[BufferView, Array](), dict[int, bytearray]()
    for view in (view for launch in step for view in launch.arguments):
        at = -1 if view.kind == "block" else program.location(view)[0]
        if at not in copies:
            copies[at] = bytearray(program.block if at < 0 else table[at].on_host().view())
        arrays[view] = np.frombuffer(copies[at], view.dtype.numpy, view.size, view.offset)
    return arrays


@np.errstate(all="ignore")
def difference(step: Sequence[Launch], before: Memory, after: Memory) -> str | None:
    """What the arrays `after` a step has run have otherwise than the reference makes of those
    `before`, which are overwritten; or None. All are flat arrays, by view."""
    read = set[BufferView]()
    for launch in step:
        loads = [node for node in launch.kernel.nodes if node.op is Op.LOAD]
        read.update(launch.arguments[load.arg.parameter] for load in loads)
    largest = _largest(before[view] for view in read)  # others hold what happened to be there
    for block in np.ndindex(*(axis.arg.size for axis in step[0].kernel.block_axes)):
        for launch in step:
            at = dict(zip(launch.kernel.block_axes, block, strict=True))
            run_kernel(launch.kernel, [before[view] for view in launch.arguments], at)
    for launch in step:
        kernel, views = launch.kernel, launch.arguments
        if isinstance(kernel, SortKernel | BinKernel) and kernel.left:
            continue  # an order in the making: it agrees in the end
        # A sort and a collective have no stores, and their result in the second parameter.
        result = kernel.result if isinstance(kernel, BinKernel) else 1
        for number in {store.parameter for store in kernel.stores} or {result}:
            values = [store.value for store in kernel.stores if store.parameter == number]
            got, want = after[views[number]], before[views[number]]
            wrong = _differing(got, want, values, largest)
            if len(wrong) and kernel.parameters[number].memory == "device":
                return (
                    f"parameter {number} at {wrong[0]}: {got[wrong[0]]}, and the reference has "
                    f"{want[wrong[0]]}; {len(wrong)} of {want.size} elements differ"
                )
    return None


def _differing(got: Array, want: Array, values: Iterable[Node], largest: float) -> Array:
    """Where results differ; nowhere if rounded floats decide integers or bools, and few differ. A
    NaN agrees with a NaN."""
    if want.dtype.name in TOLERANCE:
        names = (node.dtype.name for node in toposort(values) if node.op is not Op.LOAD)
        tolerance = max(TOLERANCE.get(name, 0.0) for name in (want.dtype.name, *names))
        got, want = got.astype(np.float64), want.astype(np.float64)
        reach = tolerance * max(largest, _largest([want]))
        return np.flatnonzero(~np.isclose(got, want, 10 * tolerance, reach, equal_nan=True))
    wrong = np.flatnonzero(got != want)
    rounds = any(node.dtype.is_float and node.op not in EXACT for node in toposort(values))
    return wrong[:0] if rounds and len(wrong) <= max(1, ROUNDED * want.size) else wrong


def _largest(arrays: Iterable[Array]) -> float:
    """The largest finite magnitude among floats."""
    largest = 0.0
    for array in arrays:
        if array.dtype.name in TOLERANCE:
            magnitudes = np.abs(array.astype(np.float64))
            largest = max(largest, float(magnitudes.max(where=np.isfinite(magnitudes), initial=0)))
    return largest


@np.errstate(all="ignore")
def run_kernel(kernel: AnyKernel, arrays: Arrays, at: Mapping[Node, int] | None = None) -> None:
    """Run `kernel` on its parameters, flat NumPy arrays, in place, where some axes have the values
    `at`; what is computed is computed before anything is written. Raises VerifyError for an index
    outside its parameter."""
    if isinstance(kernel, SortKernel):
        keys = arrays[0].astype(accumulator(kernel.parameters[0].dtype).numpy)
        boxes = keys.reshape(-1, kernel.length, kernel.apart)
        arrays[1][:] = ordered(boxes, kernel.order._replace(axis=1)).reshape(-1)
        return
    if isinstance(kernel, BinKernel):
        if not kernel.left:
            operands = (arrays[number] for number in kernel.operands)
            arrays[kernel.result][:] = bin_sum(*operands)
        return
    if isinstance(kernel, Collective):
        operand = arrays[0].reshape(kernel.shape)
        arrays[1][:] = collective_value(kernel.op, kernel.arg, operand).reshape(-1)
        return
    ready = [(store, *_elements(store, arrays, at or {})) for store in kernel.stores]
    for store, places, elements in ready:
        put(store.monoid, arrays[store.parameter], places, elements)


def _elements(store: Store, arrays: Arrays, at: Mapping[Node, int]) -> tuple[Array, Array]:
    """Where a store writes, and what, in the order of its axes. Every axis is a dimension, the
    store's own first: an AXIS varies along its own and broadcasts along the others."""
    nodes = toposort((*store.axes, *roots_of(store)))
    axes = [node for node in nodes if node.op is Op.AXIS]
    ranges = ([at[axis]] if axis in at else range(axis.arg.size) for axis in axes)
    grids = dict(zip(axes, np.ix_(*ranges), strict=True))
    reduction = partial(_reduced, axes)
    rules: dict[Op, Callable[..., Any]] = {
        **EVALUATE, Op.LOAD: partial(_loaded, arrays), Op.LOOP_REDUCE: reduction,
        Op.LOOP_SCAN: reduction,
    }  # fmt: skip
    shape = [grids[axis].size if axis in store.axes else 1 for axis in axes]
    elements, places, kept = (
        np.broadcast_to(values, shape).reshape(-1)
        for values in evaluate(roots_of(store), grids, rules)
    )
    return _inside(arrays, places[kept], store.parameter, "store to"), elements[kept]


def _inside(arrays: Arrays, places: Array, number: int, what: str) -> Array:
    """`places`; raises VerifyError for those that parameter `number` does not have."""
    size = arrays[number].size
    if (outside := places[(places < 0) | (places >= size)]).size:
        where = f"a {what} parameter {number} at {outside[0]}"
        raise VerifyError(f"{where}: it has {size} elements")
    return places


def _loaded(arrays: Arrays, node: Node, index: Array, holds: Any = True) -> Array:
    """The elements that a LOAD reads; 0 where its condition does not hold."""
    index, holds = np.broadcast_arrays(index, holds)
    elements, number = np.zeros(index.shape, node.dtype.numpy), node.arg.parameter
    elements[holds] = arrays[number][_inside(arrays, index[holds], number, "load from")]
    return elements


def _reduced(axes: Sequence[Node], node: Node, *operands: Array) -> Array:
    """A LOOP_REDUCE, or a LOOP_SCAN, where each of `axes` is a dimension."""
    dims = tuple(map(axes.index, bound_axes(node)))
    arg = Reduce(node.arg.monoid, dims, node.arg.component)
    parts = np.broadcast_arrays(*operands)[: arg.monoid.arity]
    if node.op is Op.LOOP_REDUCE:
        return np.expand_dims(reduce(arg, parts), dims)
    return scan(arg, parts)
