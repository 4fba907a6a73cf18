"""The functions that the pages of docs/ follow through the compiler; kernels name these lines."""

import lamina as lm
from lamina import Tensor


def softmax(x: Tensor, w: Tensor) -> Tensor:
    """The running example."""
    return lm.softmax(x @ w, axis=-1)


def rules(x: Tensor) -> Tensor:
    """What rules make simpler, and one product that they must not touch."""
    return lm.negative(-x).T.T * (lm.full(x.shape, 2.0) / 2.0) + x * 0.0


def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Two products in a row, with a softmax between."""
    return lm.scaled_dot_product_attention(query, key, value)


def product(a: Tensor, b: Tensor) -> Tensor:
    """One matrix product."""
    return a @ b
