"""How each framework takes arrays, runs a function and gives its results back."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from bench.cases import REFERENCE, Array, Function

Program = Callable[..., Any]


class Framework:
    """NumPy, and the base of the others."""

    def __init__(self) -> None:
        import numpy

        self.module: ModuleType = numpy

    def array(self, values: Array) -> Any:
        """`values` as this framework's own array."""
        return values

    def program(self, function: Function, how: str) -> Program:
        """`function` of this framework's arrays, run to its end, in the way `how` names."""
        return lambda *arrays: function(self.module, *arrays)

    def results(self, value: Any) -> list[Array]:
        """What a program returned."""
        import numpy

        parts = value if isinstance(value, (list, tuple)) else [value]
        return [numpy.asarray(self.numpy(one)) for one in parts]

    def numpy(self, value: Any) -> Any:
        """One result as a NumPy array."""
        return value


class Lamina(Framework):
    """Jitted, or with `how` "unjitted" built and realized anew on each call."""

    def __init__(self) -> None:
        import lamina

        self.module = lamina

    def array(self, values: Array) -> Any:
        return self.module.asarray(values)

    def program(self, function: Function, how: str) -> Program:
        lm = self.module
        if how != "unjitted":
            jitted: Program = lm.jit(lambda *arrays: function(lm, *arrays))
            return jitted

        def run(*arrays: Any) -> Any:
            value = function(lm, *arrays)
            lm.realize(*(value if isinstance(value, (list, tuple)) else [value]))
            return value

        return run

    def numpy(self, value: Any) -> Any:
        return value.numpy()


class Torch(Framework):
    """Eager, or with `how` "compile" by its compiler; in float64 as the reference."""

    def __init__(self, threads: int, double: bool = False) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        self.module = torch
        self.double = double

    def array(self, values: Array) -> Any:
        tensor = self.module.from_numpy(values)
        return tensor.double() if self.double and tensor.is_floating_point() else tensor

    def program(self, function: Function, how: str) -> Program:
        torch = self.module
        if how != "compile":
            return lambda *arrays: function(torch, *arrays)
        compiled: Program = torch.compile(lambda *arrays: function(torch, *arrays))
        return compiled

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

    def program(self, function: Function, how: str) -> Program:
        jax = self.module
        jitted = jax.jit(lambda *arrays: function(jax, *arrays))
        return lambda *arrays: jax.block_until_ready(jitted(*arrays))


class Tinygrad(Framework):
    """Jitted, which starts with the third call."""

    def __init__(self) -> None:
        import tinygrad

        self.module = tinygrad

    def array(self, values: Array) -> Any:
        return self.module.Tensor(values).realize()

    def program(self, function: Function, how: str) -> Program:
        tinygrad = self.module
        device = tinygrad.Device[tinygrad.Device.DEFAULT]
        jitted = tinygrad.TinyJit(lambda *arrays: function(tinygrad, *arrays).realize())

        def run(*arrays: Any) -> Any:
            value = jitted(*arrays)
            device.synchronize()
            return value

        return run

    def numpy(self, value: Any) -> Any:
        return value.numpy()


def framework(name: str, threads: int) -> Framework:
    """The framework `name`, which is told how many threads to use if its variables do not."""
    if name in ("torch", REFERENCE):
        return Torch(threads, name == REFERENCE)
    makers: dict[str, Callable[[], Framework]] = {
        "lamina": Lamina, "jax": Jax, "tinygrad": Tinygrad, "numpy": Framework,
    }  # fmt: skip
    return makers[name]()
