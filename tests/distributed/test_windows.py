"""Windows: what the processes of a group agree on, over a library that a fake one stands in for."""

from __future__ import annotations

import time

import pytest

from lamina.core import dtypes
from lamina.core.exchange import Exchange
from lamina.errors import ProgramsDifferError, RankError
from lamina.ir.kernel import exchange_of
from lamina.ir.monoids import ADD
from lamina.ir.ops import Combine, Op, Ranks
from lamina.runtime.collectives import GroupPart, Places, parts_of
from tests.distributed.fake_nccl import Rank, run_ranks

SUM = exchange_of(Op.ALL_REDUCE, Combine(ADD, 2, 1), dtypes.float32, (4,))
GATHER = exchange_of(Op.ALL_GATHER, Ranks(2, 1), dtypes.float32, (4,))
PLACES: Places = ((0, 64), (128, 192))
OTHERS: Places = ((0, 64), (128, 256))


def part(*exchanges: Exchange) -> GroupPart:
    (found,) = parts_of(exchanges)
    return found


def test_equal_places_have_a_window_of_what_the_largest_program_needs() -> None:
    def agreed(rank: Rank) -> None:
        window = rank.engine.window(part(SUM, GATHER), PLACES, 1000 + 24 * rank.rank)
        assert window is not None
        assert window.places == PLACES
        assert window.buffer.nbytes == 1024
        assert rank.library.registered == {window.buffer.pointer: 1024}
        assert rank.device.counted == 1024

    run_ranks(2, agreed)


def test_later_programs_of_a_list_are_told_what_was_agreed_on() -> None:
    """Without a word from the others, whose programs may be older."""

    def agreed(rank: Rank) -> None:
        first = rank.engine.window(part(SUM, GATHER), PLACES, 1024)
        if rank.rank == 1:
            assert rank.engine.window(part(SUM, GATHER), OTHERS, 2048) is first

    run_ranks(2, agreed)


def test_lists_share_a_window_that_is_long_enough() -> None:
    def agreed(rank: Rank) -> list[int]:
        lists = [part(SUM, GATHER), part(GATHER, SUM), part(SUM, SUM)]
        windows = [
            rank.engine.window(one, PLACES, nbytes)
            for one, nbytes in zip(lists, (1024, 2048, 512), strict=True)
        ]
        pointers = [window.buffer.pointer for window in windows if window is not None]
        assert pointers[2] == pointers[0] != pointers[1]
        return list(rank.library.registered.values())

    assert run_ranks(2, agreed) == [[1024, 2048]] * 2


@pytest.mark.parametrize("second", [OTHERS, ((-1, -1), (-1, -1))], ids=str)
def test_other_places_have_none(second: Places) -> None:
    def refused(rank: Rank) -> None:
        places = second if rank.rank else PLACES
        assert rank.engine.window(part(SUM, GATHER), places, 1024) is None
        assert not rank.library.registered

    run_ranks(2, refused)


def test_arrays_that_are_elsewhere_have_none() -> None:
    def refused(rank: Rank) -> None:
        assert rank.engine.window(part(SUM), ((0, -1),), 1024) is None
        assert not rank.library.registered

    run_ranks(2, refused)


def test_an_older_library_has_none() -> None:
    def refused(rank: Rank) -> None:
        rank.library.has_windows = False
        assert rank.engine.window(part(SUM), ((0, 64),), 1024) is None

    run_ranks(2, refused)


def test_programs_that_differ_are_found_before_they_run() -> None:
    def differing(rank: Rank) -> str:
        with pytest.raises(ProgramsDifferError) as caught:
            rank.engine.window(part(GATHER if rank.rank else SUM), ((0, 64),), 1024)
        return str(caught.value)

    for message in run_ranks(2, differing):
        assert message.startswith("collective 1 of the programs differs: rank 0: all_reduce")


def test_a_rank_that_does_not_come_is_named() -> None:
    def late(rank: Rank) -> None:
        if rank.rank == 1:
            time.sleep(2)
            return
        with pytest.raises(RankError, match=r"the arrays of all_reduce ADD.*waited 0.2 s"):
            rank.engine.window(part(SUM), ((0, 64),), 1024)

    run_ranks(2, late, timeout=0.2)
