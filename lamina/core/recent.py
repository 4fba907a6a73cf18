"""Tables that forget the keys which nobody asked for in a while."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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


class Kept(Generic[P, T]):
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


def kept(size: int) -> Callable[[Callable[P, T]], Kept[P, T]]:
    """A decorator that makes a `Kept` of a function."""
    return lambda function: Kept(function, size)
