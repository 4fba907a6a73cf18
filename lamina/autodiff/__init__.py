"""Reverse-mode differentiation: graphs in, graphs out.

`sweep` walks the graph once, `rules` has one formula an operation (those of movement operations
are in `movement`, those of reductions in `reductions`), and `guard` keeps NaN out of the
branches of WHERE that were not taken.
"""

from lamina.autodiff.sweep import gradient

__all__ = ["gradient"]
