"""Heuristics for CPUs, one file a kind of kernel."""
