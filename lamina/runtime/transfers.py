"""Copies between the host and a GPU for which the host does not wait.

A staging buffer that is sent stays until it has been copied. A buffer that is fetched is waited for
by an event of its own, whatever was launched after the copy began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lamina.runtime.buffer import Buffer

if TYPE_CHECKING:
    from lamina.runtime.cuda import Device

UNAWAITED = 1 << 20  # bytes of a staging buffer up to which the host does not wait for its copy
MAX_SENT = 64  # of these, until the host waits for all


class Transfers:
    """Those of one GPU, in the order of its stream."""

    def __init__(self, device: Device) -> None:
        self._device = device
        # Host memory that is being copied, each with the event that it has been.
        self.running: deque[tuple[Any, Buffer]] = deque()
        self._unused: list[Any] = []  # events

    def send(self, source: Buffer, target: Buffer) -> None:
        """As `Heap.send`; long buffers are waited for, so that few of them are held."""
        device = self._device
        if not 0 < source.nbytes <= UNAWAITED:
            device.copy(source, target)
            return
        device.enter()
        self.forget()
        if len(self.running) == MAX_SENT:
            device.synchronize()
        device.call("cuMemcpyAsync", target.pointer, source.pointer, source.nbytes, device.stream)
        self.running.append((self._mark(), source))

    def fetch(self, source: Buffer) -> Callable[[], Buffer]:
        """As `Heap.fetch`."""
        device = self._device
        device.enter()
        host = Buffer(source.nbytes, "cpu", device.staging)
        device.call("cuMemcpyAsync", host.pointer, source.pointer, source.nbytes, device.stream)
        self.running.append((self._mark(), host))  # which stays, though nobody may ask for it
        return _Fetched(self, self._mark(), host).wait

    def forget(self) -> None:
        """Let go of the host memory that has been copied."""
        while self.running:
            try:
                event, source = self.running.popleft()
            except IndexError:  # another thread was quicker
                return
            if not self._has_passed(event):
                self.running.appendleft((event, source))
                return
            self.give_back(event)

    def wait_for(self, event: Any) -> None:
        """Wait for what was launched before the event, and not for what was launched after it."""
        device = self._device
        device.enter()
        if device.guard is not None:
            device.guard(lambda: self._has_passed(event), False)
        device.call("cuEventSynchronize", event)

    def give_back(self, event: Any) -> None:
        """Take an event that nobody waits for any more."""
        self._unused.append(event)

    def _mark(self) -> Any:
        """An event, recorded after what was launched until now."""
        device = self._device
        try:
            event = self._unused.pop()
        except IndexError:
            untimed = device.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
            event = device.call("cuEventCreate", untimed)
        device.call("cuEventRecord", event, device.stream)
        return event

    def _has_passed(self, event: Any) -> bool:
        """Whether what was launched before the event is done; True as well where it failed, which
        the next call says."""
        driver = self._device.driver
        (code,) = driver.cuEventQuery(event)
        return code is not driver.CUresult.CUDA_ERROR_NOT_READY


class _Fetched:
    """A buffer of a GPU that is copied to `host`; `event` is that it has been."""

    def __init__(self, transfers: Transfers, event: Any, host: Buffer) -> None:
        self._transfers, self._event, self._host = transfers, event, host

    def __del__(self) -> None:
        self._transfers.give_back(self._event)

    def wait(self) -> Buffer:
        """The copy, once it is there."""
        self._transfers.wait_for(self._event)
        return self._host
