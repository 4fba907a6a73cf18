"""What a scheduled kernel takes: counted from its nest, divided by the rates of a device.

`walk` finds what stands in the `body` of each loop, `vectors` which accesses are instructions on
vectors, and `conditions` when they read; `footprint` counts elements and lines of an access,
`traffic` what each level of memory moves, `operations` instructions by unit, and `bound` what no
schedule can undercut. `predict` puts them together; on a GPU, `blocks` makes threads lanes, and
`products` are for tiles, `bins` for sums by bins. `program` adds up kernels, and `report` is the
result.
"""

from lamina.schedule.cost.predict import predict, predict_time
from lamina.schedule.cost.program import ProgramCost, joined_seconds, program_cost
from lamina.schedule.cost.report import KernelCost, KernelTime

__all__ = [
    "KernelCost",
    "KernelTime",
    "ProgramCost",
    "joined_seconds",
    "predict",
    "predict_time",
    "program_cost",
]
