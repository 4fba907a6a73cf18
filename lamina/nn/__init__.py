"""Layers and optimisers: plain classes with tensors as attributes.

Names, layouts, initial values and meaning are PyTorch's, so that published weights load by name.
"""

from lamina.nn import layers, optim, schedules, state
from lamina.nn.layers import *  # noqa: F403
from lamina.nn.state import *  # noqa: F403

__all__ = ["optim", "schedules", *layers.__all__, *state.__all__]
