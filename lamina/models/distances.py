"""Distances of tokens in buckets, each of which has a learned number.

Source: Raffel et al. 2019, "Exploring the limits of transfer learning with a unified text-to-text
transformer", section 2.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

__all__ = ["Distances"]


@dataclass(frozen=True)
class Distances:
    """Distances of tokens are in buckets. The first half of these have one distance each, the
    others longer and longer stretches, up to `farthest` and what is beyond it. Where tokens see
    those that follow as well, half of all buckets are for these."""

    buckets: int
    farthest: int

    def table(self, is_causal: bool) -> Any:
        """The bucket of each distance from 0 to `farthest`: NumPy's int64."""
        import numpy as np

        buckets = self.buckets if is_causal else self.buckets // 2
        single = buckets // 2
        distances = np.arange(self.farthest + 1)
        ratios = np.log(np.maximum(distances, single).astype(np.float32) / np.float32(single))
        shares = ratios / np.float32(math.log(self.farthest / single))
        far = single + (shares * np.float32(buckets - single)).astype(np.int64)
        return np.where(distances < single, distances, np.minimum(far, buckets - 1))
