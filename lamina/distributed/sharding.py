"""Programs for a whole array, of which each process computes its part.

    mesh = distributed.Mesh(model=2)
    up = distributed.shard(up, mesh, ("model", None))       # (8 * width, width), cut by rows
    down = distributed.shard(down, mesh, (None, "model"))
    y = distributed.whole(lm.gelu(x @ up.T) @ down.T)       # as if there were one process

`shard` gives a tensor of the whole shape, of which each process keeps its part. What is computed
from it is a graph in whole shapes. `part` and `whole` make of it the graph of this process: specs
go from operands to results (`lamina/distributed/spec.py`), and where an operand has to lie in
another way, a collective brings it there. With `LAMINA_DEBUG=1` each is a line on standard error.

Derivatives follow from those of the collectives. A value that is the same on all processes has the
same adjoint on all of them; where it enters what processes compute differently, the adjoints of all
are added up. So gradients of parts are parts of the gradient, and those of other tensors are alike
everywhere, whatever the mesh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from lamina.core.options import current
from lamina.distributed import setup
from lamina.distributed.layout import Box, Layout
from lamina.distributed.mesh import Axis, Mesh
from lamina.distributed.operations import all_gather, all_reduce, all_to_all, reduce_scatter
from lamina.distributed.spec import (
    POINTWISE,
    Spec,
    local_node,
    operand_specs,
    spec_of,
)
from lamina.distributed.spec import whole as whole_spec
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.realize import realize
from lamina.frontend.session import Elsewhere, content_of, elsewhere
from lamina.frontend.tensor import Tensor
from lamina.graph.open_calls import open_call
from lamina.ir import build
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Group, Op
from lamina.ir.substitute import substitute
from lamina.nn.state import parameter

__all__ = ["axes_of", "of_part", "part", "shard", "whole"]


@dataclass(frozen=True, eq=False)
class _Part(Elsewhere):
    """What stands in the place of an array of a graph in whole shapes."""

    local: Tensor
    mesh: Mesh
    spec: Spec

    def refuse(self, node: Node) -> NoReturn:
        """Raise ArgumentError: who asks for a value, or gives one, has to say of what."""
        raise ArgumentError(
            f"each process has a part of {node.dtype.name} {node.shape}, and nobody all of it",
            operation="shard",
            remedy="take its `part` or its `whole`",
        )


def shard(x: Tensor, mesh: Mesh, names: Sequence[str | None]) -> Tensor:
    """x of the whole shape, of which each process keeps the part that `names` says: for each
    dimension the axis of the mesh along which it is cut, or None.

    x is the same on all processes, or was computed from what `shard` gave. Of a parameter the part
    is one: `part` gives it, as does `nn.parameters` of a layer that has the result as an attribute.

    Raises ArgumentError for unknown axes, one twice, or another number of dimensions, and
    ShapeError where a dimension does not divide."""
    wanted = _checked(x, mesh, names)
    partition = _Partition.of(x)
    if partition is not None:
        local = Tensor.of(partition.place(x, wanted), x.device)
    else:
        elements = x.detach()
        for axis, name in enumerate(wanted.names):
            if name is not None:
                elements = Tensor.of(_local_part(elements.node, axis, mesh[name]), x.device)
        local = elements.contiguous()
        if x.requires_grad:
            local = parameter(local)
            realize(local)  # so that nothing keeps the whole one
    return _of_part(local, mesh, wanted)


def of_part(x: Tensor, mesh: Mesh, names: Sequence[str | None]) -> Tensor:
    """The tensor of the whole shape of which each process has the part x. With ("data", None) that
    are the rows of all processes along the axis "data".

    Raises ArgumentError as `shard`, and ProgramsDifferError, on GPUs at a later collective, where
    processes have parts of other shapes, as of an uneven last batch."""
    wanted = Spec(_known(x, mesh, names))
    for name in wanted.names:
        if name is not None:
            what = f"a part, {x.dtype.name} {x.shape}, of a tensor cut along {wanted}"
            setup.compare(mesh[name].ranks, mesh[name].stride, what)
    return _of_part(x, mesh, wanted)


def _of_part(x: Tensor, mesh: Mesh, wanted: Spec) -> Tensor:
    shape = tuple(
        size * mesh[name].ranks if name else size
        for size, name in zip(x.shape, wanted.names, strict=True)
    )
    leaf = Node.unique(_Part(x, mesh, wanted), shape, x.dtype, x.device)
    return Tensor.of(leaf, x.device)


def part(x: Tensor) -> Tensor:
    """What this process has of x, cut as `axes_of` says; of a tensor that `shard` made, the one
    that it keeps. Raises ArgumentError where nothing in x was sharded."""
    storage = elsewhere(x.node)
    if storage is not None:
        return storage.local
    partition = _Partition.needed(x, "part")
    return Tensor.of(partition.place(x, partition.spec(x).summed), x.device)


def whole(x: Tensor) -> Tensor:
    """All of x, on every process. Raises ArgumentError where nothing in x was sharded."""
    partition = _Partition.needed(x, "whole")
    return Tensor.of(partition.place(x, whole_spec(len(x.shape))), x.device)


def axes_of(x: Tensor) -> tuple[str | None, ...]:
    """For each dimension of x the axis along which `part` is cut, or None."""
    return _Partition.needed(x, "axes_of").spec(x).names


def layout_of(x: Tensor) -> Layout | None:
    """Which elements of a tensor that `shard` made its part has; None of any other."""
    storage = elsewhere(x.node)
    if not isinstance(storage, _Part):
        return None
    shape = storage.local.shape
    places = [storage.mesh[name].place if name else 0 for name in storage.spec.names]
    start = tuple(place * size for place, size in zip(places, shape, strict=True))
    axes = tuple(storage.mesh[name] for name in storage.spec.names if name is not None)
    return Layout(x.shape, (Box(start, (0,) * len(shape), shape),), axes)


def _checked(x: Tensor, mesh: Mesh, names: Sequence[str | None]) -> Spec:
    """The spec of these names, along which the shape of x divides."""
    known = _known(x, mesh, names)
    for size, name in zip(x.shape, known, strict=True):
        if name and size % mesh[name].ranks:
            raise ShapeError(
                f"{x.shape} does not divide along {tuple(names)}: {size} elements, "
                f"{mesh[name].ranks} processes",
                operation="shard",
            )
    return Spec(known)


def _known(x: Tensor, mesh: Mesh, names: Sequence[str | None]) -> tuple[str | None, ...]:
    """`names`, None in the place of axes with one process."""
    used = [name for name in names if name is not None]
    if len(names) != len(x.shape) or len(set(used)) < len(used):
        raise ArgumentError(
            f"{tuple(names)} are not one axis of the mesh, or None, for each dimension of "
            f"{x.shape}, each axis at most once",
            operation="shard",
        )
    return tuple(name if name and mesh[name].ranks > 1 else None for name in names)


class _Partition:
    """The graph of this process for graphs in whole shapes."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._sizes = {name: axis.ranks for name, axis in mesh.axes.items()}
        self._specs: dict[Node, Spec] = {}
        self._placed: dict[tuple[Node, Spec, frozenset[str]], Node] = {}
        self._opened: dict[Node, Node] = {}
        self._moves: dict[Node, str] = {}  # the results of collectives, and what these are

    @classmethod
    def of(cls, x: Tensor) -> _Partition | None:
        """That of the mesh on which something in the graph of x is; None if nothing is."""
        leaves = [node for node in toposort([x.node]) if node.op is Op.BUFFER]
        meshes = [leaf.arg.storage.mesh for leaf in leaves if isinstance(leaf.arg.storage, _Part)]
        for leaf in leaves:
            if content_of(leaf) is not leaf and cls.of(Tensor.of(content_of(leaf), x.device)):
                raise ArgumentError(
                    f"{leaf.dtype.name} {leaf.shape} was computed from what `shard` gave, and was "
                    "then made to require its derivative",
                    operation="shard",
                    remedy="let what is sharded require it",
                )
        if not meshes:
            return None
        if any(mesh.axes != meshes[0].axes for mesh in meshes):
            raise ArgumentError("tensors of two meshes meet", operation="shard")
        return cls(meshes[0])

    @classmethod
    def needed(cls, x: Tensor, operation: str) -> _Partition:
        partition = cls.of(x)
        if partition is None:
            raise ArgumentError(
                f"{x.dtype.name} {x.shape} was computed from nothing that `shard` gave",
                operation=operation,
            )
        return partition

    def spec(self, x: Tensor) -> Spec:
        """How x lies where it is computed."""
        return self._spec(self._open(x))

    def place(self, x: Tensor, wanted: Spec) -> Node:
        """The part of x that `wanted` says."""
        node = self._open(x)
        for inner in toposort([node]):  # operands first: a graph is deeper than recursion may be
            self._place(inner, self._spec(inner), frozenset())
        placed = self._place(node, wanted, frozenset())
        if current().debug:
            moves = [self._moves[inner] for inner in toposort([placed]) if inner in self._moves]
            print("".join(f"shard: {said}\n" for said in moves), end="", file=sys.stderr)
        return placed

    def _open(self, x: Tensor) -> Node:
        """The graph of x, with that of each call in it."""
        (node,) = substitute([x.node], self._opened, open_call)
        for inner in toposort([node]):
            self._spec(inner)
        return node

    def _spec(self, node: Node) -> Spec:
        spec = self._specs.get(node)
        if spec is None:
            if node.op in Group.COLLECTIVE or node.op in (Op.ASSIGN, Op.COPY):
                raise ArgumentError(
                    f"{node.op.name.lower()} of what `shard` gave: take its `part` or `whole`",
                    operation="shard",
                )
            storage = elsewhere(node)
            if isinstance(storage, _Part):
                spec = storage.spec
            else:
                spec = spec_of(node, [self._spec(operand) for operand in node.src], self._sizes)
            self._specs[node] = spec
        return spec

    def _place(self, node: Node, wanted: Spec, enters: frozenset[str]) -> Node:
        """The part of `node` that `wanted` says, as processes need it that compute something else
        from it along the axes `enters`."""
        key = (node, wanted, enters)
        if key not in self._placed:
            self._placed[key] = self._entering(node, wanted, enters)
        return self._placed[key]

    def _entering(self, node: Node, wanted: Spec, enters: frozenset[str]) -> Node:
        spec = self._spec(node)
        if node.op in (Op.EXPAND, Op.PERMUTE) and spec.partial == wanted.partial:
            return self._computed(node, wanted, enters)  # what is repeated enters before that
        if spec == wanted or _can_compute(node, spec, wanted):
            value, entered = self._computed(node, wanted), frozenset[str]()
        else:
            value, entered = self._moved(node, spec, wanted, enters)
        if node.op not in (Op.CONST, Op.IOTA):
            for name in sorted(enters - wanted.varying - entered):
                value = _entered(value, self._mesh[name])
        return value

    def _computed(
        self, node: Node, wanted: Spec, enters: frozenset[str] = frozenset()
    ) -> Node:
        """`node` from parts of its operands, which enter what processes compute differently along
        the axes of `wanted`, and along `enters`."""
        if node.op is Op.BUFFER:
            storage = elsewhere(node)
            return node if storage is None else storage.local.node
        current_specs = [self._spec(operand) for operand in node.src]
        specs = operand_specs(node, wanted, current_specs, self._sizes)
        operands = tuple(
            self._place(operand, spec, wanted.varying | enters)
            for operand, spec in zip(node.src, specs, strict=True)
        )
        return local_node(node, operands, wanted, self._sizes)

    def _moved(
        self, node: Node, spec: Spec, wanted: Spec, enters: frozenset[str]
    ) -> tuple[Node, frozenset[str]]:
        """`node` as `wanted` says from where it lies, and the axes of `enters` that it has entered
        on the way: sums first, which may leave each process its part; then what is cut elsewhere,
        what is cut no longer, and what is cut now."""
        value, names = self._place(node, spec, frozenset()), list(spec.names)
        entered: set[str] = set()
        for name in sorted(spec.partial - wanted.partial):
            to = _index(wanted.names, name)
            if to is not None and names[to] is None:
                value, names[to] = _scattered(value, to, self._mesh[name]), name
                self._note("reduce_scatter", name, node, value)
            else:
                value = _summed(value, self._mesh[name])
                self._note("all_reduce", name, node, value)
        for place, cut in enumerate(spec.names):
            if cut is None or wanted.names[place] == cut:
                continue
            to = _index(wanted.names, cut)
            names[place] = None
            if to is not None and names[to] is None:
                value, names[to] = _exchanged(value, to, place, self._mesh[cut]), cut
                self._note("all_to_all", cut, node, value)
                continue
            is_entered = cut in enters and to is None
            value = _gathered(value, place, self._mesh[cut], varies=is_entered)
            self._note("all_gather", cut, node, value)
            entered |= {cut} if is_entered else set()
        for place, new in enumerate(wanted.names):
            if new is not None and names[place] is None:
                value = _cut(value, place, self._mesh[new])
        return value, frozenset(entered)

    def _note(self, operation: str, name: str, node: Node, value: Node) -> None:
        """Note that `value` is what a collective over an axis made of `node`."""
        self._moves[value] = (
            f"{operation} over {name} of {node.dtype.name} {node.shape}, {self._spec(node)}, a "
            f"result of {node.op.name.lower()}"
        )


def _index(names: Sequence[str | None], name: str) -> int | None:
    return names.index(name) if name in names else None


def _can_compute(node: Node, spec: Spec, wanted: Spec) -> bool:
    """Whether `node` can be computed where `wanted` says, rather than moved there: arithmetic of
    which that asks for a part."""
    pairs = zip(spec.names, wanted.names, strict=True)
    is_part = spec.partial == wanted.partial and all(have in (None, want) for have, want in pairs)
    return node.op in POINTWISE and is_part


# Moves. Each is a collective, or the part of this process, with a derivative for values that are
# the same on all processes and have the same adjoint there.


def _with_derivative(value: Node, other: Node) -> Node:
    """`value`, which has the derivative of `other`; of integers there is none."""
    return Node(Op.CUSTOM_DERIVATIVE, (value, other)) if value.dtype.is_float else value


def _on_tensor(node: Node) -> Tensor:
    return Tensor.of(node, "")


def _summed(x: Node, over: Axis) -> Node:
    """The sum of terms, alike everywhere: the adjoint of each term is that of the sum."""
    return _with_derivative(all_reduce(_on_tensor(x), "sum", over).node, x)


def _entered(x: Node, over: Axis) -> Node:
    """A value that is alike everywhere, of which processes compute something else: its adjoint is
    the sum of theirs."""
    if not x.dtype.is_float:
        return x
    return _with_derivative(x, all_reduce(_on_tensor(x), "sum", over).node)


def _scattered(x: Node, place: int, over: Axis) -> Node:
    """The part of this process of a sum of terms."""
    return reduce_scatter(_on_tensor(x), "sum", place, over).node


def _exchanged(x: Node, split: int, joined: int, over: Axis) -> Node:
    """Cut along the dimension `split` instead of `joined`."""
    return all_to_all(_on_tensor(x), split, joined, over).node


def _gathered(x: Node, place: int, over: Axis, *, varies: bool) -> Node:
    """The parts of all processes along a dimension. varies: each computes something else of it, and
    the adjoint of a part is the sum of theirs; else all have the same adjoint, and the part of this
    process is its own."""
    gathered = all_gather(_on_tensor(x), place, over).node
    if varies:
        return gathered
    size = x.shape[place]
    before, after = [0] * len(x.shape), [0] * len(x.shape)
    before[place] = over.place * size
    after[place] = (over.ranks - 1 - over.place) * size
    return _with_derivative(gathered, build.pad(x, before, after))


def _cut(x: Node, place: int, over: Axis) -> Node:
    """The part of this process of a value that is alike everywhere: its adjoint is made of theirs.
    """
    local = _local_part(x, place, over)
    if not x.dtype.is_float:
        return local
    return _with_derivative(local, reduce_scatter(_on_tensor(x), "sum", place, over).node)


def _local_part(x: Node, place: int, over: Axis) -> Node:
    size = x.shape[place] // over.ranks
    return build.slice_axis(x, place, over.place * size, (over.place + 1) * size)
