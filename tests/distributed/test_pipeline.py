"""The order of tasks in a pipeline: what each needs has come, and little is kept."""

from __future__ import annotations

import pytest

from lamina.distributed.pipeline import Task, task_at


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
