"""Several crews side by side: programs compile at the same time, and one is measured at a time.

While a crew is alone on the stage, all workers of the other crews are stopped, so that neither
their compilers nor their kernels take anything from what is measured.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.cliffs.run import Crew
from bench.process import Bench
from bench.worker import Worker
from lamina.runtime.cpu import usable_cores


class Stage:
    """Who runs: everybody, or one crew alone. cores: of the machine, for each crew."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self._turn = threading.Lock()  # of a crew that is alone, or waits to be
        self._changed = threading.Condition()
        self._alone: object = None
        self._running: dict[StagedWorker, object] = {}  # workers with a question, and their crews

    @contextlib.contextmanager
    def alone(self, crew: object) -> Iterator[None]:
        """Within, no worker of another crew runs."""
        with self._turn:
            with self._changed:
                self._alone = crew
                others = [worker for worker, own in self._running.items() if own is not crew]
                for worker in others:
                    worker.pause()
            try:
                yield
            finally:
                with self._changed:
                    self._alone = None
                    for worker in others:
                        if worker in self._running:
                            worker.resume()
                    self._changed.notify_all()

    def enter(self, worker: StagedWorker, crew: object, start: Callable[[], None]) -> None:
        """Wait until the crew may run, and call `start`, after which a worker of it does."""
        with self._changed:
            self._changed.wait_for(lambda: self._alone is None or self._alone is crew)
            self._running[worker] = crew
            start()

    def leave(self, worker: StagedWorker, stop: Callable[[], None]) -> None:
        """Call `stop`, after which nobody resumes the worker."""
        with self._changed:
            stop()
            self._running.pop(worker, None)


class StagedWorker(Worker):
    """A worker of a crew that shares a stage with others."""

    def __init__(self, stage: Stage, crew: object, *words: str, **named: Any) -> None:
        self.stage, self.crew = stage, crew
        begin = super().__init__
        stage.enter(self, crew, lambda: begin(*words, **named))

    def read(self) -> dict[str, Any]:
        """As any worker's, when the crew may run."""
        try:
            return super().read()
        finally:
            self.stage.leave(self, lambda: None)

    def _continue(self) -> None:
        self.stage.enter(self, self.crew, super()._continue)

    def _stop(self) -> None:
        self.stage.leave(self, super()._stop)

    def pause(self) -> None:
        """Stop it in the middle of its work."""
        self._signal(signal.SIGSTOP)
        self._wait_until_stopped()

    def resume(self) -> None:
        """Let it work on."""
        self._signal(signal.SIGCONT)


class StagedCrew(Crew):
    """A crew that shares a stage."""

    def __init__(self, bench: Bench, device: str, limit: float, stage: Stage) -> None:
        super().__init__(bench, device, limit)
        self.stage = stage

    def alone(self) -> contextlib.AbstractContextManager[None]:
        """Within, no other crew runs."""
        return self.stage.alone(self)

    def started(self, words: Sequence[str], environment: Mapping[str, str]) -> Worker:
        """A new worker, whose compilers have its share of the cores."""
        own = self.environment_of(words, environment)
        own["TORCHINDUCTOR_COMPILE_THREADS"] = str(self.stage.cores)
        return StagedWorker(self.stage, self, *words, environment=own, limit=self.limit)


class SharedIterator(Iterator[int]):
    """Numbers that several threads take, each number once."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._numbers = iter(numbers)
        self._lock = threading.Lock()

    def __next__(self) -> int:
        with self._lock:
            return next(self._numbers)


def side_by_side(benches: Sequence[Bench], work: Callable[[Bench, Stage], None]) -> None:
    """Call ``work(bench, stage)`` in a thread for each bench, and wait for all. Raises what the
    first of them has raised."""
    stage = Stage(max(1, usable_cores() // len(benches)))
    with ThreadPoolExecutor(len(benches)) as pool:
        for one in [pool.submit(work, bench, stage) for bench in benches]:
            one.result()
