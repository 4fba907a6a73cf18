"""Recurrent layers. Time steps are unrolled, so the program grows with the length of the input."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from lamina.dtypes import DType
from lamina.errors import ShapeError
from lamina.nn.linear import linear
from lamina.nn.state import default_dtype, settle, uniform_parameter
from lamina.tensor import normalization
from lamina.tensor.core import Tensor
from lamina.tensor.creation import zeros
from lamina.tensor.movement import concat, stack

State = tuple[Tensor, ...]
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


class _Recurrent:
    """weight_ih_l{k}: (gates * hidden, inputs). weight_hh_l{k}: (gates * hidden, hidden).

    k counts layers; the backward direction's names end in ``_reverse``.
    """

    _gates: ClassVar[int]
    _states: ClassVar[int]

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
        dtype: DType = default_dtype, device: str | None = None,
    ) -> None:  # fmt: skip
        if hidden_size < 1 or num_layers < 1:
            raise ShapeError(f"{type(self).__name__}: {num_layers} layers of {hidden_size} units")
        self.hidden_size, self.num_layers = hidden_size, num_layers
        self.batch_first, self.dropout, self.bidirectional = batch_first, dropout, bidirectional
        self.training = True
        bound = 1.0 / math.sqrt(hidden_size)
        rows = self._gates * hidden_size
        for layer in range(num_layers):
            width = hidden_size * len(self._suffixes(0)) if layer else input_size
            for suffix in self._suffixes(layer):
                shapes = ((rows, width), (rows, hidden_size), (rows,), (rows,))
                for name, shape in zip(_NAMES, shapes[: 4 if bias else 2], strict=False):
                    setattr(self, name + suffix, uniform_parameter(shape, bound, dtype, device))

    def _suffixes(self, layer: int) -> list[str]:
        forward = f"_l{layer}"
        return [forward, f"{forward}_reverse"] if self.bidirectional else [forward]

    def _step(self, given: Tensor, recurrent: Tensor, state: State) -> State:
        """The next state from the gates' inputs, (N, gates * hidden) each."""
        raise NotImplementedError

    def _run(self, x: Tensor, initial: State | None) -> tuple[Tensor, State]:
        """Outputs, in the layout of x, and final states (layers * directions, N, hidden)."""
        settle()
        batched = x.ndim == 3
        if not batched:
            x = x.unsqueeze(1)
            initial = None if initial is None else tuple(one.unsqueeze(1) for one in initial)
        elif self.batch_first:
            x = x.transpose(0, 1)
        steps: list[Tensor] = list(x.unstack(axis=0))
        if not steps:
            raise ShapeError(f"{type(self).__name__}: x of shape {x.shape} has no time steps")
        finals: list[State] = []
        for layer in range(self.num_layers):
            directions = []
            for suffix in self._suffixes(layer):
                start = self._initial(initial, len(finals), steps[0])
                backward = suffix.endswith("_reverse")
                outputs, final = self._layer(steps[::-1] if backward else steps, start, suffix)
                directions.append(outputs[::-1] if backward else outputs)
                finals.append(final)
            steps = [concat(parts, axis=-1) for parts in zip(*directions, strict=True)]
            if layer < self.num_layers - 1:
                steps = self._dropped(steps)
        result = stack(steps, axis=1 if self.batch_first and batched else 0)
        states = tuple(stack(parts) for parts in zip(*finals, strict=True))
        if batched:
            return result, states
        return result.squeeze(1), tuple(one.squeeze(1) for one in states)

    def _initial(self, initial: State | None, index: int, like: Tensor) -> State:
        if initial is not None:
            return tuple(one[index] for one in initial)
        nothing = zeros((like.shape[0], self.hidden_size), dtype=like.dtype, device=like.device)
        return (nothing,) * self._states

    def _dropped(self, steps: list[Tensor]) -> list[Tensor]:
        if not (self.training and self.dropout):
            return steps
        return list(normalization.dropout(stack(steps), self.dropout).unstack(axis=0))

    def _layer(self, steps: list[Tensor], state: State, suffix: str) -> tuple[list[Tensor], State]:
        weights: list[Any] = [getattr(self, name + suffix, None) for name in _NAMES]
        # The inputs of all steps are known beforehand: one product for all of them.
        given = linear(stack(steps), weights[0], weights[2]).unstack(axis=0)
        outputs = []
        for one in given:
            state = self._step(one, linear(state[0], weights[1], weights[3]), state)
            outputs.append(state[0])
        return outputs, state


class LSTM(_Recurrent):
    """Long short-term memory; gates in the order input, forget, cell, output.

    Source: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000 (forget gate).
    """

    _gates = 4
    _states = 2

    def __call__(
        self, x: Tensor, initial: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Outputs (L, N, directions * hidden) of x (L, N, inputs), and the final (h, c).

        h and c: (layers * directions, N, hidden), zeros at first by default. With `batch_first`,
        x and outputs are (N, L, ...); the axis N may be absent.
        """
        outputs, (hidden, cell) = self._run(x, initial)
        return outputs, (hidden, cell)

    def _step(self, given: Tensor, recurrent: Tensor, state: State) -> State:
        gates = (given + recurrent).chunk(4, axis=-1)
        into, forget, out = (gates[at].sigmoid() for at in (0, 1, 3))
        cell = forget * state[1] + into * gates[2].tanh()
        return out * cell.tanh(), cell


class GRU(_Recurrent):
    """Gated recurrent unit; gates in the order reset, update, new.

    Source: Cho et al. 2014, in the variant whose reset gate multiplies the product.
    """

    _gates = 3
    _states = 1

    def __call__(self, x: Tensor, initial: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Outputs (L, N, directions * hidden) of x (L, N, inputs), and the final states.

        The states are (layers * directions, N, hidden), zeros at first by default. With
        `batch_first`, x and outputs are (N, L, ...); the axis N may be absent.
        """
        outputs, (hidden,) = self._run(x, None if initial is None else (initial,))
        return outputs, hidden

    def _step(self, given: Tensor, recurrent: Tensor, state: State) -> State:
        a, b = given.chunk(3, axis=-1), recurrent.chunk(3, axis=-1)
        reset, update = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
        new = (a[2] + reset * b[2]).tanh()
        return ((1.0 - update) * new + update * state[0],)
