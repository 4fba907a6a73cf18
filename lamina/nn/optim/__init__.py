"""Optimisers: parameters and state are updated in place, one program a step.

    optimizer = nn.optim.AdamW(nn.parameters(model), lr=1e-3)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

or, without `backward`, ``optimizer.step(lm.gradient(loss, optimizer.parameters))``. The learning
rate and the step counter are tensors, so that every step runs the same compiled program; it also
computes the loss, the gradients and whatever else was pending.
"""

from typing import NoReturn

from lamina.frontend.tensor import missing
from lamina.nn.optim.adaptive import *  # noqa: F403
from lamina.nn.optim.adaptive import __all__ as _adaptive
from lamina.nn.optim.averaging import *  # noqa: F403
from lamina.nn.optim.averaging import __all__ as _averaging
from lamina.nn.optim.base import *  # noqa: F403
from lamina.nn.optim.base import __all__ as _base
from lamina.nn.optim.clipping import *  # noqa: F403
from lamina.nn.optim.clipping import __all__ as _clipping
from lamina.nn.optim.descent import *  # noqa: F403
from lamina.nn.optim.descent import __all__ as _descent
from lamina.nn.optim.lbfgs import *  # noqa: F403
from lamina.nn.optim.lbfgs import __all__ as _lbfgs
from lamina.nn.optim.scaling import *  # noqa: F403
from lamina.nn.optim.scaling import __all__ as _scaling

__all__ = [*_adaptive, *_averaging, *_base, *_clipping, *_descent, *_lbfgs, *_scaling]


def __getattr__(name: str) -> NoReturn:
    raise missing("lamina.nn.optim", name)
