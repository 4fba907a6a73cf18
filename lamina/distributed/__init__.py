"""Programs of several processes, which exchange arrays: one process a device.

`lamina launch -n 2 script.py` starts them. Each runs the same script, asks for its `rank`, and
calls the same collective operations in the same order; `docs/distributed.md` shows how, and what
each costs.
"""

from typing import NoReturn

from lamina.distributed import (
    checkpoint,
    data_parallel,
    fully_sharded,
    mesh,
    operations,
    optim,
    pipeline,
    sequence_parallel,
    setup,
    sharding,
    tensor_parallel,
)
from lamina.frontend.tensor import checked, missing

for _part in (data_parallel, operations, sequence_parallel, sharding):
    for _name in _part.__all__:
        setattr(_part, _name, checked(getattr(_part, _name)))
from lamina.distributed.checkpoint import *  # noqa: E402, F403
from lamina.distributed.data_parallel import *  # noqa: E402, F403
from lamina.distributed.fully_sharded import *  # noqa: E402, F403
from lamina.distributed.mesh import *  # noqa: E402, F403
from lamina.distributed.operations import *  # noqa: E402, F403
from lamina.distributed.optim import *  # noqa: E402, F403
from lamina.distributed.pipeline import *  # noqa: E402, F403
from lamina.distributed.sequence_parallel import *  # noqa: E402, F403
from lamina.distributed.setup import *  # noqa: E402, F403
from lamina.distributed.sharding import *  # noqa: E402, F403
from lamina.distributed.tensor_parallel import *  # noqa: E402, F403

__all__ = [
    *checkpoint.__all__, *data_parallel.__all__, *fully_sharded.__all__, *mesh.__all__,
    *operations.__all__, *optim.__all__, *pipeline.__all__, *sequence_parallel.__all__,
    *setup.__all__, *sharding.__all__, *tensor_parallel.__all__,
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    raise missing("lamina.distributed", name)
