"""Accumulators of reductions and scans: how they begin, what is added, and how several become one.

An accumulator is a variable for each component of the monoid, `Values`: one for a sum, two for an
argmax, which has a value and its index.
"""

from collections.abc import Sequence

from lamina.core.dtypes import bool_
from lamina.ir.monoids import Monoid
from lamina.ir.node import Node, const, toposort
from lamina.ir.ops import Op
from lamina.loops.nest import operands_of
from lamina.targets.language import Value, Values
from lamina.targets.names import monoid_name
from lamina.targets.scopes import ScopePrinter


class Combiner:
    """Prints what accumulators are declared as, updated with and joined to, by a printer of the
    scopes that they are in."""

    def __init__(self, printer: ScopePrinter) -> None:
        self.printer = printer
        self.language = printer.language

    def start(
        self, node: Node, lanes: int, depth: int, in_order: Monoid | None = None
    ) -> Values:  # fmt: skip
        """Declare an accumulator of `node`, a reduction or scan, that holds the identity, in the
        open scope of number `depth`: ``f32x8 sum_2 = splat_f32x8(0.0f);``. in_order: the monoid by
        which terms are added, if these come in the order of their places"""
        dtypes = tuple(operand.dtype for operand in operands_of(node))
        monoid: Monoid = in_order or node.arg.monoid
        identities = monoid.identity(dtypes)
        name = monoid_name(monoid)
        started = []
        for identity, dtype in zip(identities, dtypes, strict=True):
            mask = 8 if dtype is bool_ and lanes > 1 else 0  # of as many bits as a bool in memory
            vector = Value("", dtype, lanes, mask)
            text = self.language.widened(self.language.literal(const(identity, dtype)), vector)
            started.append(self.printer.declared_at(depth, vector._replace(text=text), name))
        return tuple(started)

    # Combining.

    def combined(self, monoid: Monoid, left: Values, right: Values) -> Values:
        """The monoid's combine of two accumulators: of sums the expression ``(left + right)``."""
        first, second, results = monoid.formula(tuple(value.dtype for value in left))
        if monoid.op is not None:  # one expression, so that the compiler sees a multiply-add
            return (self.language.operation(results[0], [*left, *right]),)
        known = dict(zip(first + second, left + right, strict=True))
        return self.formula(results, known)

    def formula(self, results: Sequence[Node], known: dict[Node, Value]) -> Values:
        """Print formulas over HOLEs, and give the values of `results`. `known` has the value of
        each HOLE; what is computed on the way is added to it."""
        for node in toposort(results):
            if node.op is Op.CONST:
                known[node] = self.language.literal(node)
            elif node not in known:
                operands = [known[operand] for operand in node.src]
                result = self.language.operation(node, operands)
                known[node] = self.printer.declare(result, node.op.name.lower())
        return tuple(known[result] for result in results)

    def update(self, monoid: Monoid, running: Values, operands: Values) -> None:
        """Print ``running = combine(running, operands)``: ``sum_2 = (sum_2 + load_1);``."""
        self.assign(running, self.combined(monoid, running, operands))

    def assign(self, targets: Values, values: Values) -> None:
        """Print assignments of `values` to variables."""
        for target, value in zip(targets, values, strict=True):
            text = self.language.widened(value, target)
            self.printer.line(f"{self.printer.guard}{target.text} = {text};")

    # Several as one.

    def joined(self, monoid: Monoid, values: Sequence[Values]) -> Values:
        """Combine neighbours until one is left: of five, 1 + 2, 3 + 4 and 5, then their sums. The
        longest chain has three operations then, in place of four."""
        name = monoid_name(monoid)
        left_over = list(values)
        while len(left_over) > 1:
            pairs = []
            for left, right in zip(left_over[::2], left_over[1::2], strict=False):
                combined = self.combined(monoid, left, right)
                pairs.append(tuple(self.printer.declare(value, name) for value in combined))
            odd = left_over[-1:] if len(left_over) % 2 else []
            left_over = pairs + odd
        return left_over[0]

    def joined_lanes(self, monoid: Monoid, values: list[Values]) -> list[Values]:
        """Combine the lanes of each of `values`, which are vectors: several at once, so that no
        lane of an operation is idle. For two sums, a and b, of 4 lanes:

            const f32x4 half_1 = (f32x4){a[0], b[0], a[1], b[1]};
            const f32x4 half_2 = (f32x4){a[2], b[2], a[3], b[3]};
            const f32x4 sum_3 = (half_1 + half_2);                  lanes of a and b in turns
            const f32x2 half_4 = (f32x2){sum_3[0], sum_3[1]};
            const f32x2 half_5 = (f32x2){sum_3[2], sum_3[3]};
            const f32x2 sum_6 = (half_4 + half_5);                  the results sum_6[0], sum_6[1]

        Four vectors a, b, c, d become two, whose lanes are a b a b ... and c d c d ..., and then
        one, a b c d a b c d ..., which is halved until four lanes are left.
        """
        largest_power = 1 << (len(values).bit_length() - 1)  # of two, that is no larger
        count = min(values[0][0].lanes, largest_power)  # of results of one vector
        vectors, rest = values[:count], values[count:]
        while len(vectors) > 1 or vectors[0][0].lanes > count:
            vectors = self._halved(monoid, vectors, count // len(vectors))
        (joined,) = vectors
        results = [
            tuple(self.language.lane(component, number) for component in joined)
            for number in range(count)
        ]
        return results + (self.joined_lanes(monoid, rest) if rest else [])

    def running_lanes(self, node: Node, terms: Values) -> Values:
        """What the lanes of `terms`, steps of the scan `node`, come to one after the other: each
        lane is combined with the one before it, then with that two before, and so on. A running
        sum of 4 lanes:

            const f32x4 before_2 = (f32x4){0.0f, load_1[0], load_1[1], load_1[2]};
            const f32x4 sum_3 = (before_2 + load_1);
            const f32x4 before_4 = (f32x4){0.0f, 0.0f, sum_3[0], sum_3[1]};
            const f32x4 sum_5 = (before_4 + sum_3);
        """
        monoid: Monoid = node.arg.monoid
        dtypes = tuple(term.dtype for term in terms)
        identities = [
            self.language.literal(const(identity, dtype))
            for identity, dtype in zip(monoid.identity(dtypes), dtypes, strict=True)
        ]
        name, distance = monoid_name(monoid), 1
        while distance < terms[0].lanes:
            before = tuple(
                self.printer.declare(self.language.moved_up(term, distance, identity), "before")
                for term, identity in zip(terms, identities, strict=True)
            )
            combined = self.combined(monoid, before, terms)
            terms = tuple(self.printer.declare(value, name) for value in combined)
            distance *= 2
        return terms

    def _halved(self, monoid: Monoid, vectors: list[Values], run: int) -> list[Values]:
        """Each two of `vectors`, or the only one, as one vector: the combination of its halves, in
        which `run` lanes of each of the two take turns: 1 for a and b, then 2 for ab and cd."""
        halved = []
        for first in range(0, len(vectors), 2):
            components = [list(pair) for pair in zip(*vectors[first : first + 2], strict=True)]
            sides = []
            for side in (0, 1):
                halves = [self.language.half(pair, side, run) for pair in components]
                sides.append(tuple(self.printer.declare(half, "half") for half in halves))
            halved.append(self.joined(monoid, sides))
        return halved
