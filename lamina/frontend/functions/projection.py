"""Products of vectors along the last axis with weights, and vectors of length 1.

Names and meanings are PyTorch's, with `axis` in place of `dim`.
"""

from lamina.errors import ShapeError
from lamina.frontend.functions import movement
from lamina.frontend.functions.elementwise import maximum
from lamina.frontend.functions.linalg import matmul, on_one_device
from lamina.frontend.functions.reduction import norm
from lamina.frontend.functions.spatial import check_shapes, exact, widened
from lamina.frontend.tensor import Tensor, common_dtype

__all__ = ["bilinear", "linear", "normalize"]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias``, where a sum is rounded to 16 bits after the bias has been added.

    x: (..., in). weight: (out, in), or (in,) for a result without the last axis. bias: (out,), or
    () beside such a weight. Raises ShapeError when the last axes differ."""
    if weight.ndim not in (1, 2):
        raise ShapeError(
            f"the weight has shape {weight.shape}; (out, in) is needed", operation="linear"
        )
    if not x.ndim or x.shape[-1] != weight.shape[-1]:
        raise ShapeError(
            f"x {x.shape} and weight {weight.shape}: last axes must be alike", operation="linear"
        )
    check_shapes("linear", weight.shape[:-1], bias)
    columns = movement.reversed_axes(weight) if weight.ndim == 2 else weight
    if bias is None:
        return matmul(x, columns)
    factors = on_one_device("linear", x, columns)
    result = matmul(*map(widened, factors)) + bias
    return result.cast(common_dtype("linear", *factors, bias))


def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1 @ weight[k] @ x2 + bias[k]`` for each k, along the last axes.

    x1: (..., in1). x2: (..., in2). weight: (out, in1, in2). bias: (out,). Result: (..., out).
    Raises ShapeError when the inputs' other axes differ, or sizes differ from the weight's."""
    if weight.ndim != 3:
        raise ShapeError(
            f"the weight has shape {weight.shape}, not (out, in1, in2)", operation="bilinear"
        )
    shapes = f"x1 {x1.shape}, x2 {x2.shape} and weight {weight.shape}"
    if not x1.ndim or x1.shape[:-1] != x2.shape[:-1]:
        raise ShapeError(
            f"{shapes}: all axes of x1 and x2 but the last must be alike", operation="bilinear"
        )
    outputs, first, second = weight.shape
    if (x1.shape[-1], x2.shape[-1]) != (first, second):
        raise ShapeError(
            f"{shapes}: the last axes must be those of the weight", operation="bilinear"
        )
    check_shapes("bilinear", (outputs,), bias)
    flat = movement.reshape(movement.moveaxis(weight, 0, 1), (first, outputs * second))
    mixed = movement.reshape(matmul(x1, flat), (*x1.shape[:-1], outputs, second))
    columns = movement.expand_dims(x2, axis=-1)
    result = movement.squeeze(matmul(mixed, columns), axis=-1)
    return result if bias is None else result + bias


def normalize(x: Tensor, p: float = 2.0, axis: int = 1, eps: float = 1e-12) -> Tensor:
    """`x` divided by its norm of order `p` along `axis`, which is at least `eps`."""
    values = exact("normalize", x)
    length = norm(values, p, axis=axis, keepdims=True)
    return (values / maximum(length, eps)).cast(common_dtype("normalize", x))
