"""Layers and optimisers: plain classes with tensors as attributes.

Names, layouts, initial values and meaning are PyTorch's, so that published weights load by name.
"""

from lamina.nn import layers, optim, schedules, state
from lamina.tensor.core import checked

for _part in (layers, optim, schedules, state):  # without Sequential, which calls the user's own
    for _name in {*_part.__all__} - {"Sequential"}:
        setattr(_part, _name, checked(getattr(_part, _name)))
from lamina.nn.layers import *  # noqa: E402, F403
from lamina.nn.state import *  # noqa: E402, F403

__all__ = ["optim", "schedules", *layers.__all__, *state.__all__]
