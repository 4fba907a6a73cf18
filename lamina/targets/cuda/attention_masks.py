"""CUDA C++ of the tiles of keys that masks of attention leave out.

Of a causal mask, with 64 tiles of 64 keys, and 128 queries to a block in two groups:

    const i32 lowest0 = 128 * (-1 * row_band) + -127;
    const i32 group_lowest0 = lowest0 + -64 * (group - 1);
    const i32 first = 0, stop = max(min(64, (64 - lowest0) / 64), first + 1);
    const i32 from = first, to = max(min(stop, (64 - group_lowest0) / 64), from + 1);

`lowest0` is the smallest index of the mask in a block, which is positive where elements are masked:
``key - query`` of the first key and the last query. `MaskBound` (lamina/tiles/attention.py) has it.
"""

from dataclasses import dataclass

from lamina.targets.cuda.printer import CudaPrinter
from lamina.tiles.attention import BackToBackParts, MaskBound


@dataclass(frozen=True)
class _Bounds:
    """A range of tiles of keys: it begins at the largest of the texts `begins`, and ends before the
    least of `ends`."""

    begins: list[str]
    ends: list[str]

    def leave_out(self, mask: MaskBound, lowest: str) -> None:
        """Leave out the tiles that a mask, whose smallest index is `lowest`, masks as a whole."""
        if mask.slope > 0:  # of tiles from some tile on
            self.ends.append(f"({mask.slope} - {lowest}) / {mask.slope}")
        else:
            self.begins.append(f"({lowest} + {-mask.slope - 1}) / {-mask.slope}")


class MaskPrinter:
    """Prints what masks leave out of a tile of rows."""

    def __init__(self, printer: CudaPrinter, parts: BackToBackParts) -> None:
        self.printer = printer
        self.parts = parts

    def print_bounds(self, *, of_group: bool) -> None:
        """Print which tiles of keys pass by: those from `first` on, below `stop`, one at least.
        The others are masked as a whole, as `StepRanges` (lamina/tiles/orders.py) has it. With
        `of_group`, a warpgroup computes those from `from` on, below `to`.
        """
        index_type, line = self.printer.language.index_type, self.printer.line
        steps = self.parts.reductions.keys.tile.arg.size
        block = _Bounds(["0"], [str(steps)])
        group = _Bounds(["first"], ["stop"])
        for number, mask in enumerate(self.parts.masks):
            lowest = f"lowest{number}"
            place = self.printer.index_text(mask.place, {})
            line(f"const {index_type} {lowest} = {place} + {mask.low};")
            block.leave_out(mask, lowest)
            if of_group:
                groups = self._groups_from(is_first=mask.by_warpgroup >= 0)
                lowest_of_group = f"{lowest} + {mask.by_warpgroup} * {groups}"
                line(f"const {index_type} group_{lowest} = {lowest_of_group};")
                group.leave_out(mask, f"group_{lowest}")
        self._print_range("first", "stop", block, last=str(steps - 1))
        if of_group:
            self._print_range("from", "to", group, last="stop - 1")

    def _print_range(self, first: str, stop: str, bounds: _Bounds, last: str) -> None:
        """Print the variables `first` and `stop` of a range whose `last` tile it has at least."""
        begin, end = _nested("max", bounds.begins), _nested("min", bounds.ends)
        if self.parts.masks:
            begin, end = f"min({begin}, {last})", f"max({end}, {first} + 1)"
        index_type = self.printer.language.index_type
        self.printer.line(f"const {index_type} {first} = {begin}, {stop} = {end};")

    def tests(self) -> list[str]:
        """For each mask, a test that is true if a tile may have masked elements for a group."""
        tile = self.printer.axis_name(self.parts.reductions.keys.tile)
        tests = []
        for mask in self.parts.masks:
            place = self.printer.index_text(mask.place, {})
            groups = self._groups_from(is_first=mask.by_warpgroup < 0)
            highest = f"{place} + {mask.high} + {mask.by_warpgroup} * {groups}"
            tests.append(f"{highest} + {mask.slope} * {tile} > 0")
        return tests

    def _groups_from(self, *, is_first: bool) -> str:
        """How many groups a group lies behind the first one, or else the last: of two, ``group`` or
        ``(group - 1)``."""
        return "group" if is_first else f"(group - {self.parts.warpgroups - 1})"


def _nested(function: str, texts: list[str]) -> str:
    """The result of a function of two for all `texts`: ``min(min(64, a), b)``."""
    result, *others = texts
    for text in others:
        result = f"{function}({result}, {text})"
    return result
