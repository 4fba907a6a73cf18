"""The engine of NCCL, over a library that a fake one stands in for: what it asks of it, and what it
does when others fail. Values are compared with the interpreter's rules, in NumPy."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from lamina.core import dtypes
from lamina.core.exchange import Exchange, group_of, place_of
from lamina.errors import DeviceError, ProgramsDifferError, RankError
from lamina.ir.interpreter import from_ranks
from lamina.ir.kernel import exchange_of
from lamina.ir.monoids import ADD, MAX
from lamina.ir.ops import Broadcast, Combine, Op, Ranks, SendTo
from lamina.runtime import nccl
from lamina.runtime.collectives import parts_of
from lamina.runtime.nccl_library import FUNCTIONS, VARIABLES, WINDOW_FUNCTIONS
from tests.distributed.fake_nccl import Rank, run_ranks

SIZE = 4
GROUPS = [(4, 1), (2, 2), (2, 1)]


def cases(ranks: int, stride: int) -> list[tuple[Op, Any]]:
    ring = tuple((place + 1) % ranks for place in range(ranks))
    return [
        (Op.ALL_REDUCE, Combine(ADD, ranks, stride)),
        (Op.ALL_REDUCE, Combine(MAX, ranks, stride)),
        (Op.ALL_GATHER, Ranks(ranks, stride)),
        (Op.REDUCE_SCATTER, Combine(ADD, ranks, stride)),
        (Op.BROADCAST, Broadcast(1, ranks, stride)),
        (Op.ALL_TO_ALL, Ranks(ranks, stride)),
        (Op.COLLECTIVE_PERMUTE, SendTo(ring, ranks, stride)),
        (Op.COLLECTIVE_PERMUTE, SendTo((*ring[:-1], -1), ranks, stride)),
    ]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "uint8"])
@pytest.mark.parametrize("group", GROUPS, ids=str)
def test_values_are_those_of_the_interpreter(group: tuple[int, int], dtype: str) -> None:
    ranks, stride = group
    lamina_dtype = dtypes.BY_NAME[dtype]
    shape = (ranks, 3)
    generator = np.random.default_rng(0)
    operands = [generator.integers(0, 9, shape).astype(lamina_dtype.numpy) for _ in range(SIZE)]

    def results(rank: Rank) -> list[np.ndarray]:
        rank.engine.make_group(ranks, stride)
        found = []
        for op, arg in cases(ranks, stride):
            exchange = exchange_of(op, arg, lamina_dtype, shape)
            sizes = {"all_gather": 3 * ranks**2, "reduce_scatter": 3}
            size = sizes.get(exchange.operation, 3 * ranks)
            found.append(rank.exchanged(exchange, operands[rank.rank], size))
        return found

    for rank, found in enumerate(run_ranks(SIZE, results)):
        of_group = [operands[other] for other in group_of(rank, ranks, stride)]
        for (op, arg), got in zip(cases(ranks, stride), found, strict=True):
            want = from_ranks(op, arg, of_group, place_of(rank, ranks, stride))
            np.testing.assert_array_equal(got, np.asarray(want).reshape(-1), str(op))


def test_bools_are_combined_as_bytes() -> None:
    exchange = exchange_of(Op.ALL_REDUCE, Combine(MAX, 2, 1), dtypes.bool_, (3,))

    def any_of(rank: Rank) -> np.ndarray:
        operand = np.array([rank.rank == 0, rank.rank == 1, False])
        return rank.exchanged(exchange, operand, 3)

    for got in run_ranks(2, any_of):
        np.testing.assert_array_equal(got, [True, True, False])


def test_a_collective_goes_to_the_stream_that_it_is_given() -> None:
    exchange = exchange_of(Op.ALL_REDUCE, Combine(ADD, 2, 1), dtypes.float32, (4,))

    def streams(rank: Rank) -> list[tuple[str, int]]:
        rank.exchanged(exchange, np.ones(4, np.float32), 4)
        return rank.library.called

    connecting = ("group", 5)  # on the device's own stream
    assert run_ranks(2, streams) == [[connecting, ("ncclAllReduce", 9)]] * 2


def test_arrays_go_to_the_communicator_that_is_fast_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 16 and of 32 bytes, where windows are for up to 16 and copy engines from 32 on."""
    monkeypatch.setattr(nccl, "MAX_WINDOW_BYTES", 16)
    monkeypatch.setattr(nccl, "MIN_COPIED_BYTES", 32)
    sums = [exchange_of(Op.ALL_REDUCE, Combine(ADD, 2, 1), dtypes.float32, (n,)) for n in (4, 8)]
    gathers = [exchange_of(Op.ALL_GATHER, Ranks(2, 1), dtypes.float32, (n,)) for n in (2, 4)]

    def communicators(rank: Rank, copies: int) -> list[int]:
        called: list[int] = []
        rank.engine._communicators[2, 1] = nccl.Communicators(windows=1, copies=copies, plain=3)
        rank.library.call = lambda function, *arguments: called.append(arguments[-2])  # type: ignore[method-assign]
        for exchange in (*sums, *gathers):
            rank.engine.run(exchange, 0, 0, 9)
        return called

    assert run_ranks(2, lambda rank: communicators(rank, 2)) == [[1, 3, 1, 2]] * 2
    without_copy_engines = run_ranks(2, lambda rank: communicators(rank, 1))
    assert without_copy_engines == [[1, 3, 1, 3]] * 2


@pytest.mark.parametrize("has_copy_engines", [False, True])
def test_copy_engines_reach_windows_too(*, has_copy_engines: bool) -> None:
    def registered(rank: Rank) -> None:
        rank.library.has_copy_engines = has_copy_engines
        rank.engine.make_group(2, 2)
        among: list[int] = []
        register = rank.library.register

        def noting(communicator: int, pointer: int, nbytes: int) -> None:
            among.append(communicator)
            register(communicator, pointer, nbytes)

        rank.library.register = noting  # type: ignore[method-assign]
        gather = exchange_of(Op.ALL_GATHER, Ranks(2, 2), dtypes.float32, (4,))
        (part,) = parts_of([gather])
        assert rank.engine.window(part, ((0, 64),), 1024) is not None
        assert len(among) == 1 + has_copy_engines
        assert len(rank.library.with_copies & set(among)) == has_copy_engines

    run_ranks(4, registered)


def test_the_operands_of_all_ranks_are_gathered() -> None:
    exchange = exchange_of(Op.ALL_REDUCE, Combine(ADD, 2, 1), dtypes.float32, (4,))
    gathered = run_ranks(2, lambda rank: rank.engine.gather(exchange, b"rank %d" % rank.rank))
    assert gathered == [[b"rank 0", b"rank 1"]] * 2


def test_a_group_that_no_mesh_has_made_is_refused() -> None:
    exchange = exchange_of(Op.ALL_GATHER, Ranks(2, 1), dtypes.float32, (4,))

    def refused(rank: Rank) -> None:
        with pytest.raises(DeviceError, match="2 ranks, 1 apart, are no axis of a Mesh"):
            rank.exchanged(exchange, np.ones(4, np.float32), 8)

    run_ranks(4, refused)


def test_what_nccl_does_not_combine_is_refused() -> None:
    exchange = exchange_of(Op.ALL_REDUCE, Combine(ADD, 2, 1), dtypes.BY_NAME["int16"], (4,))

    def refused(rank: Rank) -> None:
        with pytest.raises(DeviceError, match="NCCL does not combine int16"):
            rank.exchanged(exchange, np.ones(4, np.int16), 4)

    run_ranks(2, refused)


SUM = exchange_of(Op.ALL_REDUCE, Combine(ADD, 2, 1), dtypes.float32, (4,))
GATHER = exchange_of(Op.ALL_GATHER, Ranks(2, 1), dtypes.float32, (4,))


def waiting(rank: Rank, *exchanges: Exchange) -> None:
    """Begin a program, and wait for a GPU that never has done its work."""
    rank.engine.compare(parts_of(exchanges))
    rank.device.guard(lambda: False)


def test_programs_that_differ_are_found_while_the_gpu_waits() -> None:
    def differing(rank: Rank) -> str:
        with pytest.raises(ProgramsDifferError) as caught:
            waiting(rank, SUM, GATHER if rank.rank else SUM)
        return str(caught.value)

    for message in run_ranks(2, differing):
        assert message.startswith(
            "collective 2 of the programs differs: rank 0: all_reduce ADD f32[4] among 2 ranks; "
            "rank 1: all_gather f32[4] among 2 ranks"
        )


def test_programs_that_agree_are_compared_in_silence() -> None:
    def agreeing(rank: Rank) -> None:
        for _ in range(50):
            rank.engine.compare(parts_of([SUM, GATHER]))
            rank.device.guard(lambda: True)

    run_ranks(2, agreeing)


def test_the_failure_of_another_rank_ends_the_wait() -> None:
    def failing(rank: Rank) -> None:
        if rank.rank == 1:
            rank.peers.fail(ValueError("a mistake in the data"))
            return
        what = r"all_reduce ADD f32\[4\] among 2 ranks and 1 more \(program 1\): rank 1 failed: "
        with pytest.raises(RankError, match=what + "ValueError: a mistake in the data"):
            waiting(rank, SUM, SUM)

    run_ranks(2, failing)


def test_a_rank_that_is_late_is_named() -> None:
    def late(rank: Rank) -> None:
        if rank.rank == 1:
            time.sleep(2)  # it has begun nothing
            return
        with pytest.raises(RankError, match=r"waited 0.2 s for others: rank 1: it has begun no"):
            waiting(rank, SUM)

    run_ranks(2, late, timeout=0.2)


def test_what_was_launched_later_is_waited_for_too() -> None:
    """After a wait for a part of it, as for a token while the next one is on its way."""

    def failing(rank: Rank) -> None:
        rank.engine.compare(parts_of([SUM]))
        rank.device.guard(lambda: True, False)
        if rank.rank == 1:
            rank.peers.fail(ValueError("a mistake in the data"))
            return
        with pytest.raises(RankError, match="rank 1 failed: ValueError: a mistake in the data"):
            rank.device.guard(lambda: False, True)

    run_ranks(2, failing)


def test_nothing_is_waited_for_without_collectives() -> None:
    run_ranks(2, lambda rank: rank.device.guard(lambda: pytest.fail("the GPU was asked")))


def test_an_error_of_nccl_is_told() -> None:
    def broken(rank: Rank) -> None:
        rank.library.async_error = lambda communicator: "remote process exited"  # type: ignore[method-assign]
        rank.engine.compare(parts_of([SUM]))
        with pytest.raises(RankError, match="NCCL says: remote process exited"):
            rank.device.guard(lambda: True)

    run_ranks(2, broken)


def test_an_error_of_any_communicator_ends_the_wait() -> None:
    """The GPU is never done, and the program has no collective of the group that failed."""

    def broken(rank: Rank) -> None:
        rank.engine.make_group(2, 1)
        world = rank.engine._communicators[4, 1]
        errors = {world: ""}
        rank.library.async_error = lambda one: errors.get(one, "remote process exited")  # type: ignore[method-assign]
        of_all = exchange_of(Op.ALL_GATHER, Ranks(4, 1), dtypes.float32, (4,))
        rank.engine.compare(parts_of([of_all]))
        with pytest.raises(RankError, match="NCCL says: remote process exited"):
            rank.device.guard(lambda: False)

    run_ranks(4, broken)


def test_a_group_is_made_when_all_are_here() -> None:
    """To split a communicator waits without end, so a rank that does not come is missed first."""

    def missed(rank: Rank) -> None:
        if rank.rank == 1:
            time.sleep(2)  # it makes no group
            return
        rank.library.split = lambda *_: pytest.fail("NCCL was asked")  # type: ignore[method-assign]
        with pytest.raises(RankError, match=r"rank 1 makes groups of 2 ranks, .*waited 0.2 s"):
            rank.engine.make_group(2, 2)

    run_ranks(4, missed, timeout=0.2)


def test_a_rank_that_is_gone_is_missed_while_a_group_is_connected() -> None:
    def failing(rank: Rank) -> None:
        if rank.rank == 1:
            rank.engine.make_group(2, 2)
            rank.peers.fail(ValueError("a mistake in the data"))
            return
        rank.device.is_idle = False
        with pytest.raises(RankError, match=r"the first exchange among 2 ranks, 2 apart.*mistake"):
            rank.engine.make_group(2, 2)

    run_ranks(4, failing)


def test_multicast_is_left_as_the_environment_says() -> None:
    assert not any("NVLS" in name for name in VARIABLES)


def test_each_function_that_is_called_is_declared() -> None:
    """A function without types of its arguments would get addresses of 32 bits."""
    from lamina.runtime import nccl_library

    declared = {*FUNCTIONS, *WINDOW_FUNCTIONS, "ncclGetErrorString", "ncclGetLastError"}
    for module in (nccl, nccl_library):
        assert module.__file__ is not None
        with open(module.__file__, encoding="utf-8") as file:
            text = file.read()
        for word in text.replace('"', " ").replace("(", " ").split():
            if word.startswith("nccl") and word[4:5].isupper() and word.isalnum():
                assert word in declared, word
