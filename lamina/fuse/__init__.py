"""A graph becomes kernels: which values get memory, and which share a kernel."""
