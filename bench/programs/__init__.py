"""What is measured, one small program a framework and workload; each runs in its own process.

A program prints one JSON object when its first result is there, and then another one for every
line it reads (see `bench.programs.protocol`), so that several programs can take turns.
"""
