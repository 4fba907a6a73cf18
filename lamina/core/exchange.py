"""What a collective operation asks of the engine that carries it out among processes."""

from dataclasses import dataclass

from lamina.core.dtypes import SHORT, DType
from lamina.core.shape import Shape, prod


def place_of(rank: int, ranks: int, stride: int) -> int:
    """The place of `rank` in its group: of 4 ranks in groups of 2 with a stride of 2, (0, 2) and
    (1, 3), rank 3 is at 1."""
    return rank // stride % ranks


def group_of(rank: int, ranks: int, stride: int) -> tuple[int, ...]:
    """The ranks of the group of `rank`, in order."""
    first = rank - place_of(rank, ranks, stride) * stride
    return tuple(first + place * stride for place in range(ranks))


@dataclass(frozen=True)
class Exchange:
    """One collective operation on arrays in memory, row-major.

    operation   "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all" or
                "collective_permute"
    combine     the name of a monoid, such as "ADD"; "" where nothing is combined
    shape       of the operand
    ranks       of a group, which are `stride` apart
    root        of a broadcast, its place in the group
    targets     of a permute, for each place the one that it sends to, -1 for none
    """

    operation: str
    combine: str
    dtype: DType
    shape: Shape
    ranks: int
    stride: int
    root: int = 0
    targets: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Elements of the operand."""
        return prod(self.shape)

    @property
    def result_size(self) -> int:
        """Elements of the result."""
        if self.operation == "all_gather":
            return self.size * self.ranks
        if self.operation == "reduce_scatter":
            return self.size // self.ranks
        return self.size

    @property
    def sent_bytes(self) -> float:
        """What each process sends at least: see the table of `docs/distributed.md`."""
        operand = float(self.size * self.dtype.itemsize)
        share = operand * (self.ranks - 1) / self.ranks
        of_operation = {
            "all_reduce": 2 * share,
            "all_gather": operand * (self.ranks - 1),
            "reduce_scatter": share,
            "all_to_all": share,
        }
        return of_operation.get(self.operation, operand)

    def __str__(self) -> str:
        words = [self.operation, self.combine, f"{SHORT[self.dtype]}[{self._sizes}]"]
        if self.operation == "broadcast":
            words.append(f"from {self.root}")
        if self.targets:
            words.append(f"to {self.targets}")
        words.append(f"among {self.ranks} ranks")
        if self.stride > 1:
            words.append(f"{self.stride} apart")
        return " ".join(word for word in words if word)

    @property
    def _sizes(self) -> str:
        return ",".join(map(str, self.shape))
