"""Host memory: alignment, lifetime, reuse and running out."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import DeviceError, OutOfMemoryError, UnknownDeviceError
from lamina.frontend.functions.inspection import empty_cache, memory_stats
from lamina.frontend.session import SESSION
from lamina.runtime import buffer
from lamina.runtime.buffer import Buffer


@given(st.integers(0, 3_000_000))
def test_aligned_writable_and_of_the_size_asked_for(nbytes: int) -> None:
    memory = Buffer(nbytes)
    view = memory.view()
    assert memory.pointer % 64 == 0
    assert (view.nbytes, view.format, view.readonly) == (nbytes, "B", False)
    values = np.frombuffer(view, np.uint8)
    values[:] = 7
    assert values.ctypes.data == memory.pointer or not nbytes


@given(st.integers(0, 1 << 48))
def test_blocks_are_large_enough_and_waste_little(nbytes: int) -> None:
    size = buffer._block_size(nbytes)
    assert size >= nbytes
    assert size % 64 == 0
    wasted = 1 / 8 if nbytes <= 64 << 20 else 1 / 64
    assert size <= max(nbytes * (1 + wasted) + 64, 64)
    assert buffer._block_size(size) == size


def test_live_buffers_do_not_overlap() -> None:
    buffers = [Buffer(size) for size in (0, 1, 64, 65, 1000, 0, 4096, 100_000) * 5]
    ranges = sorted((b.pointer, b.pointer + max(b.nbytes, 1)) for b in buffers)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


def test_an_array_made_from_the_view_keeps_the_memory() -> None:
    memory = Buffer(1 << 16)
    alive = weakref.ref(memory)
    values = np.frombuffer(memory.view(), np.float32)[5:100:3].reshape(4, 8)
    values[...] = 3.0
    del memory
    gc.collect()
    assert alive() is not None
    others = [Buffer(1 << 16) for _ in range(20)]
    for other in others:
        other.view()[:] = bytes(1 << 16)
    assert (values == 3.0).all()
    del values
    gc.collect()
    assert alive() is None


def test_freed_memory_is_used_again() -> None:
    empty_cache()
    memory = Buffer(5_000_000)
    pointer = memory.pointer
    del memory
    assert memory_stats()["cached"] >= 5_000_000
    assert Buffer(4_999_999).pointer == pointer


def test_statistics_and_emptying() -> None:
    gc.collect()
    before = memory_stats()["allocated"]
    memory = Buffer(1_000_000)
    stats = memory_stats()
    assert before + 1_000_000 <= stats["allocated"] <= before + 1_200_000
    assert stats["peak"] >= stats["allocated"]
    del memory
    assert memory_stats()["allocated"] == before
    empty_cache()
    stats = memory_stats()
    assert (stats["allocated"], stats["cached"], stats["pinned"]) == (before, 0, 0)
    assert stats.items() >= SESSION.counts().items()


def test_pinned_memory_is_counted_and_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    heap = buffer.Heap(1 << 30, "board:0")
    heap.staging = buffer.Heap(1 << 30, "board:0")
    monkeypatch.setitem(buffer._heaps, "board:0", heap)
    memory = Buffer(1 << 20, "cpu", heap.staging)
    assert memory_stats("board:0")["pinned"] == 1 << 20
    assert memory_stats("board:0")["allocated"] == 0
    del memory
    assert memory_stats("board:0")["pinned"] == 1 << 20
    empty_cache("board:0")
    assert memory_stats("board:0")["pinned"] == 0


def test_the_cache_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    empty_cache()
    monkeypatch.setattr(buffer._heaps["cpu"], "limit", 300_000)
    memory = [Buffer(100_000) for _ in range(10)]
    memory.clear()
    assert 0 < memory_stats()["cached"] <= 300_000


@pytest.mark.parametrize("nbytes", [1 << 60, 1 << 63, 1 << 64, (1 << 64) + 64, 1 << 80])
def test_too_large(nbytes: int) -> None:
    with pytest.raises(OutOfMemoryError, match=f"{nbytes:,} bytes"):
        Buffer(nbytes)
    with pytest.raises(MemoryError):
        Buffer(nbytes)


def test_the_cache_is_emptied_before_giving_up(monkeypatch: pytest.MonkeyPatch) -> None:
    del_me = Buffer(1_000_000)
    del del_me
    assert memory_stats()["cached"] > 0
    allocate = buffer._heaps["cpu"].reserve

    def only_when_empty(size: int) -> int:
        return 0 if buffer._heaps["cpu"].cached else allocate(size)

    monkeypatch.setattr(buffer._heaps["cpu"], "reserve", only_when_empty)
    assert Buffer(777_777).pointer
    monkeypatch.setattr(buffer._heaps["cpu"], "reserve", lambda size: 0)
    before = memory_stats()
    with pytest.raises(OutOfMemoryError):
        Buffer(3_333_333)
    assert memory_stats() == {**before, "cached": 0}


def test_wrapped_memory_keeps_its_owner_and_is_not_freed() -> None:
    class Owner:
        pass

    owner = Owner()
    values = np.arange(10, dtype=np.int32)
    alive = weakref.ref(owner)
    before = memory_stats()
    wrapped = Buffer.wrap(values.ctypes.data, values.nbytes, "cpu", owner)
    view = wrapped.view()
    view[0:4] = np.int32(41).tobytes()
    assert values[0] == 41
    del owner, wrapped
    assert alive() is not None
    del view
    assert alive() is None
    assert memory_stats() == before


@given(st.lists(st.integers(0, 5000), max_size=9))
def test_parts_of_a_block_are_aligned_and_apart(sizes: list[int]) -> None:
    parts = Buffer.parts(sizes, "cpu")
    assert [part.nbytes for part in parts] == sizes
    assert all(part.pointer % 64 == 0 for part in parts)
    for number, part in enumerate(parts):
        part.view()[:] = bytes([number]) * part.nbytes
    for number, part in enumerate(parts):
        assert bytes(part.view()) == bytes([number]) * part.nbytes


def test_a_part_keeps_its_block() -> None:
    gc.collect()
    before = memory_stats()["allocated"]
    first, second = Buffer.parts([3 << 16, 1 << 16], "cpu")
    del first
    assert memory_stats()["allocated"] == before + (4 << 16)
    del second
    assert memory_stats()["allocated"] == before


def test_errors() -> None:
    with pytest.raises(UnknownDeviceError, match="cuda"):
        Buffer(8, "cuda:99")
    with pytest.raises(UnknownDeviceError, match="'tpu'"):
        Buffer(8, "tpu")
    with pytest.raises(DeviceError, match="cuda:0"):
        Buffer.wrap(4096, 8, "cuda:0", None).view()


def test_finalisers_run_inside_the_heap() -> None:
    """Buffers in cycles are freed by the collector, which here runs at almost every allocation."""
    gc.collect()
    before = memory_stats()["allocated"]
    finished = threading.Event()

    def work() -> None:
        for number in range(2000):
            cycle: list[object] = [Buffer(64 * (number % 7))]
            cycle.append(cycle)
        finished.set()

    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        threading.Thread(target=work, daemon=True).start()
        assert finished.wait(60)
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert memory_stats()["allocated"] == before


def test_many_threads() -> None:
    gc.collect()
    before = memory_stats()["allocated"]
    failures: list[str] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        held: list[np.ndarray] = []
        for number in range(400):
            values = np.frombuffer(Buffer(8 * int(random.integers(1, 3000))).view(), np.int64)
            values[:] = seed * 1000 + number
            held.append(values)
            if len(held) > 10:
                oldest = held.pop(int(random.integers(0, 10)))
                if len(set(oldest.tolist())) != 1 or oldest[0] // 1000 != seed:
                    failures.append(f"thread {seed}: its memory was written by another")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert memory_stats()["allocated"] == before
