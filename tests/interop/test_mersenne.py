"""Random bits beside those that PyTorch draws from the same seed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="the door is for PyTorch: pip install torch==2.13.0")

from lamina.interop.torch import mersenne  # noqa: E402

# A block has 312 numbers; sizes end before, at and after its end.
_SIZES = st.sampled_from([0, 1, 7, 311, 312, 313, 1000])


@given(
    seed=st.integers(0, 2**63 - 1),
    draws=st.lists(st.tuples(_SIZES, st.floats(0, 1), st.booleans()), min_size=1, max_size=4),
)
def test_numbers_and_the_state_after_them_are_pytorchs(
    seed: int, draws: list[tuple[int, float, bool]]
) -> None:
    """Where something else takes one word between two draws, too: pairs then begin in one block
    and end in the next."""
    ours, theirs = (torch.Generator().manual_seed(seed) for _ in range(2))
    for size, probability, is_odd in draws:
        expected = torch.empty(size, dtype=torch.bool).bernoulli_(probability, generator=theirs)
        drawn = mersenne.bernoulli([size], [1], probability, ours)
        assert torch.equal(drawn, expected)
        if is_odd:
            between = [torch.rand(1, generator=generator) for generator in (ours, theirs)]
            assert torch.equal(*between)
    assert torch.equal(ours.get_state(), theirs.get_state())


def test_a_pytorch_that_draws_otherwise_draws_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def draws_nothing(state: int, results: int, count: int, limit: int) -> None:
        pass

    assert mersenne._drawing() is not None  # as long as PyTorch's builds draw so
    assert not mersenne._draws_alike(draws_nothing)
    monkeypatch.setattr(mersenne, "_drawing", lambda: None)
    expected = torch.empty(50, dtype=torch.bool)
    expected.bernoulli_(0.3, generator=torch.Generator().manual_seed(4))
    drawn: Any = mersenne.bernoulli([50], [1], 0.3, torch.Generator().manual_seed(4))
    assert torch.equal(drawn, expected)
