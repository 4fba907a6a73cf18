"""A PyTorch module through a backend of ``torch.compile``, from the start of its process.

Arguments: the column, the seed, the number of threads (0: all), the model, the device (where that
is a GPU, the model has sizes for it) and the dtype. For each kind of call, a forward one and then,
after a line, one of training, it prints the facts of its first result: when that was there, the
seconds that making the model took, and the seconds of the processors until then without these. Then
it answers lines, JSON lists: ["check", kind] compares results on new data with those of the module
without a compiler, ["time", kind, seconds] measures.
"""

from __future__ import annotations

import copy
import json
import resource
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.utils import same

from bench.cases.modules import CATALOGUE, COMPILED, FORWARD, KINDS
from bench.programs.protocol import clock, emit, fastest
from bench.report import LAMINA
from tests.interop.zoo.check import (
    FORWARD_TOLERANCE,
    TRAINING_TOLERANCE,
    declare_torchvision,
    loss_of,
    outputs_of,
)
from tests.interop.zoo.table import LARGE, SMALL, Inputs

_BLOCK_SECONDS = {"cpu": 2e-4, "cuda": 5e-3}  # of calls that are measured together


class Subject:
    """A module with its inputs, and both kinds of call of a column."""

    def __init__(
        self, column: str, seed: int, model: str, device: str = "cpu", dtype: str = "float32"
    ) -> None:
        self.column, self.seed = column, seed
        self.device, self.dtype = torch.device(device), getattr(torch, dtype)
        self._made = CATALOGUE[model]
        self._scale = SMALL if self.device.type == "cpu" else LARGE
        torch.manual_seed(seed)
        self.module = self._made.build(self._scale).to(self.device, self.dtype)
        self.inputs = self._new_inputs()
        self._forward: Callable[..., Any] = outputs_of
        self._loss: Callable[..., Any] = loss_of

    def _new_inputs(self) -> Inputs:
        """New arguments, where the module is; those of floats have its dtype."""
        return {
            name: value.to(self.device, self.dtype if value.is_floating_point() else value.dtype)
            for name, value in self._made.inputs(self._scale).items()
        }

    def compile(self) -> None:
        """Have both functions compiled by the column, when they are called."""
        if self.column == LAMINA:
            from lamina.interop.torch import backend

            self._forward = torch.compile(outputs_of, backend=backend)
            self._loss = torch.compile(loss_of, backend=backend)
        elif self.column == COMPILED:
            self._forward, self._loss = torch.compile(outputs_of), torch.compile(loss_of)

    def call(self, kind: str) -> list[torch.Tensor]:
        """One call, without derivatives or with those of all parameters, which it returns too."""
        if kind == FORWARD:
            self.module.eval()
            with torch.no_grad():
                results: list[torch.Tensor] = self._forward(self.module, self.inputs)
            return results
        self.module.train()
        loss = self._trained(self._loss)
        return [loss.detach(), *self._slopes()]

    def _trained(self, function: Callable[..., torch.Tensor]) -> torch.Tensor:
        self.module.zero_grad(set_to_none=True)
        loss = function(self.module, self.inputs)
        loss.backward()
        return loss

    def _slopes(self) -> list[torch.Tensor]:
        slopes = (parameter.grad for parameter in self.module.parameters())
        return [slope.clone() for slope in slopes if slope is not None]

    def synchronize(self) -> None:
        """Wait for what was called."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def leave(self) -> None:
        """Wait, and give what no tensor holds of a GPU's memory to the other processes."""
        self.synchronize()
        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def seconds(self, kind: str, now: Callable[[], float], long: float) -> float:
        """Of the fastest call among those of about `long` seconds."""
        if kind == FORWARD:
            self.module.eval()
            with torch.no_grad():
                return self._fastest(lambda: self._forward(self.module, self.inputs), now, long)
        self.module.train()
        return self._fastest(lambda: self._trained(self._loss), now, long)

    def _fastest(self, call: Callable[[], Any], now: Callable[[], float], long: float) -> float:
        def run(calls: int) -> None:
            for _ in range(calls):
                call()
            self.synchronize()

        return fastest(run, now, long, _BLOCK_SECONDS[self.device.type])

    def check(self, kind: str) -> bool | None:
        """Whether the results of new data equal eager PyTorch's, as `tests.interop.zoo.check` says
        what equal means. None where random numbers are drawn, of which only lamina's are eager
        PyTorch's."""
        torch.manual_seed(self.seed + 1)
        self.inputs = self._new_inputs()
        ours, eager = self._seeded(kind, 2), self._in_eager(kind, 2)
        is_random = not same(eager, self._in_eager(kind, 3), tol=0.0)
        if is_random and self.column != LAMINA:
            return None
        tolerance = FORWARD_TOLERANCE if kind == FORWARD else TRAINING_TOLERANCE
        return same(eager, ours, self._in_double(kind, 2), tol=tolerance)

    def _seeded(self, kind: str, seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return [one.clone() for one in self.call(kind)]

    def _in_eager(self, kind: str, seed: int) -> list[torch.Tensor]:
        compiled = self._forward, self._loss
        self._forward, self._loss = outputs_of, loss_of
        try:
            return self._seeded(kind, seed)
        finally:
            self._forward, self._loss = compiled

    def _in_double(self, kind: str, seed: int) -> list[torch.Tensor] | None:
        """In float64; None where PyTorch or the model refuses that."""
        module, inputs = self.module, self.inputs
        self.module = copy.deepcopy(module).double()
        self.inputs = {
            name: value.double() if value.is_floating_point() else value
            for name, value in inputs.items()
        }
        try:
            return self._in_eager(kind, seed)
        except RuntimeError:
            return None
        finally:
            self.module, self.inputs = module, inputs


def processors() -> float:
    """Seconds of all threads, and of the compilers that have ended."""
    users = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(user.ru_utime + user.ru_stime for user in users)


def main(column: str, seed: str, threads: str, model: str, device: str, dtype: str) -> None:
    warnings.simplefilter("ignore")
    if int(threads):
        torch.set_num_threads(int(threads))
    torch.backends.cudnn.allow_tf32 = False  # as it is for other products by default
    started, before = time.perf_counter(), processors()
    declare_torchvision()
    subject = Subject(column, int(seed), model, device, dtype)
    subject.synchronize()
    loading, not_counted = time.perf_counter() - started, processors() - before
    subject.compile()
    for kind in KINDS:
        if kind != FORWARD:
            sys.stdin.readline()  # so that it is not stopped in the middle of the call
        subject.call(kind)
        subject.synchronize()
        emit(ended=time.time(), loading=loading, processors=processors() - not_counted)
    for line in sys.stdin:
        command, kind, *words = json.loads(line)
        if command == "check":
            facts: dict[str, Any] = {"equal": subject.check(kind)}
        else:
            now = clock(int(threads))
            facts = {"seconds": [subject.seconds(kind, now, float(words[0]))]}
        subject.leave()
        emit(**facts)


if __name__ == "__main__":
    main(*sys.argv[1:])
