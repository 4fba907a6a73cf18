"""Layers that drop elements or channels while training; see the functions of the same names.

`inplace`, which PyTorch has, is accepted and changes nothing: the compiler decides where results
lie.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from lamina.errors import ArgumentError
from lamina.frontend.functions import dropouts, neural
from lamina.frontend.tensor import Tensor

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout:
    """Drops with probability `p`."""

    _function: ClassVar[Callable[..., Any]]

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        if not 0.0 <= p <= 1.0:
            name = type(self).__name__
            raise ArgumentError(f"p is {p}; a probability lies between 0 and 1", operation=name)
        self.p = p
        self.inplace = inplace
        self.training = True

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = type(self)._function(x, self.p, self.training)
        return result


class Dropout(_Dropout):
    """Zero elements with probability `p` while training; see `lamina.dropout`."""

    _function = staticmethod(neural.dropout)


class Dropout1d(_Dropout):
    """Zero channels of sequences, ([N,] C, L), while training; see `lamina.dropout1d`."""

    _function = staticmethod(dropouts.dropout1d)


class Dropout2d(_Dropout):
    """Zero channels of images, ([N,] C, H, W), while training; see `lamina.dropout2d`."""

    _function = staticmethod(dropouts.dropout2d)


class Dropout3d(_Dropout):
    """Zero channels of volumes, ([N,] C, D, H, W), while training; see `lamina.dropout3d`."""

    _function = staticmethod(dropouts.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that keeps the mean and the variance; see `lamina.alpha_dropout`."""

    _function = staticmethod(dropouts.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels; see `lamina.feature_alpha_dropout`."""

    _function = staticmethod(dropouts.feature_alpha_dropout)
