"""Who of the processes of a run is alive, and where it is: what an engine asks while it waits.

MPI and NCCL say nothing when a process ends or hangs: the others wait without end. So rank 0 has a
small server, and each rank, 0 included, a connection to it; no array ever passes through it. The
system closes the connection of a process that ends, however it ends, and the server tells all
others. A process that raises, or ends in order, says so first. One that waits for too long asks
where the others are.

Messages are lines of JSON:

    to the server                          from it
    {"rank": 1, "token": "..."}            first line of a connection
    {"key": "id", "value": "..."}          {"key": "id", "value": "..."}: for all ranks to know
    {"group": [0, 1], "digest": "..."}     what a rank is about to exchange, the first time with its
                                           "lines"; no answer if all ranks of the group agree
    {"failed": "ValueError: ..."}          {"failed": [1, "ValueError: ..."]}
    {"bye": true}                          {"bye": [1]}: the ranks that have ended in order
    {"where": true}                        {"where": 0}: rank 0 asks
    {"at": "...", "to": 0}                 {"at": [1, "..."]}
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lamina.errors import ProgramsDifferError, RankError

ENDED = "its process ended"
HELLO_SECONDS = 10.0  # until the first line of a connection
DIFFER = "ProgramsDifferError"  # the kind of error of a rank whose program is another one
ANSWER_SECONDS = 1.0  # that one waits for others to say where they are
LAST_SECONDS = 1.0  # for what a rank sent before it ended
PROGRESS_SECONDS = 0.002  # from one call of MPI to the next while one waits at the end
GRACE_SECONDS = 30.0  # until a process ends that has not noticed that another one failed
TESTS_WITHOUT_REST = 500  # of what one waits for, some 100 microseconds; then others get the core
REST_SECONDS = 2e-5
Message = dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """The first rank of a run that failed, and why."""

    rank: int
    reason: str

    def __str__(self) -> str:
        return f"rank {self.rank} failed: {self.reason}"


class Connection:
    """Messages over a socket. Several threads may send; one reads."""

    def __init__(self, channel: socket.socket) -> None:
        channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._channel = channel
        self._lines = channel.makefile("r", encoding="utf-8")
        self._sending = threading.Lock()

    def send(self, message: Message) -> None:
        """Send a message; one to a process that has ended is lost."""
        line = json.dumps(message).encode() + b"\n"
        try:
            with self._sending:
                self._channel.sendall(line)
        except OSError:
            return

    def read(self) -> Message | None:
        """The next message; None once the other side is gone."""
        try:
            line = self._lines.readline()
            return json.loads(line) if line else None
        except (OSError, ValueError):
            return None


class Server:
    """What rank 0 runs: it tells all ranks what one of them says, and that one has ended."""

    def __init__(self, size: int, token: str, host: str, port: int = 0) -> None:
        """port: 0 for one that is free. Raises OSError where another program has it."""
        self._token = token
        self._connections: dict[int, Connection] = {}
        self._bye: set[int] = set()
        self._failure: Message | None = None
        self._published: list[Message] = []
        # By group and rank, what each is about to exchange that others have not come to yet.
        self._announced: dict[tuple[int, ...], dict[int, deque[str]]] = {}
        self._lines: dict[str, Sequence[str]] = {}  # by digest
        self._changing = threading.Lock()
        self._listener = socket.create_server((host, port), backlog=size)
        self.port: int = self._listener.getsockname()[1]
        _in_background(self._accept)

    def _accept(self) -> None:
        """Let everyone in: each has a thread, so that nobody waits for a stranger that is silent.
        """
        while True:
            channel, _ = self._listener.accept()
            _in_background(self._greet, channel)

    def _greet(self, channel: socket.socket) -> None:
        """Serve a rank, which knows the token; a stranger's connection is closed."""
        channel.settimeout(HELLO_SECONDS)
        connection = Connection(channel)
        first = connection.read()
        is_ours = isinstance(first, dict) and first.get("token") == self._token
        if first is None or not is_ours:
            channel.close()
            return
        channel.settimeout(None)
        rank = int(first["rank"])
        with self._changing:
            self._connections[rank] = connection
            before = [*self._published]
            if self._failure is not None:
                before.append(self._failure)
            if self._bye:
                before.append({"bye": sorted(self._bye)})
        for message in before:  # what the others were told before this rank came
            connection.send(message)
        self._serve(rank, connection)

    def _serve(self, rank: int, connection: Connection) -> None:
        """Pass on what `rank` says, until its process has ended."""
        while (message := connection.read()) is not None:
            if "failed" in message:
                self._fail(rank, message["failed"])
            elif "bye" in message:
                with self._changing:
                    self._bye.add(rank)
                    ended = sorted(self._bye)
                self._tell_all({"bye": ended})
            elif "where" in message:
                self._tell_all({"where": rank})
            elif "key" in message:
                with self._changing:
                    self._published.append(message)
                self._tell_all(message)
            elif "digest" in message:
                if "lines" in message:
                    self._lines[message["digest"]] = message["lines"]
                self._compare(rank, tuple(message["group"]), message["digest"])
            elif "at" in message:
                self._connections[message["to"]].send({"at": [rank, message["at"]]})
        if rank not in self._bye:
            self._fail(rank, ENDED)

    def _compare(self, rank: int, group: tuple[int, ...], digest: str) -> None:
        """Compare what the ranks of a group exchange: the first announcement of each of them, then
        the second, and so on."""
        with self._changing:
            waiting = self._announced.setdefault(group, {member: deque() for member in group})
            waiting[rank].append(digest)
            if not all(waiting.values()):
                return
            digests = [waiting[member].popleft() for member in group]
        if len(set(digests)) > 1:
            everyone = [self._lines[one] for one in digests]
            self._fail(rank, f"{DIFFER}: {difference(group, everyone)}")

    def _fail(self, rank: int, reason: str) -> None:
        """Tell all ranks of the first failure; what fails after it does so because of it."""
        with self._changing:
            if self._failure is not None:
                return
            self._failure = {"failed": [rank, reason]}
        self._tell_all(self._failure)

    def _tell_all(self, message: Message) -> None:
        """Rank 0, whose process this is, comes last: once it knows that all have ended, it ends
        MPI, which does not let this thread go on until all others do so too."""
        with self._changing:
            connections = dict(self._connections)
        for rank in sorted(connections, reverse=True):
            connections[rank].send(message)


class Peers:
    """The other processes, as this one, `rank` of `size`, knows them.

    failure: of any rank, once it is known. ended: the ranks that have ended in order. now: what
    this rank is doing, for others to read."""

    def __init__(self, rank: int, size: int, address: tuple[str, int], token: str) -> None:
        self.rank, self.size = rank, size
        self.failure: Failure | None = None
        self.ended: frozenset[int] = frozenset()
        self.now = "it has begun no collective"
        self._is_noticed = threading.Event()  # the failure, by the main thread
        self._all_ended = threading.Event()  # or one failed
        self._answers: dict[int, str] = {}
        self._published: dict[str, str] = {}
        self._announced: set[str] = set()  # digests
        self._connection = Connection(socket.create_connection(address))
        self._connection.send({"rank": rank, "token": token})
        _in_background(self._listen)

    def check(
        self,
        what: str,
        group: Iterable[int],
        waited: float = 0.0,
        after_an_end: float = LAST_SECONDS,
    ) -> None:
        """Raise RankError if a rank has failed, or one of `group` has ended, so that `what` cannot
        be finished; ProgramsDifferError if it failed because of that. One that has ended may have
        done so after it finished `what`, and what it sent be on the way: that counts once one has
        `waited` more than `after_an_end` seconds."""
        if self.failure is not None:
            self._is_noticed.set()
            kind, _, difference = self.failure.reason.partition(": ")
            if kind == DIFFER:
                raise ProgramsDifferError(difference)
            raise RankError(f"{what}: {self.failure}")
        ended = self.ended.intersection(group)
        if ended and waited > after_an_end:
            raise RankError(f"{what}: rank {min(ended)} has ended, and is waited for")

    def wait_until(
        self,
        is_done: Callable[[], bool],
        what: str,
        group: Sequence[int],
        timeout: float,
        after_an_end: float = LAST_SECONDS,
    ) -> None:
        """Wait for `what`, which ranks of `group` do together, for at most `timeout` seconds.
        Raises RankError as `check` does, and when the time is over."""
        started = time.monotonic()
        tests = 0
        while not is_done():
            tests += 1
            if tests < TESTS_WITHOUT_REST:
                continue
            waited = time.monotonic() - started
            self.check(what, group, waited, after_an_end)
            if waited > timeout:
                raise self.late(what, group, timeout)
            time.sleep(REST_SECONDS)

    def publish(self, key: str, value: str) -> None:
        """Let all ranks know a short text under a name that is used once."""
        self._connection.send({"key": key, "value": value})

    def published(self, key: str, timeout: float, group: Sequence[int]) -> str:
        """What a rank of `group` has published, or will within `timeout` seconds. Raises RankError,
        as `check` does."""
        self.wait_until(lambda: key in self._published, key, group, timeout)
        return self._published[key]

    def announce(self, group: Sequence[int], digest: str, lines: Sequence[str]) -> None:
        """Say what this rank is about to exchange with `group`: lines to read, and their digest.
        Where others say something else, `check` raises ProgramsDifferError soon, on all ranks."""
        message: Message = {"group": group, "digest": digest}
        if digest not in self._announced:
            self._announced.add(digest)
            message["lines"] = lines
        self._connection.send(message)

    def late(self, what: str, group: Iterable[int], seconds: float) -> RankError:
        """What to raise after `seconds` of waiting for `group`, which say where they are."""
        self._answers.clear()
        self._connection.send({"where": True})
        time.sleep(ANSWER_SECONDS)
        others = [rank for rank in group if rank != self.rank]
        said = [f"rank {rank}: {self._answers.get(rank, 'no answer')}" for rank in others]
        error = RankError(f"{what}: waited {seconds:g} s for others: {'; '.join(said)}")
        self.fail(error)
        return error

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank has failed."""
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        self._is_noticed.set()
        if self.failure is None:
            self.failure = Failure(self.rank, reason)
        self._connection.send({"failed": reason})

    def leave(self, progress: Callable[[], object]) -> bool:
        """Wait until all ranks have come here, and call `progress` meanwhile; False if one failed.

        A rank that has failed waits until the server says so to it, last of all: the server may be
        a thread of this process, and the others are to hear why."""
        self._connection.send({"bye": True})
        started = time.monotonic()
        while not self._all_ended.wait(PROGRESS_SECONDS):
            if self.failure is not None and time.monotonic() - started > ANSWER_SECONDS:
                break
            progress()
        return self.failure is None

    def end_soon(self, seconds: float) -> None:
        """End this process, unless it notices the failure of another one within `seconds`: it may
        compute, or wait, without end."""
        if not self._is_noticed.wait(seconds):
            self._say(f" ends: {self.failure}")
            os._exit(1)

    def _say(self, what: str) -> None:
        print(f"lamina: rank {self.rank}{what}", file=sys.stderr, flush=True)

    def _listen(self) -> None:
        while (message := self._connection.read()) is not None:
            if "failed" in message:
                self._note(Failure(*message["failed"]))
            elif "bye" in message:
                self.ended |= frozenset(message["bye"])
                if len(self.ended) == self.size:
                    self._all_ended.set()
            elif "where" in message and message["where"] != self.rank:
                self._connection.send({"at": self.now, "to": message["where"]})
            elif "key" in message:
                self._published[message["key"]] = message["value"]
            elif "at" in message:
                rank, place = message["at"]
                self._answers[rank] = place
        if len(self.ended) < self.size:
            self._note(Failure(0, ENDED))  # the server's connection is gone with it

    def _note(self, failure: Failure) -> None:
        self._all_ended.set()
        is_first = self.failure is None or self.failure.rank == self.rank
        if is_first and failure.reason == ENDED:  # mpiexec may soon kill this process as well
            self._say(f", {self.now}: {failure}")
        if self.failure is None:
            self.failure = failure
            _in_background(self.end_soon, GRACE_SECONDS)


def difference(group: Sequence[int], everyone: Sequence[Sequence[str]]) -> str:
    """The first line that is not the same on all ranks of a group, and what each has there."""
    longest = max(map(len, everyone))
    for number in range(longest):
        lines = [lines[number] if number < len(lines) else "nothing more" for lines in everyone]
        if len(set(lines)) > 1:
            pairs = zip(group, lines, strict=True)
            said = "; ".join(f"rank {rank}: {line}" for rank, line in pairs)
            return f"collective {number + 1} of the programs differs: {said}"
    raise AssertionError("equal lines have equal digests")


def _in_background(function: Callable[..., object], *arguments: object) -> None:
    threading.Thread(target=function, args=arguments, daemon=True).start()
