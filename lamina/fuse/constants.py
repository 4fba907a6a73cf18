"""What depends on constants alone is computed before the first call, by a program of its own, and
again when a constant has changed (`KeptArrays` of lamina/frontend/constants.py).

Constants are inputs that a function captured and does not write: weights in inference, tables. In
``relu((x @ (w * scale)) + b)``, where w, scale and b are constants, the product ``w * scale`` is
the same in each call. `constants_apart` takes it out:

    every call    relu((x @ kept0) + b)
    once          kept0 = w * scale

A value is kept if reading it takes less time than computing it again. Floats that are made of
bytes, ``cast(w) * scale``, are not: each call would read four times as many bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lamina.core.dtypes import float32
from lamina.core.rates import COMMON_CPU
from lamina.core.shape import prod
from lamina.fuse.costs import WEIGHT
from lamina.ir.node import Node, toposort
from lamina.ir.ops import BufferRef, Group, Op
from lamina.ir.substitute import substitute

LANES = 16  # of float32 in a vector of COMMON_CPU

# Operations whose result has memory in any case, so that reading it costs no more than before.
IN_MEMORY = frozenset({Op.REDUCE, Op.SCAN, Op.SCATTER, Op.ARGSORT, Op.BIN_SUM, Op.CONTIGUOUS})
# Operations so slow that reading a table of their results is quicker.
COSTLY = Group.TRANSCENDENTAL | {Op.POW}
# Operations that other processes, devices or writes take part in.
NEVER_CONSTANT = Group.COLLECTIVE | {Op.ASSIGN, Op.COPY, Op.CALL}


@dataclass(frozen=True)
class Kept:
    """The storage of a BUFFER: array `number` of those that a program keeps from call to call."""

    number: int


@dataclass(frozen=True)
class Apart:
    """A graph in two parts.

    every_call: the results that every call computes. They read kept arrays, BUFFERs whose storage
        is `Kept`
    once: the values of these arrays, in the order of `Kept.number`
    """

    every_call: list[Node]
    once: list[Node]


def constants_apart(sinks: Sequence[Node]) -> Apart:
    """`sinks` with each value that is worth keeping replaced by memory that holds it. A sink itself
    is computed in every call, as its memory is the caller's."""
    order = toposort(sinks)
    constant = constants_of(order)
    if not constant:
        return Apart(list(sinks), [])
    nbytes_read = sum(node.nbytes for node in constant if node.op is Op.BUFFER)
    in_every_call = set(sinks)
    kept: dict[Node, Node] = {}
    for node in reversed(order):  # users first
        if node not in in_every_call:
            continue
        for operand in node.src:
            if operand in in_every_call:
                continue
            if operand not in constant or not _gains_by_keeping(operand, nbytes_read):
                in_every_call.add(operand)
            elif operand not in kept:
                kept[operand] = _memory_of(operand, Kept(len(kept)), order)
    return Apart(substitute(sinks, dict(kept)), _without_constants([*kept]))


def _without_constants(values: Sequence[Node]) -> list[Node]:
    """`values` over memory without the mark `constant`. A program that runs once is given no kept
    arrays (`run_once`), so none of its kernels may ask for one."""
    plain: dict[Node, Node] = {}
    for node in toposort(values):
        if node.op is Op.BUFFER and node.arg.constant:
            plain[node] = Node(Op.BUFFER, (), node.arg._replace(constant=False))
    return substitute(values, plain)


def _memory_of(value: Node, storage: Kept, order: Iterable[Node]) -> Node:
    """A BUFFER that holds `value`, on the device of the graph `order`."""
    device = next(node.arg.device for node in order if node.op is Op.BUFFER)
    return Node(Op.BUFFER, (), BufferRef(storage, value.shape, value.dtype, device, constant=True))


def constants_of(order: Iterable[Node]) -> set[Node]:
    """The nodes of `order`, operands first, that are the same in each call; none of a graph that
    reads no constant, though some of its nodes are made of numbers alone."""
    constant: set[Node] = set()
    for node in order:
        if node.op is Op.BUFFER:
            is_constant = node.arg.constant
        else:
            is_constant = node.op not in NEVER_CONSTANT and constant.issuperset(node.src)
        if is_constant:
            constant.add(node)
    reads_constants = any(node.op is Op.BUFFER for node in constant)
    return constant if reads_constants else set()


def _gains_by_keeping(value: Node, nbytes_read: int) -> bool:
    """Is it quicker to read `value` in each call than to compute it from constants again?

    nbytes_read: the bytes of all constants together, which each call reads

    A kept value saves arithmetic, and changes which bytes a call reads: its own in place of those
    of the constants that it is computed from. If its own are no more, keeping it is a gain. If they
    are more, the additional bytes take time. They are read from the nearest level of memory that
    holds all constants, and the value: in a nearer one, each call replaces what the next call reads
    first. A value of movement alone is not kept: kernels read through movement.

    A value that is computed from indices and numbers alone is cheap in a kernel, whose loops have
    the indices, unless it takes exponentials and the like: a table of sines is kept, a mask
    ``row < column`` is not.

    For 1 MiB of bytes that become 4 MiB of float32: 3 MiB more from the third-level cache take 0.11
    ms, and the 2**20 products that they save 0.012 ms.
    """
    if value.op in IN_MEMORY:
        return True
    if value.op not in Group.ELEMENTWISE and value.op is not Op.GATHER:
        return False
    if value.op is Op.CAST and value.src[0].dtype.itemsize < value.dtype.itemsize:
        return False  # the narrower operand may be kept: kernels cast what they read
    beneath = toposort([value])
    bytes_read = sum(node.nbytes for node in beneath if node.op is Op.BUFFER)
    if not bytes_read and not any(node.op in COSTLY for node in beneath):
        return False
    more_bytes = value.nbytes - bytes_read
    if more_bytes <= 0:
        return True
    operations = sum(WEIGHT.get(node.op, 0) * prod(node.shape) for node in beneath)
    nbytes_held = max(value.nbytes, nbytes_read)
    level = next(level for level in COMMON_CPU.levels if level.size >= nbytes_held)
    lanes = LANES * float32.itemsize // max(value.dtype.itemsize, float32.itemsize)
    return more_bytes / level.read < operations / lanes / COMMON_CPU.issue
