"""What is measured: computations of arrays, written once for each framework.

A function of a case takes the framework's module and its arrays, so that nothing is imported
before it is needed. Frameworks are told by the columns of the tables: ``torch.compile`` and
``lamina unjitted`` are ways to run torch and lamina.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.report import Target

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]
Shape = tuple[int, ...]
ANY = "any"
REFERENCE = "reference"  # PyTorch in float64
# The same on the CPU, where the programs that are compared run on a GPU.
REFERENCE_ON_CPU = "reference.cpu"


@dataclass(frozen=True)
class Case:
    """One computation.

    inputs: shapes, of normal float32 numbers, or a function that draws the arrays. functions: by
    column, by module, or for ANY of them. columns: who takes part beside lamina. bound: the limit
    of the machine that it meets, "fma" with a number of operations, "read" or "copy" with a
    number of bytes. tolerance: of the largest value of the result. makes_step: the functions
    return what is measured, a function that may have a state. It takes as many of the arrays, the
    first ones, as `arguments` says; the others it has captured.
    """

    name: str
    inputs: tuple[Shape, ...] | Callable[[np.random.Generator], list[Array]]
    functions: Mapping[str, Function]
    columns: tuple[str, ...]
    bound: tuple[str, float] | None = None
    targets: tuple[Target, ...] = (Target(1.0),)
    quick: bool = False  # measured by --quick as well
    tolerance: float = 1e-5
    makes_step: bool = False
    arguments: int = 0

    def arrays(self, seed: int) -> list[Array]:
        """The inputs: the same in every process, other ones for every seed."""
        random = np.random.default_rng([seed, zlib.crc32(self.name.encode())])
        if callable(self.inputs):
            return self.inputs(random)
        return [random.standard_normal(shape, dtype=np.float32) for shape in self.inputs]

    def function(self, column: str) -> Function:
        """What `column` runs. Raises KeyError where it cannot take part."""
        for name in (column, module_of(column)):
            if name in self.functions:
                return self.functions[name]
        return self.functions[ANY]


@dataclass(frozen=True)
class Group:
    """The cases of one section of the page."""

    title: str
    cases: tuple[Case, ...]
    notes: tuple[str, ...] = ()
    single: bool = True  # measured with one thread as well
    rounds: int = 7
    others: tuple[Case, ...] = ()  # for other sections

    def case(self, name: str) -> Case:
        """The case called `name`."""
        return next(one for one in (*self.cases, *self.others) if one.name == name)

    def columns(self) -> tuple[str, ...]:
        """Everybody who takes part beside lamina, in the order of the cases."""
        return tuple(dict.fromkeys(column for case in self.cases for column in case.columns))


def module_of(column: str) -> str:
    """The module behind a column: ``torch`` of ``torch.compile``."""
    if column in (REFERENCE, REFERENCE_ON_CPU):
        return "torch"
    return column.replace(".", " ").split()[0]


def way_of(column: str) -> str:
    """The way to run it: ``compile`` of ``torch.compile``, nothing of ``torch``."""
    return column.replace(".", " ").partition(" ")[2]


def load(name: str) -> Group:
    """The group of ``bench.cases.<name>``."""
    group = importlib.import_module(f"bench.cases.{name}").GROUP
    assert isinstance(group, Group)
    return group
