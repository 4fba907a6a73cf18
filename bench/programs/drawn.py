"""Runs drawn programs (`bench.cliffs`) in one framework, on the CPU or on a GPU.

Arguments: the column, the seed, the number of threads (0: all), a folder for results, the device.
Each line that it reads is a JSON list: ["case", index, data] compiles a program, runs it and writes
its results, ["idle", seconds] waits until the GPU has no work of other processes, ["time", seconds,
core] measures the program, beside NVIDIA's GPUs on that core, ["rates"] measures how fast the
device is, unless that is kept, ["cost"] predicts what the program takes, ["kernels"] tells what
lamina's kernels take, ["drop"] forgets it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bench.cases import REFERENCE, REFERENCE_ON_CPU, Array, module_of, way_of
from bench.cliffs.draw import draw, limits_of
from bench.cliffs.program import (
    MissingOperationError,
    Program,
    function_of,
    places_of_gradients,
    whole_function,
)
from bench.programs.protocol import clock, emit, fastest

_SAMPLE = 1 << 21  # elements of a result that are compared
_CALLS = 3  # before the results that are compared
_BLOCK = {"cpu": 2e-4, "cuda": 5e-3}  # seconds of calls that are measured together
# A tiny kernel takes 0.05 ms to its end where a GPU has no other work, and a millisecond or more
# where processes take turns. Kernels that are so fast for 20 ms, which is several turns, are alone.
_FAST, _QUIET_SECONDS = 3e-4, 0.02
Step = Callable[[], Any]


class Lamina:
    """Jitted."""

    def __init__(self, device: str, threads: int) -> None:
        import lamina
        from lamina.runtime.buffer import heap_of

        self.module, self.device = lamina, device
        self.heap = heap_of(device)
        self.lower: Callable[[], Any] | None = None  # the program at every stage

    def array(self, values: Array, dtype: str) -> Any:
        tensor = self.module.asarray(values, device=self.device)
        return tensor.cast(getattr(self.module, dtype)).realize() if dtype else tensor

    def step(self, program: Program, arrays: list[Any]) -> Step:
        jitted = self.module.jit(whole_function(program, self.module))
        arch = getattr(self.heap, "arch", "sm_90a")
        self.lower = lambda: jitted.lower(*arrays, device=self.device, arch=arch)
        return lambda: jitted(*arrays)

    def numpy(self, value: Any) -> Array:
        small = value.dtype.is_float and value.dtype.itemsize < 4
        result: Array = (value.cast(self.module.float32) if small else value).numpy()
        return result

    def synchronize(self) -> None:
        self.heap.synchronize()

    def probe(self) -> Step:
        """A tiny kernel that has run once."""
        values = self.module.ones((32,), device=self.device)
        jitted = self.module.jit(lambda x: x + 1.0)
        jitted(values)
        self.synchronize()
        return lambda: jitted(values)

    def free(self) -> None:
        self.lower = None
        self.heap.empty()

    def kernels(self) -> int:
        """How many kernels this process has run."""
        from lamina.runtime.profile import counter

        count: int = counter.kernels
        return count


class Torch:
    """Eager, by its compiler ("torch.compile"), or in float64 as the reference. Derivatives are
    taken outside of what is compiled, as training does."""

    def __init__(self, device: str, threads: int, column: str) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        if device != "cpu":
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self.module, self.device, self.column = torch, device, column
        self.is_reference = column in (REFERENCE, REFERENCE_ON_CPU)

    def array(self, values: Array, dtype: str) -> Any:
        tensor = self.module.from_numpy(values).to(self.device)
        if not dtype:
            return tensor
        tensor = tensor.to(getattr(self.module, dtype))
        return tensor.double() if self.is_reference else tensor

    def step(self, program: Program, arrays: list[Any]) -> Step:
        torch, chosen = self.module, places_of_gradients(program)
        dtype = "float64" if self.is_reference else ""
        forward = function_of(program, "torch", torch, dtype)
        if way_of(self.column) == "compile":
            torch._dynamo.reset()  # else it stops compiling after some
            forward = torch.compile(forward)
        if not chosen:
            return lambda: (forward(*arrays),)
        *inputs, seed = arrays
        leaves = [inputs[place].requires_grad_() for place in chosen]

        def run() -> Any:
            y = forward(*inputs)
            return y, *torch.autograd.grad(y, leaves, seed)

        return run

    def numpy(self, value: Any) -> Array:
        value = value.detach().cpu()
        small = value.is_floating_point() and value.element_size() < 4
        result: Array = (value.float() if small else value).numpy()
        return result

    def synchronize(self) -> None:
        if self.device != "cpu":
            self.module.cuda.synchronize()

    def free(self) -> None:
        if self.device != "cpu":
            self.module.cuda.empty_cache()

    def kernels(self) -> int:
        return 0


class Jax:
    """Jitted, on the CPU."""

    def __init__(self, device: str, threads: int) -> None:
        import jax

        self.module = jax
        self.last: Any = None

    def array(self, values: Array, dtype: str) -> Any:
        return self.module.numpy.asarray(values)

    def step(self, program: Program, arrays: list[Any]) -> Step:
        if program.dtype == "float64":
            raise MissingOperationError("float64 is a setting of the whole process")
        jax, chosen = self.module, places_of_gradients(program)
        forward = function_of(program, "jax", jax)

        def whole(*inputs: Any) -> Any:
            if not chosen:
                return (forward(*inputs),)
            *rest, seed = inputs

            def of_chosen(*wanted: Any) -> Any:
                at = dict(zip(chosen, wanted, strict=True))
                return forward(*(at.get(place, one) for place, one in enumerate(rest)))

            y, pull = jax.vjp(of_chosen, *(rest[place] for place in chosen))
            return y, *pull(seed)

        jitted = jax.jit(whole)

        def run() -> Any:
            self.last = jitted(*arrays)
            return self.last

        return run

    def numpy(self, value: Any) -> Array:
        return np.asarray(value)

    def synchronize(self) -> None:
        self.module.block_until_ready(self.last)

    def free(self) -> None:
        self.last = None

    def kernels(self) -> int:
        return 0


def made(column: str, device: str, threads: int) -> Lamina | Torch | Jax:
    """The framework of a column."""
    if module_of(column) == "lamina":
        return Lamina(device, threads)
    if module_of(column) == "torch":
        return Torch("cpu" if column == REFERENCE_ON_CPU else device, threads, column)
    return Jax(device, threads)


class Runner:
    """The program that is prepared."""

    def __init__(self, column: str, seed: int, threads: int, folder: Path, device: str) -> None:
        self.column, self.seed, self.folder, self.device = column, seed, folder, device
        self.own = made(column, device, threads)
        self.now = clock(threads) if device == "cpu" else time.perf_counter
        self.step: Step | None = None

    def prepare(self, index: int, data: int) -> dict[str, Any]:
        """Compile a program, and write its results for the values `data`."""
        self.drop()
        program = draw(self.seed, index, limits_of(self.device))
        try:
            return self._prepare(program, data)
        except Exception as error:
            return _told(error)

    def _prepare(self, program: Program, data: int) -> dict[str, Any]:
        own = self.own
        arrays = [
            own.array(values, program.dtype if one.is_float else "")
            for one, values in zip(program.inputs, program.arrays(data), strict=True)
        ]
        own.synchronize()
        started = time.perf_counter()
        step = own.step(program, arrays)
        values = step()
        own.synchronize()
        first = time.perf_counter() - started
        kernels = 0
        for _ in range(0 if self.column in (REFERENCE, REFERENCE_ON_CPU) else _CALLS - 1):
            before = own.kernels()
            values = step()
            kernels = own.kernels() - before
        np.savez(self.folder / f"{self.column}.npz", *(_sampled(own.numpy(one)) for one in values))
        self.step = step
        return {"first": first, "kernels": kernels}

    def waits_until_idle(self, seconds: float) -> bool:
        """Wait until the GPU works for this process alone, so many seconds at most, and tell
        whether it does. Processes that are stopped may have left kernels in their queues, which a
        GPU runs in turns with those of all others."""
        assert isinstance(self.own, Lamina)
        probe = self.own.probe()
        quiet_since = started = self.now()
        while self.now() - quiet_since < _QUIET_SECONDS:
            before = self.now()
            probe()
            self.own.synchronize()
            after = self.now()
            if after - started > seconds:
                return False
            if after - before > _FAST:
                quiet_since = after
        return True

    def measure(self, seconds: float, core: int) -> float:
        """The seconds of a call. Beside NVIDIA's GPUs all threads of the process run on the core of
        that number, which is counted on from the first one where the machine has fewer: PyTorch
        goes through derivatives in a thread of its own."""
        if not self.device.startswith("cuda"):
            return self._measure(seconds)
        usable = os.sched_getaffinity(0)
        _run_on({sorted(usable)[core % len(usable)]})
        try:
            return self._measure(seconds)
        finally:
            _run_on(usable)

    def _measure(self, seconds: float) -> float:
        step, own = self.step, self.own
        assert step is not None

        def run(calls: int) -> None:
            for _ in range(calls):
                step()
            own.synchronize()

        return fastest(run, self.now, seconds, _BLOCK[self.device.partition(":")[0]])

    def rates(self) -> str:
        """Whose rates lamina's cost model has, which are measured if they are not kept."""
        from lamina.calibrate import rates_of
        from lamina.core.options import current

        return rates_of(current()).device

    def cost(self) -> dict[str, Any]:
        """What lamina's cost model says: the bound of the program, and what it is predicted to
        take, in seconds."""
        assert isinstance(self.own, Lamina)
        assert self.own.lower is not None
        try:
            cost = self.own.lower().cost
        except Exception as error:
            return _told(error)
        return {"bound": cost.bound, "predicted": cost.seconds}

    def kernels(self) -> list[dict[str, Any]]:
        """What each of lamina's kernels took in one run."""
        from lamina.explain.report import profile

        assert self.step is not None
        with profile() as records:
            self.step()
            self.own.synchronize()
        return [vars(record) for record in records]

    def drop(self) -> None:
        """Forget the program and its arrays."""
        self.step = None
        gc.collect()
        self.own.free()


def _run_on(cores: set[int]) -> None:
    """Let all threads of this process run on these cores alone. Those that end meanwhile need
    none."""
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cores)


def _told(error: Exception) -> dict[str, Any]:
    """An error at the border of one program."""
    text = (str(error).strip() or "no message").splitlines()[0][:300]
    return {"error": {"kind": type(error).__name__, "text": text}}


def _sampled(values: Array) -> Array:
    """Elements of `values` at places that every framework draws alike, and its last ones."""
    flat = values.reshape(-1)
    if flat.size <= _SAMPLE:
        return flat
    places = np.random.default_rng(flat.size).integers(0, flat.size, _SAMPLE // 2)
    return np.concatenate([flat[places], flat[-_SAMPLE // 2 :]])


def main(column: str, seed: str, threads: str, folder: str, device: str) -> None:
    """Answer every line."""
    runner = Runner(column, int(seed), int(threads), Path(folder), device)
    emit(ready=True)
    for line in sys.stdin:
        command, *words = json.loads(line)
        if command == "case":
            emit(**runner.prepare(*words))
        elif command == "idle":
            emit(idle=runner.waits_until_idle(*words))
        elif command == "time":
            emit(seconds=runner.measure(*words))
        elif command == "rates":
            emit(device=runner.rates())
        elif command == "cost":
            emit(**runner.cost())
        elif command == "kernels":
            emit(kernels=runner.kernels())
        else:
            runner.drop()
            emit(dropped=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
