"""What ran: a counter that is always on, and records for whoever asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TypeVar

Record = TypeVar("Record")


class Recorder(list[list[Record]]):
    """The lists being filled; it is true while there are any. ``with recorder() as records:``
    collects everything published inside the block."""

    @contextmanager
    def __call__(self) -> Iterator[list[Record]]:
        records: list[Record] = []
        self.append(records)
        try:
            yield records
        finally:
            self[:] = [one for one in self if one is not records]

    def publish(self, record: Record) -> None:
        for records in self:
            records.append(record)


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


counter = SimpleNamespace(kernels=0)  # run by this process
profile = Recorder[KernelRecord]()
pass_times = Recorder[tuple[str, float]]()  # (pass, seconds) of every compilation
