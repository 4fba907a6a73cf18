"""Pipelines: each process has some layers of a model, and passes on what they give.

A batch is cut into micro-batches. Process s begins the forward pass of one when process s - 1 has
ended it, and from the first backward pass on it does one of each in turn (1F1B, arXiv 2006.09503):
of 2 processes and 3 micro-batches

    time        0    1    2    3    4    5    6    7
    process 0   F0   F1        B0   F2   B1        B2
    process 1        F0   B0   F1   B1   F2   B2

At each time all processes call the same `permute`s, for those that have something to pass on. A
stage keeps the inputs of at most as many micro-batches as there are stages from it to the last one,
and computes its forward pass again in the backward pass: with the random key of the first time, so
that dropout drops the same elements, and without assigning anything, so that running statistics
move once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lamina import random
from lamina.core.dtypes import DType, accumulator
from lamina.core.shape import Shape
from lamina.distributed.mesh import Axis
from lamina.distributed.operations import broadcast, permute
from lamina.errors import ArgumentError
from lamina.frontend.differentiate import gradient
from lamina.frontend.functions.creation import zeros
from lamina.frontend.jit import jit
from lamina.frontend.realize import realize
from lamina.frontend.session import changes_undone
from lamina.frontend.tensor import Tensor

__all__ = ["Pipeline"]


@dataclass(frozen=True)
class Task:
    """What a stage does at one time: the forward or the backward pass of a micro-batch."""

    is_forward: bool
    micro_batch: int


def task_at(time: int, stage: int, stages: int, micro_batches: int) -> Task | None:
    """What a stage does at a time, as the table above has it; None if it waits."""
    first = time - stage
    warming = stages - stage  # forward passes that come one after the other
    if 0 <= first < min(warming, micro_batches):
        return Task(True, first)
    later, odd = divmod(time - stage, 2)
    if not odd and warming <= later < micro_batches:
        return Task(True, later)
    backward, odd = divmod(time - (2 * stages - 1 - stage), 2)
    if not odd and 0 <= backward < micro_batches:
        return Task(False, backward)
    return None


class Pipeline:
    """One stage of a pipeline over an axis; the place of the process says which.

    stage: this process's layers, from one tensor to one. loss: of the last stage, from its result
    and a micro-batch of targets, a single value. parameters: of `stage` and, on the last one, of
    `loss`. shape, dtype: of what stages pass on, the same everywhere. Both are compiled, once for
    each shape of micro-batches.

    A stage may draw random numbers, by keys that it does not name, and assign tensors, such as
    running statistics; its result must not depend on what it assigns."""

    def __init__(
        self,
        stage: Callable[[Tensor], Tensor],
        loss: Callable[[Tensor, Any], Tensor],
        parameters: Sequence[Tensor],
        over: Axis,
        shape: Shape,
        dtype: DType,
    ) -> None:
        self._parameters, self._over = list(parameters), over
        self._shape, self._dtype = shape, dtype
        self._device = self._parameters[0].device if self._parameters else None

        def forward(x: Tensor, key: Tensor) -> Tensor:
            with random.using(key):
                return stage(x)

        def of_last(x: Tensor, target: Any, key: Tensor) -> tuple[Tensor, list[Tensor]]:
            with random.using(key):
                value = loss(stage(x), target)
            return value, _derivatives(value, x, self._parameters, None)

        def of_others(x: Tensor, adjoint: Tensor, key: Tensor) -> list[Tensor]:
            with changes_undone():  # the forward pass has made them
                y = forward(x, key)
                result = Tensor.of(y.node, y.device)  # y itself may be one that was assigned
            return _derivatives(result, x, self._parameters, adjoint)

        self._forward, self._last, self._others = jit(forward), jit(of_last), jit(of_others)

    def step(self, inputs: Sequence[Tensor], targets: Sequence[Any]) -> Tensor:
        """The mean loss of micro-batches of one size, which all processes get; each parameter has
        its gradient in `grad`. inputs: of the first stage, which others only count. targets: of the
        last stage. Raises ArgumentError where there is another number of targets than of inputs,
        or none."""
        if len(inputs) != len(targets) or not inputs:
            raise ArgumentError(
                f"{len(inputs)} inputs and {len(targets)} targets: one of each is needed "
                "for every micro-batch", operation="Pipeline"
            )
        return _Step(self, inputs, targets).run()


class _Step:
    """One batch on its way through the pipeline."""

    def __init__(
        self, pipeline: Pipeline, inputs: Sequence[Tensor], targets: Sequence[Any]
    ) -> None:
        self._pipeline, self._over = pipeline, pipeline._over
        self._targets = targets
        self._count = len(inputs)
        self._is_first = self._over.place == 0
        self._is_last = self._over.place == self._over.ranks - 1
        # By micro-batch, what has come and waits for its pass.
        self._inputs = dict(enumerate(inputs)) if self._is_first else {}
        self._adjoints: dict[int, Tensor] = {}
        self._keys = [random.next_key(pipeline._device) for _ in inputs]  # one a micro-batch
        self._sums: list[Tensor] = []
        self._losses: list[Tensor] = []

    def run(self) -> Tensor:
        stages = self._over.ranks
        for time in range(2 * (self._count + stages - 1)):
            tasks = [task_at(time, stage, stages, self._count) for stage in range(stages)]
            sent = self._do(tasks[self._over.place])
            self._pass_on(tasks, sent)
        for parameter, total in zip(self._pipeline._parameters, self._sums, strict=True):
            parameter.grad = (total / self._count).cast(parameter.dtype)
        device = self._pipeline._device
        mean = sum(self._losses, zeros((), device=device)) / self._count
        return broadcast(mean, stages - 1, self._over)

    def _do(self, task: Task | None) -> Tensor:
        """Do a task; the result is what other stages may get: zeros if nothing."""
        pipeline = self._pipeline
        nothing = zeros(pipeline._shape, dtype=pipeline._dtype, device=pipeline._device)
        if task is None:
            return nothing
        number = task.micro_batch
        key = self._keys[number]
        if task.is_forward:
            # The last stage computes its forward pass in the backward pass, which comes next.
            return nothing if self._is_last else pipeline._forward(self._inputs[number], key)
        x = self._inputs.pop(number)
        if self._is_last:
            loss, derivatives = pipeline._last(x, self._targets[number], key)
            self._losses.append(loss)
        else:
            derivatives = pipeline._others(x, self._adjoints.pop(number), key)
        of_input, *of_parameters = derivatives
        self._add(of_parameters)
        return nothing if self._is_first else of_input

    def _add(self, gradients: list[Tensor]) -> None:
        """Add to the sums over micro-batches: those of halves are float32."""
        gradients = [gradient.cast(accumulator(gradient.dtype)) for gradient in gradients]
        if self._sums:
            pairs = zip(self._sums, gradients, strict=True)
            gradients = [total + gradient for total, gradient in pairs]
        self._sums = gradients
        realize(*gradients)

    def _pass_on(self, tasks: Sequence[Task | None], sent: Tensor) -> None:
        """Send results of forward passes to the next stages, and adjoints to the ones before."""
        last = self._over.ranks - 1
        ways = ((True, 1, self._inputs), (False, -1, self._adjoints))
        for is_forward, way, arrived in ways:
            senders = [
                stage
                for stage, task in enumerate(tasks)
                if task is not None and task.is_forward is is_forward and 0 <= stage + way <= last
            ]
            if not senders:
                continue
            got = permute(sent, [(stage, stage + way) for stage in senders], self._over)
            realize(got)
            task = tasks[self._over.place - way] if self._over.place - way in senders else None
            if task is not None:
                arrived[task.micro_batch] = got


def _derivatives(
    y: Tensor, x: Tensor, parameters: Sequence[Tensor], seed: Tensor | None
) -> list[Tensor]:
    """By x and by each parameter. The first stage's x may be integers, such as tokens: 0 then."""
    if x.dtype.is_float:
        return gradient(y, [x, *parameters], seed)
    return [zeros((), device=x.device), *gradient(y, list(parameters), seed)]
