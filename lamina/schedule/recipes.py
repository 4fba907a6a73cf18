"""How the outputs of a program are computed, in a form that tells those of other programs that are
computed in the same way.

A function that is compiled for many shapes has a program for each, which keep equal arrays: the
weights of a network, packed for its products. With its recipe, an array that one program has made
of some inputs is found by the others.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace

from lamina.fuse.launch import BufferView, Launch, Memory, Program, Recipe
from lamina.ir.text import kernel_text


def with_recipes(program: Program) -> Program:
    """`program` with a recipe for each of its outputs."""
    writers: dict[Memory, list[int]] = {}  # the numbers of the launches that write there
    for number, launch in enumerate(program.launches):
        for view in launch.written:
            writers.setdefault(view.memory, []).append(number)
    recipes = tuple(_recipe_of(program.launches, writers, view) for view in program.outputs)
    return replace(program, recipes=recipes)


def _recipe_of(
    launches: list[Launch], writers: dict[Memory, list[int]], output: BufferView
) -> Recipe:
    """The launches that `output` depends on, in order, with their arguments numbered anew in the
    order in which they come, so that no number of the whole program is left."""
    needed: set[int] = set()
    waiting = list(writers.get(output.memory, ()))
    while waiting:
        number = waiting.pop()
        if number not in needed:
            needed.add(number)
            for view in launches[number].arguments:
                waiting += writers.get(view.memory, ())
    places: dict[Memory, int] = {}
    lines: list[str] = []
    for number in sorted(needed):
        launch = launches[number]
        lines.append(kernel_text(launch.kernel))
        lines += _lines_of(launch.arguments, places)
    lines += _lines_of([output], places)
    digest = hashlib.blake2b("\n".join(lines).encode(), digest_size=20).hexdigest()
    return Recipe(digest, tuple(number for kind, number in places if kind == "input"))


def _lines_of(views: Iterable[BufferView], places: dict[Memory, int]) -> list[str]:
    """A line for each view; memory that comes for the first time gets the next number."""
    lines: list[str] = []
    for view in views:
        place = places.setdefault(view.memory, len(places))
        lines.append(f"{view.kind} {place} {view.dtype.name} {view.size} {view.offset}")
    return lines

