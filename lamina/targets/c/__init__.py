"""C, for CPUs."""
