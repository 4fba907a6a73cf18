"""How each framework takes arrays, runs a function and gives its results back."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bench.cases import REFERENCE, Array, Case, way_of

Step = Callable[[], Any]


class Framework:
    """NumPy, and the base of the others."""

    def __init__(self) -> None:
        import numpy

        self.module: ModuleType = numpy

    def array(self, values: Array) -> Any:
        """`values` as this framework's own array."""
        return values

    def step(self, case: Case, arrays: list[Any], column: str) -> Step:
        """What is measured: the case on its arrays, run to its end each time."""
        function = case.function(column)
        if case.makes_step:
            arguments = tuple(arrays[: case.arguments])
            return self.program(function(self.module, *arrays), arguments, way_of(column))
        return self.program(lambda *own: function(self.module, *own), tuple(arrays), way_of(column))

    def program(self, function: Callable[..., Any], arrays: tuple[Any, ...], way: str) -> Step:
        """`function` of `arrays`, run in the way that `way` names."""
        return lambda: function(*arrays)

    def kernels(self) -> int:
        """How many kernels have run, or 0 where nobody counts."""
        return 0

    def results(self, value: Any) -> list[Array]:
        """What a program returned."""
        import numpy

        parts = value if isinstance(value, (list, tuple)) else [value]
        return [numpy.asarray(self.numpy(one)) for one in parts]

    def numpy(self, value: Any) -> Any:
        """One result as a NumPy array."""
        return value


class Lamina(Framework):
    """Jitted, or "unjitted": built and realized anew on each call."""

    def __init__(self) -> None:
        import lamina

        self.module = lamina

    def array(self, values: Array) -> Any:
        return self.module.asarray(values)

    def program(self, function: Callable[..., Any], arrays: tuple[Any, ...], way: str) -> Step:
        if way != "unjitted":
            return functools.partial(self.module.jit(function), *arrays)

        def run() -> Any:
            value = function(*arrays)
            self.module.realize(*(value if isinstance(value, (list, tuple)) else [value]))
            return value

        return run

    def kernels(self) -> int:
        from lamina.runtime.profile import counter

        return counter.kernels

    def numpy(self, value: Any) -> Any:
        return value.numpy()


class Torch(Framework):
    """Eager, or by its compiler ("compile"); in float64 as the reference."""

    def __init__(self, threads: int, double: bool = False) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        self.module = torch
        self.double = double

    def array(self, values: Array) -> Any:
        tensor = self.module.from_numpy(values)
        return tensor.double() if self.double and tensor.is_floating_point() else tensor

    def program(self, function: Callable[..., Any], arrays: tuple[Any, ...], way: str) -> Step:
        run = self.module.compile(function) if way == "compile" else function
        return functools.partial(run, *arrays)

    def numpy(self, value: Any) -> Any:
        return value.detach().numpy()


class Jax(Framework):
    """Jitted."""

    def __init__(self) -> None:
        os.environ["JAX_PLATFORMS"] = "cpu"
        import jax

        self.module = jax

    def array(self, values: Array) -> Any:
        return self.module.numpy.asarray(values)

    def step(self, case: Case, arrays: list[Any], column: str) -> Step:
        if not case.makes_step:
            return super().step(case, arrays, column)
        # It has jitted what it wants to.
        run, arguments = case.function(column)(self.module, *arrays), arrays[: case.arguments]
        return lambda: self.module.block_until_ready(run(*arguments))

    def program(self, function: Callable[..., Any], arrays: tuple[Any, ...], way: str) -> Step:
        run = self.module.jit(function)
        return lambda: self.module.block_until_ready(run(*arrays))


class Tinygrad(Framework):
    """Jitted, which starts with the third call."""

    def __init__(self) -> None:
        import tinygrad

        self.module = tinygrad

    def array(self, values: Array) -> Any:
        return self.module.Tensor(values).realize()

    def program(self, function: Callable[..., Any], arrays: tuple[Any, ...], way: str) -> Step:
        device = self.module.Device[self.module.Device.DEFAULT]
        jitted = self.module.TinyJit(lambda *own: function(*own).realize())

        def run() -> Any:
            value = jitted(*arrays)
            device.synchronize()
            return value

        return run

    def numpy(self, value: Any) -> Any:
        return value.numpy()


class Onnxruntime(Torch):
    """What PyTorch exports. The function of a case returns one of its first array."""

    def step(self, case: Case, arrays: list[Any], column: str) -> Step:
        import onnxruntime

        torch, first = self.module, arrays[0]

        class Exported(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.function = case.function(column)(torch, *arrays)

            def forward(self, x: Any) -> Any:
                return self.function(x)

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        with tempfile.TemporaryDirectory() as folder, torch.no_grad():
            path = os.path.join(folder, "model.onnx")
            model = Exported().eval()
            torch.onnx.export(model, (first,), path, input_names=["x"], dynamo=False)
            session = onnxruntime.InferenceSession(path, settings)
        values = {"x": first.numpy()}
        return lambda: torch.from_numpy(session.run(None, values)[0])


def framework(name: str, threads: int) -> Framework:
    """The framework `name`, which is told how many threads to use if its variables do not."""
    if name in ("torch", REFERENCE):
        return Torch(threads, name == REFERENCE)
    makers: dict[str, Callable[[], Framework]] = {
        "lamina": Lamina, "jax": Jax, "tinygrad": Tinygrad, "numpy": Framework,
        "onnxruntime": lambda: Onnxruntime(threads),
    }  # fmt: skip
    return makers[name]()
