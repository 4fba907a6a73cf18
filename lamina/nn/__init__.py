"""Layers and optimisers: plain classes with tensors as attributes.

Names, layouts, initial values and meaning are PyTorch's, so that published weights load by name.
"""

from typing import TYPE_CHECKING

from lamina.frontend.packages import names_of

_PARTS = (
    "state", "activation", "attention", "container", "conv", "dropout", "embedding", "linear",
    "losses", "norm", "pooling", "recurrent", "transformer", "vision",
)  # fmt: skip

if TYPE_CHECKING:
    from lamina.nn import optim as optim
    from lamina.nn import schedules as schedules
    from lamina.nn.activation import *  # noqa: F403
    from lamina.nn.attention import *  # noqa: F403
    from lamina.nn.container import *  # noqa: F403
    from lamina.nn.conv import *  # noqa: F403
    from lamina.nn.dropout import *  # noqa: F403
    from lamina.nn.embedding import *  # noqa: F403
    from lamina.nn.linear import *  # noqa: F403
    from lamina.nn.losses import *  # noqa: F403
    from lamina.nn.norm import *  # noqa: F403
    from lamina.nn.pooling import *  # noqa: F403
    from lamina.nn.recurrent import *  # noqa: F403
    from lamina.nn.state import *  # noqa: F403
    from lamina.nn.transformer import *  # noqa: F403
    from lamina.nn.vision import *  # noqa: F403
else:
    # `Sequential` calls the user's own functions.
    __getattr__, __dir__ = names_of(
        __name__, _PARTS, unchecked={"Sequential"}, more=("optim", "schedules")
    )
