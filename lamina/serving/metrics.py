"""What a server counts, in the text form of Prometheus."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lamina.serving.batch import Text

__all__ = ["Metrics"]

# Upper bounds of the classes of times, in seconds; the last class has no bound.
_BOUNDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


@dataclass
class _Times:
    """How many times were in each class, and their sum in seconds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds

    def lines(self, name: str) -> list[str]:
        lines, below = [f"# TYPE {name} histogram"], 0
        for bound, count in zip((*_BOUNDS, "+Inf"), self.counts, strict=True):
            below += count
            lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
        return [*lines, f"{name}_sum {self.total:.6f}", f"{name}_count {below}"]


class Metrics:
    """Counters since the start; any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self._tokens = Counter(prompt=0, prompt_reused=0, generated=0)
        self._first, self._between = _Times(), _Times()

    def request(self, path: str, status: int) -> None:
        """A request to a route was answered."""
        with self._lock:
            self._requests[path, status] += 1

    def token(self, text: Text, seconds: float) -> None:
        """A text got a token, so many seconds after the last one; for the first one, after it
        began to wait."""
        with self._lock:
            self._tokens["generated"] += 1
            if len(text.new) > 1:
                self._between.add(seconds)
                return
            self._first.add(seconds)
            self._tokens["prompt"] += len(text.prompt)
            self._tokens["prompt_reused"] += text.reused

    def read(self, tokens: int) -> None:
        """So many tokens were read by a model that writes none."""
        with self._lock:
            self._tokens["prompt"] += tokens

    def lines(self, gauges: Mapping[str, int]) -> str:
        """All of it; gauges: what is so at this moment, by name."""
        lines = ["# TYPE lamina_requests_total counter"]
        with self._lock:
            for (path, status), count in sorted(self._requests.items()):
                labels = f'path="{path}",status="{status}"'
                lines.append(f"lamina_requests_total{{{labels}}} {count}")
            for name, count in self._tokens.items():
                full = f"lamina_{name}_tokens_total"
                lines += [f"# TYPE {full} counter", f"{full} {count}"]
            lines += self._first.lines("lamina_time_to_first_token_seconds")
            lines += self._between.lines("lamina_time_between_tokens_seconds")
        for name, value in gauges.items():
            lines += [f"# TYPE lamina_{name} gauge", f"lamina_{name} {value}"]
        return "\n".join(lines) + "\n"
