"""What the models share: projections, lookups, attention with grouped queries, caches of keys and
values, and gated layers. Weights may be quantised. Sums and what lies between products are float32;
factors of products, keys and values have the dtype `Source.activations`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lamina.core.dtypes import DType, float32
from lamina.distributed.layout import Layout
from lamina.distributed.tensor_parallel import enter_parallel, leave_parallel
from lamina.errors import ShapeError
from lamina.frontend.functions.attention import scaled_dot_product_attention
from lamina.frontend.functions.creation import arange
from lamina.frontend.functions.elementwise import minimum, silu, tanh, where
from lamina.frontend.functions.lookup import embedding
from lamina.frontend.functions.neural import layer_norm, rms_norm
from lamina.frontend.functions.projection import linear
from lamina.frontend.functions.reduction import softmax
from lamina.frontend.tensor import Tensor
from lamina.io.blocks import Packed
from lamina.io.interleaved import Interleaved
from lamina.models.rope import Rotation
from lamina.models.sharing import Sharing, Weight, layouts
from lamina.models.vector_cache import VectorCache, Vectors
from lamina.models.weights import Source

__all__ = [
    "Cache", "Gated", "KeyValues", "LayerNorm", "Lookup", "Places", "Projection", "RMSNorm",
    "Scores", "SelfAttention", "TransposedProjection", "attention", "floats", "heads_of",
    "rounded",
]  # fmt: skip


class Projection:
    """``x @ weight.T + bias``. weight: (outputs, inputs) of any dtype or quantised; of those, where
    several processes share the model, a part as `sharing` says. pieces: arrays that the outputs are
    joined from, of each of which a process has the same part."""

    def __init__(
        self, source: Source, name: str, inputs: int, outputs: int, bias: bool = False,
        sharing: Sharing = Sharing.WHOLE, pieces: int = 1,
    ) -> None:  # fmt: skip
        self._sharing, self._over, self._outputs = sharing, source.over, outputs
        self._pieces = pieces
        cut = sharing.cut(0, pieces)
        self.weight: Weight = source.take(f"{name}.weight", (outputs, inputs), cut)
        self._interleaved = source.interleaved(self.weight)
        self._activations = source.activations
        self.bias: Tensor | None = None
        if bias:
            self.bias = source.vector(f"{name}.bias", outputs, sharing.cut_of_bias(pieces))

    def __call__(self, x: Tensor) -> Tensor:
        entered = self._sharing.entered(x, self._over)
        product = _product(entered, self.weight, self._interleaved, self._activations)
        product = self._sharing.left(product, self._over, self._outputs)
        return product if self.bias is None else product + self.bias.cast(float32)

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        cut, of_bias = self._sharing.cut(0, self._pieces), self._sharing.cut_of_bias(self._pieces)
        return layouts(self.weight, cut, self.bias, of_bias, self._over, self._outputs)


class TransposedProjection:
    """``x @ weight + bias``. weight: (inputs, outputs) of any dtype, not quantised; of those, where
    several processes share the model, a part as `sharing` says. pieces: arrays that the outputs are
    joined from, of each of which a process has the same part."""

    def __init__(
        self, source: Source, name: str, inputs: int, outputs: int,
        sharing: Sharing = Sharing.WHOLE, pieces: int = 1,
    ) -> None:  # fmt: skip
        self._sharing, self._over, self._outputs = sharing, source.over, outputs
        self._pieces, self._activations = pieces, source.activations
        cut = sharing.cut(1, pieces)
        self.weight: Weight = source.take(f"{name}.weight", (inputs, outputs), cut)
        self.bias = source.vector(f"{name}.bias", outputs, sharing.cut_of_bias(pieces))

    def __call__(self, x: Tensor) -> Tensor:
        vectors = rounded(self._sharing.entered(x, self._over), self._activations)
        product = vectors @ rounded(floats(self.weight), self._activations)
        product = self._sharing.left(product, self._over, self._outputs)
        return product + self.bias.cast(float32)

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        cut, of_bias = self._sharing.cut(1, self._pieces), self._sharing.cut_of_bias(self._pieces)
        return layouts(self.weight, cut, self.bias, of_bias, self._over, self._outputs)


class Lookup:
    """The rows of a weight (count, size) at integers of any shape. projects: it is used as a
    projection of vectors on all rows as well. is_shared: processes that share the model have some
    of the rows each, and all get the results."""

    def __init__(
        self, source: Source, name: str, count: int, size: int, projects: bool = False,
        is_shared: bool = True,
    ) -> None:  # fmt: skip
        self._sharing = Sharing.LOGITS if is_shared else Sharing.WHOLE
        self._over, self._count = source.over if is_shared else None, count
        self.weight: Weight = source.take(f"{name}.weight", (count, size), self._sharing.cut(0))
        self._interleaved = source.interleaved(self.weight) if projects else None
        self._activations = source.activations

    def __call__(self, ids: Tensor) -> Tensor:
        if self._over is None:
            return self._rows(ids)
        rows = self.weight.shape[0]
        places = ids - self._over.place * rows
        is_here = (places >= 0) & (places < rows)
        vectors = self._rows(where(is_here, places, 0))
        return leave_parallel(where(is_here.unsqueeze(-1), vectors, 0.0), self._over)

    def _rows(self, ids: Tensor) -> Tensor:
        if isinstance(self.weight, Packed):
            return self.weight.rows(ids)
        return embedding(ids, self.weight).cast(float32)

    def project(self, x: Tensor) -> Tensor:
        """``x @ weight.T``: vectors (..., size) to (..., count)."""
        entered = self._sharing.entered(x, self._over)
        product = _product(entered, self.weight, self._interleaved, self._activations)
        return self._sharing.left(product, self._over, self._count)

    def layouts(self) -> dict[str, Layout]:
        """As `lamina.distributed.layout.HasLayouts`."""
        cut = self._sharing.cut(0)
        return layouts(self.weight, cut, None, None, self._over, self._count)


def _product(
    x: Tensor, weight: Weight, interleaved: Interleaved | None, activations: DType
) -> Tensor:
    """``x @ weight.T`` in float32, of factors that are rounded to `activations`. A chunk of a
    prompt is multiplied as floats: the decoded weight is used for all its vectors. For a single
    vector a quantised weight is not rounded again: there are no tiles that would hold it."""
    is_single = x.size == x.shape[-1]
    if interleaved is not None and is_single:
        return interleaved.product(x)
    factor = floats(weight)
    if not (isinstance(weight, Packed) and is_single):
        factor = rounded(factor, activations)
    return linear(rounded(x, activations), factor)


def rounded(x: Tensor, activations: DType) -> Tensor:
    """float32 of values that `activations` has: the sum of products of two such is one of factors
    of that dtype, without a rounding of the result."""
    return x.cast(activations).cast(float32)


def floats(weight: Weight) -> Tensor:
    """A weight as float32 in the kernel that uses it."""
    return weight.decode() if isinstance(weight, Packed) else weight.cast(float32)


class RMSNorm:
    """Vectors divided by their root mean square, times a weight (size,) plus `offset`. of_parts:
    processes that share the model have other vectors each, such as heads."""

    def __init__(
        self, source: Source, name: str, size: int, eps: float, offset: float = 0.0,
        of_parts: bool = False,
    ) -> None:  # fmt: skip
        self.weight = source.vector(f"{name}.weight", size)
        self.eps, self.offset = eps, offset
        self._over = source.over if of_parts else None

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.weight.cast(float32)
        if self._over is not None:
            weight = enter_parallel(weight, self._over)
        return rms_norm(x, x.shape[-1], weight + self.offset if self.offset else weight, self.eps)


class LayerNorm:
    """Vectors of mean 0 and variance 1, times a weight (size,), plus a bias if there is one."""

    def __init__(
        self, source: Source, name: str, size: int, eps: float, bias: bool = True
    ) -> None:
        self.weight = source.vector(f"{name}.weight", size)
        self.bias = source.vector(f"{name}.bias", size) if bias else None
        self.eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.weight.cast(float32)
        bias = None if self.bias is None else self.bias.cast(float32)
        return layer_norm(x, x.shape[-1], weight, bias, self.eps)


class Gated:
    """``down(activation(gate(x)) * up(x))`` (Shazeer 2020, "GLU Variants Improve Transformer")."""

    def __init__(
        self, source: Source, name: str, size: int, inner: int, bias: bool = False,
        activation: Callable[[Tensor], Tensor] = silu,
    ) -> None:  # fmt: skip
        outputs, inputs = Sharing.OUTPUTS, Sharing.INPUTS
        self.gate_proj = Projection(source, f"{name}.gate_proj", size, inner, bias, outputs)
        self.up_proj = Projection(source, f"{name}.up_proj", size, inner, bias, outputs)
        self.down_proj = Projection(source, f"{name}.down_proj", inner, size, bias, inputs)
        self.activation, self._activations = activation, source.activations

    def __call__(self, x: Tensor) -> Tensor:
        gate = rounded(self.gate_proj(x), self._activations)  # in memory while `up` is computed
        return self.down_proj(self.activation(gate) * self.up_proj(x))


@dataclass(frozen=True, eq=False)
class Places:
    """Where in their texts the tokens of a call stand: from `first` on, a scalar or one number for
    each text, (batch,); or at the begin. window: how many tokens before it, itself included, a
    token sees. chunk: each token sees those of its chunk of so many alone."""

    length: int
    first: Tensor | None
    device: str
    window: int | None = None
    chunk: int | None = None

    def positions(self) -> Tensor:
        """Integers (length,); or (batch, 1, length) for texts at places of their own: the 1 is for
        the heads."""
        offsets = arange(self.length, device=self.device)
        if self.first is None:
            return offsets
        first = self.first.reshape((-1, 1, 1)) if self.first.ndim else self.first
        return first + offsets

    def sees(self, keys: int) -> Tensor:
        """Which of the first `keys` tokens of its text each token sees: bool (length, keys), or
        (batch, 1, length, keys)."""
        rows, columns = self.positions().unsqueeze(-1), arange(keys, device=self.device)
        seen = columns <= rows
        if self.first is not None and not self.sees_all:
            # What fills up a chunk may stand beyond the keys, where a window has none of them: its
            # vectors would be NaN, and caches would keep these. It sees what the last key sees.
            rows = minimum(rows, keys - 1)
        if self.window is not None:
            seen = seen & (columns > rows - self.window)
        if self.chunk is not None:
            seen = seen & (columns // self.chunk == rows // self.chunk)
        return seen

    @property
    def sees_all(self) -> bool:
        """Whether each token sees all before it."""
        return self.window is None and self.chunk is None


class KeyValues(Protocol):
    """Where one layer keeps the keys and values of the tokens before."""

    def extended(self, keys: Tensor, values: Tensor, places: Places) -> tuple[Vectors, Vectors]:
        """Keep new ones, (batch, heads, length, size), at `places`. All that are kept, from the
        begin of each text on: (batch, heads, capacity, size)."""


class Cache:
    """Keys and values of one layer for `capacity` positions: (batch, heads, capacity, size), floats
    of `dtype` or int8, as `VectorCache` says.

    The capacity is fixed, so that programs of all positions are one program."""

    def __init__(
        self, batch: int, heads: int, capacity: int, size: int, device: str | None = None,
        dtype: DType = float32,
    ) -> None:  # fmt: skip
        self.capacity = capacity
        shape = batch, heads, capacity, size
        self.keys = VectorCache(shape, dtype, device)
        self.values = VectorCache(shape, dtype, device)

    def extended(self, keys: Tensor, values: Tensor, places: Places) -> tuple[Vectors, Vectors]:
        """As `KeyValues` says; all texts are at one place. What is beyond the end is dropped."""
        positions = places.positions()
        self.keys.put(2, positions, keys)
        self.values.put(2, positions, values)
        return self.keys.vectors, self.values.vectors

    def prefix(self, length: int) -> CachePrefix:
        """The first `length` positions, where no text is longer."""
        return CachePrefix(self, length)


@dataclass(frozen=True, eq=False)
class CachePrefix:
    """The first `length` positions of a cache, as `KeyValues`: attention reads no others."""

    cache: Cache
    length: int

    def extended(self, keys: Tensor, values: Tensor, places: Places) -> tuple[Vectors, Vectors]:
        """As `Cache.extended`: (batch, heads, length, size)."""
        all_keys, all_values = self.cache.extended(keys, values, places)
        return all_keys.selected(self._first), all_values.selected(self._first)

    def _first(self, x: Tensor) -> Tensor:
        return x[:, :, : self.length]


@dataclass(frozen=True)
class Scores:
    """Products of queries and keys are multiplied by `scale`, by default 1 / sqrt(size), and where
    there is a `bound`, they are bound * tanh(product / bound)."""

    scale: float | None = None
    bound: float | None = None


def attention(
    query: Tensor, key: Tensor, value: Tensor, places: Places, cache: KeyValues | None,
    scores: Scores | None = None, activations: DType = float32,
) -> Tensor:  # fmt: skip
    """Causal attention of heads (batch, heads, length, size), with the keys and values of `cache`
    before them, where each head of these serves a group of heads of queries (Ainslie et al. 2023,
    "GQA"): (batch, length, heads * size). activations: of the cache, and of factors of products."""
    scores = scores or Scores()
    query, key, value = (heads.cast(activations) for heads in (query, key, value))
    keys, values = Vectors(key), Vectors(value)
    if cache is not None:
        keys, values = cache.extended(key, value, places)
    key, value = keys.numbers, values.numbers
    if scores.bound is not None or keys.scales is not None:
        mixed = _grouped_attention(query, keys, values, places.sees(key.shape[2]), scores)
    elif cache is None and places.sees_all:
        mixed = scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scores.scale, enable_gqa=True
        )
    else:
        seen = places.sees(key.shape[2])
        mixed = scaled_dot_product_attention(
            query, key, value, seen, scale=scores.scale, enable_gqa=True
        )
    return mixed.transpose(1, 2).flatten(2)


def _grouped_attention(
    query: Tensor, keys: Vectors, values: Vectors, seen: Tensor, scores: Scores
) -> Tensor:
    """Attention with bounds of scores, and scales of keys and values. Each token sees itself, so
    that no row of scores is without a number."""
    batch, heads, length, size = query.shape
    key_heads = keys.numbers.shape[1]
    grouped = query.reshape((batch, key_heads, heads // key_heads, length, size)).cast(float32)
    scale = size**-0.5 if scores.scale is None else scores.scale
    products = grouped @ keys.numbers.cast(float32).unsqueeze(2).mT * scale
    if keys.scales is not None:
        products = products * keys.scales.unsqueeze(2).mT
    if scores.bound is not None:
        products = tanh(products / scores.bound) * scores.bound
    allowed = seen.unsqueeze(1) if seen.ndim > 2 else seen
    weights = softmax(where(allowed, products, -float("inf")), axis=-1)
    if values.scales is not None:
        weights = weights * values.scales.unsqueeze(2).mT
    mixed = rounded(weights, query.dtype) @ values.numbers.cast(float32).unsqueeze(2)
    return mixed.reshape((batch, heads, length, size))


def heads_of(x: Tensor, size: int) -> Tensor:
    """(batch, length, heads * size) to (batch, heads, length, size)."""
    batch, length, width = x.shape
    return x.reshape((batch, length, width // size, size)).transpose(1, 2)


class SelfAttention:
    """`attention` of rotated heads, and the projections before and after it.

    biases: of the projections of queries, keys and values; output_bias: of the last one.
    norm_eps: heads of queries and keys are normalized first, where this is given, with weights that
    `norm_offset` is added to."""

    def __init__(
        self, source: Source, name: str, size: int, heads: int, key_heads: int, head_size: int,
        biases: bool = False, output_bias: bool = False, norm_eps: float | None = None,
        norm_offset: float = 0.0, scores: Scores | None = None,
    ) -> None:  # fmt: skip
        if heads % key_heads:
            raise ShapeError(
                f"{heads} heads of queries for {key_heads} heads of keys", operation=name
            )
        self.head_size, self.scores = head_size, scores
        self._activations = source.activations
        outputs, inputs = Sharing.OUTPUTS, Sharing.INPUTS
        width, key_width = heads * head_size, key_heads * head_size
        self.q_proj = Projection(source, f"{name}.q_proj", size, width, biases, outputs)
        self.k_proj = Projection(source, f"{name}.k_proj", size, key_width, biases, outputs)
        self.v_proj = Projection(source, f"{name}.v_proj", size, key_width, biases, outputs)
        self.o_proj = Projection(source, f"{name}.o_proj", width, size, output_bias, inputs)
        self.q_norm: Callable[[Tensor], Tensor] | None = None
        self.k_norm: Callable[[Tensor], Tensor] | None = None
        if norm_eps is not None:
            self.q_norm, self.k_norm = (
                RMSNorm(source, f"{name}.{part}", head_size, norm_eps, norm_offset, of_parts=True)
                for part in ("q_norm", "k_norm")
            )

    def __call__(
        self, x: Tensor, rotation: Rotation, places: Places, cache: KeyValues | None = None
    ) -> Tensor:
        """x: (batch, length, size); so is the result."""
        query, key, value = self.heads(x)
        query, key = self.turned(query, key, rotation, places)
        mixed = attention(query, key, value, places, cache, self.scores, self._activations)
        return self.o_proj(mixed)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values that are not yet rotated: (batch, heads, length, head_size)."""
        # Projections and attention are two kernels: between them memory holds rounded numbers.
        query, key, value = (
            heads_of(rounded(project(x), self._activations), self.head_size)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None and self.k_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        return query, key, value

    def turned(
        self, query: Tensor, key: Tensor, rotation: Rotation, places: Places
    ) -> tuple[Tensor, Tensor]:
        """Queries and keys that depend on their places: here both are rotated."""
        return rotation(query), rotation(key)
