"""What is done element by element, row by row, or by moving elements."""

from __future__ import annotations

from bench.cases import Shape
from bench.cliffs.program import Verbatim
from bench.cliffs.sketch import Sketch, Value

_SUMS = ("sum", "mean", "max", "min", "logsumexp", "var")


def _broadcast(draw: Sketch, shape: Shape) -> Value:
    """A new input that broadcasts to `shape`."""
    kind = draw.choose("whole", "whole", "last", "first", "other")
    if kind == "whole":
        return draw.input(*shape)
    if kind == "last":
        return draw.input(shape[-1])
    if kind == "first":
        return draw.input(shape[0], *(1 for _ in shape[1:]))
    return draw.input(*(size if draw.chance(0.5) else 1 for size in shape))


def _joined(draw: Sketch, x: Value, y: Value) -> Value:
    """Something of two values that grows no faster than a sum."""
    kind = draw.choose("add", "subtract", "multiply", "maximum", "minimum", "divide", "where",
                       "mix")  # fmt: skip
    if kind == "multiply":
        return draw.put("multiply", x, draw.put(draw.choose("tanh", "sigmoid", "sin"), y))
    if kind == "divide":
        below = draw.put("shift", draw.put("square", y), amount=1.0)
        return draw.put("divide", x, below)
    if kind == "where":
        return draw.put("where_positive", y, x, draw.put("scale", x, factor=0.25))
    if kind == "mix":
        share = draw.put("sigmoid", y)
        return draw.put("add", x, draw.put("multiply", draw.put("subtract", y, x), share))
    return draw.put(kind, x, y)


def elementwise(draw: Sketch) -> Value:
    """A chain of up to 30 operations with inputs that broadcast, and values used twice."""
    shape = draw.shape(draw.choose(1, 2, 2, 3, 4))
    values = [draw.input(*shape)]
    for _ in range(draw.size(2, 30)):
        x = values[-1]
        if draw.chance(0.6):
            values.append(draw.unary(x))
        elif draw.chance(0.5) and len(draw.inputs) < 8:
            values.append(_joined(draw, x, _broadcast(draw, shape)))
        else:
            values.append(_joined(draw, x, draw.choose(*values)))
    return values[-1]


def reduction(draw: Sketch) -> Value:
    """A reduction along any axes, of something computed, often with more that follows it."""
    shape = draw.shape(draw.choose(1, 2, 2, 3, 4))
    x = draw.input(*shape)
    if draw.chance(0.5):
        x = draw.unary(x)
    if draw.chance(0.3):
        x = draw.put("multiply", x, _broadcast(draw, shape))
    axes = [axis for axis in range(x.rank) if draw.chance(0.5)] or [draw.random.randrange(x.rank)]
    follows = draw.chance(0.5)
    y = draw.reduced(draw.choose(*_SUMS), x, axes, keepdims=follows or draw.chance(0.3))
    if not follows:
        return y
    y = _joined(draw, x, y)
    if draw.chance(0.4):
        axes = [draw.random.randrange(x.rank)]
        y = draw.reduced(draw.choose(*_SUMS), draw.unary(y), axes, keepdims=False)
    return y


def argmax(draw: Sketch) -> Value:
    """The place of a maximum."""
    x = draw.input(*draw.shape(draw.choose(1, 2, 3)))
    axis = draw.random.randrange(x.rank)
    shape = tuple(size for at, size in enumerate(x.shape) if at != axis)
    return draw.put("argmax", x, shape=shape, axis=axis)


def norm(draw: Sketch) -> Value:
    """A normalisation with what is before and after it in networks."""
    kind = draw.choose("layer", "layer", "rms", "rms", "group", "batch", "instance", "l2")
    if kind in ("group", "batch", "instance"):
        x, channels = _images_to_normalise(draw)
    else:
        shape = draw.shape(draw.choose(2, 2, 3), low=8)
        x, channels = draw.input(*shape), shape[-1]
    if draw.chance(0.4):
        x = draw.put("add", x, draw.input(*x.shape))
    elif draw.chance(0.3):
        x = draw.unary(x)
    gain, bias = draw.input(channels, kind="positive"), draw.input(channels)
    if kind == "layer":
        y = draw.put("layer_norm", x, gain, bias, shape=x.shape, count=(channels,))
    elif kind == "rms":
        y = draw.put("rms_norm", x, gain, shape=x.shape, count=(channels,))
    elif kind == "l2":
        y = draw.put("normalize", x, shape=x.shape, axis=draw.choose(-1, 1))
    elif kind == "group":
        groups = draw.choose(*(one for one in (1, 2, 4, 8) if channels % one == 0))
        y = draw.put("group_norm", x, gain, bias, shape=x.shape, groups=groups)
    else:
        y = draw.put(f"{kind}_norm", x, gain, bias, shape=x.shape)
    return draw.activation(y) if draw.chance(0.4) else y


def _images_to_normalise(draw: Sketch) -> tuple[Value, int]:
    """Images of which every channel has some elements."""
    batch, channels, height, width = draw.shape(4)
    batch, height, width = max(batch, 2), max(height, 3), max(width, 3)
    return draw.input(batch, channels, height, width), channels


def softmax(draw: Sketch) -> Value:
    """Softmax, its logarithm, or cross-entropy, of scores that are computed."""
    kind = draw.choose("softmax", "log_softmax", "cross_entropy", "cross_entropy")
    if kind == "cross_entropy":
        rows, classes = draw.shape(2)
        x = draw.unary(draw.input(rows, classes)) if draw.chance(0.3) else draw.input(rows, classes)
        labels = draw.input(rows, kind="index", limit=classes)
        reduction, smoothing = draw.choose("mean", "none", "sum"), draw.choose(0.0, 0.0, 0.1)
        shape: Shape = (rows,) if reduction == "none" else ()
        return draw.put(kind, x, labels, shape=shape, smoothing=smoothing, reduction=reduction)
    x = draw.input(*draw.shape(draw.choose(1, 2, 3, 4)))
    if draw.chance(0.4):
        x = draw.put("add", draw.put("scale", x, factor=0.3), _broadcast(draw, x.shape))
    y = draw.put(kind, x, shape=x.shape, axis=draw.random.randrange(x.rank))
    return draw.put("multiply", y, draw.input(*x.shape)) if draw.chance(0.3) else y


def movement(draw: Sketch) -> Value:
    """Two to six moves: joins, parts, mirrors, margins, orders of axes, with arithmetic between."""
    x = draw.input(*draw.shape(draw.choose(2, 3, 4), draw.limits.elements // 4, low=2))
    for _ in range(draw.random.randint(2, 6)):
        x = _moved(draw, x)
        if draw.chance(0.3):
            x = draw.unary(x)
    return draw.put("dense", draw.put("scale", x, factor=1.5), shape=x.shape)


def _moved(draw: Sketch, x: Value) -> Value:
    axis = draw.random.randrange(x.rank)
    size, shape = x.shape[axis], list(x.shape)
    kind = draw.choose("flip", "roll", "concat", "stack", "slice", "pad", "permute", "repeat",
                       "tile", "reshape")  # fmt: skip
    large = 2 * _elements(x) > draw.limits.elements
    if kind in ("concat", "stack", "repeat", "tile") and (large or x.rank > 4):
        kind = "slice"
    if kind == "flip":
        return draw.put("flip", x, axis=axis)
    if kind == "roll":
        return draw.put("roll", x, amount=draw.random.randint(-size, size), axis=axis)
    if kind == "concat":
        shape[axis] = 2 * size
        other = x if draw.chance(0.3) else draw.input(*x.shape)
        return draw.put("concat", x, draw.unary(other), shape=tuple(shape), axis=axis)
    if kind == "stack":
        shape.insert(axis, 2)
        return draw.put("stack", x, draw.input(*x.shape), shape=tuple(shape), axis=axis)
    if kind == "slice":
        start = draw.random.randrange(-(-size // 2))
        stop, step = size - draw.random.randrange(-(-size // 4)), draw.choose(1, 1, 2)
        shape[axis] = len(range(start, stop, step))
        key = Verbatim(", ".join([*(":" for _ in range(axis)), f"{start}:{stop}:{step}"]))
        return draw.put("slice", x, shape=tuple(shape), key=key)
    if kind == "pad":
        low, high = draw.choose(0, 1, 2, 5), draw.choose(0, 1, 3)
        shape[axis] += low + high
        pairs = (*(0 for _ in range(2 * (x.rank - 1 - axis))), low, high)
        return draw.put("pad", x, shape=tuple(shape), pairs=pairs, mode="constant")
    if kind == "permute":
        axes = list(range(x.rank))
        draw.random.shuffle(axes)
        return draw.permute(x, *axes)
    if kind == "repeat":
        shape[axis] = 2 * size
        return draw.put("repeat", x, shape=tuple(shape), times=2, axis=axis)
    if kind == "tile":
        times = tuple(2 if at == axis else 1 for at in range(x.rank))
        shape[axis] = 2 * size
        return draw.put("tile", x, shape=tuple(shape), times=times)
    if axis + 1 < x.rank:
        shape[axis : axis + 2] = [size * shape[axis + 1]]
        return draw.reshape(x, *shape)
    factor = next((one for one in (8, 3, 2) if size % one == 0), 1)
    return draw.reshape(x, *shape[:-1], size // factor, factor)


def _elements(x: Value) -> int:
    product = 1
    for size in x.shape:
        product *= size
    return product


def lookup(draw: Sketch) -> Value:
    """Rows or elements by index, and sums at indices."""
    kind = draw.choose("embedding", "take", "gather", "index_add", "scatter_add", "one_hot")
    rows, width = draw.shape(2, draw.limits.elements // 4)
    count = draw.size(1, max(1, draw.limits.elements // 4 // width))
    table = draw.input(rows, width)
    if kind == "embedding":
        index = draw.input(*_split(draw, count), kind="index", limit=rows)
        y = draw.put("embedding", index, table, shape=(*index.shape, width))
        return draw.unary(y) if draw.chance(0.4) else y
    if kind == "one_hot":
        classes = draw.size(1, min(512, max(1, draw.limits.elements // rows)))
        hot = draw.put("one_hot", draw.input(rows, kind="index", limit=classes),
                       shape=(rows, classes), classes=classes)  # fmt: skip
        return draw.matmul(draw.put("turned", hot, shape=(classes, rows)), table)
    axis = draw.choose(0, 0, 1)
    if kind in ("take", "index_add"):
        count = min(count, max(1, draw.limits.elements // (width if axis == 0 else rows)))
        index = draw.input(count, kind="index", limit=table.shape[axis])
        shape = (count, width) if axis == 0 else (rows, count)
        if kind == "take":
            return draw.put("take", table, index, shape=shape, axis=axis)
        source = draw.unary(draw.input(*shape))
        return draw.put("index_add", table, index, source, shape=table.shape, axis=axis)
    index = draw.input(rows, width, kind="index", limit=table.shape[axis])
    if kind == "gather":
        return draw.put("gather", draw.unary(table), index, shape=index.shape, axis=axis)
    source = draw.input(rows, width)
    return draw.put("scatter_add", table, index, source, shape=table.shape, axis=axis)


def _split(draw: Sketch, count: int) -> Shape:
    """About `count` elements in one axis or two."""
    if draw.chance(0.5):
        return (count,)
    batch = draw.size(1, max(1, min(64, count)))
    return batch, max(1, count // batch)


def scan(draw: Sketch) -> Value:
    """A cumulative sum, product, maximum or logarithm of sums."""
    kind = draw.choose("cumsum", "cumsum", "cumprod", "cummax", "logcumsumexp", "diff")
    low = 2 if kind == "diff" else 1
    x = draw.input(*draw.shape(draw.choose(1, 2, 2, 3), low=low), scale=0.5)
    axis = draw.random.randrange(x.rank)
    if kind == "cumprod":
        x = draw.put("shift", draw.put("scale", draw.put("tanh", x), factor=0.01), amount=1.0)
    elif draw.chance(0.4):
        x = draw.unary(x)
    shape = list(x.shape)
    shape[axis] -= kind == "diff"
    y = draw.put(kind, x, shape=tuple(shape), axis=axis)
    return draw.put("tanh", y) if draw.chance(0.3) else y


def sort(draw: Sketch) -> Value:
    """Elements in order, the largest ones, or the one in the middle."""
    shape = draw.shape(draw.choose(1, 2, 2, 3), draw.limits.elements // 2)
    x, kind = draw.input(*shape), draw.choose("sort", "argsort", "topk", "topk", "median")
    axis = draw.random.randrange(x.rank)
    sizes = list(shape)
    if kind == "sort":
        return draw.put("sort", x, axis=axis, down=draw.chance(0.5))
    if kind == "argsort":
        return draw.put("argsort", x, axis=axis)
    if kind == "median":
        del sizes[axis]
        return draw.put("median", x, shape=tuple(sizes), axis=axis)
    sizes[axis] = draw.size(1, min(64, shape[axis]))
    return draw.put("topk", x, shape=tuple(sizes), count=sizes[axis], axis=axis)
