"""Programs of several processes, which exchange arrays: one process a device.

`lamina launch -n 2 script.py` starts them. Each runs the same script, asks for its `rank`, and
calls the same collective operations in the same order; `docs/distributed.md` shows how, and what
each costs.
"""

from typing import TYPE_CHECKING

from lamina.frontend.packages import names_of

_PARTS = (
    "checkpoint", "data_parallel", "fully_sharded", "mesh", "operations", "optim", "pipeline",
    "sequence_parallel", "setup", "sharding", "tensor_parallel",
)  # fmt: skip
_CHECKED = {"data_parallel", "operations", "sequence_parallel", "sharding"}

if TYPE_CHECKING:
    from lamina.distributed.checkpoint import *  # noqa: F403
    from lamina.distributed.data_parallel import *  # noqa: F403
    from lamina.distributed.fully_sharded import *  # noqa: F403
    from lamina.distributed.mesh import *  # noqa: F403
    from lamina.distributed.operations import *  # noqa: F403
    from lamina.distributed.optim import *  # noqa: F403
    from lamina.distributed.pipeline import *  # noqa: F403
    from lamina.distributed.sequence_parallel import *  # noqa: F403
    from lamina.distributed.setup import *  # noqa: F403
    from lamina.distributed.sharding import *  # noqa: F403
    from lamina.distributed.tensor_parallel import *  # noqa: F403
else:
    __getattr__, __dir__ = names_of(__name__, _PARTS, unchecked={*_PARTS} - _CHECKED)
