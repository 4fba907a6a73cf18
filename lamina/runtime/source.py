"""The generated text of a program, in the parts that compilers and readers need apart."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from lamina.core.exchange import Exchange

KERNELS = "/* The kernels. */\n"
# Kernels of a unit: GCC takes about a second for them, and a tenth of it for what units begin with.
UNIT_BYTES = 1 << 17
_NUMBER_OF_KERNEL = re.compile(r"(^|__)([a-z]+)\d+_")
# Parts of a text, each from one place to another one.
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Source:
    """A translation unit: helper functions, the kernels by name, in C with functions of row blocks
    that call them, and the function that runs all where the text itself does (C; a GPU's program
    is a list of launches). `exchanges`: the collectives that it asks for, by number. `needed`: the
    parts of the prelude that a kernel needs, where that is known."""

    prelude: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)
    entry: str = ""
    exchanges: tuple[Exchange, ...] = ()
    needed: Mapping[str, Ranges] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All of it, as a compiler reads it."""
        parts = [self.prelude, KERNELS, *map(located, self.kernels, self.kernels.values())]
        if self.entry:
            parts.append(located("lamina_run", self.entry))
        return "\n".join(parts)

    def prelude_of(self, kernel: str) -> str:
        """What a kernel needs of the prelude; all of it, where that is not known."""
        ranges = self.needed.get(kernel, ((0, len(self.prelude)),))
        return "".join(self.prelude[first:end] for first, end in ranges)

    @property
    def units(self) -> tuple[str, ...]:
        """The same program as texts that compilers can read at once, about `UNIT_BYTES` of kernels
        each; only `text` where it is short. Which kernels are in which depends on the text alone:
        the longest goes first, each to the unit that has least."""
        lengths = {name: len(text) for name, text in self.kernels.items()}
        count = min(len(lengths), sum(lengths.values()) // UNIT_BYTES)
        if count < 2:
            return (self.text,)
        loads, unit_of = [0] * count, dict[str, int]()
        for name in sorted(lengths, key=lambda name: -lengths[name]):
            unit_of[name] = loads.index(min(loads))
            loads[unit_of[name]] += lengths[name]
        declarations = "".join(f"KERNEL({name});\n" for name in self.kernels)
        units = [[self.prelude, KERNELS, declarations] for _ in range(count)]
        for name, text in self.kernels.items():
            units[unit_of[name]].append(located(name, text))
        units[0].append(located("lamina_run", self.entry))
        return tuple("\n".join(parts) for parts in units)


def located(name: str, text: str) -> str:
    """The text of a function, of which compilers complain by its `name`, and by the line in it:
    ``kernel map0_64:3:5: error``."""
    return f'#line 1 "kernel {name}"\n{text}'


def symbol_of(name: str) -> str:
    """The name of a kernel without its number in a program: ``reduce_64x10`` of ``reduce3_64x10``.
    It is the name in a file that has one kernel, which many programs may have."""
    return _NUMBER_OF_KERNEL.sub(r"\1\2_", name)
