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
    def body(self) -> str:
        """The text without the helper functions."""
        return "\n".join(filter(None, [*self.kernels.values(), self.entry]))

    @property
    def text(self) -> str:
        """All of it, as a compiler reads it."""
        return "\n".join([self.prelude, KERNELS, self.body])

    def kernel_at(self, line: int) -> str:
        """The name of the kernel that has a line of `text`, counted from 1; "" for the prelude."""
        first = self.prelude.count("\n") + KERNELS.count("\n") + 3
        name = ""
        for kernel, text in self.kernels.items():
            if line < first:
                break
            name = kernel
            first += text.count("\n") + 1
        return name
