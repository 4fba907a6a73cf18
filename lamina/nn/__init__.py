"""Layers and optimisers: plain classes with tensors as attributes.

Names, layouts, initial values and meaning are PyTorch's, so that published weights load by name.
"""

from typing import NoReturn

from lamina.frontend.tensor import checked, missing
from lamina.nn import (
    activation,
    attention,
    container,
    conv,
    dropout,
    embedding,
    linear,
    losses,
    norm,
    optim,
    pooling,
    recurrent,
    schedules,
    state,
    transformer,
    vision,
)  # fmt: skip

LAYERS = (
    activation, attention, container, conv, dropout, embedding, linear, losses, norm, pooling,
    recurrent, transformer, vision,
)  # fmt: skip
for _part in (*LAYERS, optim, schedules, state):  # without Sequential, which calls the user's own
    for _name in {*_part.__all__} - {"Sequential"}:
        setattr(_part, _name, checked(getattr(_part, _name)))
from lamina.nn.activation import *  # noqa: E402, F403
from lamina.nn.attention import *  # noqa: E402, F403
from lamina.nn.container import *  # noqa: E402, F403
from lamina.nn.conv import *  # noqa: E402, F403
from lamina.nn.dropout import *  # noqa: E402, F403
from lamina.nn.embedding import *  # noqa: E402, F403
from lamina.nn.linear import *  # noqa: E402, F403
from lamina.nn.losses import *  # noqa: E402, F403
from lamina.nn.norm import *  # noqa: E402, F403
from lamina.nn.pooling import *  # noqa: E402, F403
from lamina.nn.recurrent import *  # noqa: E402, F403
from lamina.nn.state import *  # noqa: E402, F403
from lamina.nn.transformer import *  # noqa: E402, F403
from lamina.nn.vision import *  # noqa: E402, F403

__all__ = ["optim", "schedules", *state.__all__]
for _part in LAYERS:
    __all__ += _part.__all__


def __getattr__(name: str) -> NoReturn:
    raise missing("lamina.nn", name)
