"""Recurrent layers and single steps of them.

Layers unroll their time steps, so the program, and the time to compile it, grows with the length of
the input: the first training step of an LSTM with two layers takes tens of seconds for 64 steps.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from lamina.core.dtypes import DType, default_float
from lamina.errors import ArgumentError, ShapeError
from lamina.frontend.differentiate import map_tree
from lamina.frontend.functions import neural
from lamina.frontend.functions.creation import zeros
from lamina.frontend.functions.elementwise import relu, tanh
from lamina.frontend.functions.movement import concat, stack
from lamina.frontend.functions.projection import linear
from lamina.frontend.tensor import Tensor, as_tensor
from lamina.nn.initial import Maybe, uniform_parameter

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

State = tuple[Tensor, ...]
# The next state, of the products of the gates with the input and with h, and the state.
Step = Callable[[Tensor, Tensor, State], State]
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True)
class DirectionWeights:
    """weight_ih: (gates * hidden, inputs). weight_hh: (gates * hidden, outputs). Biases: (gates *
    hidden,). weight_hr: (outputs, hidden), which h is multiplied with after each step; without it
    outputs are h."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None = None
    bias_hh: Tensor | None = None
    weight_hr: Tensor | None = None


def unrolled_layers(
    x: Tensor, states: Sequence[State], layers: Sequence[Sequence[DirectionWeights]], step: Step,
    dropout: float = 0.0,
) -> tuple[Tensor, State]:  # fmt: skip
    """The outputs of the last layer, (L, N, directions * outputs), and the final states, (layers *
    directions, N, outputs) or, of cells, (layers * directions, N, hidden).

    x: (L, N, inputs). states: those before the first step, for each direction of each layer.
    layers: of each the weights of one direction, or of both. dropout: of the inputs of all layers
    but the first, with this probability."""
    finals: list[State] = []
    for number, directions in enumerate(layers):
        if number and dropout:
            x = neural.dropout(x, dropout)
        outputs = []
        for weights, order in zip(directions, (1, -1), strict=False):
            steps, final = _unrolled(x, weights, order, states[len(finals)], step)
            outputs.append(steps)
            finals.append(final)
        x = concat(outputs, axis=-1)
    return x, tuple(map(stack, zip(*finals, strict=True)))


def _unrolled(
    x: Tensor, weights: DirectionWeights, order: int, state: State, step: Step
) -> tuple[Tensor, State]:
    """The outputs of all steps, (L, N, outputs), and the state after the last one taken.

    order: 1, or -1 from the last step to the first."""
    # The inputs of all steps are known beforehand: one product for all of them.
    inputs = linear(x, weights.weight_ih, weights.bias_ih).unstack(axis=0)
    outputs: list[Tensor] = []
    for step_input in inputs[::order]:
        recurrent = linear(state[0], weights.weight_hh, weights.bias_hh)
        state = step(step_input, recurrent, state)
        if weights.weight_hr is not None:
            state = (linear(state[0], weights.weight_hr), *state[1:])
        outputs.append(state[0])
    # Stored, or each step of what reads it would join all of them again.
    return stack(outputs[::order]).contiguous(), state


class _Recurrent:
    """x: (L, N, inputs). Outputs: (L, N, directions * hidden). States: (layers * directions, N,
    hidden). With `batch_first`, x and outputs are (N, L, ...); the axis N may be absent.

    weight_ih_l{k}: (gates * hidden, inputs). weight_hh_l{k}: (gates * hidden, hidden). k counts
    layers; the backward direction's names end in ``_reverse``."""

    _gates: ClassVar[int]
    _states: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        if hidden_size < 1 or num_layers < 1:
            raise ShapeError(
                f"{num_layers} layers of {hidden_size} units", operation=type(self).__name__
            )
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.training = True
        bound = 1.0 / math.sqrt(hidden_size)
        rows = self._gates * hidden_size
        ways = ("", "_reverse")[: 2 if bidirectional else 1]
        self._suffixes = [[f"_l{layer}{way}" for way in ways] for layer in range(num_layers)]
        for layer, suffixes in enumerate(self._suffixes):
            width = hidden_size * len(ways) if layer else input_size
            for suffix in suffixes:
                shapes = ((rows, width), (rows, hidden_size), (rows,), (rows,))
                for name, shape in zip(_NAMES, shapes[: 4 if bias else 2], strict=False):
                    setattr(self, name + suffix, uniform_parameter(shape, bound, dtype, device))

    def __call__(self, x: Tensor, initial: Any = None) -> tuple[Tensor, Any]:
        """The outputs, and the final states, zeros at first by default: h, or (h, c) of an LSTM."""
        time = 1 if self.batch_first else 0
        if x.ndim == 2:
            batched_initial = map_tree(lambda state: state.unsqueeze(1), initial)
            result, states = self(x.unsqueeze(1 - time), batched_initial)
            return result.squeeze(1 - time), map_tree(lambda state: state.squeeze(1), states)
        if x.ndim != 3 or not x.shape[time]:
            raise ShapeError(f"x of shape {x.shape} has no time steps, or "
                             "not 2 or 3 axes", operation=type(self).__name__)  # fmt: skip
        x = x.transpose(0, time)
        states = self._first_states(x, initial)
        layers = [[self._weights(suffix) for suffix in suffixes] for suffixes in self._suffixes]
        dropout = self.dropout if self.training else 0.0
        x, lasts = unrolled_layers(x, states, layers, self._step, dropout)
        return x.transpose(0, time), lasts if self._states > 1 else lasts[0]

    def _first_states(self, x: Tensor, initial: Any) -> list[State]:
        """For each direction of each layer its states before the first step, (N, hidden) each:
        zeros, or rows of `initial`. Raises ShapeError for initial states that do not fit."""
        batch = x.shape[1]
        count = sum(map(len, self._suffixes))
        tensors = (initial,) if hasattr(initial, "shape") else tuple(initial or ())
        if not tensors:
            nothing = zeros((batch, self.hidden_size), dtype=x.dtype, device=x.device)
            return [(nothing,) * self._states] * count
        wanted = (count, batch, self.hidden_size)
        shapes = [tensor.shape for tensor in tensors]
        if shapes != [wanted] * self._states:
            raise ShapeError(f"initial states {shapes}, not {self._states} "
                             f"of {wanted}", operation=type(self).__name__)  # fmt: skip
        return [tuple(tensor[row] for tensor in tensors) for row in range(count)]

    def _weights(self, suffix: str) -> DirectionWeights:
        """Those of the direction of a layer whose names end in `suffix`."""
        weights: list[Any] = [getattr(self, name + suffix, None) for name in _NAMES]
        return DirectionWeights(*weights)

    def _step(self, from_input: Tensor, recurrent: Tensor, state: State) -> State:
        """The next state from the gates' inputs, (N, gates * hidden) each."""
        raise NotImplementedError


# One step of each kind: from the products of the gates, (N, gates * hidden) each, and the state.


def lstm_step(from_input: Tensor, recurrent: Tensor, state: State) -> State:
    gates = (from_input + recurrent).chunk(4, axis=-1)
    into, forget, out = (gates[at].sigmoid() for at in (0, 1, 3))
    cell = forget * state[1] + into * gates[2].tanh()
    return out * cell.tanh(), cell


def gru_step(from_input: Tensor, recurrent: Tensor, state: State) -> State:
    a, b = from_input.chunk(3, axis=-1), recurrent.chunk(3, axis=-1)
    reset, update = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
    new = (a[2] + reset * b[2]).tanh()
    return ((1.0 - update) * new + update * state[0],)


_NONLINEARITIES: dict[str, Callable[[Tensor], Tensor]] = {"tanh": tanh, "relu": relu}


def _nonlinearity(what: str, name: str) -> Callable[[Tensor], Tensor]:
    if name not in _NONLINEARITIES:
        raise ArgumentError(f"nonlinearity {name!r} is not 'tanh' or 'relu'", operation=what)
    return _NONLINEARITIES[name]


class LSTM(_Recurrent):
    """Long short-term memory; gates in the order input, forget, cell, output.

    Source: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000 (forget gate)."""

    _gates, _states = 4, 2
    _step = staticmethod(lstm_step)


class GRU(_Recurrent):
    """Gated recurrent unit; gates in the order reset, update, new.

    Source: Cho et al. 2014, in the variant whose reset gate multiplies the product."""

    _gates, _states = 3, 1
    _step = staticmethod(gru_step)


class RNN(_Recurrent):
    """``h = nonlinearity(weight_ih x + bias_ih + weight_hh h + bias_hh)``, which is 'tanh' or
    'relu' (Elman 1990, "Finding structure in time")."""

    _gates, _states = 1, 1

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
        bias: bool = True, batch_first: bool = False, dropout: float = 0.0,
        bidirectional: bool = False, dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        _nonlinearity("RNN", nonlinearity)
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, dtype, device)  # fmt: skip
        self.nonlinearity = nonlinearity

    def _step(self, from_input: Tensor, recurrent: Tensor, state: State) -> State:
        return (_nonlinearity("RNN", self.nonlinearity)(from_input + recurrent),)


class _Cell:
    """One step in time. x: (N, inputs) or (inputs,). States: (N, hidden) or (hidden,), zeros by
    default.

    weight_ih: (gates * hidden, inputs). weight_hh: (gates * hidden, hidden)."""

    _gates: ClassVar[int]
    _states: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        if hidden_size < 1:
            raise ShapeError(f"{hidden_size} units", operation=type(self).__name__)
        self.hidden_size = hidden_size
        bound = 1.0 / math.sqrt(hidden_size)
        rows = self._gates * hidden_size
        self.weight_ih = uniform_parameter((rows, input_size), bound, dtype, device)
        self.weight_hh = uniform_parameter((rows, hidden_size), bound, dtype, device)
        self.bias_ih: Maybe = None
        self.bias_hh: Maybe = None
        if bias:
            self.bias_ih = uniform_parameter((rows,), bound, dtype, device)
            self.bias_hh = uniform_parameter((rows,), bound, dtype, device)

    def _next(self, x: Tensor, state: State | None) -> State:
        what = type(self).__name__
        if x.ndim not in (1, 2):
            raise ShapeError(f"x of shape {x.shape} has not one or two axes", operation=what)
        wanted = (*x.shape[:-1], self.hidden_size)
        if state is None:
            nothing = zeros(wanted, dtype=x.dtype, device=x.device)
            state = (nothing,) * self._states
        shapes = [part.shape for part in state]
        if shapes != [wanted] * self._states:
            raise ShapeError(f"states {shapes}, not {self._states} of {wanted}", operation=what)
        from_input = linear(x, self.weight_ih, self.bias_ih)
        recurrent = linear(state[0], self.weight_hh, self.bias_hh)
        return self._step(from_input, recurrent, state)

    def _step(self, from_input: Tensor, recurrent: Tensor, state: State) -> State:
        """The next state from the gates' inputs, (N, gates * hidden) each."""
        raise NotImplementedError


class LSTMCell(_Cell):
    """One step of an `LSTM`."""

    _gates, _states = 4, 2
    _step = staticmethod(lstm_step)

    def __call__(self, x: Tensor, state: State | None = None) -> tuple[Tensor, Tensor]:
        """The next h and c, from those before."""
        states = None if state is None else tuple(as_tensor(part, x) for part in state)
        h, c = self._next(x, states)
        return h, c


class GRUCell(_Cell):
    """One step of a `GRU`."""

    _gates, _states = 3, 1
    _step = staticmethod(gru_step)

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._next(x, None if h is None else (h,))[0]


class RNNCell(_Cell):
    """One step of an `RNN`; nonlinearity: 'tanh' or 'relu'."""

    _gates, _states = 1, 1

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        _nonlinearity("RNNCell", nonlinearity)
        super().__init__(input_size, hidden_size, bias, dtype, device)
        self.nonlinearity = nonlinearity

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        return self._next(x, None if h is None else (h,))[0]

    def _step(self, from_input: Tensor, recurrent: Tensor, state: State) -> State:
        return (_nonlinearity("RNNCell", self.nonlinearity)(from_input + recurrent),)
