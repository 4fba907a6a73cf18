"""Rows of recurrent nets; their steps are unrolled, as those of `lamina.nn` are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import lamina as lm
from lamina.frontend.tensor import Tensor
from lamina.interop.onnx.errors import OnnxError
from lamina.interop.onnx.rows import Context, row
from lamina.interop.onnx.values import maybe_tensor, tensor

Function = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]  # the output, and the cell of an LSTM: (N, hidden) each


@dataclass(frozen=True)
class Activation:
    """A function with the parameters alpha and beta, where their defaults are numbers."""

    function: Callable[[Tensor, float, float], Tensor]
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "affine": Activation(lambda x, alpha, beta: x * alpha + beta, 1.0, 0.0),
    "elu": Activation(lambda x, alpha, _: lm.elu(x, alpha), 1.0),
    "hardsigmoid": Activation(lambda x, alpha, beta: lm.clip(x * alpha + beta, 0, 1), 0.2, 0.5),
    "leakyrelu": Activation(lambda x, alpha, _: lm.leaky_relu(x, alpha), 0.01),
    "relu": Activation(lambda x, *_: lm.relu(x)),
    "scaledtanh": Activation(lambda x, alpha, beta: lm.tanh(x * beta) * alpha, 1.0, 1.0),
    "sigmoid": Activation(lambda x, *_: lm.sigmoid(x)),
    "softplus": Activation(lambda x, *_: lm.softplus(x)),
    "softsign": Activation(lambda x, *_: x / (lm.abs(x) + 1)),
    "tanh": Activation(lambda x, *_: lm.tanh(x)),
    "thresholdedrelu": Activation(lambda x, alpha, _: lm.where(x > alpha, x, 0), 1.0),
}


@dataclass(frozen=True)
class Options:
    """Attributes that the three nets have, with ONNX's names and meanings."""

    activation_alpha: Sequence[float] = ()
    activation_beta: Sequence[float] = ()
    activations: Sequence[str] = ()
    clip: float | None = None
    direction: str = "forward"
    hidden_size: int | None = None
    layout: int = 0
    output_sequence: int = 0

    @property
    def orders(self) -> tuple[int, ...]:
        """For each direction 1, or -1 from the last step to the first."""
        orders = {"forward": (1,), "reverse": (-1,), "bidirectional": (1, -1)}
        # The default of version 1 of GRU is misspelt.
        direction = self.direction.replace("foward", "forward")
        if direction not in orders:
            raise OnnxError(f"direction {self.direction!r}")
        return orders[direction]

    def functions(self, defaults: Sequence[str]) -> list[list[Function]]:
        """For each direction its activations, where `defaults` names those of one."""
        names = self.activations or list(defaults) * len(self.orders)
        if len(names) != len(defaults) * len(self.orders):
            raise OnnxError(f"{len(names)} activations")
        alphas, betas = iter(self.activation_alpha), iter(self.activation_beta)
        functions = [self._function(name, alphas, betas) for name in names]
        count = len(defaults)
        return [functions[first : first + count] for first in range(0, len(functions), count)]

    def _function(self, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
        """Parameters are taken by the activations that have some, in their order."""
        if name.lower() not in _ACTIVATIONS:
            raise OnnxError(f"activation {name!r}")
        activation, limit = _ACTIVATIONS[name.lower()], self.clip
        alpha, beta = activation.alpha or 0.0, activation.beta or 0.0
        if activation.alpha is not None:
            alpha = next(alphas, alpha)
        if activation.beta is not None:
            beta = next(betas, beta)

        def function(x: Tensor) -> Tensor:
            limited = x if limit is None else lm.clip(x, -limit, limit)
            return activation.function(limited, alpha, beta)

        return function


@dataclass(frozen=True)
class Direction:
    """What the steps of a direction use. number: its place in direction. order: 1, or -1 from the
    last step to the first. input: (gates * hidden, inputs). recurrent: (gates * hidden, hidden).
    Biases: (gates * hidden,)."""

    number: int
    order: int
    functions: Sequence[Function]
    input: Tensor
    recurrent: Tensor
    input_bias: Tensor
    recurrent_bias: Tensor


# The next state, of the inputs' gates (N, gates * hidden) and the state.
Step = Callable[[Tensor, State, Direction], State]


def _run(
    context: Context, x: Any, w: Any, r: Any, b: Any, lengths: Any, firsts: Sequence[Any],
    options: Options, defaults: Sequence[str], step: Step,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The outputs of all steps, (L, directions, N, hidden), and the last states, (directions, N,
    hidden) each; with layout 1 the axis N is the first of all.

    lengths: of the sequences, which end before L; beyond, outputs are 0. firsts: the first states,
    zeros where they are None."""
    values, hidden = tensor(x), r.shape[-1]
    states = [maybe_tensor(first) for first in firsts]
    if options.layout:
        values = lm.moveaxis(values, 0, 1)
        states = [None if state is None else lm.moveaxis(state, 0, 1) for state in states]
    context.spend(values.shape[0] * len(options.orders))
    batch = values.shape[1]
    outputs, finals = [], []
    for number, order in enumerate(options.orders):
        functions = options.functions(defaults)[number]
        direction = _direction(number, order, functions, w, r, b)
        state = tuple(
            lm.zeros((batch, hidden), dtype=values.dtype) if first is None else first[number]
            for first in states
        )
        steps, state = _unrolled(values, state, direction, step, maybe_tensor(lengths))
        outputs.append(lm.stack(steps))
        finals.append(state)
    whole = lm.stack(outputs, axis=1)
    lasts = [lm.stack(parts) for parts in zip(*finals, strict=True)]
    if options.layout:
        whole = lm.permute_dims(whole, (2, 0, 1, 3))
        lasts = [lm.moveaxis(last, 1, 0) for last in lasts]
    return (whole, *lasts)


def _unrolled(
    x: Tensor, state: State, direction: Direction, step: Step, lengths: Tensor | None
) -> tuple[list[Tensor], State]:
    """The outputs of all steps, (N, hidden) each, and the last state."""
    # The inputs of all steps are known beforehand: one product for all of them.
    inputs = lm.linear(x, direction.input, direction.input_bias)
    steps: list[Tensor] = []
    for time in range(x.shape[0])[:: direction.order]:
        after = step(inputs[time], state, direction)
        output = after[0]
        if lengths is not None:
            goes_on = lm.reshape(time < lengths, (-1, 1))
            output = lm.where(goes_on, output, 0)
            both = zip(after, state, strict=True)
            after = tuple(lm.where(goes_on, new, old) for new, old in both)
        state = after
        steps.append(output)
    return steps[:: direction.order], state


def _direction(
    number: int, order: int, functions: Sequence[Function], w: Any, r: Any, b: Any
) -> Direction:
    of_input, of_state = tensor(w)[number], tensor(r)[number]
    rows = of_input.shape[0]
    biases = lm.zeros((2 * rows,), dtype=of_input.dtype) if b is None else tensor(b)[number]
    return Direction(number, order, functions, of_input, of_state, biases[:rows], biases[rows:])


@row("RNN")
def rnn(
    context: Context, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None,
    initial_h: Any = None, **options: Any,
) -> Any:  # fmt: skip
    def step(gate: Tensor, state: State, direction: Direction) -> State:
        recurrent = lm.linear(state[0], direction.recurrent, direction.recurrent_bias)
        return (direction.functions[0](gate + recurrent),)

    return _run(context, x, w, r, b, lengths, [initial_h], Options(**options), ["Tanh"], step)


@row("GRU")
def gru(
    context: Context, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None,
    initial_h: Any = None, *, linear_before_reset: int = 0, **options: Any,
) -> Any:  # fmt: skip
    """Gates in the order update, reset, hidden (Cho et al. 2014). The reset gate is applied to the
    state, or with `linear_before_reset` to the state's product with the weights."""

    def step(gates: Tensor, state: State, direction: Direction) -> State:
        inner, outer = direction.functions
        before, hidden = state[0], state[0].shape[-1]
        recurrent = lm.linear(before, direction.recurrent, direction.recurrent_bias)
        update = inner(gates[:, :hidden] + recurrent[:, :hidden])
        reset = inner(gates[:, hidden : 2 * hidden] + recurrent[:, hidden : 2 * hidden])
        if linear_before_reset:
            change = reset * recurrent[:, 2 * hidden :]
        else:
            change = lm.linear(reset * before, direction.recurrent[2 * hidden :],
                               direction.recurrent_bias[2 * hidden :])  # fmt: skip
        new = outer(gates[:, 2 * hidden :] + change)
        return ((1 - update) * new + update * before,)

    defaults = ["Sigmoid", "Tanh"]
    return _run(context, x, w, r, b, lengths, [initial_h], Options(**options), defaults, step)


@row("LSTM")
def lstm(
    context: Context, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None,
    initial_h: Any = None, initial_c: Any = None, peepholes: Any = None, *, input_forget: int = 0,
    **options: Any,
) -> Any:  # fmt: skip
    """Gates in the order input, output, forget, cell. peepholes: (directions, 3 * hidden), by which
    gates see the cell (Gers and Schmidhuber 2000). input_forget: the forget gate is 1 minus the
    input gate."""

    def step(gates: Tensor, state: State, direction: Direction) -> State:
        gate, change, result = direction.functions
        before, cell = state
        total = gates + lm.linear(before, direction.recurrent, direction.recurrent_bias)
        into, out, forget, new = lm.chunk(total, 4, axis=-1)
        if peepholes is not None:
            of_into, of_out, of_forget = lm.chunk(tensor(peepholes)[direction.number], 3, axis=-1)
            into, forget = into + of_into * cell, forget + of_forget * cell
        opened = gate(into)
        kept = 1 - opened if input_forget else gate(forget)
        cell = kept * cell + opened * change(new)
        if peepholes is not None:
            out = out + of_out * cell
        return gate(out) * result(cell), cell

    defaults = ["Sigmoid", "Tanh", "Tanh"]
    firsts = [initial_h, initial_c]
    return _run(context, x, w, r, b, lengths, firsts, Options(**options), defaults, step)
