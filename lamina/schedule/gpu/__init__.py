"""Heuristics for GPUs, one file a kind of kernel."""
