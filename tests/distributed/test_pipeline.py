"""The order of tasks in a pipeline: what each needs has come, and little is kept; and what a stage
computes twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import lamina as lm
from lamina import Tensor, nn
from lamina.distributed import Pipeline, setup
from lamina.distributed.mesh import Axis
from lamina.distributed.pipeline import Task, _Step, task_at


@pytest.mark.parametrize("micro_batches", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("stages", [1, 2, 3, 4])
def test_tasks_come_after_what_they_need(stages: int, micro_batches: int) -> None:
    done: dict[tuple[int, Task], int] = {}
    times = 2 * (micro_batches + stages - 1)
    for time in range(times):
        for stage in range(stages):
            task = task_at(time, stage, stages, micro_batches)
            if task is None:
                continue
            assert (stage, task) not in done
            forward = Task(True, task.micro_batch)
            if task.is_forward:
                needed = [(stage - 1, forward)] if stage else []
            else:
                needed = [(stage, forward)]
                if stage + 1 < stages:
                    needed.append((stage + 1, task))
            assert all(done.get(one, time) < time for one in needed)
            done[stage, task] = time
    assert len(done) == 2 * stages * micro_batches
    # The pipeline of 1F1B, without one time more: the bubble is 2 (stages - 1).
    assert max(done.values()) == times - 1


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_a_stage_keeps_no_more_than_the_stages_behind_it(stages: int) -> None:
    for stage in range(stages):
        kept = most = 0
        for time in range(60):
            task = task_at(time, stage, stages, 20)
            if task is not None:
                kept += 1 if task.is_forward else -1
            most = max(most, kept)
        assert (kept, most) == (0, stages - stage)


DEVICES = pytest.mark.parametrize("device", ["cpu", "interp"])


def middle_step(
    stage: Callable[[Tensor], Tensor],
    parameters: list[Tensor],
    inputs: list[Tensor],
    monkeypatch: pytest.MonkeyPatch,
) -> _Step:
    """A step of the second of three stages, for which the inputs and adjoints of 1 have come."""
    monkeypatch.setattr(setup, "_joined", [setup._Process(1, 3)])
    over = Axis("all", 3, 1)
    shape, dtype = inputs[0].shape, inputs[0].dtype
    pipeline = Pipeline(stage, lambda y, target: y.sum(), parameters, over, shape, dtype)
    step = _Step(pipeline, inputs, inputs)
    step._inputs = dict(enumerate(inputs))
    step._adjoints = {number: lm.ones_like(x) for number, x in enumerate(inputs)}
    return step


@DEVICES
def test_dropout_drops_the_same_elements_in_both_passes(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = lm.ones((64,), device=device)
    weight.requires_grad = True
    inputs = [lm.ones((8, 64), device=device) for _ in range(2)]
    step = middle_step(lambda x: lm.dropout(x * weight, 0.5), [weight], inputs, monkeypatch)
    forward = [step._do(Task(True, number)).numpy().copy() for number in range(2)]
    adjoints = [step._do(Task(False, number)).numpy().copy() for number in range(2)]
    assert {*np.unique(forward)} == {0.0, 2.0}
    np.testing.assert_array_equal(adjoints, forward)  # inputs, weights and seeds are 1
    assert (forward[0] != forward[1]).any()
    np.testing.assert_array_equal(step._sums[0].numpy(), np.sum(forward, axis=(0, 1)))


@DEVICES
def test_running_statistics_move_once_a_micro_batch(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    norm = nn.BatchNorm1d(3)
    for tensor in nn.state_dict(norm).values():
        tensor.rebind(tensor.to(device))
    values = np.random.default_rng(0).normal(size=(2, 8, 3)).astype(np.float32)
    inputs = [Tensor(value, device=device) for value in values]
    step = middle_step(norm, nn.parameters(norm), inputs, monkeypatch)
    mean = np.zeros(3)
    for number, value in enumerate(values):
        lm.realize(step._do(Task(True, number)))
        mean = 0.9 * mean + 0.1 * value.mean(axis=0)
        np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-4, atol=1e-6)
    for number in range(2):
        lm.realize(step._do(Task(False, number)))
    np.testing.assert_allclose(norm.running_mean.numpy(), mean, rtol=1e-4, atol=1e-6)


def test_sums_over_micro_batches_do_not_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gradients of 40,000 are more than the largest float16, and their mean is not."""
    weight = lm.ones((1,), dtype=lm.float16)
    weight.requires_grad = True
    inputs = [lm.full((1,), 40000.0, dtype=lm.float16) for _ in range(2)]
    step = middle_step(lambda x: x * weight, [weight], inputs, monkeypatch)
    for number in range(2):
        step._do(Task(False, number))
    assert step._sums[0].numpy() == 80000.0
