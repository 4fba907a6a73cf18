"""Sums of products of bytes in C: words of four bytes, one word in each lane.

An axis bound to ``dot`` has four iterations, and neither a loop nor lanes of its own: one
instruction multiplies a word by another word, byte by byte, and adds the four products to the sum
of a lane (`c/dots.c`). A product of uint8 (8, 64) and int8 (64, 64) with 16 lanes along columns:

    const u8x4 load_1 = WORDS_AT(u8x4, 1, p0 + 4 * k_outer + ...);                      one word
    const i8x64 load_2 = (i8x64)in_turns_16(*(i8x16r *)(p1 + 256 * k_outer + ...), ...);      16
    sum_3 = DOT(i32x16, sum_3, u8, load_1, i8, load_2);

So `load_2` is a vector of 64 bytes, the *byte vector*: its byte b is that of lane ``b // 4`` and of
iteration ``b % 4``. To print it, one vector axis, the *byte axis* of 64 lanes, takes the place of
the axis of lanes and of the one bound to ``dot``.

Of 66 steps the last word has two bytes. What fills it up are zeros.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lamina.graph import index as ix
from lamina.ir.kernel import Store, free_axes, loads_beneath
from lamina.ir.node import Node
from lamina.loops.nest import Nest
from lamina.targets.c.operations import ELEMENTS, TYPES, CLanguage
from lamina.targets.c.printer import TRANSPOSES, CPrinter
from lamina.targets.kernel import index_and_condition
from lamina.targets.language import Point, Value, Values
from lamina.targets.parts import LoopPart, Vector, Word
from lamina.targets.values import load_of

DOTS = "c/dots.c"
WORD = 4  # bytes


@dataclass(frozen=True)
class _Strides:
    """By how many elements an index grows along a byte axis: from a word to the next, and from a
    byte to the next in a word."""

    of_words: int
    of_bytes: int


class DotPrinter(CPrinter):
    """One kernel function, which may have axes bound to ``dot``."""

    def __init__(self, nest: Nest, name: str, language: CLanguage) -> None:
        super().__init__(nest, name, language)
        # Of open axes bound to ``dot``, and of byte axes: the bytes of a word that are there.
        self.bytes_there: dict[Node, int] = {}

    def _bind(self, axis: Node, loop_part: LoopPart) -> None:
        """Make `axis` known, and of one bound to ``dot`` how many bytes of a word are there."""
        super()._bind(axis, loop_part)
        if isinstance(loop_part, Word):
            self.bytes_there[axis] = loop_part.bytes_there

    def _dot_axis(self, node: Node) -> Node | None:
        """The axis bound to ``dot`` that `node` varies along, if any."""
        return next((axis for axis in free_axes(node) if self.nest.bound(axis) == "dot"), None)

    # Sums.

    def term(self, reduction: Node, point: Point) -> Values:
        """Of a sum of products of bytes the two factors, as byte vectors."""
        dot_axis = self._dot_axis(reduction.src[0])
        if dot_axis is None:
            return super().term(reduction, point)
        # The factors are casts of bytes to int32, which the instruction does itself.
        factors = [cast.src[0] for cast in reduction.src[0].src]
        return tuple(self._byte_vector(factor, point, dot_axis) for factor in factors)

    def print_addition(self, reduction: Node, running: Values, term: Values) -> None:
        """``sum_3 = DOT(i32x16, sum_3, u8, load_1, i8, load_2);``."""
        if self._dot_axis(reduction.src[0]) is None:
            super().print_addition(reduction, running, term)
            return
        (total,) = running
        self.language.use_text(DOTS, total.lanes)
        factors = ", ".join(f"{TYPES[factor.dtype]}, {factor.text}" for factor in term)
        kind = self.language.type(total)
        self.line(f"{self.guard}{total.text} = DOT({kind}, {total.text}, {factors});")

    # Byte vectors.

    def value_of_root(self, root: Node, point: Point) -> Value:
        """`root`; of bytes that fill scratch memory, as a byte vector."""
        dot_axis = self._dot_axis(root)
        if dot_axis is None:
            return super().value_of_root(root, point)
        return self._byte_vector(root, point, dot_axis)

    def print_store(self, store: Store, value: Value, point: Point) -> None:
        """Print a store; along an axis bound to ``dot`` that of a byte vector."""
        dot_axis = self._dot_axis(store.index)
        if dot_axis is None:
            super().print_store(store, value, point)
            return
        with self._along_bytes(store.index, dot_axis) as index:
            super().print_store(replace(store, index=index), value, point)

    def _byte_vector(self, value: Node, point: Point, dot_axis: Node) -> Value:
        """Bytes that vary along `dot_axis`: four for each lane of the vector axis, if they vary
        along that too.

        ``x[i, q]`` with 16 lanes along i is a vector of 64 bytes, whose byte b is
        ``x[b // 4, b % 4]``; ``y[q]`` is one of 4 bytes.
        """
        # `value` looks up what is in scratch memory by its node, which is another one along bytes.
        loads = {fill.value: load_of(fill) for fill in self.nest.fills if fill.value in self.filled}
        with self._along_bytes(ix.replaced(value, loads), dot_axis) as along_bytes:
            self.language.use_text(DOTS, self._words(self._byte_axis()))
            return super().value_of_root(along_bytes, point)

    @contextmanager
    def _along_bytes(self, value: Node, dot_axis: Node) -> Iterator[Node]:
        """`value` with a byte axis, which is the only vector axis inside of the ``with``, in place
        of `dot_axis` and of the vector axis that it varies along, if there is one.

        ``x[100 * i + q]`` with 16 lanes along i becomes ``x[100 * (b // 4) + b % 4]``, where b has
        64 lanes. ``y[q]`` stays as it is: q is the byte axis.
        """
        vectors_outside = self.vectors
        free = free_axes(value)
        lane_axis = next((axis for axis in vectors_outside if axis in free), None)
        if lane_axis is None:
            self.vectors = {dot_axis: Vector(0, WORD)}
        else:
            lanes = vectors_outside[lane_axis]
            # The axis has the bytes before the vector's too: a last vector of 4 lanes after 16 has
            # the bytes from 64 to 79, and its index is not simplified as if they began at 0.
            byte_axis = ix.axis(-1, WORD * (lanes.first + lanes.lanes))
            word, byte = ix.divided(byte_axis, WORD)
            value = ix.replaced(value, {lane_axis: word, dot_axis: byte})
            self.vectors = {byte_axis: Vector(WORD * lanes.first, WORD * lanes.lanes)}
            self.depth_of[byte_axis] = self.depth_of[dot_axis]
            self.bytes_there[byte_axis] = self.bytes_there[dot_axis]
        yield value
        self.vectors = vectors_outside

    def _byte_axis(self) -> Node:
        """The byte axis, inside `_along_bytes`."""
        (byte_axis,) = self.vectors
        return byte_axis

    def _words(self, byte_axis: Node) -> int:
        """The words of a vector along `byte_axis`."""
        return self.vectors[byte_axis].lanes // WORD

    # Loads.

    def load(self, node: Node, point: Point) -> Value:
        """A load; along a byte axis the first of these that fits:

        - of a condition, or of data as an index: as any vector of bytes; byte by byte if bytes of a
          word lack
        - of words that are neighbours in memory byte for byte: vectors of bytes in turns
        - of words that lack bytes, or whose bytes are not neighbours: byte by byte
        - of whole words: `_load_words`
        """
        byte_axis = next((axis for axis in self.vectors if axis in self.bytes_there), None)
        if byte_axis is None or byte_axis not in free_axes(node):
            return super().load(node, point)
        index, condition = index_and_condition(node)
        strides = self._strides(index, byte_axis)
        is_whole = self._is_whole(node, byte_axis)
        if strides is None or condition is not ix.TRUE:
            if is_whole:
                return super().load(node, point)
            return self._load_bytes(node, point, byte_axis)
        place = self._place(node, point, byte_axis, strides)
        if strides.of_words == 1:
            return self._load_in_turns(node, place, strides.of_bytes, byte_axis)
        if strides.of_bytes != 1 or not is_whole:
            return self._load_bytes(node, point, byte_axis)
        return self._load_words(node, point, place, strides)

    def _is_whole(self, load: Node, byte_axis: Node) -> bool:
        """Has every word that is read four bytes? Scratch memory has zeros where bytes lack."""
        array = self.nest.kernel.parameters[load.arg.parameter]
        return self.bytes_there[byte_axis] == WORD or array.memory == "scratch"

    def _strides(self, index: Node, byte_axis: Node) -> _Strides | None:
        """By how many elements `index` grows from word to word and from byte to byte along the byte
        axis b: (100, 1) for ``100 * (b // 4) + b % 4`` and (4, 1) for ``b``. None if b is in
        another term too, so that the growth varies."""
        terms, _ = ix.terms_of(index)
        word, byte = ix.divided(byte_axis, WORD)
        if byte_axis in terms:
            stride = terms.pop(byte_axis)
            strides = _Strides(WORD * stride, stride)
        else:
            strides = _Strides(terms.pop(word, 0), terms.pop(byte, 0))
        is_constant = all(byte_axis not in free_axes(term) for term in terms)
        return strides if is_constant else None

    def _place(self, load: Node, point: Point, byte_axis: Node, strides: _Strides) -> str:
        """The address of the first byte of a byte vector: ``p1 + 256 * k_outer + 16``."""
        index, _ = index_and_condition(load)
        place = f"p{load.arg.parameter} + {self.index_text(index, point)}"
        # A byte axis that is a term of the index counts in `index_text` by its first lane. The
        # terms ``b // 4`` and ``b % 4`` count as 0 there, as data do: the first word is added here.
        first_word = self.vectors[byte_axis].first // WORD
        if byte_axis not in ix.terms_of(index)[0] and first_word:
            place += f" + {strides.of_words * first_word}"
        return place

    def _load_bytes(self, node: Node, point: Point, byte_axis: Node) -> Value:
        """Bytes that are read one by one, as scalars, and zeros where a word has fewer:
        ``(u8x4){load_38, load_39, 0, 0}``."""
        count = self.vectors[byte_axis].lanes
        texts = ["0"] * count
        for byte, lane_point in enumerate(self.each_lane(byte_axis, point)):
            if byte % WORD < self.bytes_there[byte_axis]:
                texts[byte] = self.value(node, lane_point).text
        kind = self.language.vector_type(ELEMENTS[node.dtype], count)
        return Value(f"({kind}){{{', '.join(texts)}}}", node.dtype, count)

    def _load_in_turns(self, node: Node, place: str, stride: int, byte_axis: Node) -> Value:
        """Words that are neighbours byte for byte, as columns of a row-major factor, whose four
        bytes are in four rows: each row is a vector, whose bytes take turns. The rows are `stride`
        elements apart; those beyond the end are zeros.

        Of 64 columns, and 16 words: ``(i8x64)in_turns_16(*(i8x16r *)(p1 + 256 * k_outer + 0), ...
        *(i8x16r *)(p1 + 256 * k_outer + 192))``.
        """
        words = self._words(byte_axis)
        kind = self.language.vector_type(ELEMENTS[node.dtype], WORD * words)
        row_kind = self.language.vector_type("i8", words)
        there = self.bytes_there[byte_axis]
        rows = [f"*({row_kind}r *)({place} + {stride * row})" for row in range(there)]
        rows += [f"({row_kind}){{0}}"] * (WORD - there)
        text = f"({kind})in_turns_{words}({', '.join(rows)})"
        return Value(text, node.dtype, WORD * words)

    def _load_words(self, node: Node, point: Point, place: str, strides: _Strides) -> Value:
        """Whole words of neighbouring bytes: neighbours in memory, ``WORDS_AT(i8x64, 16, p1 + 64)``
        of 16 words; columns of a square of words; or one by one."""
        words = self._words(self._byte_axis())
        count = WORD * words
        kind = self.language.vector_type(ELEMENTS[node.dtype], count)
        self.language.use_text(DOTS, words)
        if words == 1 or strides.of_words == WORD:
            self.prefetches.print_of_vector(node, point, place)
            return Value(f"WORDS_AT({kind}, {words}, {place})", node.dtype, count)
        rows = self._rows_of_words(node, words)
        if rows is not None:
            return self._load_column_of_words(node, point, rows, strides)
        every_word = ", ".join(
            f"WORD_AT({place} + {strides.of_words * number})" for number in range(words)
        )
        text = f"({kind})({self.language.vector_type('i32', words)}){{{every_word}}}"
        return Value(text, node.dtype, count)

    def _rows_of_words(self, load: Node, words: int) -> Node | None:
        """The unrolled axis along which words are neighbours in memory, if it is as long as the
        vectors of words: these are the columns of a square block."""
        terms, _ = ix.terms_of(load.src[0])
        for axis, unrolled in self.unrolled.items():
            if unrolled.copies == words and terms.get(axis) == WORD:
                return axis
        return None

    def _load_column_of_words(
        self, node: Node, point: Point, rows: Node, strides: _Strides
    ) -> Value:
        """Read a square block of words along its rows, transpose it in registers, and remember a
        vector for each of its columns. The result is that of `point`.

        16 rows of 66 bytes: ``WORDS_TRANSPOSED(i32x16, columns_1, 16, p1 + 64 * k_outer, 66)``.
        """
        byte_axis = self._byte_axis()
        words = self._words(byte_axis)
        word_kind = self.language.vector_type("i32", words)
        kind = self.language.vector_type(ELEMENTS[node.dtype], WORD * words)
        self.language.use_text(TRANSPOSES, words)
        first = self._place(node, point | {rows: 0}, byte_axis, strides)
        name = self.fresh_name("columns")
        self.line(f"WORDS_TRANSPOSED({word_kind}, {name}, {words}, {first}, {strides.of_words})")
        cache = self.scopes[-1].cache
        for number in range(words):
            column = Value(f"({kind}){name}[{number}]", node.dtype, WORD * words)
            cache[self.key(node, point | {rows: number})] = column
        return cache[self.key(node, point)]

    def contiguous_axis(self, fill: Store) -> Node | None:
        """The axis of `fill` along which neighbours are neighbours in the array that it reads. Of
        the bytes of a word, which are read at once, it is that of neighbouring words."""
        contiguous = super().contiguous_axis(fill)
        if contiguous is None or self.nest.bound(contiguous) != "dot":
            return contiguous
        loads = loads_beneath([fill.value])
        strides = [ix.terms_of(load.src[0])[0] for load in loads]
        for axis in fill.axes:
            if any(terms.get(axis) == WORD for terms in strides):
                return axis
        return None
