"""Threads that build equal graphs at the same time get the same nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from lamina.core import dtypes
from lamina.ir.node import Node, const
from lamina.ir.ops import Op

THREADS = 4
PATIENCE = 60.0  # seconds


@pytest.fixture
def switching() -> Iterator[None]:
    """Python changes threads after a microsecond instead of 5,000."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_equal_nodes_of_several_threads_are_one() -> None:
    """Without the lock, 1 in about 300 rounds has two of an equal node."""
    leaf = const(1.0, dtypes.float32)
    barrier = Barrier(THREADS, timeout=PATIENCE)

    def build(_: int) -> list[Node]:
        barrier.wait()
        chain = [leaf]
        for _ in range(30):
            chain.append(Node(Op.ADD, (chain[-1], leaf)))
        return chain

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in range(1000):
            first, *others = pool.map(build, range(THREADS))
            for other in others:
                assert all(node is same for node, same in zip(first, other, strict=True))


def test_a_child_process_builds_nodes_while_a_thread_of_its_parent_did() -> None:
    """The thread is not in the child, which must not wait for its lock."""
    leaf = const(1.0, dtypes.float32)
    done: list[bool] = []

    def build() -> None:
        while not done:
            Node(Op.ADD, (leaf, leaf))

    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build)
        try:
            for _ in range(100):
                child = os.fork()
                if child == 0:
                    Node(Op.MUL, (leaf, leaf))
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            done.append(True)
        building.result(PATIENCE)
