"""The training of GPT-2 that the page of a GPU shows; here it is small, and on the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from bench.cases import Array
from bench.trainers import Model, Trainer
from bench.training import PEERS, STEPS_A_TURN, TURNS, curves, training

SMALL = Model(vocabulary=503, width=8, heads=1, layers=1, batch=2, length=4)


def test_lamina_and_pytorch_train_the_same_model() -> None:
    pytest.importorskip("torch")
    model = Model(vocabulary=503, width=64, heads=4, layers=2, batch=2, length=32).padded()
    (ours, theirs), apart = curves(model, 1, "cpu", 6)
    assert apart < 5e-3
    assert len(ours) == len(theirs) == 6
    assert ours[0] != ours[-1]


def test_a_padded_vocabulary_has_logits_that_stand_for_no_token() -> None:
    assert Model().padded().logits() == 50_304
    model = SMALL.padded()
    assert model.logits() == 512
    assert dict(model.shapes())["tokens"] == (512, 8)
    assert model.tokens(np.random.default_rng(0), 300).max() < 503
    assert Model(vocabulary=512).padded() == Model(vocabulary=512)


@dataclass
class _Watched:
    """A loss, and what is done, in order."""

    done: list[str]

    def item(self) -> float:
        self.done.append("wait")
        return 1.0


@pytest.mark.parametrize("model", [SMALL, SMALL.padded()], ids=["own", "padded"])
def test_the_section_waits_once_a_turn_and_names_who_fails(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    done: dict[str, list[str]] = {}

    def trainer(column: str, own: Model, drawn: dict[str, Array], device: str) -> Trainer:
        if column == "torch.compile":
            raise RuntimeError("no compiler here")
        assert own is model
        assert torch.backends.cuda.matmul.allow_tf32
        steps = done[column] = []

        def step(*batch: Any) -> _Watched:
            steps.append("step")
            return _Watched(steps)

        return Trainer(lambda ids: (ids[:, :-1], ids[:, 1:]), step)

    monkeypatch.setattr("bench.training.trainer", trainer)
    allowed = torch.backends.cuda.matmul.allow_tf32
    section = training(1, "cpu", model)
    assert torch.backends.cuda.matmul.allow_tf32 == allowed
    turn = ["step"] * STEPS_A_TURN + ["wait"]
    assert done["torch"] == turn * (1 + TURNS)
    assert done["lamina"] == [*turn * (1 + TURNS), "step", "wait"]  # its kernels are timed
    losses, times = section.rows
    assert losses.reached(losses.targets[0])
    assert {column: len(samples) for column, samples in times.samples.items()} == {
        "lamina": TURNS, "torch": TURNS,
    }  # fmt: skip
    assert "torch.compile: not measured: no compiler here" in section.notes
    assert section.title.endswith("bf16 products)" if model is SMALL else "padded to 512)")
    assert section.peers == PEERS
