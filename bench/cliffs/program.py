"""A drawn program: its inputs, its lines, and its text for each framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from bench.cases import Array, Shape
from bench.cliffs.operations import OPERATIONS

Kind = Literal["normal", "positive", "index", "int8", "mask"]
MODULES = {"lamina": "lm", "torch": "torch", "jax": "jnp"}  # as texts call them
SEED = "dy"  # the input that has the derivative by the result


class MissingOperationError(LookupError):
    """A framework lacks an operation of a program, or its dtype."""


class Verbatim(str):
    """An attribute that stands in the text as it is, such as the key of a slice."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True)
class Input:
    """An array that a program takes.

    kind: "normal" and "positive" (0.5 to 1.5) are floats, multiplied by `scale`; "index" is int64
    below `limit`; "int8" has all of its numbers but -128; "mask" is bool, True in 7 of 10 places
    and at the start of each row.
    """

    name: str
    shape: Shape
    kind: Kind = "normal"
    scale: float = 1.0
    limit: int = 0

    @property
    def is_float(self) -> bool:
        """Whether it has the dtype of the program, and derivatives."""
        return self.kind in ("normal", "positive")

    def draw(self, random: np.random.Generator) -> Array:
        """New values; floats are float32."""
        if self.kind == "index":
            return random.integers(0, self.limit, self.shape)
        if self.kind == "int8":
            return random.integers(-127, 128, self.shape).astype(np.int8)
        if self.kind == "mask":
            mask = random.random(self.shape) < 0.7
            mask[..., 0] = True
            return mask
        if self.kind == "positive":
            values = random.random(self.shape, dtype=np.float32) + np.float32(0.5)
        else:
            values = random.standard_normal(self.shape, dtype=np.float32)
        return np.asarray(values * np.float32(self.scale))

    def comment(self, dtype: str) -> str:
        """What the text of the program says about it."""
        names = {"index": f"int64 below {self.limit}", "int8": "int8", "mask": "bool"}
        return f"    # {self.name}: {names.get(self.kind, dtype)} {self.shape}"


@dataclass(frozen=True)
class Line:
    """``result = operation(arguments)``; attributes are texts of Python."""

    result: str
    operation: str
    arguments: tuple[str, ...]
    attributes: tuple[tuple[str, str], ...]

    def text(self, framework: str, dtype: str) -> str:
        """The line as a framework writes it; empty where it has no such operation."""
        template: str = getattr(OPERATIONS[self.operation], framework)
        words = {"m": MODULES[framework], "dtype": f"{MODULES[framework]}.{dtype}"}
        if not template:
            return ""
        value = template.format(*self.arguments, **words, **dict(self.attributes))
        return f"    {self.result} = {value}"


@dataclass(frozen=True)
class Program:
    """One drawn program.

    seed, index: what it is drawn from. family: of the grammar. dtype: of its floats. gradients:
    the inputs whose derivatives it returns besides `result`; then `inputs` ends with `SEED`.
    """

    seed: int
    index: int
    family: str
    dtype: str
    inputs: tuple[Input, ...]
    lines: tuple[Line, ...]
    result: str
    gradients: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Unique within a seed."""
        return f"{self.index} {self.family}"

    def arrays(self, data: int) -> list[Array]:
        """Values of the inputs, other ones for each number `data`."""
        random = np.random.default_rng([self.seed, self.index, data])
        return [one.draw(random) for one in self.inputs]

    def forward(self, framework: str, dtype: str = "") -> str:
        """``def program(...)`` without its derivatives, in the floats `dtype` (its own by
        default); empty where the framework lacks an operation."""
        dtype = dtype or self.dtype
        lines = [line.text(framework, dtype) for line in self.lines]
        if not all(lines):
            return ""
        names = [one.name for one in self.inputs if one.name != SEED]
        head = f"def program({', '.join([MODULES[framework], *names])}):"
        return "\n".join([head, *lines, f"    return {self.result}"]) + "\n"

    def text(self) -> str:
        """The whole program as lamina runs it."""
        head, *lines = self.forward("lamina").splitlines()
        comments = [one.comment(self.dtype) for one in self.inputs]
        if self.gradients:
            head = head.replace("):", f", {SEED}):")
            wanted = ", ".join(self.gradients)
            lines[-1] = (
                f"    return {self.result}, *lm.gradient({self.result}, [{wanted}], {SEED})"
            )
        return "\n".join([head, *comments, *lines]) + "\n"


def finished(
    program: tuple[int, int, str, str], inputs: Sequence[Input], lines: Sequence[Line],
    result: tuple[str, Shape], with_gradients: bool,
) -> Program:  # fmt: skip
    """The program of what `result` needs, with derivatives by its floats where they are asked
    for."""
    name, shape = result
    needed = {name}
    kept: list[Line] = []
    for line in reversed(lines):
        if line.result in needed:
            needed.update(line.arguments)
            kept.insert(0, line)
    used = [one for one in inputs if one.name in needed]
    gradients: tuple[str, ...] = ()
    if with_gradients:
        gradients = tuple(one.name for one in used if one.is_float)
        used.append(Input(SEED, shape))
    return Program(*program, tuple(used), tuple(kept), name, gradients)


def function_of(program: Program, framework: str, module: Any, dtype: str = "") -> Any:
    """The forward function of a program in `framework`, of its arrays alone. Raises
    MissingOperationError."""
    text = program.forward(framework, dtype)
    if not text:
        raise MissingOperationError(f"{framework} lacks an operation of {program.name}")
    scope: dict[str, Any] = {}
    if framework == "torch":
        scope["F"] = module.nn.functional
    if framework == "jax":
        scope["jax"], module = module, module.numpy
    exec(compile(text, f"<{program.name}>", "exec"), scope)
    function = scope["program"]
    return lambda *arrays: function(module, *arrays)


def places_of_gradients(program: Program) -> list[int]:
    """The positions of the inputs whose derivatives the program returns."""
    names = [one.name for one in program.inputs]
    return [names.index(name) for name in program.gradients]


def whole_function(program: Program, lamina: Any) -> Any:
    """The program in lamina, with its derivatives: a function of its inputs that returns its
    results."""
    forward = function_of(program, "lamina", lamina)
    places = places_of_gradients(program)

    def whole(*inputs: Any) -> Any:
        if not places:
            return (forward(*inputs),)
        result = forward(*inputs[:-1])
        return result, *lamina.gradient(result, [inputs[place] for place in places], inputs[-1])

    return whole
