"""What ran: counters that are always on, and records of kernels for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class KernelRecord:
    """One run of one kernel: its name, seconds, bytes of its buffers, arithmetic operations."""

    name: str
    seconds: float
    bytes: int
    flops: int

    def __str__(self) -> str:
        rate = 1e-9 / max(self.seconds, 1e-9)
        return (
            f"{self.name:<28} {self.seconds * 1e6:10.1f} us {self.bytes * rate:8.2f} GB/s "
            f"{self.flops * rate:8.2f} GFLOP/s"
        )


@dataclass
class Counter:
    """Kernels run by this process."""

    kernels: int = 0


counter = Counter()
_listeners: list[list[KernelRecord]] = []


@contextmanager
def profile() -> Iterator[list[KernelRecord]]:
    """Collect a record of every kernel that runs inside a ``with`` block."""
    records: list[KernelRecord] = []
    _listeners.append(records)
    try:
        yield records
    finally:
        _listeners.remove(records)


def listening() -> bool:
    """Does anyone want records?"""
    return bool(_listeners)


def publish(record: KernelRecord) -> None:
    """Hand a record to everyone who listens."""
    for records in _listeners:
        records.append(record)
