"""Results that PyTorch's operations have and lamina's do not."""

from __future__ import annotations

from enum import Enum


class Unread(Enum):
    """In place of a result that only the derivative's operation reads, whose row does without."""

    RESULT = "unread"
