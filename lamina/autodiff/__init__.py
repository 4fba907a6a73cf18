"""Reverse-mode differentiation: graphs in, graphs out; `sweep` walks by the formulas of `rules`."""

from lamina.autodiff.sweep import gradient as gradient
