"""Random schedules that keep every invariant of a nest."""

from __future__ import annotations

import contextlib
import random
from itertools import pairwise

from lamina.errors import FormatError
from lamina.ir.kernel import Kernel
from lamina.ir.verify_kernel import verify_kernel
from lamina.loops.moves import (
    Accumulate,
    Bind,
    Flatten,
    Fuse,
    Move,
    Reorder,
    Rotate,
    Schedule,
    Split,
    Stage,
    apply,
)
from lamina.loops.nest import BINDINGS, Nest, axis_lists
from lamina.loops.verify import check_nest, verify_nest

MOST_UNROLLED = 40


def random_schedule(rng: random.Random, kernel: Kernel, moves: int = 12) -> Schedule:
    """Moves drawn at random, those that break an invariant left out; stages come last,
    after rotations: where a row runs once, an index may keep nothing of it after one."""
    nest, made = apply(kernel, ()), []
    count, stages = rng.randint(0, moves), rng.randint(0, 3)
    for number in range(count + stages):
        draw = _random_move if number < count - 2 else _random_rotation
        move = (draw if number < count else _random_stage)(rng, nest)
        try:
            after = move.apply(nest)
            verify_nest(after)
        except FormatError:
            continue
        check_nest(after)
        verify_kernel(after.kernel, exact=False)  # what fits leaves it well formed
        if _unrolled(after) <= MOST_UNROLLED:
            nest = after
            made.append(move)
    return tuple(made)


def _unrolled(nest: Nest) -> int:
    count = 1
    for axis in nest.order:
        count *= axis.arg.size if nest.bound(axis) == "unroll" else 1
    return count


def _random_move(rng: random.Random, nest: Nest) -> Move:
    numbers = [axis.arg.number for axis in nest.order] or [0]
    fresh = max(numbers) + 1
    choice = rng.random()
    if choice < 0.15 and (fitting := _fuses(nest, fresh)):
        return rng.choice(fitting)
    if choice < 0.5:
        factor = rng.choice([1, 2, 3, 4, 5, 7, 8, 16, 16, 32, 50])
        return Split(rng.choice(numbers), factor, fresh, fresh + 1)
    if choice < 0.53:
        return Accumulate(rng.choice(numbers))
    if choice < 0.6:
        rng.shuffle(numbers)
        return Reorder(tuple(numbers[: rng.randint(1, len(numbers))]))
    return Bind(rng.choice(numbers), rng.choice([*BINDINGS, "vector", "parallel"]))


def _random_rotation(rng: random.Random, nest: Nest) -> Move:
    several = (axis for axis in nest.kernel.row_axes if axis.arg.size > 1)
    numbers = [axis.arg.number for axis in several] or [0]
    return Rotate(rng.choice(numbers), rng.choice(numbers), rng.choice([1, 4, 60]))


def _random_stage(rng: random.Random, nest: Nest) -> Move:
    axes = [axis.arg.number for axis in nest.kernel.row_axes] or [0]
    return Stage(rng.randrange(len(nest.kernel.values) or 1), rng.choice(axes))


def _fuses(nest: Nest, into: int) -> list[Fuse]:
    found = []
    for axes in axis_lists(nest.kernel):
        for first, second in pairwise(axes):
            for kind in (Fuse, Flatten):
                move = kind(first.arg.number, second.arg.number, into)
                with contextlib.suppress(FormatError):
                    move.apply(nest)
                    found.append(move)
    return found
