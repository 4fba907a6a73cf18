"""What ran: a counter that is always on, and records for whoever asks."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any


class Recorder(list[list[Any]]):
    """The lists being filled; it is true while there are any. ``with recorder() as records:``
    collects everything published inside the block."""

    @contextmanager
    def __call__(self) -> Iterator[list[Any]]:
        records: list[Any] = []
        self.append(records)
        try:
            yield records
        finally:
            self[:] = [other for other in self if other is not records]

    def publish(self, record: Any) -> None:
        for records in self:
            records.append(record)


counter = SimpleNamespace(kernels=0)  # run by this process
passes = Recorder()  # a `PassRecord` of `lamina.pipeline` each
runs = Recorder()  # (program, the seconds of each of its chains, the options)
