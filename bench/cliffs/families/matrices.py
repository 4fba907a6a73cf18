"""Products of matrices, with what networks put before, between and after them."""

from __future__ import annotations

import math

from bench.cliffs.sketch import Sketch, Value


def _laid(draw: Sketch, rows: int, columns: int, summed: int = 0) -> Value:
    """A matrix of floats, in memory as it is or transposed; a weight where `summed` is given."""
    scale = summed**-0.5 if summed else 1.0
    if draw.chance(0.3):
        turned = draw.input(columns, rows, scale=scale)
        return draw.put("turned", turned, shape=(rows, columns))
    return draw.input(rows, columns, scale=scale)


def _prologue(draw: Sketch, x: Value) -> Value:
    """Something that is computed of a factor before its product."""
    kind = draw.choose("none", "none", "unary", "rows", "columns", "gate", "norm")
    if kind == "unary":
        return draw.unary(x)
    if kind == "rows":
        return draw.put("multiply", x, draw.input(x.shape[-2], 1, kind="positive"))
    if kind == "columns":
        return draw.put("multiply", x, draw.input(x.shape[-1], kind="positive"))
    if kind == "gate":
        return draw.put("multiply", x, draw.put("sigmoid", draw.input(*x.shape)))
    if kind == "norm" and x.shape[-1] > 7:
        gain = draw.input(x.shape[-1], kind="positive")
        return draw.put("rms_norm", x, gain, shape=x.shape, count=(x.shape[-1],))
    return x


def _epilogue(draw: Sketch, y: Value) -> Value:
    """Up to three things that are made of a product."""
    for _ in range(draw.choose(0, 1, 1, 2, 3)):
        kind = draw.choose("bias", "activation", "residual", "scale", "rows", "reduce", "softmax")
        if kind == "bias":
            y = draw.put("add", y, draw.input(y.shape[-1]))
        elif kind == "activation":
            y = draw.activation(y)
        elif kind == "residual":
            y = draw.put("add", y, draw.input(*y.shape))
        elif kind == "scale":
            y = draw.put("scale", y, factor=0.125)
        elif kind == "rows":
            y = draw.put("multiply", y, draw.input(y.shape[-2], 1))
        elif kind == "softmax":
            y = draw.put("softmax", y, shape=y.shape, axis=-1)
        elif y.rank == 2 and draw.chance(0.5):
            return draw.reduced(draw.choose("sum", "max", "mean"), y, [draw.choose(0, 1)], False)
    return y


def product(draw: Sketch) -> Value:
    """A product of two matrices or of two batches, with prologues and an epilogue."""
    batch = draw.size(2, 64) if draw.chance(0.3) else 1
    m, k, n = draw.product(3, others=batch)
    if batch == 1:
        a, b = _laid(draw, m, k), _laid(draw, k, n, k)
    else:
        a = draw.input(batch, m, k)
        shared = draw.chance(0.3)
        b = draw.weight(k, n, summed=k) if shared else draw.weight(batch, k, n, summed=k)
        if draw.chance(0.3) and not shared:
            turned = draw.weight(batch, n, k, summed=k)
            b = draw.put("turned_last", turned, shape=(batch, k, n))
    y = draw.matmul(_prologue(draw, a), _prologue(draw, b) if draw.chance(0.3) else b)
    return _epilogue(draw, y)


_EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "bij,jk->bik",
    "bhid,bhjd->bhij", "bihd,bjhd->bhij", "ij,ij->i", "i,j->ij", "bij,bij->b", "ijk,kl->ijl",
    "bij,bik->bjk", "ijk,jil->kl",
)  # fmt: skip


def _points(letters: str, sizes: dict[str, int]) -> int:
    """The number of elements of an array with these axes."""
    return math.prod(sizes[letter] for letter in letters)


def einsum(draw: Sketch) -> Value:
    """A contraction by its equation."""
    equation = draw.choose(*_EQUATIONS)
    operands, result = equation.split("->")
    left, right = operands.split(",")
    letters = sorted({*left, *right})
    sizes = dict(zip(letters, draw.product(len(letters), 8), strict=True))
    while max(_points(part, sizes) for part in (left, right, result)) > draw.limits.elements:
        longest = max(letters, key=lambda letter: sizes[letter])
        sizes[longest] //= 2
    summed = 1
    for letter in set(letters) - set(result):
        summed *= sizes[letter]
    a = draw.input(*(sizes[letter] for letter in left))
    b = draw.weight(*(sizes[letter] for letter in right), summed=summed)
    shape = tuple(sizes[letter] for letter in result)
    y = draw.put("einsum", a, b, shape=shape, equation=equation)
    return _epilogue(draw, y) if y.rank == 2 else y


def sum_of_products(draw: Sketch) -> Value:
    """Two to four products, whose factors are computed, added up."""
    count = draw.choose(2, 2, 3, 4)
    m, n, *inner = (draw.axis(2) for _ in range(2 + count))
    while 2.0 * m * n * sum(inner) > draw.limits.flops:
        m, n, inner = -(-m // 2), -(-n // 2), [-(-k // 2) for k in inner]
    total: Value | None = None
    shared = draw.input(m, inner[0]) if draw.chance(0.4) else None
    for k in inner:
        factor = shared if shared is not None and k == inner[0] else draw.input(m, k)
        if draw.chance(0.7):
            factor = draw.unary(factor)
        if draw.chance(0.3):
            factor = draw.put("multiply", factor, draw.put("sigmoid", draw.input(m, 1)))
        part = draw.matmul(factor, _laid(draw, k, n, k))
        if draw.chance(0.2):
            part = draw.put("multiply", part, draw.input(n))
        total = part if total is None else draw.put("add", total, part)
    assert total is not None
    return _epilogue(draw, total)


def gated_mlp(draw: Sketch) -> Value:
    """``(f(x @ a) * (x @ b)) @ c``, also with one weight for both, a norm before and x added."""
    rows, width, hidden = draw.product(3, 2)
    x = draw.input(rows, width)
    given = x
    if draw.chance(0.4) and width > 7:
        gain = draw.input(width, kind="positive")
        given = draw.put("rms_norm", x, gain, shape=x.shape, count=(width,))
    if draw.chance(0.3):
        both = draw.matmul(given, draw.weight(width, 2 * hidden, summed=width))
        half = (rows, hidden)
        gate = draw.put("first", both, shape=half, count=hidden)
        up = draw.put("rest", both, shape=half, count=hidden)
    else:
        gate = draw.matmul(given, draw.weight(width, hidden, summed=width))
        up = draw.matmul(given, draw.weight(width, hidden, summed=width))
    inner = draw.put("multiply", draw.activation(gate), up)
    y = draw.matmul(inner, draw.weight(hidden, width, summed=hidden))
    return draw.put("add", x, y) if draw.chance(0.5) else y


def int8_product(draw: Sketch) -> Value:
    """A product of int8, with the scales of rows and columns after it."""
    m, k, n = draw.product(3)
    m, k, n = max(m, 17), -(-k // 8) * 8, -(-n // 8) * 8  # what PyTorch takes on GPUs
    a, b = draw.input(m, k, kind="int8"), draw.input(k, n, kind="int8")
    if draw.chance(0.5):
        b = draw.put("turned", draw.input(n, k, kind="int8"), shape=(k, n))
    y = draw.put("float", draw.put("matmul_int8", a, b, shape=(m, n)))
    y = draw.put("multiply", y, draw.input(m, 1, kind="positive", scale=0.01))
    y = draw.put("multiply", y, draw.input(n, kind="positive", scale=0.01))
    if draw.chance(0.5):
        y = draw.activation(draw.put("add", y, draw.input(n)))
    return y


def attention(draw: Sketch) -> Value:
    """Attention of queries, keys and values: causal, masked, grouped, of one row, or written out
    with a cap or a bias on the scores."""
    width = draw.choose(16, 32, 40, 64, 64, 80, 96, 128)
    heads, batch = draw.choose(1, 2, 4, 8, 12), draw.choose(1, 1, 2, 3)
    length = draw.axis(4)
    keys = length if draw.chance(0.6) else draw.axis(4)
    while 4.0 * batch * heads * length * keys * width > draw.limits.flops:
        length, keys = -(-length // 2), -(-keys // 2)
    kind = draw.choose("plain", "causal", "bool", "bias", "grouped", "cap", "window", "projected")
    if kind == "projected":
        return _projected(draw, batch, heads, width, length)
    shared = 1 if kind == "grouped" and heads > 1 else heads
    q = draw.input(batch, heads, length, width)
    k, v = (draw.input(batch, shared, keys, width) for _ in range(2))
    if kind in ("plain", "causal", "grouped"):
        causal = kind == "causal" or (kind == "grouped" and draw.chance(0.5))
        return draw.put("attention", q, k, v, shape=q.shape, causal=causal, grouped=shared != heads)
    if kind in ("bool", "bias"):
        shape = (length, keys) if draw.chance(0.5) else (batch, 1, length, keys)
        mask = draw.input(*shape, kind="mask" if kind == "bool" else "normal")
        return draw.put("attention_masked", q, k, v, mask, shape=q.shape)
    turned = draw.put("turned_last", k, shape=(batch, heads, width, keys))
    scores = draw.put("scale", draw.matmul(q, turned), factor=width**-0.5)
    if kind == "cap":
        scores = draw.put("scale", draw.put("tanh", scores), factor=20.0)
    else:
        scores = draw.put("add", scores, draw.input(heads, 1, keys))
    return draw.matmul(draw.put("softmax", scores, shape=scores.shape, axis=-1), v)


def _projected(draw: Sketch, batch: int, heads: int, width: int, length: int) -> Value:
    """Attention of one input's projections, with a projection after it."""
    whole = heads * width
    x = draw.input(batch, length, whole)
    parts = []
    for _ in range(3):
        part = draw.matmul(x, draw.weight(whole, whole, summed=whole))
        parts.append(draw.permute(draw.reshape(part, batch, length, heads, width), 0, 2, 1, 3))
    causal = draw.chance(0.5)
    y = draw.put("attention", *parts, shape=parts[0].shape, causal=causal, grouped=False)
    y = draw.reshape(draw.permute(y, 0, 2, 1, 3), batch, length, whole)
    return draw.matmul(y, draw.weight(whole, whole, summed=whole))
