"""The order between the kernels of a program on a GPU and its collectives.

Collectives have a stream of their own, so that they run beside kernels that do not need them.
Events order the two: a collective begins when the kernels before it are done, and a kernel begins
when the collectives are done of which `Launch.after` names the last. Of

    kernel a    collective 0 of a    kernel b    kernel c, which reads what 0 has brought

collective 0 waits for a, c waits for b and for 0, and 0 and b run beside each other. At the end the
stream of kernels waits for all collectives. Where the stream is recorded for a CUDA graph, all this
becomes edges of the graph.

A collective that nothing runs beside, as the next kernel needs it, is on the stream of kernels
itself: an edge between streams takes a GPU about a microsecond, and keeps the next kernel from
being launched early. A token of a tensor parallel model has two such sums for each layer.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any

from lamina.core.exchange import Exchange
from lamina.runtime.collectives import engine_for

if TYPE_CHECKING:
    from lamina.runtime.buffer import Launch
    from lamina.runtime.cuda import Device


def awaited_at_once(launches: Sequence[Launch]) -> frozenset[int]:
    """The numbers of the collectives beside which no kernel runs: between each and the first kernel
    that waits for it, or for a later one, there are collectives alone. So it is of those at the end
    of the program."""
    found: set[int] = set()
    following: int | None = None  # what the next kernel waits for; None at the end of the program
    for launch in reversed(launches):
        if launch.exchange < 0:
            following = launch.after
        elif following is None or following >= launch.exchange:
            found.add(launch.exchange)
    return frozenset(found)


class ExchangeStream:
    """The stream of a GPU on which collectives run, and events, which every run uses again. Its
    blocks of threads go before those of kernels: other processes wait for them."""

    def __init__(self, device: Device) -> None:
        driver = device.driver
        _, highest_priority = device.call_for_all("cuCtxGetStreamPriorityRange")
        apart = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = device.call("cuStreamCreateWithPriority", apart, highest_priority)
        self._device = device
        self._events: list[Any] = []

    def event(self, number: int) -> Any:
        """The event of a number, made when it is first asked for."""
        untimed = self._device.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        while len(self._events) <= number:
            self._events.append(self._device.call("cuEventCreate", untimed))
        return self._events[number]


class OrderedRun:
    """One run of a program, whose kernels are launched on the stream `main`. Without `apart`,
    collectives go to that stream as well, and so do those `on_main`, by number."""

    def __init__(
        self, device: Device, main: Any, apart: ExchangeStream | None, on_main: Set[int]
    ) -> None:
        self._device, self._main, self._apart = device, main, apart
        self._on_main = on_main
        self._begun = 0  # collectives
        self._waited_for = 0  # how many of them the main stream has waited for

    def begin(
        self, exchange: Exchange, operand: int, result: int, staged: tuple[int, int] | None
    ) -> None:
        """Begin a collective of arrays at two addresses after all that was launched before.
        staged: where it is to have them instead, with a copy before and one after it."""
        if self._apart is None or self._begun in self._on_main:
            self.wait_for(self._begun - 1)  # collectives run one after the other
            self._exchange(exchange, operand, result, staged, self._main)
            self._begun += 1
            self._waited_for = self._begun
            return
        is_ready, is_done = self._events_of(self._begun)
        self._order(self._main, is_ready, self._apart.stream)
        self._exchange(exchange, operand, result, staged, self._apart.stream)
        self._device.call("cuEventRecord", is_done, self._apart.stream)
        self._begun += 1

    def _exchange(
        self, exchange: Exchange, operand: int, result: int, staged: tuple[int, int] | None,
        stream: Any,
    ) -> None:  # fmt: skip
        engine = engine_for(exchange, "cuda")
        if staged is None:
            engine.run(exchange, operand, result, int(stream))
            return
        source, target = staged
        itemsize = exchange.dtype.itemsize
        copy = partial(self._device.call, "cuMemcpyAsync")
        copy(source, operand, exchange.size * itemsize, stream)
        engine.run(exchange, source, target, int(stream))
        copy(result, target, exchange.result_size * itemsize, stream)

    def wait_for(self, number: int) -> bool:
        """Let kernels that are launched from now on wait for the collective of a number, and so for
        all before it. Returns False where they do so already."""
        if self._apart is None or number < self._waited_for:
            return False
        _, is_done = self._events_of(number)
        self._device.call("cuStreamWaitEvent", self._main, is_done, 0)
        self._waited_for = number + 1
        return True

    def end(self) -> None:
        """Let what comes after the program wait for all of it."""
        self.wait_for(self._begun - 1)

    def _events_of(self, number: int) -> tuple[Any, Any]:
        """That the operand of a collective is ready, and that the collective is done."""
        assert self._apart is not None
        return self._apart.event(2 * number), self._apart.event(2 * number + 1)

    def _order(self, first: Any, event: Any, second: Any) -> None:
        """Let stream `second` wait for what stream `first` has to do until now."""
        self._device.call("cuEventRecord", event, first)
        self._device.call("cuStreamWaitEvent", second, event, 0)
