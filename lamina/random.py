"""Random numbers that depend on a key and a position only: equal on every device.

The generator is threefry2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw 2011, "Parallel random
numbers: as easy as 1, 2, 3"): a function of a key (two 32-bit words) and the number of an element.

Every function takes `seed` (an integer), or `key` (see `key` and `split`), or neither; then a
generator of the process, set by `manual_seed`, hands out a new key. A forked child has a generator
of its own: workers draw different numbers, and the same ones in each run of a program that sets a
seed and forks them in one order. A process that is spawned begins with seed 0, as every one does.
Two draws with one key are equal. A key is a tensor, so drawing with another one runs the same
compiled program. Where a result has n rows, n keys (n, 2) can take the place of one: row i is what
key i draws by itself.

`uniform`, `randint`, `bernoulli` and `permutation` agree on all devices to the last bit, `normal`
as far as the devices' logarithm and cosine do.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NoReturn

from lamina.core import dtypes
from lamina.core.dtypes import DType
from lamina.core.seeds import SEEDS
from lamina.core.shape import Shape, prod
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.frontend.arguments import as_dtype, integer, is_integer, normalize_axis, sizes_of
from lamina.frontend.functions import elementwise, reduction
from lamina.frontend.functions.indexing import known_elements, take
from lamina.frontend.functions.movement import moveaxis, stack
from lamina.frontend.session import during
from lamina.frontend.tensor import Tensor, as_tensor, checked, missing
from lamina.ir import build
from lamina.ir.node import Node
from lamina.ir.ops import Op

__all__ = [
    "bernoulli", "categorical", "exponential", "glorot_normal", "glorot_uniform", "gumbel",
    "kaiming_normal", "kaiming_uniform", "key", "manual_seed", "multinomial", "next_key", "normal",
    "permutation", "randint", "split", "uniform", "using",
]  # fmt: skip

Size = int | Sequence[int]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_WORD = 0xFFFFFFFF

_traced: ContextVar[list[Tensor] | None] = ContextVar("traced", default=None)  # of `using`


def manual_seed(seed: int) -> None:
    """Start the process's generator afresh; its first seed is 0."""
    SEEDS.restart(integer("manual_seed", seed) & (1 << 64) - 1)


def next_key(device: str | None = None) -> Tensor:
    """A new key from the process's generator: uint32 of shape (2,)."""
    held = _traced.get()
    if held is None:
        return key(SEEDS.draw(), device)
    held[0], fresh = split(held[0]).contiguous()  # by itself, or what draws would draw it again
    return fresh


def using(key: Tensor) -> AbstractContextManager[None]:
    """Inside the ``with`` block, draws that name no key take theirs from `key`: a program that is
    traced there has the generator's state as an input."""
    return during(_traced, [key])


def key(seed: int, device: str | None = None) -> Tensor:
    """The key of an integer seed, its low 64 bits as (high, low) words: uint32 of shape (2,)."""
    seed = integer("key", seed)
    return Tensor([seed >> 32 & _WORD, seed & _WORD], dtypes.uint32, device)


def split(key: Tensor, n: int = 2) -> Tensor:
    """`n` new keys, uint32 of shape (n, 2), independent of each other and of draws with `key`."""
    if key.ndim > 1:
        raise ShapeError(f"{key.shape} are several keys; one is needed", operation="split")
    # Draws count their streams from 0.
    words = _threefry(_key_words(key), build.iota(integer("split", n, 0), dtypes.uint32), _WORD)
    return stack([Tensor.of(word, key.device) for word in words], axis=1)


def _choose_key(seed: int | None, chosen: Tensor | None, device: str | None) -> Tensor:
    if chosen is not None:
        return chosen
    return next_key(device) if seed is None else key(seed, device)


def _key_words(key: Tensor) -> tuple[Node, Node]:
    """The two words of a key, of shape (), or of several keys, (n, 1)."""
    if key.shape not in ((2,), (*key.shape[:1], 2)) or key.dtype is not dtypes.uint32:
        raise ShapeError(
            f"{key.dtype.name} of {key.shape} is no key; use random.key()", operation="random"
        )
    shape = (*key.shape[:-1], 1) if key.ndim > 1 else ()
    high, low = (
        build.reshape(build.slice_axis(key.node, key.ndim - 1, at, at + 1), shape)
        for at in range(2)
    )
    return high, low


def _threefry(key: tuple[Node, Node], low: Node, high: int) -> tuple[Node, Node]:
    """The 20 rounds for the counters (`low`, `high`), elementwise: two words of low's shape, (n,),
    for each key."""
    shape = (*key[0].shape[:-1], *low.shape)
    low = build.expand(low, shape)
    first, second = (build.expand(word, shape) for word in key)
    schedule = (first, second, first ^ second ^ _PARITY)
    x = low + first
    y = second + high
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            x = x + y
            y = ((y << distance) | (y >> (32 - distance))) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + schedule[(group + 2) % 3] + (group + 1)
    return x, y


def _words(key: Tensor, shape: Shape, stream: int = 0) -> tuple[Node, Node]:
    """Two random words (uint32) for each element of `shape`; streams are independent."""
    keys = key.shape[:-1]
    if shape[: len(keys)] != keys:
        raise ShapeError(
            f"{keys[0]} keys for a result of {shape}; each is for one row", operation="random"
        )
    count = prod(shape[len(keys) :])
    if count > 1 << 32:
        raise ShapeError(
            f"{shape} has over 2**32 elements; draw parts with split keys", operation="random"
        )
    words = _threefry(_key_words(key), build.iota(count, dtypes.uint32), stream)
    return build.reshape(words[0], shape), build.reshape(words[1], shape)


def _long_words(words: tuple[Node, Node]) -> Node:
    """Two words as one of 64 bits."""
    high, low = (build.cast(word, dtypes.uint64) for word in words)
    return (high << 32) | low


def _fraction(words: tuple[Node, Node], dtype: DType) -> Node:
    """Multiples of 2**-significant bits in [0, 1), exactly represented."""
    bits = dtype.precision
    integer = (_long_words(words) >> (64 - bits)) if bits > 32 else (words[0] >> (32 - bits))
    return build.cast(integer, dtype) * 2.0**-bits


def _positive_fraction(words: tuple[Node, Node], dtype: DType) -> Node:
    """Even numbers of (0, 1), the argument of a logarithm: 32 bits or more, so that small values,
    which make the tail, keep their precision.

    Near 1 the dtype has fewer bits, so rounding would reach 1, whose logarithm is 0: in float32 the
    word 2**32 - 100 becomes 2**32. The last number before 1 takes its place."""
    if dtype is dtypes.float64:
        fraction = _fraction(words, dtype) + 2.0**-54
    else:
        fraction = build.cast(words[0], dtype) * 2.0**-32 + 2.0**-33
    return Node(Op.MIN, (fraction, fraction.lift(1.0 - 2.0**-dtype.precision)))


# Distributions. Their arguments `seed`, `key` and `device` are those of the module's text.


def _float(what: str, dtype: Any) -> tuple[DType, DType]:
    """The dtype of a result, and the one to compute it in."""
    kind = as_dtype(dtype)
    if not kind.is_float or kind in dtypes.STORAGE_ONLY:
        raise DTypeError(
            f"{kind.name} is no float to compute with; cast the result to it", operation=what
        )
    return kind, dtypes.float32 if kind.is_small else kind


def _sizes(what: str, shape: Any) -> Shape:
    """`shape` as sizes; raises DTypeError for something else in its place, as PyTorch's and NumPy's
    functions of these names take it: ``bernoulli(probabilities)``, ``randint(0, 10, (3,))``."""
    if isinstance(shape, Tensor) and not shape.dtype.is_int:
        raise DTypeError(
            f"the shape comes first, not a tensor of {shape.dtype.name}", operation=what
        )
    try:
        return sizes_of(what, shape)
    except DTypeError:
        raise DTypeError(
            f"{shape!r} is no shape of integers; it comes first", operation=what
        ) from None


def _refuse_sizes_apart(what: str, shape: Any, second: Any) -> None:
    """Raises ArgumentError for ``normal(2, 3)``, which reads as two sizes. A second argument of 0,
    as in ``uniform(5, 0, 1)``, is no size that anybody asks for."""
    if type(shape) is int and type(second) is int and second > 0:
        raise ArgumentError(f"the shape is one argument: {what}(({shape}, {second})); for "
                            f"a vector {what}(({shape},), {second})", operation=what)  # fmt: skip


def _check_scale(what: str, name: str, value: float) -> None:
    if not value >= 0.0:
        raise ArgumentError(f"{name} is {value}; it cannot be negative", operation=what)


def uniform(
    shape: Size = (), low: float = 0.0, high: float = 1.0, *, seed: int | None = None,
    key: Tensor | None = None, dtype: DType = dtypes.default_float, device: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers from [low, high), evenly distributed (rounding may reach `high` when low != 0)."""
    _refuse_sizes_apart("uniform", shape, low)
    dtype, exact = _float("uniform", dtype)
    if not all(abs(math.ldexp(bound, dtype.least - 2)) < 1.0 for bound in (low, high, high - low)):
        raise ArgumentError(f"[{low}, {high}) is wider than {dtype.name}", operation="uniform")
    key = _choose_key(seed, key, device)
    value = build.cast(_fraction(_words(key, _sizes("uniform", shape)), dtype), exact)
    if high - low != 1.0:
        value = value * (high - low)
        if low:
            # An even significand, made by an integer operation, keeps devices from fusing a product
            # and a sum, which would round once, not twice.
            bits = dtypes.uint64 if exact is dtypes.float64 else dtypes.uint32
            value = build.bitcast(build.bitcast(value, bits) & (bits.max - 1), exact)
    return Tensor.of(build.cast(value + low if low else value, dtype), key.device)


def normal(
    shape: Size = (), mean: float = 0.0, std: float = 1.0, *, seed: int | None = None,
    key: Tensor | None = None, dtype: DType = dtypes.default_float, device: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers from the normal distribution (Box and Muller 1958); halves are made in float32."""
    _refuse_sizes_apart("normal", shape, mean)
    _check_scale("normal", "std", std)
    dtype, exact = _float("normal", dtype)
    key = _choose_key(seed, key, device)
    size = _sizes("normal", shape)
    first, second = _words(key, size)
    radius = _positive_fraction((first, second), exact)
    # float64 takes 53 bits of a pair of words, so the angle needs a pair of its own.
    angle_words = _words(key, size, 1) if exact is dtypes.float64 else (second, first)
    angle = _fraction(angle_words, exact)
    length = Node(Op.SQRT, (Node(Op.LOG, (radius,)) * -2.0,))
    values = length * Node(Op.COS, (angle * math.tau,))
    values = values if std == 1.0 else values * std
    return Tensor.of(build.cast(values + mean if mean else values, dtype), key.device)


def _waiting_time(key: Tensor, shape: Shape, dtype: DType) -> Node:
    """-log of an even number: from the exponential distribution of mean 1."""
    return -Node(Op.LOG, (_positive_fraction(_words(key, shape), dtype),))


def exponential(
    shape: Size = (), scale: float = 1.0, *, seed: int | None = None, key: Tensor | None = None,
    dtype: DType = dtypes.default_float, device: str | None = None,
) -> Tensor:  # fmt: skip
    """Positive numbers from the exponential distribution of mean `scale`, which is 1 / rate."""
    _check_scale("exponential", "scale", scale)
    dtype, exact = _float("exponential", dtype)
    key = _choose_key(seed, key, device)
    value = _waiting_time(key, _sizes("exponential", shape), exact) * scale
    return Tensor.of(build.cast(value, dtype), key.device)


def gumbel(
    shape: Size = (), loc: float = 0.0, scale: float = 1.0, *, seed: int | None = None,
    key: Tensor | None = None, dtype: DType = dtypes.default_float, device: str | None = None,
) -> Tensor:  # fmt: skip
    """Numbers from the distribution of Gumbel, that of maxima: loc - scale log(-log(u))."""
    _check_scale("gumbel", "scale", scale)
    dtype, exact = _float("gumbel", dtype)
    key = _choose_key(seed, key, device)
    waiting = _waiting_time(key, _sizes("gumbel", shape), exact)
    return Tensor.of(build.cast(Node(Op.LOG, (waiting,)) * -scale + loc, dtype), key.device)


def randint(
    shape: Size, low: int, high: int, *, seed: int | None = None, key: Tensor | None = None,
    dtype: DType = dtypes.default_int, device: str | None = None,
) -> Tensor:  # fmt: skip
    """Integers with ``low <= value < high``, even up to a share of ``(high - low) / 2**64``."""
    dtype = as_dtype(dtype)
    if not dtype.is_int:
        raise DTypeError(f"{dtype.name} is not an integer dtype", operation="randint")
    size = _sizes("randint", shape)
    if not is_integer(low) or not is_integer(high):
        raise DTypeError(f"low={low!r} and high={high!r} are not two integers; the shape "
                         "comes first: randint(shape, low, high)", operation="randint")  # fmt: skip
    low, high = integer("randint", low), integer("randint", high)
    if not dtype.min <= low < high <= dtype.max + 1:  # type: ignore[operator]
        raise ShapeError(
            f"{low}..{high} is empty or does not fit {dtype.name}", operation="randint"
        )
    key = _choose_key(seed, key, device)
    bits = _long_words(_words(key, size))
    span = high - low
    offset = bits if span == 1 << 64 else bits % span
    return Tensor.of(build.cast(offset + low, dtype), key.device)


def bernoulli(
    shape: Size, p: float | Tensor = 0.5, *, seed: int | None = None, key: Tensor | None = None,
    device: str | None = None,
) -> Tensor:  # fmt: skip
    """True with probability `p` (a number, or a tensor that broadcasts to `shape`), bool."""
    size = _sizes("bernoulli", shape)
    known = known_elements(p)
    if known is not None and not ((known >= 0.0) & (known <= 1.0)).all():
        raise ArgumentError(f"p={p} is no probability", operation="bernoulli")
    device = p.device if isinstance(p, Tensor) and device is None else device
    unit = uniform(size, seed=seed, key=key, dtype=dtypes.float32, device=device)
    chance = build.cast(as_tensor(p, unit).node, dtypes.float32)
    return Tensor.of(unit.node < build.expand(chance, unit.shape), unit.device)


def categorical(
    logits: Tensor, shape: Size | None = None, *, axis: int = -1, seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Classes (int64) drawn with probabilities ``softmax(logits, axis)``: one for each line along
    `axis`, or as many as fill `shape`, which ends with the shape of the lines. The class of the
    greatest logit plus noise of Gumbel has them."""
    scores = moveaxis(as_tensor(logits), axis, -1)
    lines = scores.shape[:-1]
    wanted = lines if shape is None else sizes_of("categorical", shape)
    if wanted[len(wanted) - len(lines) :] != lines:
        raise ShapeError(f"shape {wanted} does not end with {lines}", operation="categorical")
    dtype = scores.dtype if scores.dtype.is_float else dtypes.default_float
    exact = dtypes.float32 if dtype.is_small else dtype
    size = (*wanted, scores.shape[-1])
    noise = gumbel(size, seed=seed, key=key, dtype=exact, device=scores.device)
    return reduction.argmax(scores.cast(exact) + noise, axis=-1)


def multinomial(
    weights: Tensor, n: int, replacement: bool = False, *, seed: int | None = None,
    key: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`n` classes (int64) a line, drawn with probabilities in proportion to the weights along the
    last axis, which need not sum to 1: (..., classes) to (..., n). Without `replacement` no class
    comes twice: they are those of the `n` greatest logarithms plus noise of Gumbel (Efraimidis and
    Spirakis 2006, "Weighted random sampling with a reservoir"). Too few weights above 0 for that
    are not noticed: classes of weight 0 follow."""
    logits = elementwise.log(as_tensor(weights))
    *lines, classes = logits.shape
    count = integer("multinomial", n, 1)
    if replacement:
        drawn = categorical(logits, (count, *lines), seed=seed, key=key)
        return moveaxis(drawn, 0, -1)
    if count > classes:
        raise ArgumentError(
            f"{count} of {classes} classes; draw with replacement", operation="multinomial"
        )
    noise = gumbel(logits.shape, seed=seed, key=key, device=logits.device)
    return reduction.topk(logits.cast(dtypes.float32) + noise, count).indices


def permutation(
    x: int | Tensor, *, axis: int = 0, seed: int | None = None, key: Tensor | None = None,
    device: str | None = None,
) -> Tensor:  # fmt: skip
    """0..x-1 in random order (int64), or the tensor `x` with the places along `axis` shuffled."""
    if isinstance(x, Tensor):
        axis = normalize_axis("permutation", axis, x.ndim)
        return take(x, permutation(x.shape[axis], seed=seed, key=key, device=x.device), axis=axis)
    key = _choose_key(seed, key, device)
    order = build.argsort(_long_words(_words(key, sizes_of("permutation", (x,)))))
    return Tensor.of(order, key.device)


# Initial weights, (out, in, kernel sizes ...); `draw` is as in `uniform`.


def _std(what: str, shape: Size, variance: float, mode: str) -> float:
    """The root of `variance` over the numbers of inputs or outputs of a unit, or their mean."""
    sizes = sizes_of(what, shape)
    if len(sizes) < 2:
        raise ShapeError(f"{sizes} needs two axes or more: (out, in, ...)", operation=what)
    outputs, inputs, field = sizes[0], sizes[1], prod(sizes[2:])
    counts = {"fan_in": inputs, "fan_out": outputs, "fan_mean": (inputs + outputs) / 2}
    if mode not in counts:
        raise ArgumentError(f"mode {mode!r} is none of {', '.join(counts)}", operation=what)
    return math.sqrt(variance / max(counts[mode] * field, 1))


def kaiming_uniform(shape: Size, a: float = 0.0, mode: str = "fan_in", **draw: Any) -> Tensor:
    """Weights for layers followed by a (leaky, slope `a`) relu (He, Zhang, Ren and Sun 2015,
    "Delving deep into rectifiers", section 2.2)."""
    bound = math.sqrt(3.0) * _std("kaiming_uniform", shape, 2.0 / (1.0 + a * a), mode)
    return uniform(shape, -bound, bound, **draw)


def kaiming_normal(shape: Size, a: float = 0.0, mode: str = "fan_in", **draw: Any) -> Tensor:
    """As `kaiming_uniform`, from the normal distribution."""
    return normal(shape, 0.0, _std("kaiming_normal", shape, 2.0 / (1.0 + a * a), mode), **draw)


def glorot_uniform(shape: Size, gain: float = 1.0, **draw: Any) -> Tensor:
    """Weights that keep variances equal in both directions (Glorot and Bengio 2010, "Understanding
    the difficulty of training deep feedforward neural networks", equation 16)."""
    bound = math.sqrt(3.0) * _std("glorot_uniform", shape, gain * gain, "fan_mean")
    return uniform(shape, -bound, bound, **draw)


def glorot_normal(shape: Size, gain: float = 1.0, **draw: Any) -> Tensor:
    """As `glorot_uniform`, from the normal distribution."""
    return normal(shape, 0.0, _std("glorot_normal", shape, gain * gain, "fan_mean"), **draw)


# For users, as all that lamina has.
globals().update({_name: checked(globals()[_name]) for _name in __all__})


def __getattr__(name: str) -> NoReturn:
    raise missing("lamina.random", name)
