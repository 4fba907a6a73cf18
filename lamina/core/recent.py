"""Caches: tables that forget the keys which nobody asked for in a while.

`CACHES` lists them all, so that they can be counted and emptied together. What is known of the
machine, such as its compilers and devices, is no cache: it stays.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, update_wrapper
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Cache:
    """One cache of the process.

    name: of the function or the table. size: how many results it keeps. clear: empties it."""

    name: str
    size: Callable[[], int]
    clear: Callable[[], object]


CACHES: list[Cache] = []


def forget() -> None:
    """Empty every cache."""
    for one in CACHES:
        one.clear()


class Recent(Generic[T]):
    """The values of the `size` keys that were last asked for. Threads share it without a lock:
    each change is one operation of a dict, and at worst a value is made twice."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: OrderedDict[Hashable, T] = OrderedDict()

    def get(self, key: Hashable) -> T | None:
        value = self._values.pop(key, None)
        if value is not None:
            self._values[key] = value
        return value

    def put(self, key: Hashable, value: T) -> None:
        self._values[key] = value
        while len(self._values) > self.size:
            self._values.popitem(last=False)

    def discard(self, key: Hashable) -> None:
        self._values.pop(key, None)

    def clear(self) -> None:
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)


class CacheInfo(NamedTuple):
    """How often a result was there, how often it had to be made, and how many are kept."""

    hits: int
    misses: int
    currsize: int


class Cached(Generic[P, T]):
    """`function`, whose results for the `size` arguments that were last asked for are kept, as by
    `functools.lru_cache`; a single one can be dropped. Results are not None, arguments positional.
    """

    def __init__(self, function: Callable[P, T], size: int) -> None:
        update_wrapper(self, function)
        self._function = function
        self._results: Recent[T] = Recent(size)
        self._hits = self._misses = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        assert not kwargs
        result = self._results.get(args)
        if result is not None:
            self._hits += 1
            return result
        self._misses += 1
        result = self._function(*args, **kwargs)
        self._results.put(args, result)
        return result

    def drop(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Keep the result for these arguments no longer."""
        self._results.discard(args)

    def cache_info(self) -> CacheInfo:
        return CacheInfo(self._hits, self._misses, len(self._results))

    def cache_clear(self) -> None:
        self._results.clear()
        self._hits = self._misses = 0


def cached(size: int) -> Callable[[Callable[P, T]], Cached[P, T]]:
    """A decorator that makes a `Cached` of a function."""

    def decorate(function: Callable[P, T]) -> Cached[P, T]:
        made = Cached(function, size)
        name = f"{function.__module__}.{function.__qualname__}"
        CACHES.append(Cache(name, lambda: made.cache_info().currsize, made.cache_clear))
        return made

    return decorate


def memoized(size: int) -> Callable[[F], F]:
    """A decorator: `functools.lru_cache` for a function of its arguments alone."""

    def decorate(function: F) -> F:
        cached = lru_cache(size)(function)
        name = f"{function.__module__}.{function.__qualname__}"
        CACHES.append(Cache(name, lambda: cached.cache_info().currsize, cached.cache_clear))
        return cast(F, cached)

    return decorate


def recent(name: str, size: int) -> Recent[Any]:
    """A table of the last `size` keys that is one of the `CACHES`."""
    table: Recent[Any] = Recent(size)
    CACHES.append(Cache(name, table.__len__, table.clear))
    return table
