"""Reverse-mode differentiation: graphs in, graphs out.

`sweep` walks the graph once by the formulas of `rules`, and `guard` keeps NaN out of the branches
of WHERE that were not taken.
"""

from lamina.autodiff.sweep import gradient as gradient
