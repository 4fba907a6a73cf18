"""GGUF files made by hand, field by field, so that each field can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(name: str, code: int, payload: bytes) -> bytes:
    """An entry of the metadata."""
    return text(name) + struct.pack("<I", code) + payload


def array(code: int, count: int, payload: bytes = b"") -> bytes:
    return struct.pack("<IQ", code, count) + payload


def entry(
    name: str = "w", sizes: Sequence[int] = (4,), code: int = 0, offset: int = 0,
    rank: int | None = None,
) -> bytes:  # fmt: skip
    """The description of a tensor, innermost size first."""
    rank = len(sizes) if rank is None else rank
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", rank, *sizes, code, offset)


@dataclass
class Draft:
    """What a file is made of; counts are those of the lists unless they are given."""

    magic: bytes = b"GGUF"
    version: int = 3
    metadata: list[bytes] = field(default_factory=list)
    entries: list[bytes] = field(default_factory=list)
    data: bytes = b""
    tensor_count: int | None = None
    metadata_count: int | None = None

    def packed(self) -> bytes:
        tensors = len(self.entries) if self.tensor_count is None else self.tensor_count
        values = len(self.metadata) if self.metadata_count is None else self.metadata_count
        head = self.magic + struct.pack("<IQQ", self.version, tensors, values)
        head += b"".join(self.metadata + self.entries)
        return head + bytes(-len(head) % 32) + self.data
