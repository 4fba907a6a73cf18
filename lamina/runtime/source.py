"""The generated text of a program, in the parts that compilers and readers need apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field

KERNELS = "/* The kernels. */\n"


@dataclass(frozen=True)
class Source:
    """A translation unit: helper functions, the kernels by name, and the function that runs them
    where the text itself does (C; a GPU's program is a list of launches)."""

    prelude: str = ""
    kernels: Mapping[str, str] = field(default_factory=dict)
    entry: str = ""

    @property
    def text(self) -> str:
        """All of it, as a compiler reads it."""
        parts = [self.prelude, KERNELS, *map(located, self.kernels, self.kernels.values())]
        if self.entry:
            parts.append(located("lamina_run", self.entry))
        return "\n".join(parts)


def located(name: str, text: str) -> str:
    """The text of a function, of which compilers complain by its `name`, and by the line in it:
    ``kernel map0_64:3:5: error``."""
    return f'#line 1 "kernel {name}"\n{text}'
