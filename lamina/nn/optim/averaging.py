"""Averages of weights over the steps of a training."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from lamina.core import dtypes
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.functions.elementwise import where
from lamina.frontend.realize import realize
from lamina.frontend.tensor import Tensor
from lamina.nn.state import filled, parameters, state_dict

__all__ = ["AveragedModel", "get_ema_avg_fn", "get_swa_avg_fn"]

Average = Callable[[Tensor, Tensor, Tensor], Tensor]


def get_ema_avg_fn(decay: float = 0.999) -> Average:
    """The exponential moving average ``decay * averaged + (1 - decay) * current``."""
    if not 0.0 <= decay <= 1.0:
        raise ArgumentError(f"decay={decay} is not in [0, 1]", operation="get_ema_avg_fn")

    def ema_update(averaged: Tensor, current: Tensor, num_averaged: Tensor) -> Tensor:
        return averaged * decay + current * (1.0 - decay)

    return ema_update


def get_swa_avg_fn() -> Average:
    """The mean of all values so far."""

    def swa_update(averaged: Tensor, current: Tensor, num_averaged: Tensor) -> Tensor:
        return averaged + (current - averaged) / (num_averaged + 1).cast(averaged.dtype)

    return swa_update


class AveragedModel:
    """A copy of `model`, `module`, whose parameters are averages of the model's (Polyak and
    Juditsky 1992; Izmailov et al. 2018, "Averaging weights leads to wider optima").

    avg_fn: a function of the average, the current value and the number of values averaged so far,
    an int64 tensor of shape (); `get_swa_avg_fn()` by default. use_buffers: average the tensors
    that do not require derivatives as well, if they are floats; otherwise they are copied."""

    def __init__(
        self, model: Any, avg_fn: Average | None = None, use_buffers: bool = False
    ) -> None:
        self.module = deepcopy(model)
        self.n_averaged = filled((), 0, dtypes.int64, None)
        self._average = avg_fn or get_swa_avg_fn()
        self._use_buffers = use_buffers

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Any) -> None:
        """Average the present values of `model` in; the first ones are copied."""
        average, other = state_dict(self.module), state_dict(model)
        if average.keys() != other.keys():
            raise ShapeError(
                "the model holds other tensors than its average", operation="AveragedModel"
            )
        learned = {id(parameter) for parameter in parameters(self.module)}
        distinct = {id(tensor): name for name, tensor in average.items()}
        for name in distinct.values():
            averaged = average[name]
            current = other[name].detach().to(averaged.device)
            averages = id(averaged) in learned or (self._use_buffers and averaged.dtype.is_float)
            if averages:
                count = self.n_averaged.to(averaged.device)
                moved = self._average(averaged.detach(), current, count)
                averaged.assign(where(count == 0, current, moved))
            else:
                averaged.assign(current)
        self.n_averaged.assign(self.n_averaged + 1)
        realize(*average.values(), self.n_averaged)
