"""PyTorch modules: those of the tests, and trivial ones, of which a call is the host's work."""

from __future__ import annotations

from typing import Any

import torch

from tests.interop.zoo.table import MODELS, Model

EAGER, COMPILED = "torch", "torch.compile"
FORWARD, TRAINING = KINDS = ("forward", "training step")


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """x times a sum of parameters, plus 1."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.factors = torch.nn.ParameterList(torch.randn(8) for _ in range(count))

    def forward(self, x: Any) -> Any:
        return x * sum(self.factors) + 1


def _trivial(name: str, parameters: int) -> Model:
    return Model(name, "none", lambda _: Scaled(parameters), lambda _: {"x": torch.randn(8)})


TRIVIAL = {one.name: one for one in (_trivial("trivial", 1), _trivial("40-parameters", 40))}
DRAWN = {one.name: one for one in MODELS}
CATALOGUE = TRIVIAL | DRAWN
# These go from token to token in Python: a graph of each step, of 256 in the sizes of a GPU.
STEPWISE = frozenset(("mamba", "rwkv"))
