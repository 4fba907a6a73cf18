"""The hand-written texts that generated kernels are printed with."""

import re
from pathlib import Path

FOLDER = Path(__file__).parent


def helper_text(name: str, lanes: int = 0) -> str:
    """A text by its path below this folder, such as ``c/math.c``.

    A text about vectors is written for ``N`` lanes: ``f32xN`` with `lanes` 8 becomes ``f32x8``. 0
    lanes are for a text that is about scalars, which stays as it is.
    """
    text = (FOLDER / name).read_text(encoding="utf-8")
    return for_lanes(text, lanes) if lanes else text


def for_lanes(text: str, lanes: int) -> str:
    """A text about vectors of ``N`` lanes, with a number of lanes."""
    return re.sub(r"\bN\b|(?<=x)N", str(lanes), text)
