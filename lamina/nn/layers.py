"""The layers: the functions of the same names, with parameters.

Recurrent layers unroll their time steps, so the program grows with the length of the input.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

from lamina import dtypes, random
from lamina.dtypes import DType, bool_, default_float
from lamina.errors import ArgumentError, DTypeError, ShapeError
from lamina.nn.state import filled, parameter
from lamina.tensor import neural, reduction, spatial
from lamina.tensor.core import Tensor
from lamina.tensor.creation import zeros
from lamina.tensor.differentiate import map_tree
from lamina.tensor.elementwise import where
from lamina.tensor.movement import concat, stack
from lamina.tensor.spatial import Sizes, per_axis

__all__ = [
    "GRU", "LSTM", "BatchNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Conv1d", "Conv2d",
    "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Dropout", "Embedding",
    "GroupNorm", "InstanceNorm", "LayerNorm", "Linear", "MultiheadAttention", "RMSNorm",
    "Sequential",
]  # fmt: skip

Maybe = Tensor | None


def _uniform(shape: Sequence[int], bound: float, dtype: DType, device: str | None) -> Tensor:
    """A new parameter with values evenly distributed in [-bound, bound)."""
    return parameter(random.uniform(shape, -bound, bound, dtype=dtype, device=device))


def _weights(
    shape: Sequence[int], outputs: int, bias: bool, dtype: DType, device: str | None
) -> tuple[Tensor, Maybe]:
    """A weight (out, in, ...), and a bias if wanted, within 1 / sqrt(inputs of a unit)."""
    fan_in = math.prod(shape[1:])
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    weight = _uniform(shape, bound, dtype, device)
    return weight, _uniform((outputs,), bound, dtype, device) if bias else None


class Linear:
    """``x @ weight.T + bias`` along the last axis.

    weight: (out_features, in_features). bias: (out_features,) or None."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        shape = (out_features, in_features)
        self.weight, self.bias = _weights(shape, out_features, bias, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return _linear(x, self.weight, self.bias)


def _linear(x: Tensor, weight: Tensor, bias: Maybe) -> Tensor:
    if not x.ndim or x.shape[-1] != weight.shape[1]:
        raise ShapeError(f"Linear: x {x.shape} and weight {weight.shape}: last axes must be alike")
    result: Tensor = x @ weight.T
    return result if bias is None else result + bias


class Embedding:
    """The rows of `weight`, (num_embeddings, embedding_dim), at integer indices.

    The row `padding_idx` starts as zeros and receives no derivative."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        weight = random.normal((num_embeddings, embedding_dim), dtype=dtype, device=device)
        if padding_idx is not None:
            weight[padding_idx] = 0.0
            padding_idx %= num_embeddings
        self.weight, self.padding_idx = parameter(weight), padding_idx

    def __call__(self, indices: Tensor) -> Tensor:
        return neural.embedding(indices, self.weight, self.padding_idx)


class Dropout:
    """Zero elements with probability `p` while training; see `lamina.dropout`."""

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p <= 1.0:
            raise ArgumentError(f"Dropout: p is {p}; a probability lies between 0 and 1")
        self.p, self.training = p, True

    def __call__(self, x: Tensor) -> Tensor:
        return neural.dropout(x, self.p, self.training)


class Sequential(list[Any]):
    """Layers and functions applied one after another; a list, and slices can be called as well."""

    _fields = ()  # like a named tuple's: what is made of other parts gets them one by one

    def __init__(self, *layers: Any) -> None:
        super().__init__(layers)

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Sequential(*found) if isinstance(at, slice) else found

    def __call__(self, x: Any) -> Any:
        for layer in self:
            if not callable(layer):
                raise DTypeError(f"Sequential: {layer!r} is no layer; give them one by one")
            x = layer(x)
        return x


# Convolutions, see `lamina.conv2d` and `lamina.conv_transpose2d`.


class _Convolution:
    """weight: (out_channels, in_channels / groups, *kernel_size), and of an adjoint
    (in_channels, out_channels / groups, *kernel_size). bias: (out_channels,) or None."""

    _rank: ClassVar[int]
    _adjoint: ClassVar[bool] = False

    def __init_subclass__(cls, rank: int = 0) -> None:
        if rank:
            cls._rank = rank

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Sizes | str = 0, dilation: Sizes = 1, groups: int = 1, bias: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        self.stride, self.padding, self.dilation, self.groups = stride, padding, dilation, groups
        what, pair = type(self).__name__, (out_channels, in_channels)
        rows, columns = pair[::-1] if self._adjoint else pair
        if groups < 1 or rows % groups or columns % groups:
            raise ShapeError(f"{what}: {groups} groups do not divide {rows} and {columns} channels")
        kernel = per_axis(what, "kernel_size", kernel_size, self._rank)
        shape = (rows, columns // groups, *kernel)
        self.weight, self.bias = _weights(shape, out_channels, bias, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return spatial.conv(f"conv{self._rank}d", self._rank, x, self.weight, self.bias,
                            self.stride, self.padding, self.dilation, self.groups)  # fmt: skip


class Conv1d(_Convolution, rank=1):
    """Cross-correlation of sequences, (N, C, L)."""


class Conv2d(_Convolution, rank=2):
    """Cross-correlation of images, (N, C, H, W)."""


class Conv3d(_Convolution, rank=3):
    """Cross-correlation of volumes, (N, C, D, H, W)."""


class _Transposed(_Convolution):
    _adjoint = True
    padding: Sizes

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Sizes, stride: Sizes = 1,
        padding: Sizes = 0, output_padding: Sizes = 0, groups: int = 1, bias: bool = True,
        dilation: Sizes = 1, dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups,
                         bias, dtype, device)  # fmt: skip
        self.output_padding = output_padding

    def __call__(self, x: Tensor) -> Tensor:
        return spatial.conv_transpose(
            f"conv_transpose{self._rank}d", self._rank, x, self.weight, self.bias, self.stride,
            self.padding, self.output_padding, self.groups, self.dilation,
        )  # fmt: skip


class ConvTranspose1d(_Transposed, rank=1):
    """The adjoint of `Conv1d`."""


class ConvTranspose2d(_Transposed, rank=2):
    """The adjoint of `Conv2d`."""


class ConvTranspose3d(_Transposed, rank=3):
    """The adjoint of `Conv3d`."""


# Normalisation.


def _affine(
    shape: int | Sequence[int], affine: bool, dtype: DType, device: str | None, bias: bool = True
) -> tuple[Maybe, Maybe]:
    """A weight of ones and a bias of zeros, where they are wanted."""
    weight = filled(shape, 1.0, dtype, device, True) if affine else None
    return weight, filled(shape, 0.0, dtype, device, True) if affine and bias else None


class LayerNorm:
    """Normalise over the last axes, whose sizes are `normalized_shape`; see `lamina.layer_norm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
        elementwise_affine: bool = True, bias: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight, self.bias = _affine(normalized_shape, elementwise_affine, dtype, device, bias)

    def __call__(self, x: Tensor) -> Tensor:
        return neural.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm:
    """Divide by the root mean square over the last axes; see `lamina.rms_norm`."""

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None,
        elementwise_affine: bool = True, dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        self.normalized_shape, self.eps = normalized_shape, eps
        self.weight, _ = _affine(normalized_shape, elementwise_affine, dtype, device, bias=False)

    def __call__(self, x: Tensor) -> Tensor:
        return neural.rms_norm(x, self.normalized_shape, self.weight, self.eps)


class GroupNorm:
    """Normalise groups of channels of each sample; see `lamina.group_norm`."""

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_channels} channels in {num_groups} groups")
        self.num_groups, self.eps = num_groups, eps
        self.weight, self.bias = _affine(num_channels, affine, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return neural.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class InstanceNorm:
    """Normalise each channel of each sample, (N, C, spatial...); see `lamina.instance_norm`."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, affine: bool = False,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        self.eps = eps
        self.weight, self.bias = _affine(num_features, affine, dtype, device)

    def __call__(self, x: Tensor) -> Tensor:
        return neural.instance_norm(x, self.weight, self.bias, self.eps)


class BatchNorm:
    """Normalise each channel of (N, C, ...) over all samples; see `lamina.batch_norm`.

    While training, every call moves `running_mean` and `running_var` towards the statistics of
    its input by the share `momentum` (None: they become the average over all calls)."""

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
        affine: bool = True, track_running_stats: bool = True, dtype: DType = default_float,
        device: str | None = None,
    ) -> None:  # fmt: skip
        self.eps, self.momentum, self.training = eps, momentum, True
        self.weight, self.bias = _affine(num_features, affine, dtype, device)
        self.running_mean = self.running_var = self.num_batches_tracked = None
        if track_running_stats:
            self.running_mean = filled((num_features,), 0.0, dtype, device)
            self.running_var = filled((num_features,), 1.0, dtype, device)
            self.num_batches_tracked = filled((), 0, dtypes.int64, device)

    def __call__(self, x: Tensor) -> Tensor:
        count = self.num_batches_tracked if self.training else None
        share: Any = self.momentum
        if share is None and count is not None:
            share = 1.0 / (count + 1).cast(dtypes.float32)
        output, *moved = neural.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, count is not None,
            share, self.eps,
        )  # fmt: skip
        if count is not None:
            held: list[Any] = [self.running_mean, self.running_var, count]
            for one, new in zip(held, [*moved, count + 1], strict=True):
                one.assign(new)
        return output


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm

# Recurrent layers.

State = tuple[Tensor, ...]
_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


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
            raise ShapeError(f"{type(self).__name__}: {num_layers} layers of {hidden_size} units")
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
                    setattr(self, name + suffix, _uniform(shape, bound, dtype, device))

    def __call__(self, x: Tensor, initial: Any = None) -> tuple[Tensor, Any]:
        """The outputs, and the final states, zeros at first by default: h, or (h, c) of an LSTM."""
        time = 1 if self.batch_first else 0
        if x.ndim == 2:
            given = map_tree(lambda one: one.unsqueeze(1), initial)
            result, states = self(x.unsqueeze(1 - time), given)
            return result.squeeze(1 - time), map_tree(lambda one: one.squeeze(1), states)
        firsts = (initial,) if hasattr(initial, "shape") else tuple(initial or ())
        what, count = type(self).__name__, sum(map(len, self._suffixes))
        if x.ndim != 3 or not x.shape[time]:
            raise ShapeError(f"{what}: x of shape {x.shape} has no time steps, or not 2 or 3 axes")
        x = x.transpose(0, time)
        wanted, shapes = (count, x.shape[1], self.hidden_size), [one.shape for one in firsts]
        if shapes not in ([], [wanted] * self._states):
            raise ShapeError(f"{what}: initial states {shapes}, not {self._states} of {wanted}")
        nothing = zeros((x.shape[1], self.hidden_size), dtype=x.dtype, device=x.device)
        finals: list[State] = []
        for layer, suffixes in enumerate(self._suffixes):
            if layer and self.training and self.dropout:
                x = neural.dropout(x, self.dropout)
            directions = []
            for suffix, order in zip(suffixes, (1, -1), strict=False):
                state = tuple(one[len(finals)] for one in firsts) or (nothing,) * self._states
                weights: list[Any] = [getattr(self, name + suffix, None) for name in _NAMES]
                # The inputs of all steps are known beforehand: one product for all of them.
                given, outputs = _linear(x, weights[0], weights[2]).unstack(axis=0), list[Tensor]()
                for one in given[::order]:
                    state = self._step(one, _linear(state[0], weights[1], weights[3]), state)
                    outputs.append(state[0])
                # Stored, or each step of what reads it would join all of them again.
                directions.append(stack(outputs[::order]).contiguous())
                finals.append(state)
            x = concat(directions, axis=-1)
        lasts = tuple(map(stack, zip(*finals, strict=True)))
        return x.transpose(0, time), lasts if self._states > 1 else lasts[0]

    def _step(self, given: Tensor, recurrent: Tensor, state: State) -> State:
        """The next state from the gates' inputs, (N, gates * hidden) each."""
        raise NotImplementedError


class LSTM(_Recurrent):
    """Long short-term memory; gates in the order input, forget, cell, output.

    Source: Hochreiter and Schmidhuber 1997; Gers, Schmidhuber and Cummins 2000 (forget gate)."""

    _gates, _states = 4, 2

    def _step(self, given: Tensor, recurrent: Tensor, state: State) -> State:
        gates = (given + recurrent).chunk(4, axis=-1)
        into, forget, out = (gates[at].sigmoid() for at in (0, 1, 3))
        cell = forget * state[1] + into * gates[2].tanh()
        return out * cell.tanh(), cell


class GRU(_Recurrent):
    """Gated recurrent unit; gates in the order reset, update, new.

    Source: Cho et al. 2014, in the variant whose reset gate multiplies the product."""

    _gates, _states = 3, 1

    def _step(self, given: Tensor, recurrent: Tensor, state: State) -> State:
        a, b = given.chunk(3, axis=-1), recurrent.chunk(3, axis=-1)
        reset, update = (a[0] + b[0]).sigmoid(), (a[1] + b[1]).sigmoid()
        new = (a[2] + reset * b[2]).tanh()
        return ((1.0 - update) * new + update * state[0],)


class MultiheadAttention:
    """Attention of several heads with projections of queries, keys, values and the result.

    in_proj_weight: (3 embed_dim, embed_dim), of queries, keys and values in this order; with
    `kdim` or `vdim` three separate weights. out_proj: a Linear.
    Source: Vaswani et al. 2017, "Attention is all you need", section 3.2.2."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        dtype: DType = default_float, device: str | None = None,
    ) -> None:  # fmt: skip
        if num_heads < 1 or embed_dim % num_heads:
            raise ShapeError(f"MultiheadAttention: {embed_dim} features in {num_heads} heads")
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout, self.batch_first, self.training = dropout, batch_first, True
        widths = (embed_dim, kdim or embed_dim, vdim or embed_dim)
        draw = partial(random.glorot_uniform, dtype=dtype, device=device)
        self.in_proj_weight: Maybe = None
        if widths == (embed_dim,) * 3:
            self.in_proj_weight = parameter(draw((3 * embed_dim, embed_dim)))
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                parameter(draw((embed_dim, width))) for width in widths
            )
        self.in_proj_bias = filled((3 * embed_dim,), 0.0, dtype, device, True) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias, dtype, device)
        if bias:
            self.out_proj.bias = filled((embed_dim,), 0.0, dtype, device, True)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
        need_weights: bool = True, attn_mask: Tensor | None = None,
        average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """The attended values (L, N, E) and the weights (N, L, S), or (N, heads, L, S).

        query: (L, N, E), key and value: (S, N, ...); with `batch_first` (N, L, E) and so on; the
        axis N may be absent. Masks are True where attention is not allowed, or are added to the
        scores: key_padding_mask (N, S), attn_mask (L, S) or (N * heads, L, S). Without
        `need_weights`, which is faster, the second result is None."""
        if is_causal and attn_mask is None:
            raise ShapeError("MultiheadAttention: is_causal is a hint; give attn_mask as well")
        inputs, batched = [query, key, value], query.ndim == 3
        if not batched:
            inputs = [one.unsqueeze(0) for one in inputs]
        elif not self.batch_first:
            inputs = [one.transpose(0, 1) for one in inputs]
        queries, keys, values = self._project(inputs)
        if attn_mask is not None and attn_mask.ndim == 3:
            attn_mask = attn_mask.reshape(*queries.shape[:2], *attn_mask.shape[1:])
        mask = None if attn_mask is None else _additive(attn_mask, queries)
        if key_padding_mask is not None:
            columns = _additive(key_padding_mask.expand_dims((-3, -2)), queries)
            mask = columns if mask is None else mask + columns
        rate, weights = self.dropout if self.training else 0.0, None
        if need_weights:
            scores = queries @ keys.mT * (1.0 / math.sqrt(queries.shape[-1]))
            weights = reduction.softmax(scores if mask is None else scores + mask)
            weights = neural.dropout(weights, rate)
            mixed = weights @ values
            weights = weights.mean(axis=1) if average_attn_weights else weights
        else:
            mixed = neural.scaled_dot_product_attention(queries, keys, values, mask, rate)
        result = self.out_proj(mixed.transpose(1, 2).flatten(2))
        if not batched:
            return result.squeeze(0), None if weights is None else weights.squeeze(0)
        return (result if self.batch_first else result.transpose(0, 1)), weights

    def _project(self, inputs: list[Tensor]) -> list[Tensor]:
        """Queries, keys and values as (N, heads, length, features of a head)."""
        weights, biases, heads = self.in_proj_weight, self.in_proj_bias, []
        rows = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight) if (
            weights is None) else weights.split(self.embed_dim)  # fmt: skip
        columns = (None,) * 3 if biases is None else biases.split(self.embed_dim)
        for x, weight, bias in zip(inputs, rows, columns, strict=True):
            y = _linear(x, weight, bias)
            heads.append(y.reshape(*y.shape[:2], self.num_heads, -1).transpose(1, 2))
        return heads


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype is bool_:
        return where(mask, -math.inf, Tensor(0.0, like.dtype, like.device))
    return mask.cast(like.dtype)
