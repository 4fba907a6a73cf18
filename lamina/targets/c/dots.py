"""Sums of products of bytes in C: words of four neighbours in each lane.

An axis bound to ``dot`` has no loop and no lanes of its own. What varies along it is printed as a
vector of bytes with four of them for each lane, a word, which one instruction multiplies by another
word and adds to the lane's sum (`c/dots.c`). Where a row ends within a word, zeros fill that up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes
from lamina.ir.node import Node, toposort
from lamina.ir.ops import Load, Op
from lamina.loops.nest import Nest
from lamina.targets.c.printer import ELEMENTS, TYPES, CPrinter
from lamina.targets.parts import LoopPart
from lamina.targets.printer import Point, Value, Values

WORD = 4  # bytes


class DotPrinter(CPrinter):
    """One kernel function, which may have axes bound to ``dot``."""

    def __init__(self, nest: Nest, name: str, needed: set[tuple[str, int]]) -> None:
        super().__init__(nest, name, needed)
        # Of the open axes bound to ``dot``, and of those of the bytes of all words: how many of the
        # four bytes of a word are there.
        self.in_word: dict[Node, int] = {}

    def _bind(self, axis: Node, loop_part: LoopPart) -> None:
        super()._bind(axis, loop_part)
        if self.nest.bound(axis) == "dot":
            self.in_word[axis] = loop_part.bytes_in_word

    def _dot_axis(self, node: Node) -> Node | None:
        """The axis bound to ``dot`` that `node` varies along, if any."""
        return next((axis for axis in free_axes(node) if self.nest.bound(axis) == "dot"), None)

    # Sums.

    def contribution(self, reduction: Node, point: Point) -> Values:
        """Of a sum of products of bytes the two factors, as words."""
        quad = self._dot_axis(reduction.src[0])
        if quad is None:
            return super().contribution(reduction, point)
        return tuple(self._words(factor.src[0], point, quad) for factor in reduction.src[0].src)

    def add(self, reduction: Node, running: Values, contribution: Values) -> None:
        if self._dot_axis(reduction.src[0]) is None:
            super().add(reduction, running, contribution)
            return
        (total,) = running
        self.needed.add(("c/dots.c", total.lanes))
        factors = ", ".join(f"{TYPES[factor.dtype]}, {factor.text}" for factor in contribution)
        self.line(f"{self.guard}{total.text} = DOT({self.type(total)}, {total.text}, {factors});")

    # Words.

    def value_of_root(self, root: Node, point: Point) -> Value:
        """`root`; of bytes that fill scratch memory, as words."""
        quad = self._dot_axis(root)
        if quad is None:
            return super().value_of_root(root, point)
        return self._words(root, point, quad)

    def store(self, store: Store, value: Value, point: Point) -> None:
        quad = self._dot_axis(store.index)
        if quad is None:
            super().store(store, value, point)
            return
        with self._bytes(store.index, quad) as (index, _):
            super().store(replace(store, index=index), value, point)

    def _words(self, value: Node, point: Point, quad: Node) -> Value:
        """Bytes that vary along `quad`: four for each lane of the vector axis, if they vary along
        that too.

        ``x[i, q]`` with 16 lanes along i is a vector of 64 bytes, whose byte b is
        ``x[b // 4, b % 4]``; ``y[q]`` is one of 4 bytes.
        """
        loads = {
            fill.value: Node(Op.LOAD, (fill.index,), Load(fill.parameter, fill.value.dtype))
            for fill in self.nest.fills
            if fill.value in self.filled
        }
        with self._bytes(ix.replaced(value, loads), quad) as (words, lanes):
            self.needed.add(("c/dots.c", lanes))
            return super().value_of_root(words, point)

    @contextmanager
    def _bytes(self, value: Node, quad: Node) -> Iterator[tuple[Node, int]]:
        """`value` with one vector axis, of the bytes of all words, in place of its vector axis and
        `quad`, which is open inside; and the number of words."""
        outside, free = self.vectors, free_axes(value)
        axis = next((axis for axis in outside if axis in free), None)
        if axis is None:
            every, lanes = quad, 1
        else:
            lanes = outside[axis]
            every = ix.axis(-1, WORD * lanes)
            index = dict(zip((axis, quad), ix.divided(every, WORD), strict=True))
            value = ix.replaced(value, index)
            self.starts[every] = WORD * self.starts[axis]
            self.depth_of[every] = self.depth_of[quad]
            self.in_word[every] = self.in_word[quad]
        if axis is None:
            self.starts[quad] = 0
        self.vectors = {every: WORD * lanes}
        yield value, lanes
        self.vectors = outside

    def contiguous_axis(self, fill: Store) -> Node | None:
        """Where words are contiguous, the axis along which neighbouring words are neighbours."""
        axis = super().contiguous_axis(fill)
        if axis is None or self.nest.bound(axis) != "dot":
            return axis
        loads = [node for node in toposort([fill.value]) if node.op is Op.LOAD]
        strides = [ix.terms_of(load.src[0])[0] for load in loads]
        return next(
            (axis for axis in fill.axes for terms in strides if terms.get(axis) == WORD), None
        )

    def load(self, node: Node, point: Point) -> Value:
        """The first of these that fits: what has no words, or whole ones that have no strides or a
        condition, as any other vector of bytes is loaded; words at whose end bytes lack, byte by
        byte; four vectors of bytes that take turns; and whole words (`_whole_words`)."""
        every = next((axis for axis in self.vectors if axis in self.in_word), None)
        if every is None or every not in free_axes(node):
            return super().load(node, point)
        (index, *guard), parameter = node.src, node.arg.parameter
        # Scratch memory has zeros where bytes lack.
        is_scratch = self.nest.kernel.parameters[parameter].memory == "scratch"
        is_whole = self.in_word[every] == WORD or is_scratch
        strides = self._strides(index, every)
        if is_whole and (strides is None or guard):
            return super().load(node, point)
        if strides is None or guard:
            return self._each_byte(node, point, every)
        of_words, of_bytes = strides
        start = self.index_text(index, point)
        # Where the index has the word ``every // 4`` and the byte ``every % 4`` as terms of their
        # own, `index_text` counts both as 0: the first word of this part is added here.
        if every not in ix.terms_of(index)[0] and self.starts[every]:
            start += f" + {of_words * (self.starts[every] // WORD)}"
        place = f"p{parameter} + {start}"
        if of_words == 1:
            return self._in_turns(node, place, of_bytes, self.in_word[every])
        if of_bytes != 1 or not is_whole:
            return self._each_byte(node, point, every)
        return self._whole_words(node, point, place, of_words)

    def _whole_words(self, node: Node, point: Point, place: str, stride: int) -> Value:
        """Words of neighbouring bytes, each `stride` bytes from the one before."""
        (count,) = self.vectors.values()
        lanes, kind = count // WORD, self._vector(ELEMENTS[node.dtype], count)
        self.needed.add(("c/dots.c", lanes))
        if lanes == 1 or stride == WORD:
            self._prefetch(node, place)
            return Value(f"WORDS_AT({kind}, {lanes}, {place})", node.dtype, count)
        rows = self._rows_of_words(node.src[0], lanes)
        if rows is not None:
            return self._square_of_words(node, point, rows, stride)
        words = ", ".join(f"WORD_AT({place} + {stride * lane})" for lane in range(lanes))
        text = f"({kind})({self._vector('i32', lanes)}){{{words}}}"
        return Value(text, node.dtype, count)

    def _strides(self, index: Node, every: Node) -> tuple[int, int] | None:
        """By how many elements `index` grows from word to word and from byte to byte; None if these
        are no constants."""
        terms, _ = ix.terms_of(index)
        if every in terms:
            strides = {every: terms[every]}
            of_words, of_bytes = WORD * terms[every], terms[every]
        else:
            word, byte = ix.divided(every, WORD)
            strides = {term: terms.get(term, 0) for term in (word, byte)}
            of_words, of_bytes = strides[word], strides[byte]
        others = [term for term in terms if term not in strides]
        is_constant = all(every not in free_axes(term) for term in others)
        return (of_words, of_bytes) if is_constant else None

    def _each_byte(self, node: Node, point: Point, every: Node) -> Value:
        """Bytes that are read one by one, and zeros where a word has fewer."""
        count, bytes_there = self.vectors[every], self.in_word[every]
        texts = ["0"] * count
        for number, at in enumerate(self._each_lane(every, point)):
            if number % WORD < bytes_there:
                texts[number] = self.value(node, at).text
        kind = self._vector(ELEMENTS[node.dtype], count)
        return Value(f"({kind}){{{', '.join(texts)}}}", node.dtype, count)

    def _in_turns(self, node: Node, place: str, stride: int, bytes_there: int) -> Value:
        """Words of which every byte is from another vector: neighbouring columns of four rows, or
        of the rows that are there."""
        (count,) = self.vectors.values()
        lanes = count // WORD
        kind, of_row = self._vector(ELEMENTS[node.dtype], count), self._vector("i8", lanes)
        rows = [f"*({of_row}r *)({place} + {stride * row})" for row in range(bytes_there)]
        rows += [f"({of_row}){{0}}"] * (WORD - bytes_there)
        return Value(f"({kind})in_turns_{lanes}({', '.join(rows)})", node.dtype, count)

    def _rows_of_words(self, index: Node, lanes: int) -> Node | None:
        """The unrolled axis along which words are neighbours in memory, if it is as long as the
        vectors of words: these are the columns of a square block."""
        terms, _ = ix.terms_of(index)
        for axis, extent in self.unrolled.items():
            if extent == lanes and terms.get(axis) == WORD:
                return axis
        return None

    def _square_of_words(self, node: Node, point: Point, rows: Node, stride: int) -> Value:
        """Read a square block of words along its rows, transpose it in registers, and remember a
        vector for each of its columns. `stride` is that of rows, in bytes."""
        (count,) = self.vectors.values()
        lanes, cache = count // WORD, self.scopes[-1].cache
        words, kind = self._vector("i32", lanes), self._vector(ELEMENTS[node.dtype], count)
        self.needed.add(("c/transposes.c", lanes))
        first = f"p{node.arg.parameter} + {self.index_text(node.src[0], point | {rows: 0})}"
        (every,) = self.vectors
        if self.starts[every]:
            first += f" + {stride * (self.starts[every] // WORD)}"
        name = self.fresh_name("columns")
        self.line(f"WORDS_TRANSPOSED({words}, {name}, {lanes}, {first}, {stride})")
        for number in range(lanes):
            column = Value(f"({kind}){name}[{number}]", node.dtype, count)
            cache[self.key(node, point | {rows: number})] = column
        return cache[self.key(node, point)]
