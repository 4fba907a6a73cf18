"""Names in generated text, for readers: of loops by what they run over, of values by what computes
them."""

from collections import Counter
from collections.abc import Iterable, Sequence

from lamina.ir.kernel import bound_axes
from lamina.ir.monoids import ADD, MUL, Monoid
from lamina.ir.node import Node
from lamina.loops.nest import Nest

# What the sub-loops of a split axis are called, by how many there are.
_PARTS = {1: ("",), 2: ("_outer", "_inner"), 3: ("_outer", "_middle", "_inner")}


def axis_names(nest: Nest) -> dict[Node, str]:
    """A variable for each axis of `nest`.

    The last axes of a result are ``row`` and ``column``, those before ``batch``; what is reduced
    away is ``k``. One that was split has ``row_outer`` and ``row_inner``. Where there are several
    of a kind, they are numbered. The only axis of a result is ``i``, or ``row`` beside reductions.
    """
    names: dict[Node, str] = {}
    reductions = [node for node in nest.kernel.nodes if bound_axes(node)]
    # First the stores with the most axes; others share the names of the axes that they have.
    stores = sorted(nest.kernel.stores, key=lambda store: -len(store.axes))
    for store in stores:
        whole = _unsplit(nest, store.axes)
        for axis, kind in zip(whole, _kinds_of_result(len(whole), bool(reductions)), strict=True):
            names.setdefault(axis, kind)
    for reduction in reductions:
        for axis in _unsplit(nest, bound_axes(reduction)):
            names.setdefault(axis, "k")
    for axis in _unsplit(nest, nest.order):
        names.setdefault(axis, "i")
    return {
        part: name + suffix
        for axis, name in _numbered(names).items()
        for part, suffix in _parts_of(nest.sub_loops(axis).axes)
    }


def _unsplit(nest: Nest, axes: Iterable[Node]) -> list[Node]:
    """The axes before they were split, each by its outermost sub-loop, in the order in which the
    first of its sub-loops comes: of a0 and a1 split from one axis, and a2, this is a0 and a2."""
    return list(dict.fromkeys(nest.sub_loops(axis).axes[0] for axis in axes))


def _kinds_of_result(count: int, is_reduced: bool) -> Sequence[str]:
    """What the `count` axes of a result are, outermost first."""
    if count == 1:
        return ["row" if is_reduced else "i"]
    return [*["batch"] * (count - 2), "row", "column"][-count:] if count else []


def _numbered(names: dict[Node, str]) -> dict[Node, str]:
    """`names`, with a number at those that several axes have: ``k0`` and ``k1``."""
    axes_with = Counter(names.values())
    numbered_so_far = Counter[str]()
    unique = {}
    for axis, name in names.items():
        if axes_with[name] == 1:
            unique[axis] = name
        else:
            unique[axis] = f"{name}{numbered_so_far[name]}"
            numbered_so_far[name] += 1
    return unique


def _parts_of(sub_loops: Sequence[Node]) -> Iterable[tuple[Node, str]]:
    """Each sub-loop of an axis, and what its name ends in: `_PARTS`; of more than three ``_0``,
    ``_1`` and so on."""
    numbered = [f"_{number}" for number in range(len(sub_loops))]
    return zip(sub_loops, _PARTS.get(len(sub_loops), numbered), strict=True)


def monoid_name(monoid: Monoid) -> str:
    """What a reduction by `monoid` is called: ``sum``, ``max``, ``argmax``."""
    return {ADD: "sum", MUL: "product"}.get(monoid, monoid.name.lower())
