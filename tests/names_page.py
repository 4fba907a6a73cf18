"""The part of docs/coming-from.md that lists names of other libraries, made from the table in
`lamina/frontend/foreign.py`."""

from __future__ import annotations

from lamina.frontend import foreign

BEGIN, END = "<!-- names: begin -->\n", "<!-- names: end -->\n"

_INTRODUCTION = """\
Asking tensors, `lm`, `lm.random`, `nn`, `nn.optim` or `nn.schedules` for one of these names raises
an error that says lamina's, as does a name that they have without an underscore at its end:
`x.relu_()` is `x.assign(x.relu())`. Errors of keyword arguments such as `dim` do so too. Here `x`
and `y` are tensors of one shape, `v` is a vector, `n` are integers, `i` indices of x's shape, and
`mask` bools of it. This part is printed from `lamina/frontend/foreign.py`; do not edit it.
"""
_TABLES = {
    "torch.Tensor": foreign.TORCH_METHODS,
    "torch": foreign.TORCH_FUNCTIONS,
    "torch.nn.functional": foreign.TORCH_FUNCTIONAL,
    "torch.nn": foreign.TORCH_LAYERS,
    "torch.optim": foreign.TORCH_OPTIM,
    "torch.optim.lr_scheduler": foreign.TORCH_SCHEDULES,
    "numpy": foreign.NUMPY,
    "numpy.random": foreign.NUMPY_RANDOM,
    "jax": foreign.JAX,
}


def names_markdown() -> str:
    """The tables of names, as Markdown."""
    parts = [_INTRODUCTION]
    for library, rows in _TABLES.items():
        parts += [f"| {library} | lamina |", "|---|---|"]
        for names, spelling in rows.items():
            listed = ", ".join(f"`{name}`" for name in names.split())
            parts.append(f"| {listed} | {_marked(spelling)} |")
        parts.append("")
    return "\n".join(parts)


def page_with_names(page: str) -> str:
    """`page` with the part between the two marks printed anew."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{names_markdown()}{END}{after}"


def _marked(spelling: str) -> str:
    """An expression in backticks; words, and expressions that have some, as they are."""
    return spelling if is_words(spelling) else f"`{spelling}`"


def is_words(spelling: str) -> bool:
    """Whether a spelling is a sentence, with expressions in backticks if it has any."""
    try:
        compile(spelling, "a row of the table", "exec")
    except SyntaxError:
        return True
    return False
