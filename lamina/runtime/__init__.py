"""Devices, memory, compilers and launches. This package knows bytes and source text, no IR."""

from lamina.runtime import cuda, metal
from lamina.runtime.buffer import KINDS

KINDS.update(cuda=(cuda.names, cuda.Device), metal=(metal.names, metal.Device))
