"""Step times on paper: bounds that any simulation has to keep, and the page that shows them."""

from __future__ import annotations

import math

import pytest

from bench.scaling import (
    MEASURED_INSIDE,
    Batch,
    Layer,
    Mesh,
    Model,
    Rates,
    constant,
    layer_of,
    meshes,
    passes,
    pipelined,
    seconds_of,
    step_of,
    table,
)
from tests.test_layers import ROOT

ENDLESS = Rates(inside=constant(math.inf), between=math.inf, latency=0.0)


def test_links_take_what_was_measured() -> None:
    for sent, seconds in MEASURED_INSIDE:
        assert seconds_of(sent, MEASURED_INSIDE) == pytest.approx(seconds)
    (first, least), *_, (before, quick), (last, slow) = MEASURED_INSIDE
    assert seconds_of(first / 2, MEASURED_INSIDE) == least
    assert seconds_of(2 * last - before, MEASURED_INSIDE) == pytest.approx(2 * slow - quick)
    assert seconds_of(1e9, constant(1e11)) == pytest.approx(0.01)


def test_the_model_has_seventy_billion_parameters() -> None:
    assert 70e9 < Model().parameters < 71e9


@pytest.mark.parametrize("gpus", [64, 512])
def test_a_step_takes_no_less_than_its_products(gpus: int) -> None:
    for mesh in meshes(gpus):
        step = step_of(Model(), mesh, Batch(), Rates())
        endless = step_of(Model(), mesh, Batch(), ENDLESS)
        assert step.seconds > endless.seconds >= step.busy


def test_without_links_to_wait_for_more_gpus_take_as_much_less() -> None:
    one, two = (step_of(Model(), Mesh(data=n), Batch(), ENDLESS).seconds for n in (64, 128))
    assert one / two == pytest.approx(2.0)


def test_parameters_are_gathered_beside_products() -> None:
    fast = passes(Layer(2.0, 6.0, 1.0, 1.0), 10, is_sharded=True)
    assert fast == (1.0 + 20.0, 1.0 + 60.0 + 1.0)  # the first is waited for, and the last sum
    slow = passes(Layer(1.0, 3.0, 5.0, 5.0), 10, is_sharded=True)
    assert slow[0] == 10 * 5.0 + 1.0
    assert slow[1] >= 10 * (5.0 + 5.0)


@pytest.mark.parametrize("stages", [1, 2, 8])
@pytest.mark.parametrize("micro_batches", [1, 8, 64])
def test_a_pipeline_has_the_bubble_of_its_stages(stages: int, micro_batches: int) -> None:
    """Where both passes take one time: (m + p - 1) of each."""
    assert pipelined(1.0, 1.0, stages, micro_batches) == 2 * (micro_batches + stages - 1)
    longer = pipelined(1.0, 3.0, stages, micro_batches)
    assert longer == pytest.approx(4.0 * (micro_batches + stages - 1), rel=0.2)


@pytest.mark.parametrize(("ranks", "times"), [(2, 1.0), (8, 2.0)])
def test_more_than_two_ranks_add_up_in_float32(ranks: int, times: float) -> None:
    """Whatever collectives of bfloat16 the engine is asked for; parameters go as they are."""
    rates = Rates(inside=constant(3e11), latency=0.0)
    layer = layer_of(Model(), Mesh(data=ranks), Batch(), rates)
    assert layer.scatter == pytest.approx(times * layer.gather)
    sums = [layer_of(Model(), Mesh(1, ranks), Batch(), one).forward for one in (rates, ENDLESS)]
    elements = Batch().length * Model().width * (ranks - 1) / ranks
    assert sums[0] - sums[1] == pytest.approx(4 * times * 2.0 * elements / 3e11)


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    assert "\n".join(table(Batch(), Rates())) in page
