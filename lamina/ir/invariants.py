"""What the verifiers of all dialects share: raising, saying where, and the rules of monoids."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from lamina.errors import LaminaError, VerifyError
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node


def require(holds: object, problem: str) -> None:
    """Raise VerifyError unless an invariant holds."""
    if not holds:
        raise VerifyError(problem)


@contextlib.contextmanager
def located(place: str) -> Iterator[None]:
    """Put the place where an invariant failed in front of the message."""
    try:
        yield
    except LaminaError as error:
        raise VerifyError(f"{place}: {error.message}") from None


def check_monoid(monoid: Monoid, operands: Sequence[Node], component: int = 0) -> None:
    """Raise VerifyError unless `monoid` combines `operands` and has such a component."""
    dtypes = tuple(node.dtype for node in operands)
    combined = monoid.formula(dtypes)[2] if len(dtypes) == monoid.arity else ()
    fits = combined and [node.dtype for node in combined] == [*dtypes]
    require(fits, f"{monoid} does not combine {', '.join(dtype.name for dtype in dtypes)}")
    is_component = 0 <= component < monoid.arity
    require(is_component, f"component={component} is not one of {monoid}")


def names_of(axes: Iterable[Node]) -> str:
    """Axes as schedules name them, to read: ``a0, a3``."""
    return ", ".join(sorted(f"a{axis.arg.number}" for axis in axes))
