"""What the benchmark of the compiler's passes counts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from bench import passes
from lamina.pipeline import PASSES


@pytest.mark.parametrize("name", passes.NETWORKS)
def test_nodes_grow_by_as_many_a_layer_and_passes_are_named(name: str) -> None:
    results = [passes.compiled(name, depth, "cpu") for depth in (2, 3, 4, 5)]
    growth = [after.nodes - before.nodes for before, after in pairwise(results)]
    assert max(growth) - min(growth) <= 0.1 * max(growth)
    names = {step.name for step in PASSES}
    for result in results:
        assert set(passes.SHOWN) <= set(result.of_passes) <= names
