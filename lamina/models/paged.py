"""Keys and values of many texts in pages: texts grow page by page, and share what begins alike.

A page has room for some positions of one text, in each layer. A table says, for each text, which
page has which part of it, so that programs are the same wherever pages are:

    table      [[7, 2, 9], [7, 5, N]]     of 9 pages, numbered from 0; N = 9 is no page
    text 0     positions 0 to 15 in page 7, then 16 to 31 in page 2, ...
    text 1     begins with the same 16 tokens, then goes on in page 5

Source: Kwon et al. 2023, "Efficient memory management for large language model serving with
PagedAttention".
"""

from __future__ import annotations

from dataclasses import dataclass

from lamina.core.dtypes import DType, float32
from lamina.frontend.functions.elementwise import where
from lamina.frontend.functions.indexing import take, take_along_axis
from lamina.frontend.functions.movement import permute_dims
from lamina.frontend.tensor import Tensor
from lamina.models.parts import Places
from lamina.models.vector_cache import VectorCache, Vectors

__all__ = ["PagedCache", "PagedTexts"]


class PagedCache:
    """Keys and values of one layer: (heads, pages * page_size, size), floats of `dtype` or int8, as
    `lamina.models.vector_cache.VectorCache` says. Raises OutOfMemoryError where there is no room
    for them."""

    def __init__(
        self, heads: int, pages: int, page_size: int, size: int, device: str | None = None,
        dtype: DType = float32,
    ) -> None:  # fmt: skip
        self.pages, self.page_size = pages, page_size
        shape = (heads, pages * page_size, size)
        self.keys = VectorCache(shape, dtype, device)
        self.values = VectorCache(shape, dtype, device)

    def texts(self, table: Tensor) -> PagedTexts:
        """What the texts have whose pages are the rows of `table`, integers (batch, count). An
        entry that is no page, `pages` or more, reads zeros, and drops what is written."""
        return PagedTexts(self, table)


@dataclass(frozen=True, eq=False)
class PagedTexts:
    """The keys and values of some texts in a `PagedCache`, as `lamina.models.parts.KeyValues`."""

    cache: PagedCache
    table: Tensor

    def extended(self, keys: Tensor, values: Tensor, places: Places) -> tuple[Vectors, Vectors]:
        """Keep new ones, (batch, heads, length, size); `places` has a place for each text. Returns
        all of them, (batch, heads, count * page_size, size)."""
        rows = self._rows(places)
        for kept, new in ((self.cache.keys, keys), (self.cache.values, values)):
            by_heads = new.transpose(0, 1).reshape((new.shape[1], -1, new.shape[3]))
            kept.put(1, rows, by_heads)
        all_keys, all_values = self.cache.keys.vectors, self.cache.values.vectors
        return all_keys.selected(self._all), all_values.selected(self._all)

    def _rows(self, places: Places) -> Tensor:
        """Where in the cache the tokens of a call are kept: integers (batch * length,)."""
        size, (batch, count) = self.cache.page_size, self.table.shape
        positions = places.positions().reshape((batch, places.length))
        number = positions // size  # of the page in its text
        # Beyond the table there is no page.
        page = where(number < count, take_along_axis(self.table, number, axis=1), self.cache.pages)
        # In memory: each layer would compute them again.
        return (page * size + positions % size).reshape((-1,)).contiguous()

    def _all(self, held: Tensor) -> Tensor:
        heads, _, size = held.shape
        pages = held.reshape((heads, self.cache.pages, self.cache.page_size, size))
        texts = permute_dims(take(pages, self.table, axis=1), (1, 0, 2, 3, 4))
        return texts.reshape((self.table.shape[0], heads, -1, size))
