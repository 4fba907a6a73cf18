"""Recurrent cells and small whole networks."""

from __future__ import annotations

import math

from bench.cliffs.families.windows import after
from bench.cliffs.sketch import Sketch, Value

_WIDTHS = (8, 16, 24, 32, 64)  # channels of the first convolution


def recurrent(draw: Sketch) -> Value:
    """One to eight steps in time of a cell: plain, GRU or LSTM."""
    kind, steps = draw.choose("plain", "gru", "lstm"), draw.choose(1, 1, 2, 4, 8)
    batch, inputs, hidden = draw.axis(16), draw.axis(8), draw.axis(8)
    parts = {"plain": 1, "gru": 3, "lstm": 4}[kind]
    while 2.0 * steps * parts * batch * hidden * (inputs + hidden) > draw.limits.flops:
        batch, hidden = -(-batch // 2), -(-hidden // 2)
    into = [draw.weight(inputs, hidden, summed=inputs) for _ in range(parts)]
    over = [draw.weight(hidden, hidden, summed=hidden) for _ in range(parts)]
    bias = [draw.input(hidden) for _ in range(parts)]
    state, cell = draw.input(batch, hidden), draw.input(batch, hidden)
    for _ in range(steps):
        x = draw.input(batch, inputs)
        sums = [draw.put("add", draw.matmul(x, w), b) for w, b in zip(into, bias, strict=True)]
        turns = [draw.matmul(state, w) for w in over]
        if kind == "plain":
            state = draw.put("tanh", draw.put("add", sums[0], turns[0]))
        elif kind == "gru":
            state = _gru(draw, sums, turns, state)
        else:
            state, cell = _lstm(draw, sums, turns, cell)
    return state


def _gru(draw: Sketch, sums: list[Value], turns: list[Value], state: Value) -> Value:
    reset = draw.put("sigmoid", draw.put("add", sums[0], turns[0]))
    update = draw.put("sigmoid", draw.put("add", sums[1], turns[1]))
    new = draw.put("tanh", draw.put("add", sums[2], draw.put("multiply", reset, turns[2])))
    return draw.put("add", new, draw.put("multiply", update, draw.put("subtract", state, new)))


def _lstm(
    draw: Sketch, sums: list[Value], turns: list[Value], cell: Value
) -> tuple[Value, Value]:
    both = [draw.put("add", a, b) for a, b in zip(sums, turns, strict=True)]
    enter, forget, leave = (draw.put("sigmoid", one) for one in both[:3])
    kept = draw.put("multiply", forget, cell)
    cell = draw.put("add", kept, draw.put("multiply", enter, draw.put("tanh", both[3])))
    return draw.put("multiply", leave, draw.put("tanh", cell)), cell


def _linear(draw: Sketch, x: Value, outputs: int) -> Value:
    inputs = x.shape[-1]
    w, bias = draw.weight(outputs, inputs, summed=inputs), draw.input(outputs)
    return draw.put("linear", x, w, bias, shape=(*x.shape[:-1], outputs))


def _loss(draw: Sketch, logits: Value) -> Value:
    labels = draw.input(logits.shape[0], kind="index", limit=logits.shape[1])
    return draw.put("cross_entropy", logits, labels, shape=(), smoothing=0.0, reduction="mean")


def _most(draw: Sketch) -> int:
    """How large an axis of images or of sequences is: 362 where an array has 2 million elements."""
    return math.isqrt(draw.limits.elements) // 4


def perceptron(draw: Sketch) -> Value:
    """Two to five layers and a loss."""
    rows, width, hidden = draw.product(3, 4)
    x = draw.input(rows, width)
    for _ in range(draw.random.randint(1, 4)):
        x = draw.activation(_linear(draw, x, hidden))
    x = _linear(draw, x, draw.choose(10, 100, 33))
    return _loss(draw, x)


def convolutional(draw: Sketch) -> Value:
    """Convolutions with norms, activations and pooling, a mean of each channel, classes."""
    most = _most(draw)
    batch, channels = draw.size(2, min(16, most)), draw.choose(1, 3)
    size, width = (min(most, one) for one in (draw.choose(16, 28, 32, 33), draw.choose(*_WIDTHS)))
    x = draw.input(batch, channels, size, size)
    for _ in range(draw.random.randint(1, 3)):
        x = _block(draw, x, width)
        width *= draw.choose(1, 2)
    pooled = draw.reduced("mean", x, (2, 3), keepdims=False)
    return _loss(draw, _linear(draw, pooled, 10))


def _block(draw: Sketch, x: Value, width: int) -> Value:
    """Convolution, norm, activation, and half as many places or the sum with what was before."""
    inputs, places = x.shape[1], x.shape[2]
    w = draw.weight(width, inputs, 3, 3, summed=9 * inputs)
    y = draw.put("conv2d", x, w, draw.input(width), shape=(x.shape[0], width, places, places),
                 stride=1, padding=1, dilation=1, groups=1)  # fmt: skip
    gain, bias = draw.input(width, kind="positive"), draw.input(width)
    y = draw.put("relu", draw.put("batch_norm", y, gain, bias, shape=y.shape))
    if y.shape == x.shape and draw.chance(0.5):
        return draw.put("add", x, y)
    count = after(places, 2, 2, 0)
    return draw.put(f"{draw.choose('max', 'avg')}_pool2d", y, shape=(*y.shape[:2], count, count),
                    window=2, stride=2, padding=0)  # fmt: skip


def transformer(draw: Sketch) -> Value:
    """One block: attention of heads and two layers, each with a norm before and x added."""
    batch, heads, width = draw.choose(1, 2, 4), draw.choose(1, 2, 4, 6), draw.choose(16, 32, 64)
    length, whole = draw.size(4, min(256, _most(draw))), heads * width
    x = draw.input(batch, length, whole)
    given, parts = _normed(draw, x), []
    for _ in range(3):
        part = draw.reshape(_linear(draw, given, whole), batch, length, heads, width)
        parts.append(draw.permute(part, 0, 2, 1, 3))
    y = draw.put("attention", *parts, shape=parts[0].shape, causal=draw.chance(0.5), grouped=False)
    y = draw.reshape(draw.permute(y, 0, 2, 1, 3), batch, length, whole)
    x = draw.put("add", x, _linear(draw, y, whole))
    inner = draw.put("gelu", _linear(draw, _normed(draw, x), 4 * whole))
    return draw.put("add", x, _linear(draw, inner, whole))


def _normed(draw: Sketch, x: Value) -> Value:
    count = x.shape[-1]
    gain, bias = draw.input(count, kind="positive"), draw.input(count)
    return draw.put("layer_norm", x, gain, bias, shape=x.shape, count=(count,))


def network(draw: Sketch) -> Value:
    """A whole small network."""
    return draw.choose(perceptron, convolutional, transformer)(draw)
