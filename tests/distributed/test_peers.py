"""The server of rank 0, and what the other ranks know through it."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest

from lamina.distributed.launched import Launched, Meeting
from lamina.distributed.setup import _meet_at
from lamina.errors import DeviceError, RankError
from lamina.runtime.peers import Failure, Peers, Server

HOST = "127.0.0.1"


def soon(is_true: Callable[[], object]) -> bool:
    """Whether something becomes true within a few seconds."""
    until = time.monotonic() + 10
    while not is_true() and time.monotonic() < until:
        time.sleep(0.01)
    return bool(is_true())


def test_a_stranger_that_says_nothing_keeps_nobody_out() -> None:
    server = Server(2, "token", HOST)
    with socket.create_connection((HOST, server.port)):
        ranks = [Peers(rank, 2, (HOST, server.port), "token") for rank in range(2)]
        ranks[0].publish("a key", "a value")
        assert ranks[1].published("a key", 10.0, range(2)) == "a value"


@pytest.mark.parametrize("line", ["no JSON", "[1]", json.dumps({"rank": 1, "token": "another"})])
def test_a_stranger_is_sent_away(line: str) -> None:
    server = Server(2, "token", HOST)
    with socket.create_connection((HOST, server.port)) as stranger:
        stranger.sendall(line.encode() + b"\n")
        stranger.settimeout(10)
        assert stranger.recv(100) == b""
    ranks = [Peers(rank, 2, (HOST, server.port), "token") for rank in range(2)]
    ranks[1].publish("a key", "a value")
    assert ranks[0].published("a key", 10.0, range(2)) == "a value"


def test_a_late_rank_is_told_what_happened_before() -> None:
    server = Server(3, "token", HOST)
    first = Peers(0, 3, (HOST, server.port), "token")
    first.publish("a key", "a value")
    assert first.published("a key", 10.0, range(3)) == "a value"
    second = Peers(1, 3, (HOST, server.port), "token")
    second.fail(ValueError("a mistake"))
    assert soon(lambda: first.failure)
    late = Peers(2, 3, (HOST, server.port), "token")
    assert soon(lambda: late.failure)
    assert late.failure == Failure(1, "ValueError: a mistake")
    with pytest.raises(RankError, match="rank 1 failed: ValueError: a mistake"):
        late.published("another key", 10.0, range(3))


def test_what_nobody_publishes_is_waited_for_in_vain() -> None:
    server = Server(2, "token", HOST)
    first = Peers(0, 2, (HOST, server.port), "token")
    with pytest.raises(RankError, match=r"waited 0\.1 s for others: rank 1: no answer"):
        first.published("a key", 0.1, range(2))


def test_a_rank_that_failed_itself_does_not_wait_for_others() -> None:
    server = Server(2, "token", HOST)
    ranks = [Peers(rank, 2, (HOST, server.port), "token") for rank in range(2)]
    ranks[1].fail(ValueError("a mistake"))
    assert not ranks[1].leave(lambda: None)
    assert not ranks[0].leave(lambda: None)


def test_a_rank_waits_for_the_server_to_begin() -> None:
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    place = Meeting(HOST, port, "token")
    with pytest.raises(RankError, match=f"rank 1 waited 0.2 s for rank 0 at port {port}"):
        _meet_at(place, Launched(1, 2), 0.2)
    ranks = [_meet_at(place, Launched(rank, 2), 10.0) for rank in range(2)]
    ranks[0].publish("a key", "a value")
    assert ranks[1].published("a key", 10.0, range(2)) == "a value"


def test_a_port_that_is_taken_is_named() -> None:
    with socket.create_server((HOST, 0)) as other:
        place = Meeting(HOST, other.getsockname()[1], "token")
        with pytest.raises(DeviceError, match=f"init: port {place.port} of {HOST}, the one after"):
            _meet_at(place, Launched(0, 2), 1.0)
