"""The thread that takes the steps of a batch: texts come in, tokens go out, at any time."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from lamina.serving.batch import Batch, Text, Written
from lamina.serving.metrics import Metrics

__all__ = ["BusyError", "Failed", "Worker"]

Deliver = Callable[["Written | Failed"], object]


class BusyError(Exception):
    """As many texts wait as may wait, or the server is about to end."""


class Failed:
    """What is delivered for a text that cannot be written, as its step failed."""


class Worker:
    """Steps of `batch` in a thread of its own. most_waiting: texts that wait for a slot, beside
    those that get a free one at once."""

    def __init__(self, batch: Batch, most_waiting: int, metrics: Metrics) -> None:
        self._batch, self._most_waiting, self._metrics = batch, most_waiting, metrics
        self._changed = threading.Condition()
        # Behind the lock of the condition: what other threads ask for, until the next step.
        self._added: deque[tuple[Text, Deliver]] = deque()
        self._cancelled: list[Text] = []
        self._is_ending = False
        # Of the thread alone.
        self._deliver: dict[Text, Deliver] = {}
        self._last: dict[Text, float] = {}  # when its last token came, or the text itself
        self._thread = threading.Thread(target=self._run, name="lamina-worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """End the thread after the step it is in; texts that are not finished never will be. A
        step that takes longer than `seconds` is left behind: it ends with the process."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(seconds)

    @property
    def is_alive(self) -> bool:
        """Whether texts that are submitted will be written."""
        return self._thread.is_alive()

    @property
    def most(self) -> int:
        """The texts of the largest request that an idle worker takes."""
        return self._most_waiting + self._batch.slots

    def submit(self, texts: Sequence[Text], deliver: Deliver) -> None:
        """Write `texts`, all of which fit the batch. deliver: is called by the thread for each new
        token. Raises BusyError where too many texts wait."""
        with self._changed:
            waiting = len(self._batch.waiting) + len(self._added)
            if self._is_ending:
                raise BusyError("the server is about to end")
            free = self._batch.slots - len(self._batch.active)
            if waiting + len(texts) > self._most_waiting + free:
                raise BusyError(
                    f"no room for {len(texts)} more texts beside {waiting} that wait; "
                    "ask again later"
                )
            self._added.extend((text, deliver) for text in texts)
            self._changed.notify()

    def cancel(self, texts: Sequence[Text]) -> None:
        """Write no more of them. Those that have ended stay as they are."""
        with self._changed:
            self._cancelled.extend(texts)
            self._changed.notify()

    def _run(self) -> None:
        while self._take_in():
            try:
                written = self._batch.step()
            except Exception:  # of the compiler or the device: the next text may be written
                traceback.print_exc()
                self._fail_all()
            else:
                for one in written:
                    self._hand_out(one)

    def _take_in(self) -> bool:
        """Wait for something to do, and take what others asked for; False at the end."""
        with self._changed:
            while not (self._added or self._cancelled or self._deliver or self._is_ending):
                self._changed.wait()
            while self._added:  # under the lock, so that each is counted all the time
                text, deliver = self._added.popleft()
                self._batch.add(text)
                self._deliver[text] = deliver
                self._last[text] = time.monotonic()
            cancelled, self._cancelled = self._cancelled, []
            is_ending = self._is_ending
        for text in cancelled:
            self._batch.remove(text)
            self._forget(text)
        return not is_ending

    def _hand_out(self, written: Written) -> None:
        text, now = written.text, time.monotonic()
        self._metrics.token(text, now - self._last[text])
        self._last[text] = now
        self._deliver[text](written)
        if written.finish_reason is not None:
            self._forget(text)

    def _fail_all(self) -> None:
        self._batch.clear()
        for text, deliver in list(self._deliver.items()):
            deliver(Failed())
            self._forget(text)

    def _forget(self, text: Text) -> None:
        self._deliver.pop(text, None)
        self._last.pop(text, None)
