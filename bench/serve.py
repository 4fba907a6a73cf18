"""What `lamina serve` bears: many clients at once, clients that leave, requests that make no sense.

    python -m bench.serve smollm2 --clients 32 --seconds 60 --output bench/results

A server is started in a process of its own. One client asks for text after text, then many do; each
text follows a new prompt of 64 tokens, is drawn, has 64 tokens and comes as a stream. Clients are
threads of one process, which has no core for itself. Then as many clients leave in the middle of a
text, and the pages that nobody uses are counted. Then requests come that make no sense, drawn from
a seed: none may be answered as if it did, and the next client gets its text.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from bench import machine

PROMPT, TOKENS = 64, 64  # of a text
FIRST_ID, LAST_ID = 1000, 40000  # token numbers that prompts are drawn from: plain words
PATIENCE = 300.0  # seconds for the server to begin, to answer, and to free its pages
READ_BEFORE_LEAVING = 4  # events
LEAVING_TOKENS = 400  # of a text whose client leaves: it would go on for long
_ADDRESS = re.compile(r"http://([\d.]+):(\d+)/")


@dataclass
class Client:
    """What one client saw, in seconds: until the first token of each text, and between tokens."""

    tokens: int = 0
    first: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Server:
    """A server that runs, and the name of its model."""

    host: str
    port: int
    model: str

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def gauges(self) -> dict[str, float]:
        """The numbers of ``/metrics`` without labels, by name."""
        connection = self.connect()
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        connection.close()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs if "{" not in name}

    def request(self, draw: random.Random, tokens: int) -> bytes:
        """The body of a request for a text."""
        prompt = [draw.randint(FIRST_ID, LAST_ID) for _ in range(PROMPT)]
        return json.dumps({
            "model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.8,
            "seed": draw.getrandbits(32), "stream": True,
        }).encode()  # fmt: skip

    def events(self, connection: http.client.HTTPConnection, body: bytes) -> Iterator[Any]:
        """The events of an answer, one a token. Raises RuntimeError where it is an error."""
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", body, headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"{response.status}: {response.read()[:200]!r}")
        for line in response:
            if line.startswith(b"data: {"):
                yield json.loads(line.removeprefix(b"data: "))
        response.close()


def _announced(lines: Iterable[str]) -> Server:
    """The server that one of the `lines` tells of; others, of a model that is fetched, come first.
    Raises RuntimeError where no line does."""
    others = []
    for line in lines:
        address = _ADDRESS.search(line)
        if address is not None:
            return Server(address[1], int(address[2]), line.partition(" at ")[0])
        others.append(line)
    raise RuntimeError(f"the server says {''.join(others)}")


@contextlib.contextmanager
def serving(model: str, options: list[str]) -> Iterator[Server]:
    """A server, which ends with the block."""
    run = "from lamina.cli import main; main()"
    command = [sys.executable, "-c", run, "serve", model, "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        server = _announced(process.stderr)
        wait_until(lambda: server.gauges()["lamina_pages"] > 0)
        yield server
    finally:
        process.terminate()
        process.wait(PATIENCE)


def wait_until(holds: Any) -> float:
    """The seconds until `holds`, which may raise OSError before."""
    started = time.monotonic()
    while time.monotonic() - started < PATIENCE:
        with contextlib.suppress(OSError):
            if holds():
                return time.monotonic() - started
        time.sleep(0.05)
    raise TimeoutError(f"not so after {PATIENCE} s")


# Clients that stay.


def ask(server: Server, seed: int, end: float) -> Client:
    """Ask for text after text until the time `end`; what was seen until then."""
    client, draw = Client(), random.Random(seed)
    while time.monotonic() < end:
        connection, last = server.connect(), time.monotonic()
        is_first = True
        for _ in server.events(connection, server.request(draw, TOKENS)):
            now = time.monotonic()
            if now > end:
                break
            (client.first if is_first else client.between).append(now - last)
            client.tokens, last, is_first = client.tokens + 1, now, False
        connection.close()
    return client


def load(server: Server, clients: int, seconds: float, seed: int) -> list[Client]:
    """What so many clients see who ask at once."""
    end = time.monotonic() + seconds
    seen: list[Client] = []
    threads = [
        threading.Thread(target=lambda own=seed + number: seen.append(ask(server, own, end)))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == clients
    return seen


def leave(server: Server, clients: int, seed: int) -> float:
    """Have so many clients leave in the middle of a text; the seconds until no page is used."""
    draw = random.Random(seed)
    connections = [server.connect() for _ in range(clients)]

    def begin(connection: http.client.HTTPConnection, body: bytes) -> None:
        events = server.events(connection, body)
        for _ in range(READ_BEFORE_LEAVING):
            next(events)

    bodies = [server.request(draw, LEAVING_TOKENS) for _ in connections]
    threads = [
        threading.Thread(target=begin, args=pair) for pair in zip(connections, bodies, strict=True)
    ]
    for thread in threads:
        thread.start()
    # Those that wait for a slot get theirs once others have left: so each leaves as it has read.
    for thread, connection in zip(threads, connections, strict=True):
        thread.join(PATIENCE)
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
        connection.close()

    def is_free() -> bool:
        gauges = server.gauges()
        texts = gauges["lamina_texts_active"] + gauges["lamina_texts_waiting"]
        return texts == 0 and gauges["lamina_pages_free"] == gauges["lamina_pages"]

    return wait_until(is_free)


# Requests that make no sense.

_GOOD = b'{"model": "MODEL", "prompt": "hello", "max_tokens": 1}'
_VALUES = (None, True, -1, 1e400, "", "x" * 9000, [], [[]], {}, [1, "a"], [-5], [1 << 70], "\x00")
_FIELDS = ("model", "max_tokens", "temperature", "top_p", "stop", "n", "seed", "stream", "unknown")


def malformed(draw: random.Random, model: str) -> bytes:
    """The bytes of a request that is none, or that asks for what cannot be."""
    body = _GOOD.replace(b"MODEL", model.encode())
    kind = draw.randrange(5)
    if kind == 0:  # no HTTP
        return draw.randbytes(draw.randint(1, 400)) + b"\r\n\r\n"
    if kind == 1:  # no JSON
        body = body[: draw.randint(0, len(body) - 1)]
    elif kind == 2:  # a byte is another one, which no JSON has
        place = draw.randrange(len(body))
        body = body[:place] + bytes([draw.randint(128, 255)]) + body[place + 1 :]
    elif kind == 3:  # a field of another type, beside one that no request may lack
        wrong = {"prompt": draw.choice(_VALUES[:5]), draw.choice(_FIELDS): draw.choice(_VALUES)}
        body = json.dumps({"model": model, **wrong, "prompt": None}).encode()
    else:  # other words in front
        line = draw.choice((b"PUT /v1/completions", b"POST /v1/nothing", b"POST //", b"GET /v1/x"))
        return line + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def refuse(server: Server, count: int, seed: int) -> Counter[str]:
    """How many of so many requests without sense were answered with which status; "closed" is a
    connection that ended without an answer."""
    draw, answers = random.Random(seed), Counter[str]()
    for _ in range(count):
        with socket.create_connection((server.host, server.port), PATIENCE) as connection:
            try:
                connection.sendall(malformed(draw, server.model))
                connection.shutdown(socket.SHUT_WR)
                answer = connection.recv(64)
            except ConnectionError:
                answer = b""
        answers[answer[9:12].decode("ascii", "replace") or "closed"] += 1
    return answers


# The page.


def page(options: argparse.Namespace, extra: list[str]) -> Iterator[str]:
    yield from (
        "# Serving text on a CPU", "",
        "Written by `python -m bench.serve`, which says how it measures.", "",
        "| | |", "| --- | --- |",
        f"| commit | {machine.commit()} |",
        f"| date | {datetime.now(UTC):%Y-%m-%d %H:%M} UTC |",
        f"| CPU | {machine.cpu_model()} |",
        f"| cores | {machine.usable_cores()} |",
        f"| {machine.BUSY} | {machine.busy():.0%} |",
        f"| seed | {options.seed} |",
        f"| server | `lamina serve {options.model} {' '.join(extra)}` |", "",
        "| clients | seconds | tokens/s | first, ms: median, 99 % | between, ms: median, 99 % |",
        "| --- | --- | --- | --- | --- |",
    )  # fmt: skip
    with serving(options.model, extra) as server:
        load(server, options.clients, options.warm_up, options.seed)  # programs are compiled
        one = load(server, 1, options.seconds / 3, options.seed + 1000)
        many = load(server, options.clients, options.seconds, options.seed + 2000)
        rates = [_rate(one, options.seconds / 3), _rate(many, options.seconds)]
        yield _row(one, options.seconds / 3)
        yield _row(many, options.seconds)
        yield ""
        yield f"All clients together get {rates[1] / rates[0]:.2f} times the tokens/s of one."
        seconds = leave(server, options.clients, options.seed)
        yield (
            f"After {options.clients} clients left in the middle of their texts, all pages were "
            f"free {seconds:.2f} s later."
        )
        answers = refuse(server, options.malformed, options.seed)
        said = ", ".join(f"{status} {count} times" for status, count in sorted(answers.items()))
        yield f"{options.malformed} requests that make no sense: {said}."
        after = ask(server, options.seed, time.monotonic() + 1.0)
        yield f"The next client got {after.tokens} tokens in a second."


def _rate(clients: list[Client], seconds: float) -> float:
    return sum(client.tokens for client in clients) / seconds


def _row(clients: list[Client], seconds: float) -> str:
    first = [each for client in clients for each in client.first]
    between = [each for client in clients for each in client.between]
    cells = [f"{median(times) * 1e3:.0f}, {_high(times) * 1e3:.0f}" for times in (first, between)]
    rate = _rate(clients, seconds)
    return f"| {len(clients)} | {seconds:.0f} | {rate:.1f} | {' | '.join(cells)} |"


def _high(times: list[float]) -> float:
    """The 99th percentile."""
    return quantiles(times, n=100)[-1] if len(times) > 1 else times[0]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.serve", description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds, before all others")
    parser.add_argument("--malformed", type=int, default=1000, help="requests without sense")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--output", type=Path, help="a folder for cpu_serve.md; else it is printed")
    options, extra = parser.parse_known_args()  # the rest is for the server
    text = "\n".join(page(options, extra)) + "\n"
    if options.output:
        os.makedirs(options.output, exist_ok=True)
        (options.output / "cpu_serve.md").write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
