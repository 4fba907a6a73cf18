"""What a model holds: tensors found by walking plain objects, named as PyTorch names them.

A layer is any object. Its tensors are its attributes; lists, tuples, dicts and other layers in
attributes are walked too, so ``model.blocks[0].weight`` is named ``blocks.0.weight``. Attributes
that begin with an underscore are not part of the state.
"""

import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from lamina.core.dtypes import DType
from lamina.errors import FormatError
from lamina.frontend.session import SESSION, own_of
from lamina.frontend.tensor import Tensor, as_tensor

__all__ = ["eval", "load_state_dict", "parameters", "state_dict", "train"]

Layer = TypeVar("Layer")
_NOT_LAYERS = (type, types.FunctionType, types.MethodType, types.ModuleType)


def state_dict(obj: Any) -> dict[str, Tensor]:
    """Every tensor of `obj` by its dotted name; a shared tensor appears under each name."""
    return {name: value for name, value in _walk(obj) if isinstance(value, Tensor)}


def parameters(obj: Any) -> list[Tensor]:
    """The tensors of `obj` that require derivatives, each once; of those that
    `lamina.distributed.shard` cut, the parts of this process."""
    tensors = map(own_of, state_dict(obj).values())
    return list(dict.fromkeys(tensor for tensor in tensors if tensor.requires_grad))


def load_state_dict(obj: Any, state: Mapping[str, Any], strict: bool = True) -> None:
    """Give the tensors of `obj` the values of `state` with the same names: tensors or arrays.

    Values are cast to the dtype and moved to the device of the tensor they replace. Raises
    FormatError, before anything has changed, for names of `state` that `obj` lacks, for names
    that `state` lacks, and for shapes that differ; ``strict=False`` forgives the first two."""
    tensors, state = state_dict(obj), {name: as_tensor(value) for name, value in state.items()}
    problems = [f"missing {name}" for name in tensors if strict and name not in state]
    problems += [f"unexpected {name}" for name in state if strict and name not in tensors]
    problems += [
        f"{name} has shape {state[name].shape}, {tensors[name].shape} is needed"
        for name in tensors
        if name in state and state[name].shape != tensors[name].shape
    ]
    if problems:
        raise FormatError(f"load_state_dict: {type(obj).__name__}: {'; '.join(problems)}")
    for name, tensor in tensors.items():
        if name in state:  # it gets memory of its own; its old value is never computed
            source = state[name].detach().to(tensor.device).cast(tensor.dtype)
            tensor.rebind(source.contiguous().detach())
            tensor.grad = None
            SESSION.compute_first(tensor)


def named_layers(obj: Any) -> Iterator[tuple[str, Any]]:
    """`obj` and every layer in it, each with its dotted name, "" for itself."""
    for name, value in _walk(obj):
        if not isinstance(value, Tensor):
            yield name, value


def train(obj: Layer, mode: bool = True) -> Layer:
    """Set `training` of every layer in `obj` that has it: dropout, batch normalisation."""
    for _, value in _walk(obj):
        if hasattr(value, "training") and not isinstance(value, Tensor):
            value.training = mode
    return obj


def eval(obj: Layer) -> Layer:
    """Prepare `obj` for use: dropout does nothing, batch normalisation uses what it has seen."""
    return train(obj, False)


def _walk(
    value: Any, name: str = "", outside: frozenset[int] = frozenset()
) -> Iterator[tuple[str, Any]]:
    """Every tensor and layer in `value` with its name, in the order of attributes; `outside` has
    the layers that contain it, where cycles end."""
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        children = value.items()
    elif isinstance(value, (list, tuple)):
        children = enumerate(value)
    elif hasattr(value, "__dict__") and not isinstance(value, _NOT_LAYERS):
        attributes = vars(value).items()
        children = [(key, child) for key, child in attributes if not key.startswith("_")]
    elif not isinstance(value, Tensor):
        return
    if id(value) not in outside:
        yield name, value
        for key, child in children:
            full = f"{name}.{key}" if name else str(key)
            yield from _walk(child, full, outside | {id(value)})


def parameter(value: Tensor) -> Tensor:
    """`value` as a new parameter: a model's are drawn by one program, and by no forward pass."""
    value.requires_grad = True
    SESSION.compute_first(value)
    return value


def filled(
    shape: int | Sequence[int], value: float, dtype: DType, device: str | None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of one value in memory of its own, ready for `assign`."""
    import numpy as np

    return Tensor(np.full(shape, value, dtype.numpy), dtype, device, requires_grad)
