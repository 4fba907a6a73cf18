"""A CPU of fixed rates, so that predictions are the same on every machine; GPUs have a table."""

from __future__ import annotations

from math import inf

from lamina import calibrate
from lamina.core.options import GPU_KINDS, Options
from lamina.core.rates import Memory, Rates
from lamina.core.target import Target, cpu_target
from lamina.runtime import devices

TARGET = cpu_target(vector_bytes=64, cores=2)
RATES = Rates(
    device="a CPU with two cores",
    line=64,
    levels=(
        Memory("L1", 48 << 10, False, 300e9, 100e9, 600e9, 200e9, 50e9),
        Memory("L2", 2 << 20, False, 120e9, 45e9, 240e9, 90e9, 48e9),
        Memory("L3", 32 << 20, True, 30e9, 25e9, 60e9, 50e9, 18e9),
        Memory("DRAM", inf, True, 10e9, 6e9, 15e9, 9e9, 4e9),
    ),
    issue=5.5e9,
    simple=7e9,
    scalar=7e9,
    latency=1.4e-9,
    divide=3e8,
    function=1.5e8,
    integer_division=3e8,
    fork=5e-7,
    launch=1e-7,
)


def rates_of(options: Options) -> Rates:
    """As `calibrate.rates_of`, but for CPUs."""
    return calibrate.rates_of(options) if options.kind in GPU_KINDS else RATES


def target_of(options: Options) -> Target:
    """As `devices.target_of`, but for CPUs."""
    return devices.target_of(options) if options.kind in GPU_KINDS else TARGET
