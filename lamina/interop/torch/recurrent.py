"""Rows of recurrent layers, and of single steps, whole. Of an LSTM of 32 steps, two layers and two
directions PyTorch makes 2600 operations, for which it takes longer than lamina for the unrolled
graph and its program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.nn.recurrent import (
    DirectionWeights,
    State,
    Step,
    gru_step,
    lstm_step,
    unrolled_layers,
)

Row = Callable[..., Any]


def _lstm(
    x: Tensor, states: Sequence[Tensor], parameters: Sequence[Tensor], has_biases: bool,
    layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    h, c = states
    is_projected = h.shape[-1] != c.shape[-1]
    weights = _weights(parameters, has_biases, is_projected, 2 if bidirectional else 1)
    firsts = list(zip(h.unstack(axis=0), c.unstack(axis=0), strict=True))
    return _run(x, firsts, weights, lstm_step, dropout if train else 0.0, batch_first)


def _of_one_state(step: Step) -> Row:
    """The row of a layer whose state is its output."""
    def row(
        x: Tensor, h: Tensor, parameters: Sequence[Tensor], has_biases: bool, layers: int,
        dropout: float, train: bool, bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        weights = _weights(parameters, has_biases, False, 2 if bidirectional else 1)
        firsts = [(state,) for state in h.unstack(axis=0)]
        return _run(x, firsts, weights, step, dropout if train else 0.0, batch_first)

    return row


def _lstm_cell(
    x: Tensor, state: Sequence[Tensor], weight_ih: Tensor, weight_hh: Tensor,
    bias_ih: Tensor | None = None, bias_hh: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    from_input = lm.linear(x, weight_ih, bias_ih)
    return lstm_step(from_input, lm.linear(state[0], weight_hh, bias_hh), tuple(state))


def _cell_of_one_state(step: Step) -> Row:
    def row(
        x: Tensor, h: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None = None,
        bias_hh: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        from_input = lm.linear(x, weight_ih, bias_ih)
        return step(from_input, lm.linear(h, weight_hh, bias_hh), (h,))[0]

    return row


def _weights(
    parameters: Sequence[Tensor], has_biases: bool, is_projected: bool, ways: int
) -> list[list[DirectionWeights]]:
    """For each layer those of its directions, of a list of all: of each direction weight_ih,
    weight_hh, with `has_biases` bias_ih and bias_hh, and weight_hr if it is projected."""
    count = (4 if has_biases else 2) + (1 if is_projected else 0)
    directions = []
    for first in range(0, len(parameters), count):
        weight_ih, weight_hh, *rest = parameters[first : first + count]
        weight_hr = rest.pop() if is_projected else None
        bias_ih, bias_hh = rest if has_biases else (None, None)
        directions.append(DirectionWeights(weight_ih, weight_hh, bias_ih, bias_hh, weight_hr))
    return [directions[first : first + ways] for first in range(0, len(directions), ways)]


def _run(
    x: Tensor, firsts: Sequence[State], weights: Sequence[Sequence[DirectionWeights]], step: Step,
    dropout: float, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The outputs, (L, N, directions * outputs) or (N, L, ...), and the final states."""
    time = 1 if batch_first else 0
    outputs, finals = unrolled_layers(x.transpose(0, time), firsts, weights, step, dropout)
    return (outputs.transpose(0, time), *finals)


def _tanh_step(from_input: Tensor, recurrent: Tensor, state: State) -> State:
    return (lm.tanh(from_input + recurrent),)


def _relu_step(from_input: Tensor, recurrent: Tensor, state: State) -> State:
    return (lm.relu(from_input + recurrent),)


ROWS: dict[str, Row] = {
    "aten.lstm.input": _lstm,
    "aten.gru.input": _of_one_state(gru_step),
    "aten.rnn_tanh.input": _of_one_state(_tanh_step),
    "aten.rnn_relu.input": _of_one_state(_relu_step),
    "aten.lstm_cell.default": _lstm_cell,
    "aten.gru_cell.default": _cell_of_one_state(gru_step),
    "aten.rnn_tanh_cell.default": _cell_of_one_state(_tanh_step),
    "aten.rnn_relu_cell.default": _cell_of_one_state(_relu_step),
}
