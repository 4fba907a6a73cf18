"""The functions that models are made of, in lamina and in PyTorch.

Both multiply in bfloat16. PyTorch does so under autocast, or because the weights are bfloat16; in
lamina the factors are cast. What a norm, a softmax or a loss computes is float32 in both. Functions
with `name` read the weights of that layer.
"""

from __future__ import annotations

from typing import Any

from bench.trained.program import RUNNING, Weights


class Lamina:
    """The functions in lamina."""

    def __init__(self, weights: Weights) -> None:
        import lamina as lm

        self.lm, self.half, self.weights = lm, lm.bfloat16, weights
        self.relu, self.gelu, self.silu, self.tanh = lm.relu, lm.gelu, lm.silu, lm.tanh
        self.leaky_relu, self.softmax = lm.leaky_relu, lm.softmax
        self.concat, self.where, self.one_hot = lm.concat, lm.where, lm.one_hot
        self.topk, self.bce = lm.topk, lm.binary_cross_entropy_with_logits

    def factor(self, x: Any) -> Any:
        """In the dtype of products."""
        return x.cast(self.half)

    def wide(self, x: Any) -> Any:
        """In float32."""
        return x.cast(self.lm.float32)

    def _affine(self, name: str) -> tuple[Any, Any]:
        return self.weights.get(f"{name}.weight"), self.weights.get(f"{name}.bias")

    def _factors(self, name: str) -> tuple[Any, Any]:
        weight, bias = self._affine(name)
        return self.factor(weight), None if bias is None else self.factor(bias)

    def linear(self, x: Any, name: str) -> Any:
        """x @ weight.T + bias."""
        return self.lm.linear(self.factor(x), *self._factors(name))

    def product(self, a: Any, b: Any) -> Any:
        """a @ b, of batches."""
        return self.factor(a) @ self.factor(b)

    def convolution(self, x: Any, name: str, stride: int = 1, padding: int = 0,
                    groups: int = 1) -> Any:  # fmt: skip
        return self.lm.conv2d(
            self.factor(x), *self._factors(name), stride=stride, padding=padding, groups=groups
        )

    def transposed_convolution(self, x: Any, name: str, stride: int, padding: int = 0) -> Any:
        weight, bias = self._factors(name)
        return self.lm.conv_transpose2d(self.factor(x), weight, bias, stride, padding)

    def embedding(self, ids: Any, name: str) -> Any:
        return self.lm.embedding(ids, self.weights[name])

    def layer_norm(self, x: Any, name: str, eps: float = 1e-5) -> Any:
        return self.lm.layer_norm(x, (x.shape[-1],), *self._affine(name), eps)

    def rms_norm(self, x: Any, name: str, eps: float = 1e-5) -> Any:
        return self.lm.rms_norm(x, (x.shape[-1],), self.weights[f"{name}.weight"], eps)

    def batch_norm(self, x: Any, name: str) -> Any:
        """By the statistics of the batch; moves the running ones."""
        mean, variance = (self.weights[f"{name}.{RUNNING}_{part}"] for part in ("mean", "var"))
        weight, bias = self._affine(name)
        result = self.lm.batch_norm(x, mean, variance, weight, bias, training=True)
        mean.assign(result.running_mean)
        variance.assign(result.running_var)
        return result.output

    def attention(self, query: Any, key: Any, value: Any, *, causal: bool = False,
                  grouped: bool = False, mask: Any = None, scale: Any = None) -> Any:  # fmt: skip
        mask = self.factor(mask) if mask is not None and mask.dtype.is_float else mask
        query, key, value = self.factor(query), self.factor(key), self.factor(value)
        return self.lm.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, enable_gqa=grouped, scale=scale
        )

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """The mean over labels that are not -100."""
        return self.lm.cross_entropy(self.wide(logits), labels)

    def max_pool(self, x: Any, window: int, stride: int, padding: int = 0) -> Any:
        return self.lm.max_pool2d(x, window, stride, padding)

    def rows(self, x: Any, index: Any) -> Any:
        """Rows of x."""
        return self.lm.take(x, index, axis=0)

    def sums_of_rows(self, count: int, index: Any, rows: Any) -> Any:
        """(count, d): row i is the sum of `rows` whose index is i."""
        zeros = self.lm.zeros((count, rows.shape[-1]), dtype=rows.dtype, device=rows.device)
        return self.lm.index_add(zeros, 0, index, rows)

    def running_count(self, x: Any) -> Any:
        """Sums along axis 0."""
        return self.lm.cumulative_sum(x, axis=0)

    def constant_like(self, x: Any, value: float) -> Any:
        return self.lm.full_like(x, value)


class Torch:
    """The functions in PyTorch."""

    def __init__(self, weights: Weights) -> None:
        import torch

        functional = torch.nn.functional
        self.torch, self.functional = torch, functional
        self.half, self.weights = torch.bfloat16, weights
        self.relu, self.gelu, self.silu = functional.relu, functional.gelu, functional.silu
        self.tanh, self.leaky_relu = torch.tanh, functional.leaky_relu
        self.softmax, self.concat, self.where = functional.softmax, torch.cat, torch.where
        self.topk, self.one_hot = torch.topk, functional.one_hot
        self.bce = functional.binary_cross_entropy_with_logits

    def factor(self, x: Any) -> Any:
        """In the dtype of products."""
        return x.to(self.half)

    def wide(self, x: Any) -> Any:
        """In float32."""
        return x.float()

    def _affine(self, name: str) -> tuple[Any, Any]:
        return self.weights.get(f"{name}.weight"), self.weights.get(f"{name}.bias")

    def linear(self, x: Any, name: str) -> Any:
        """x @ weight.T + bias."""
        return self.functional.linear(x, *self._affine(name))

    def product(self, a: Any, b: Any) -> Any:
        """a @ b, of batches."""
        return a @ b

    def convolution(self, x: Any, name: str, stride: int = 1, padding: int = 0,
                    groups: int = 1) -> Any:  # fmt: skip
        return self.functional.conv2d(
            x, *self._affine(name), stride=stride, padding=padding, groups=groups
        )

    def transposed_convolution(self, x: Any, name: str, stride: int, padding: int = 0) -> Any:
        return self.functional.conv_transpose2d(x, *self._affine(name), stride, padding)

    def embedding(self, ids: Any, name: str) -> Any:
        return self.functional.embedding(ids, self.weights[name])

    def layer_norm(self, x: Any, name: str, eps: float = 1e-5) -> Any:
        return self.functional.layer_norm(x, (x.shape[-1],), *self._affine(name), eps)

    def rms_norm(self, x: Any, name: str, eps: float = 1e-5) -> Any:
        weight = self.weights[f"{name}.weight"]
        return self.functional.rms_norm(x, (x.shape[-1],), weight, eps)

    def batch_norm(self, x: Any, name: str) -> Any:
        """By the statistics of the batch; moves the running ones."""
        running = [self.weights[f"{name}.{RUNNING}_{part}"] for part in ("mean", "var")]
        return self.functional.batch_norm(x, *running, *self._affine(name), training=True)

    def attention(self, query: Any, key: Any, value: Any, *, causal: bool = False,
                  grouped: bool = False, mask: Any = None, scale: Any = None) -> Any:  # fmt: skip
        mask = mask.to(query.dtype) if mask is not None and mask.is_floating_point() else mask
        return self.functional.scaled_dot_product_attention(
            query, key, value, mask, is_causal=causal, enable_gqa=grouped, scale=scale
        )

    def cross_entropy(self, logits: Any, labels: Any) -> Any:
        """The mean over labels that are not -100."""
        return self.functional.cross_entropy(logits.float(), labels)

    def max_pool(self, x: Any, window: int, stride: int, padding: int = 0) -> Any:
        return self.functional.max_pool2d(x, window, stride, padding)

    def rows(self, x: Any, index: Any) -> Any:
        """Rows of x."""
        return x[index]

    def sums_of_rows(self, count: int, index: Any, rows: Any) -> Any:
        """(count, d): row i is the sum of `rows` whose index is i."""
        zeros = rows.new_zeros((count, rows.shape[-1]))
        return zeros.index_add(0, index, rows)

    def running_count(self, x: Any) -> Any:
        """Sums along axis 0."""
        return x.cumsum(0)

    def constant_like(self, x: Any, value: float) -> Any:
        return self.torch.full_like(x, value)
