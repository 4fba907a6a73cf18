"""What a scheduled kernel takes: counted from its nest, divided by the rates of a device.

`walk` finds what each loop does, `footprint` counts elements and lines of an access, `traffic` what
each level of memory moves, `operations` instructions by unit, `predict` puts them together, and
`bound` says what no schedule can undercut.
"""

from lamina.schedule.cost.predict import KernelCost, predict
from lamina.schedule.cost.program import ProgramCost, program_cost

__all__ = ["KernelCost", "ProgramCost", "predict", "program_cost"]
