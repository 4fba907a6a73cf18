"""Tests of the runtime: memory, compilers, the disk cache and the thread pool."""
