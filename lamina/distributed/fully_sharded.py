"""Fully sharded layers: each process keeps a part of the parameters, and of the optimiser's state.

Parameters are gathered before they are used, and once more for the backward pass, so that they
take no memory in between. Their derivative is a sum over the processes, of which each keeps its own
part: so gradients, and what an optimiser keeps for them, are as short as the parts (ZeRO, arXiv
1910.02054). On GPUs the next ones are gathered while a layer runs (`lamina.fuse.early`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, prod
from typing import Any

from lamina.core.dtypes import DType
from lamina.core.shape import Shape
from lamina.distributed import setup
from lamina.distributed.data_parallel import buckets
from lamina.distributed.layout import Box, Layout, layouts_of
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import all_gather
from lamina.errors import ArgumentError, DTypeError
from lamina.frontend.functions.movement import concat, expand_dims, reshape
from lamina.frontend.functions.padding import pad
from lamina.frontend.tensor import Tensor
from lamina.ir.node import Node
from lamina.ir.ops import Op
from lamina.nn.state import named_layers, parameter, state_dict

__all__ = ["FullySharded"]


class FullySharded:
    """`layer`, any callable object with parameters, of which each process of an axis keeps a part.

    Calls give what `layer` gives. `shards` has by name this process's part of each parameter, all
    elements in one row, which are rounded up to a multiple of the number of processes with zeros:
    of 10 elements 4 processes have 3 each. Other tensors of the layer stay whole, as do the shards
    of layers in it that are FullySharded themselves; a parameter that two layers share has to be
    wrapped with both.

    dtype: of the parameters that the layer gets, in which they are sent, and their gradients added
    up: bfloat16 are half the bytes of float32. By default that of the shards.

    Gradients are sums over the processes. Where each has a mean over its own rows of a batch,
    divide the loss by the number of processes. Raises ArgumentError for a parameter in a tuple, or
    one of which processes along the axis have other parts, as of a ColumnParallel; and DTypeError
    for a dtype that is no float."""

    def __init__(self, layer: Callable[..., Any], over: Axis, dtype: DType | None = None) -> None:
        if dtype is not None and not dtype.is_float:
            raise DTypeError(
                f"parameters are floats, not {dtype.name}, which has no derivative",
                operation="FullySharded",
            )
        self.layer, self._over, self._dtype = layer, over, dtype
        self._shapes: dict[str, Shape] = {}
        self.shards: dict[str, Tensor] = {}
        # What sets each place of a parameter: those of a tied one are several.
        self._places: dict[str, list[Callable[[Tensor | None], None]]] = {}
        first_name: dict[Tensor, str] = {}
        divided = _shards_in(layer)
        for name, tensor in state_dict(layer).items():
            if tensor.requires_grad and tensor not in divided:
                first = first_name.setdefault(tensor, name)
                self._places.setdefault(first, []).append(_setter(layer, name))
        _refuse_parts(first_name.values(), layouts_of(layer), over)
        for tensor, name in first_name.items():
            self._shapes[name] = tensor.shape
            self.shards[name] = _shard(tensor, over)
        self._bucket_of = _buckets(self.shards, over.ranks)
        self._put(dict.fromkeys(self.shards))  # nothing keeps the whole ones

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        gathered: dict[str, Tensor | None] = {}
        for name in self.shards:
            gathered[name] = self.whole(name)
        self._put(gathered)
        try:
            return self.layer(*arguments, **keywords)
        finally:
            self._put(dict.fromkeys(self.shards))

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`: all elements of a parameter in one row."""
        found: dict[str, Layout] = {}
        for name, shape in self._shapes.items():
            size, each = prod(shape), self.shards[name].size
            start = self._over.place * each
            own = max(0, min(each, size - start))
            boxes = (Box((start,), (0,), (own,)),) if own else ()
            found[f"shards.{name}"] = Layout((size,), boxes, (self._over,))
        return found

    def whole(self, name: str) -> Tensor:
        """A parameter, gathered from all processes. Those of a bucket are gathered as one."""
        bucket = self._bucket_of[name]
        gathered = self._gathered([self.shards[one] for one in bucket])
        first = sum(self.shards[one].size for one in bucket[: bucket.index(name)])
        of_each_rank = gathered[:, first : first + self.shards[name].size]
        shape = self._shapes[name]
        return reshape(reshape(of_each_rank, (-1,))[: prod(shape)], shape)

    def _gathered(self, shards: Sequence[Tensor]) -> Tensor:
        """The elements of `shards`, one after the other, of each rank: (ranks, elements). The
        backward pass gathers them again."""
        own = shards[0] if len(shards) == 1 else concat(shards)
        sent = own if self._dtype is None else own.cast(self._dtype)
        gathered = all_gather(expand_dims(sent, 0), 0, self._over)
        if self._over.ranks == 1:
            return gathered
        return Tensor.of(Node(Op.RECOMPUTED, (gathered.node, own.node)), own.device)

    def _put(self, values: dict[str, Tensor | None]) -> None:
        """Give the layer's attributes these values."""
        for name, value in values.items():
            for put in self._places[name]:
                put(value)


def _shards_in(layer: Any) -> set[Tensor]:
    """The parts that layers in `layer` have: each process has other values."""
    inner = [one for _, one in named_layers(layer) if isinstance(one, FullySharded)]
    return {shard for one in inner for shard in one.shards.values()}


def _refuse_parts(names: Iterable[str], layouts: Mapping[str, Layout], over: Axis) -> None:
    """Raise ArgumentError if processes of the group of `over` have other parts of a parameter."""
    group = set(over.group)
    for name in names:
        for axis in layouts[name].axes if name in layouts else ():
            if len(group.intersection(axis.group)) > 1:
                raise ArgumentError(
                    f"{name} is a part, of which the processes along {over.name!r} have others",
                    operation="FullySharded",
                    remedy="take another axis of the mesh, along which all have the same part",
                )


def _buckets(shards: Mapping[str, Tensor], ranks: int) -> dict[str, list[str]]:
    """The names that are gathered with each one, itself included. All are ready at one time, so
    that no short ones need to go ahead."""
    names = list(shards)
    of_each: dict[str, list[str]] = {}
    enough = setup.bucket_bytes() // ranks
    for numbers in buckets(list(shards.values()), enough, span=inf):
        bucket = [names[number] for number in sorted(numbers)]
        of_each |= dict.fromkeys(bucket, bucket)
    return of_each


def _shard(whole: Tensor, over: Axis) -> Tensor:
    """A parameter with the elements of this process."""
    each = -(-whole.size // over.ranks)
    missing = each * over.ranks - whole.size
    elements = pad(reshape(whole.detach(), (-1,)), [(0, missing)])
    start = over.place * each
    return parameter(elements[start : start + each].contiguous())


def _setter(layer: Any, name: str) -> Callable[[Tensor | None], None]:
    """What sets the attribute, or the element of a list or a dict, of a dotted name. Raises
    ArgumentError for that of a tuple."""
    *path, last = name.split(".")
    owner = layer
    for step in path:
        owner = _child(owner, step)
    if isinstance(owner, tuple):
        raise ArgumentError(
            f"parameter {name} is directly in a tuple, whose elements cannot be replaced",
            operation="FullySharded", remedy="put it into a list"
        )  # fmt: skip

    def put(value: Tensor | None) -> None:
        if isinstance(owner, list):
            owner[int(last)] = value
        elif isinstance(owner, dict):
            owner[last] = value
        else:
            setattr(owner, last, value)

    return put


def _child(owner: Any, step: str) -> Any:
    if isinstance(owner, (list, tuple)):
        return owner[int(step)]
    return owner[step] if isinstance(owner, dict) else getattr(owner, step)
